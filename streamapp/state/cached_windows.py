"""Window stores with a record cache (`cache.py`)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from streamapp.records import Windowed
from streamapp.state.cache import RecordCache
from streamapp.state.cache_entry import CacheEntry, LeastRecentlyUsed
from streamapp.state.cache_order import CacheOrder
from streamapp.state.cached_times import WALKED, CachedTimes
from streamapp.state.formats import LONG, MAX_LONG
from streamapp.state.window import TimestampedWindowStore, WindowStore
from streamapp.state.write_behind import Fold, Row, Write

__all__ = ["CachedTimestampedWindowStore", "CachedWindowStore"]


class CachedWindowStore(CachedTimes, WindowStore):
    """A window store with a record cache.

    Stores of sliding windows with final results are *indexed*, and so are stores with final results in the headers
    format. As in Kafka Streams, the cache of an indexed store has a second entry for each row, the *index entry*,
    without a value. The index entry takes memory, and the cache evicts it on its own. If the evicted index entry has
    changed since the last flush, the store flushes all changed rows.
    """

    def attach(self, cache: RecordCache) -> None:
        super().attach(cache)
        self._clean_to = 0
        """The number of an indexed store's last flush. Index entries with a lower number have not changed since."""
        self._indexes: dict[Any, CacheEntry] = {}
        """The index entries by the keys of their rows; empty in a store without an index."""
        self._deleted: dict[Any, list[Any]] = {}
        """The slots of each key's rows that were deleted since the last flush, in order. A look-up of the key also
        counts as a use of these rows."""
        self._by_time_order = CacheOrder(self._held, self._place_by_time)
        """The rows ordered by time, then key."""
        self._index_waits = False
        """True from the rewrite of a row until its index entry is put. The cache makes room for the row between."""
        self._alone: set[Any] = set()
        """Rows whose index entry has changed since the last flush, but whose own entry has not. Keys of rows that have
        left the cache may remain."""
        if self._indexed:
            self._begin_news = self._begin_indexed  # type: ignore[method-assign]

    @property
    def below_cache(self) -> Any:
        return _LiveWindows(self)

    def _eldest_first(self) -> LeastRecentlyUsed:
        self._evictable = {} if self._indexed else self._held
        """The entries of rows by the keys of the rows, and in an indexed store the index entries by (row key,)."""
        return LeastRecentlyUsed(self._evictable, self._use)

    def _caching(self, write: Write) -> Write:
        put = super()._caching(write)
        if not self._indexed:
            return put

        def put_and_index(row_key: Any, row: Row) -> None:
            put(row_key, row)
            self._put_index(row_key)

        return put_and_index

    def _rewriting(self) -> Write:
        rewrite = super()._rewriting()
        if not self._indexed:
            return rewrite

        def rewrite_and_wait(row_key: Any, row: Row) -> None:
            rewrite(row_key, row)
            self._index_waits = True

        return rewrite_and_wait

    def _folder(
        self, initializer: Callable[[], Any], aggregator: Callable[[Any, Any, Any], Any], keep_old: bool
    ) -> Fold:
        fold = super()._folder(initializer, aggregator, keep_old)
        if not self._indexed:
            return fold

        def fold_and_index(row_key: Any, key: Any, value: Any, timestamp: int) -> tuple[Any, Any, int]:
            folded = fold(row_key, key, value, timestamp)
            if self._index_waits:
                self._index_waits = False
                self._put_index(row_key)
            return folded

        return fold_and_index

    def _put_index(self, row_key: Any) -> None:
        if row_key in self._held and row_key not in self._news:
            self._alone.add(row_key)  # another entry had to leave for the row, which flushed the row
        else:
            self._alone.discard(row_key)
        entry = self._indexes.get(row_key)
        if entry is None:
            entry = self._indexes[row_key] = self._evictable[(row_key,)] = CacheEntry()
            entry.size, entry.used = self._beside_key + self._key_size(row_key[0]), 0
            entry.number = self._use()
            self._grow(entry.size)
        else:
            entry.number = self._use()

    def _begin_indexed(self, row_key: Any) -> CacheEntry:
        entry = super()._begin_news(row_key)
        self._evictable[row_key] = entry
        return entry

    def flush(self) -> None:
        if not self._indexed:
            super().flush()
            return
        told = self._take_changed()
        if told:
            self._flush(told)

    def _take_changed(self) -> list[tuple[Any, CacheEntry]]:
        """The rows for a flush of an indexed store. Afterwards, all entries count as unchanged.

        A row has the place of its own entry or of its index entry, whichever was put first. If the place is that of the
        index entry, Kafka Streams reads the row, so the row counts as used.
        """
        news, held, indexes, clean_to = self._news, self._held, self._indexes, self._clean_to
        changed = []
        for row_key, entry in news.items():
            index = indexes.get(row_key)
            if index is not None and clean_to < index.number < entry.number:
                changed.append((index.number, row_key, entry))
            else:
                changed.append((entry.number, row_key, entry))
        for row_key in self._alone:
            if row_key in held and row_key not in news:
                entry = held[row_key]
                entry.before = entry.row
                changed.append((indexes[row_key].number, row_key, entry))
        changed.sort()  # no two numbers are equal
        news.clear()
        self._alone.clear()
        self._clean_to = self._use()
        for number, _, entry in changed:
            if number != entry.number:
                entry.used = self._use()
        return [(row_key, entry) for _, row_key, entry in changed]

    def _take_by_index(self, row_key: Any) -> list[tuple[Any, CacheEntry]]:
        """The row of an index entry that has changed, if the cache still has the row. The row counts as used."""
        entry = self._news.pop(row_key, None)
        if entry is None and row_key in self._alone:
            entry = self._held.get(row_key)
            if entry is not None:
                entry.before = entry.row
        self._alone.discard(row_key)
        if entry is None:
            return []
        entry.used = self._use()
        return [(row_key, entry)]

    def _make_room(self) -> None:
        if not self._indexed:
            super()._make_room()
            return
        cache, evictable = self._cache, self._evictable
        while evictable and cache.used > cache.max_bytes:
            key, entry = self._by_use.find()
            if len(key) > 1:
                self._leave(key)
                told = [] if self._news.pop(key, None) is None else [(key, entry)]
                dirty = bool(told)
            else:
                row_key = key[0]
                del self._indexes[row_key], evictable[key]
                dirty = entry.number > self._clean_to
                told = self._take_by_index(row_key) if dirty else []
            if dirty:
                told += self._take_changed()
                self._flush(told)
            self._take_out(key, entry)

    def _note_deletion(self, row_key: Any) -> None:
        insort(self._deleted.setdefault(row_key[0], []), self._slot(row_key))

    def _flush(self, told: list[tuple[Any, CacheEntry]]) -> None:
        super()._flush(told)
        if not self._news:
            self._deleted.clear()

    def _deleted_of(self, key: Any, time_from: int, time_to: int) -> list[Any]:
        """The slots of a key's deleted rows that are still in the cache. Only the cache knows these rows."""
        slots = self._deleted.get(key)
        if slots is None:
            return []
        low, high = bisect_left(slots, (time_from,)), bisect_right(slots, (time_to, MAX_LONG))
        return [
            slot
            for slot in dict.fromkeys(slots[low:high])
            if (entry := self._held.get((key, *slot))) is not None and entry.row[0] is None
        ]

    def _leave(self, row_key: Any) -> None:
        super()._leave(row_key)
        self._evictable.pop(row_key, None)
        self._by_time_order.leave(row_key)

    def _visible(
        self, low: bytes | None, high: bytes | None, time_from: int, time_to: int, reverse: bool = False
    ) -> Iterator[tuple[bytes, Row]]:
        if len(self._held) > WALKED or (self._inclusive and (reverse or low is not None or high is not None)):
            return super()._visible(low, high, time_from, time_to, reverse)
        if self._inclusive:
            self._use_scanned(time_from, time_to)
        else:
            self._use_passed(low, high, time_from, time_to, reverse)
        return self._shown_between(low, high, time_from, time_to, reverse)

    def _use_passed(
        self, low: bytes | None, high: bytes | None, time_from: int, time_to: int, reverse: bool
    ) -> None:
        """Marks the entries that a scan over several keys passes in Kafka Streams, deletions included.

        The scan goes through each segment from the lowest to the highest key. Without a bound, the scan goes to the end
        of the cache. In memory, the scan goes from the lowest key at time 0 to the highest key at ``time_to``.
        """
        if time_to < 0:
            return
        order, segment = self._order_of_cache, self._segment
        time_from, time_to = min(max(time_from, 0), MAX_LONG), min(time_to, MAX_LONG)
        if low is None and high is None:
            self._use_each(order.between(None, None, reverse))
            return
        if self._exact:
            self._use_between((0, low, 0), (time_to, high, time_to), reverse)
            return
        since, until = time_from // segment, min(time_to, self._latest) // segment
        numbers = {until if reverse else since}  # a scan begins even if no row is in its times
        if since < until:
            numbers.add(since if reverse else until)
        place = order.first((since,))
        while place is not None and place[0] <= until:
            numbers.add(place[0])
            place = order.first((place[0] + 1,))
        for number in sorted(numbers, reverse=reverse):
            first, last = 0, time_to
            if low == high:
                first = time_from if number == since and not reverse else number * segment
                last = min(time_to, (number + 1) * segment - 1)
            self._use_between((number, low, first), (number, high, last), reverse)

    def _use_between(
        self, first: tuple[int, bytes | None, int], last: tuple[int, bytes | None, int], reverse: bool
    ) -> None:
        """Marks the entries between two places, both inclusive. A place is a segment, a key and a time; a key that is
        None is no bound."""
        start = end = None
        number, key, time = first
        if key is not None:
            start = number, key + LONG.pack(time)
        number, key, time = last
        if key is not None:
            end = number, key + LONG.pack(time) + b"\x7f\xff\xff\xff\xff"
        self._use_each(self._order_of_cache.between(start, end, reverse))

    def _place_in_cache(self, row_key: Any) -> tuple[int, bytes, Any]:
        if self._inclusive:  # a scan of `on_window_close` goes by time
            return row_key[1], self._row_bytes(row_key), row_key
        return super()._place_in_cache(row_key)

    def _use_scanned(self, time_from: int, time_to: int) -> None:
        """Marks the entries that a scan of `on_window_close` passes in Kafka Streams, deletions included.

        The scan goes by time, and notices its end at the first entry after ``time_to``. This entry also counts as used
        if it is in the last segment of the scan.
        """
        order, segment = self._order_of_cache, self._segment
        last_segment = min(time_to, self._latest) // segment
        self._use_each(order.between((time_from,), (min(time_to + 1, (last_segment + 1) * segment),)))
        behind = order.first((max(time_from, time_to + 1),))
        if behind is not None and behind[0] // segment <= last_segment:
            self._use_each([behind[-1]])

    def fetch(self, key: Any, time_from: int, time_to: int, reverse: bool = False) -> Iterator[Any]:
        return self._fetch(key, time_from, time_to, reverse, time_from)

    def scan_key(self, key: Any, time_from: int, time_to: int, reverse: bool = False) -> Iterator[Any]:
        return self._fetch(key, time_from, time_to, reverse, 0)

    def _fetch(self, key: Any, time_from: int, time_to: int, reverse: bool, walk_from: int) -> Iterator[Any]:
        """The rows of `fetch`. In memory, the walk over all keys begins at the time ``walk_from``."""
        rows = super().fetch(key, time_from, time_to, reverse)
        if key.__class__ is not self._key_class:
            key = self._keep_key(key)
        if time_from < self._min_live():
            expired = self._show_fetched(self._expired(key, max(time_from, 0), time_to))
            rows = chain(rows, reversed(expired)) if reverse else chain(expired, rows)
        if not self._held:
            return rows
        shown = list(rows)
        if self._exact and len(self._held) <= WALKED:
            passed = iter(self._walked(self._keys.to_bytes(key), walk_from, time_to, reverse))
        else:
            passed = self._passed(key, [(row[0], 0) for row in shown], time_from, time_to, reverse)
        return self._using_each(key, shown, passed, time_from)

    def _using_each(self, key: Any, rows: list[Any], passed: Iterator[Any], time_from: int) -> Iterator[Any]:
        """Yields the rows, and marks each row's entry as used just before the row is given.

        A reader may write between two rows, so the order of uses and writes matters. As in Kafka Streams, the next
        entry is already marked if the next row is only in the store. ``passed`` are the rows that the look-up passes.
        """
        ahead = -1
        for row in rows:
            if ahead < 0:
                ahead = self._use_next(key, passed, time_from)
            yield row
            if row[0] == ahead:
                ahead = -1
        if ahead < 0:
            self._use_next(key, passed, time_from)

    def _use_next(self, key: Any, passed: Iterator[Any], time_from: int) -> int:
        """Marks entries as used, up to the next entry that the reader gets. Returns the start of this entry, or -1."""
        for row_key in passed:
            entry = self._held.get(row_key)
            if entry is not None:
                if (index := self._indexes.get(row_key)) is not None:
                    index.used = self._use()
                entry.used = self._use()
                if entry.row[0] is not None and row_key[1] >= time_from and row_key[0] == key:
                    return int(row_key[1])
        return -1

    def _passed(
        self, key: Any, shown: list[Any], time_from: int, time_to: int, reverse: bool
    ) -> Iterator[Any]:
        """The rows that Kafka Streams' cache would mark as used when one key is looked up. Some may not be in the
        cache.

        ``shown`` are the slots of the rows in the result. The function gives further rows, because Kafka Streams' cache
        passes over these rows, too. A backward look-up goes on to the start of its first segment, or of the newest
        segment if that is older.
        """
        if self._deleted:
            shown = sorted({*shown, *self._deleted_of(key, time_from, time_to)}, reverse=reverse)
        for slot in shown:
            yield key, *slot
        begin = min(time_from, self._latest) // self._segment * self._segment
        if reverse and begin < time_from:
            older = [slot for slot, _ in self._in_cache_of(key, begin, time_from - 1)]
            older += self._deleted_of(key, begin, time_from - 1)
            for slot in sorted(older, reverse=True):
                yield key, *slot

    def _walked(self, key: bytes, time_from: int, time_to: int, reverse: bool) -> list[Any]:
        """The rows in the cache from (``time_from``, ``key``) to (``time_to``, ``key``), ordered by time, then key.

        A look-up in memory passes them. A cache with more than `WALKED` entries leaves out the rows of other keys.
        """
        return self._by_time_order.between((time_from, key), (time_to, key + b"\0"), reverse)

    def _place_by_time(self, row_key: Any) -> tuple[int, bytes, Any]:
        return row_key[self._time_at], self._row_bytes(row_key)[: -self._suffix], row_key

    def _heard_key(self, row_key: Any) -> Windowed:
        key, start, _ = row_key
        return Windowed(self._keys.show(key), start, min(start + self._size, MAX_LONG))

    def _row_key(self, key: Windowed) -> Any:
        return super()._row_key(key.key), key.start, self._sequence


class CachedTimestampedWindowStore(CachedWindowStore, TimestampedWindowStore):
    pass


class _LiveWindows:
    """The reads for window queries (KIP-796), without windows that have expired in the store."""

    def __init__(self, store: CachedWindowStore) -> None:
        self._store = store

    def fetch(self, key: Any, time_from: int, time_to: int) -> Iterator[Any]:
        return self._store.fetch(key, max(time_from, self._store._min_live()), time_to)

    def fetch_all(self, time_from: int, time_to: int) -> Iterator[tuple[Any, ...]]:
        return self._store.fetch_all(max(time_from, self._store._min_live()), time_to)
