"""Record caches: downstream hears of the last update per key and commit only.

A cached store takes every write at once, so reads need no extra layer. What the cache holds is the
news: for each key that changed since the last flush what it was before, and the record that changed it
last. `Store.flush` tells the listener, in the order of the last updates, with the task's topic, offset,
timestamp and headers set to those of that record. The limit is Kafka Streams'
``statestore.cache.max.bytes``, which all stores of a process share: a store that finds it exceeded by
its own write makes room among its own rows (Kafka Streams' ThreadCache).
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import chain
from typing import Any

from streamapp.records import Headers, Windowed
from streamapp.state.backend import OrderedBytes
from streamapp.state.formats import MAX_LONG
from streamapp.state.key_value import KeyValueStore, PlainTableStore, TimestampedKeyValueStore
from streamapp.state.lru import LruStore, TimestampedLruStore
from streamapp.state.session import SessionStore
from streamapp.state.spec import StoreSpec
from streamapp.state.window import KeyImage, TimeBucketedStore, TimestampedWindowStore, WindowStore
from streamapp.state.write_behind import MISSING, FlushListener, Row, StoreContext, WriteBehindStore

__all__ = ["RecordCache", "cached_store"]

_ENTRY_BYTES = 70  # what Kafka Streams counts for an entry beside key, value and topic, roughly


_NO_VALUE = bytes(8)  # is counted for a deletion


def _length(value: Any) -> int:
    return len(value) if value.__class__ is bytes or value.__class__ is str else 8


class RecordCache:
    """The bytes that the caches of a process hold together, and may hold."""

    __slots__ = ("max_bytes", "used")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used = 0


# What a row was before, what it is; topic, offset, timestamp and headers of the record that changed it.
_News = tuple[Row, Row, str | None, int, int, Headers]


class _Cached(WriteBehindStore):
    cached = True

    def attach(self, cache: RecordCache) -> None:
        self._cache = cache
        self._news: dict[Any, _News] = {}
        self._news_bytes = 0
        self._write = super().put_row
        self._stored = super().row
        self._listener: FlushListener | None = None
        self._of_table = False
        """A table's: what was not there and is not there now does not leave the cache, whether or not somebody listens."""
        # Logged as it leaves the cache.
        self._log_at_flush, self._log_each = self._log_each, False

    def set_flush_listener(self, listener: FlushListener) -> None:
        self._listener, self._of_table = listener, True

    def let_through(self) -> None:
        """Nobody hears of updates: writes need no news, unless each of them is logged as it leaves the cache."""
        self._of_table = True
        if not self._log_at_flush:
            self.put_row = self._write  # type: ignore[method-assign]

    def put_row(self, row_key: Any, row: Row) -> None:
        task, news = self._task, self._news
        known = news.pop(row_key, None)
        if known is None:
            before = self._stored(row_key)
            size = _ENTRY_BYTES + _length(row[0])
        else:
            before = known[0]
            size = 0 if self._shown else len(row[0] or _NO_VALUE) - len(known[1][0] or _NO_VALUE)
        news[row_key] = (before, row, task.topic, task.offset, task.timestamp, task.headers)
        self._write(row_key, row)
        if size:
            self._news_bytes += size
            cache = self._cache
            cache.used += size
            if cache.used > cache.max_bytes:
                self._make_room()

    def flush(self) -> None:
        if not self._news:
            return
        task, listener, show = self._task, self._listener, self._values.show
        # The listener may put again, which is then news of its own.
        news, self._news = self._news, {}
        self._cache.used -= self._news_bytes
        self._news_bytes = 0
        current = task.topic, task.offset, task.timestamp, task.headers
        try:
            for row_key, (before, row, topic, offset, timestamp, headers) in news.items():
                old, new = self._leaves(row_key, before, row), row[0]
                if new is None and old is None and self._of_table:
                    continue
                task.topic, task.offset, task.timestamp, task.headers = topic, offset, timestamp, headers
                if self._log_at_flush:
                    self._log(row_key, row)
                if listener is not None:
                    listener(
                        self._heard_key(row_key),
                        None if new is None else show(new),
                        None if old is None else show(old),
                        self._heard_timestamp(row_key, row),
                        headers,
                    )
        finally:
            task.topic, task.offset, task.timestamp, task.headers = current

    def _leaves(self, row_key: Any, before: Row, row: Row) -> Any:
        """A row leaves the cache for the store; returns the value that the store had."""
        return before[0]

    def _make_room(self) -> None:
        self.flush()

    def close(self) -> None:
        self._cache.used -= self._news_bytes
        self._news_bytes = 0

    def _heard_key(self, row_key: Any) -> Any:
        return self._keys.show(row_key)

    def _heard_timestamp(self, row_key: Any, row: Row) -> int:
        return row[1]


class _CachedKeyValueStore(_Cached, KeyValueStore):
    pass


class _CachedTimestampedStore(_Cached, TimestampedKeyValueStore):
    pass


class _CachedPlainTableStore(_Cached, PlainTableStore):
    pass


class _CachedLruStore(_Cached, LruStore):
    def _evicted(self, row_key: Any, row: Row) -> None:
        # No news: downstream keeps what a bounded store forgets.
        self._dirty[row_key] = row
        if self._log_at_flush:
            self._log(row_key, row)


class _CachedTimestampedLruStore(_Cached, TimestampedLruStore):
    pass


class _CachedTimes(_Cached, TimeBucketedStore):
    """Windows and sessions: what the cache holds is seen though it has expired, until it must make room.

    So does Kafka Streams: the store's stream time advances, late rows are refused, and expired ones go out of
    sight when rows leave the cache for the store; the cache itself knows no time. What it shows and the store does
    not is looked up in `_rows`, which leaves the reads of what is live as they are.
    """

    def attach(self, cache: RecordCache) -> None:
        super().attach(cache)
        self._write = self._keep
        self._rows_bytes = 0
        self._rows: dict[Any, Row] = {}
        """What left the cache for the store and is still in the cache; least recently written first."""
        self._by_key: dict[Any, KeyImage] | None = None
        """What is in the cache by key, once somebody asks for rows that expired."""
        self._latest = self._observed

    def _keep(self, row_key: Any, row: Row) -> None:
        time = self._time(row_key)
        if time > self._latest:
            self._latest = time
        self._dirty[row_key] = row
        if self._images or self._old_images:
            self._keep_in_image(row_key, row)
        if self._by_key is not None:
            self._index(self._by_key, row_key, row)

    def row(self, row_key: Any) -> Row:
        known = self._news.get(row_key)
        if known is not None:
            return known[1]
        if self._time(row_key) >= self._min_live():
            return self._dirty.get(row_key) or self._read(row_key)
        return self._rows.get(row_key, MISSING)

    def let_through(self) -> None:
        """Here what the cache holds is also what reads see."""
        self._of_table = True

    def _leaves(self, row_key: Any, before: Row, row: Row) -> Any:
        old = None if self._time(row_key) < self._min_live() else before[0]
        earlier = self._rows.pop(row_key, None)
        if earlier is not None:
            self._count(earlier, -1)
        if row[0] is not None:
            self._rows[row_key] = row
            self._count(row, 1)
        if row[0] is not None or old is not None or not self._of_table:
            self._takes(row_key, row)
        return old

    def _make_room(self) -> None:
        self._evict()
        if self._cache.used > self._cache.max_bytes:
            self.flush()
            self._evict()

    def _evict(self) -> None:
        cache, rows = self._cache, self._rows
        while rows and cache.used > cache.max_bytes:
            row_key = next(iter(rows))
            self._count(rows.pop(row_key), -1)
            if self._by_key is not None and row_key not in self._news:
                self._index(self._by_key, row_key, MISSING)

    def _count(self, row: Row, sign: int) -> None:
        size = sign * (_ENTRY_BYTES + _length(row[0]))
        self._rows_bytes += size
        self._cache.used += size

    def close(self) -> None:
        super().close()
        self._cache.used -= self._rows_bytes
        self._rows_bytes = 0

    def _newest(self) -> int:
        return self._latest

    def _index(self, by_key: dict[Any, KeyImage], row_key: Any, row: Row) -> None:
        image = by_key.get(row_key[0])
        if image is None:
            image = by_key[row_key[0]] = KeyImage(0)
        image.put(self._slot(row_key), row)
        if not image.slots:
            del by_key[row_key[0]]

    def _expired(self, key: Any, time_from: int, time_to: int) -> list[tuple[Any, Row]]:
        """Slots and rows of a key that only the cache still shows."""
        time_to = min(time_to, self._min_live() - 1)
        if time_from > time_to:
            return []
        if self._by_key is None:
            self._by_key = {}
            for row_key, row in self._held():
                self._index(self._by_key, row_key, row)
        image = self._by_key.get(key if key.__class__ is self._key_class else self._keep_key(key))
        if image is None:
            return []
        slots = image.slots
        low, high = bisect_left(slots, (time_from,)), bisect_right(slots, (time_to, MAX_LONG))
        return list(zip(slots[low:high], image.rows[low:high], strict=True))

    def _held(self) -> Iterator[tuple[Any, Row]]:
        """All rows in the cache."""
        for row_key, row in self._rows.items():
            if row_key not in self._news:
                yield row_key, row
        for row_key, news in self._news.items():
            if news[1][0] is not None:
                yield row_key, news[1]

    def _visible(
        self, low: bytes | None, high: bytes | None, time_from: int, time_to: int, reverse: bool = False
    ) -> Iterator[tuple[bytes, Row]]:
        stored = super()._visible(low, high, time_from, time_to, reverse)
        expired_to = min(self._min_live() - 1, time_to)
        if time_from > expired_to:
            return stored
        suffix = self._suffix
        only_cached = []
        for row_key, row in self._held():
            if time_from <= self._time(row_key) <= expired_to:
                data = self._row_bytes(row_key)
                key = data[:-suffix]
                if (low is None or low <= key) and (high is None or key <= high):
                    only_cached.append((data, row))
        if not only_cached:
            return stored

        def order(entry: tuple[bytes, Row]) -> Any:
            return self._scan_order(entry[0])

        only_cached.sort(key=order, reverse=reverse)
        return heapq.merge(stored, only_cached, key=order, reverse=reverse)


class _CachedWindowStore(_CachedTimes, WindowStore):
    def fetch(self, key: Any, time_from: int, time_to: int, reverse: bool = False) -> Iterator[Any]:
        live = super().fetch(key, time_from, time_to, reverse)
        if time_from >= self._min_live():
            return live
        expired = self._show_fetched(
            [(slot[0], row) for slot, row in self._expired(key, max(time_from, 0), time_to)]
        )
        return chain(live, reversed(expired)) if reverse else chain(expired, live)

    def _heard_key(self, row_key: Any) -> Windowed:
        key, start, _ = row_key
        return Windowed(self._keys.show(key), start, min(start + self._size, MAX_LONG))


class _CachedTimestampedWindowStore(_CachedWindowStore, TimestampedWindowStore):
    pass


class _CachedSessionStore(_CachedTimes, SessionStore):
    def find_sessions(
        self, key: Any, earliest_end: int, latest_start: int, reverse: bool = False
    ) -> Iterator[tuple[int, int, Any]]:
        live = super().find_sessions(key, earliest_end, latest_start, reverse)
        if earliest_end >= self._min_live():
            return live
        expired = self._show_found(self._expired(key, max(earliest_end, 0), MAX_LONG), latest_start)
        return chain(live, reversed(expired)) if reverse else chain(expired, live)

    def _heard_key(self, row_key: Any) -> Windowed:
        key, start, end = row_key
        return Windowed(self._keys.show(key), start, end)

    def _heard_timestamp(self, row_key: Any, row: Row) -> int:
        return int(row_key[2])


_KINDS: dict[str, type[Any]] = {
    "key_value": _CachedKeyValueStore,
    "timestamped": _CachedTimestampedStore,
    "plain_table": _CachedPlainTableStore,
    "lru": _CachedLruStore,
    "timestamped_lru": _CachedTimestampedLruStore,
    "window": _CachedWindowStore,
    "timestamped_window": _CachedTimestampedWindowStore,
    "session": _CachedSessionStore,
}


def cached_store(
    kind: str, spec: StoreSpec, table: OrderedBytes, task: StoreContext, cache: RecordCache
) -> WriteBehindStore | None:
    """The store of a kind (see `open.py`) with a record cache; None for the kinds that have none."""
    opened = _KINDS.get(kind)
    if opened is None:
        return None
    store: _Cached = opened(spec, table, task)
    store.attach(cache)
    return store
