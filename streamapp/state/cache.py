"""Record caches: downstream hears of the last update per key and commit only.

A cached store takes every write at once, so reads need no extra layer. The cache holds entries: rows that were written or
read, and of each that changed since the last flush what it was before, and the record that changed it
last. `Store.flush` tells the listener, in the order of the last updates, with the task's topic, offset,
timestamp and headers set to those of that record. The limit is Kafka Streams'
``statestore.cache.max.bytes``, which all stores of a process share. A store that finds it exceeded by its own write or read
lets its own entries go, the one used longest ago first; if that one has changed, the whole store is flushed (Kafka Streams'
ThreadCache and NamedCache; docs/decisions/record-cache.md).

Which kinds of stores have a cache: `cached_tables.py`, `cached_windows.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from streamapp.records import NO_HEADERS
from streamapp.state.cache_entry import (
    ENTRY_BYTES,
    CacheEntry,
    LeastRecentlyUsed,
    context_bytes,
    size_of_kept,
)
from streamapp.state.write_behind import MISSING, FlushListener, Fold, Row, Write, WriteBehindStore

__all__ = ["CachedStore", "RecordCache", "ShowingCachedStore"]


class RecordCache:
    """The bytes that the caches of a process hold together, and may hold."""

    __slots__ = ("max_bytes", "used")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes: int = max_bytes
        self.used: int = 0


def _number(item: tuple[Any, CacheEntry]) -> int:
    return item[1].number


class CachedStore(WriteBehindStore):
    """The cache of a store; mixed in before the store's own class."""

    cached = True
    _write: Write
    """Writes a row below the cache."""

    def attach(self, cache: RecordCache) -> None:
        """Gives the store its cache, before `open_writes`."""
        self._cache = cache
        self._held: dict[Any, CacheEntry] = {}
        """All that the cache holds."""
        self._news: dict[Any, CacheEntry] = {}
        """The entries that have changed since they left for the store."""
        self._bytes = 0
        self._use = count(1).__next__
        self._by_use = LeastRecentlyUsed(self._held, self._use)
        self._telling = 0
        """Flushes that are under way."""
        self._silent = False
        """Nobody hears of updates: writes pass the cache by."""
        self._stored = super().row
        self._listener: FlushListener | None = None
        self._of_table = False
        """A table's: what was not there and is not there now does not leave the cache, whether or not somebody listens."""
        # Logged as it leaves the cache.
        self._log_at_flush, self._log_each = self._log_each, False
        self._key_size, _ = size_of_kept(self._keys)
        self._value_size, self._equal_values = size_of_kept(self._values)
        self._beside_key, self._beside_value = self._beside()

    def _beside(self) -> tuple[int, int]:
        """The bytes that an entry counts beside its key, and beside its value if it has one."""
        return ENTRY_BYTES, 8 * self._timestamped + self.spec.headers_format

    def set_flush_listener(self, listener: FlushListener) -> None:
        self._listener, self._of_table = listener, True

    def let_through(self) -> None:
        """Nobody hears of updates: writes need no news, unless each of them is logged as it leaves the cache."""
        self._of_table = True
        self._silent = not self._log_at_flush and not self.spec.headers_format
        self.open_writes()

    def _write_steps(self) -> list[Callable[[Write], Write]]:
        steps = super()._write_steps()
        return steps if self._silent else [*steps, self._caching]

    def _caching(self, write: Write) -> Write:
        self._write = write
        return self._put_news

    def row(self, row_key: Any) -> Row:
        """A row that is read is used; one that was not in the cache comes into the cache."""
        entry = self._held.get(row_key)
        if entry is not None:
            entry.used = self._use()
            return entry.row
        row = self._stored(row_key)
        if row[0] is not None and not self._silent:
            entry = self._held[row_key] = CacheEntry()
            entry.key_bytes = self._beside_key + self._key_size(self._key_of(row_key))
            entry.size = entry.key_bytes + self._beside_value + self._value_size(row[0])
            entry.row, entry.value, entry.number, entry.used = row, None, self._use(), 0
            entry.topic, entry.headers = "", NO_HEADERS
            self._grow(entry.size)
        return row

    def _put_news(self, row_key: Any, row: Row) -> None:
        task, entry = self._task, self._news.get(row_key)
        if entry is None:
            entry = self._begin_news(row_key)
        self._write(row_key, row)
        value, topic, headers = row[0], task.topic, task.headers
        entry.row, entry.value, entry.number = row, None, self._use()
        entry.topic, entry.offset, entry.timestamp, entry.headers = (
            topic,
            task.offset,
            task.timestamp,
            headers,
        )
        size = entry.key_bytes + (context_bytes(topic, headers) if headers else len(topic or ""))
        if value is not None:
            size += self._beside_value + self._value_size(value)
        else:
            self._note_deletion(row_key)
        grown = size - entry.size
        entry.size = size
        # Kafka Streams looks at the limit with each write, also with one that adds nothing.
        self._bytes += grown
        cache = self._cache
        cache.used = used = cache.used + grown
        if used > cache.max_bytes:
            self._make_room()

    def _begin_news(self, row_key: Any) -> CacheEntry:
        """The entry of a row that is going to change for the first time since the last flush."""
        held = self._held.get(row_key)
        if held is not None and not self._telling:
            entry, entry.before = held, held.row
        else:
            entry = CacheEntry()
            if held is None:
                entry.before, entry.size = self._before(row_key), 0
                entry.key_bytes = self._beside_key + self._key_size(self._key_of(row_key))
            else:  # a flush that is under way may still have to tell of the other one
                entry.before, entry.size, entry.key_bytes = held.row, held.size, held.key_bytes
            entry.used = 0
            self._held[row_key] = entry
        self._news[row_key] = entry
        return entry

    def _note_deletion(self, row_key: Any) -> None:
        """A row is deleted; until the next flush the deletion is an entry that reads use."""

    def _before(self, row_key: Any) -> Row:
        """The row below the cache."""
        return self._stored(row_key)

    def _grow(self, size: int) -> None:
        """Counts bytes of an entry."""
        self._bytes += size
        cache = self._cache
        cache.used += size
        if cache.used > cache.max_bytes:
            self._make_room()

    def _rewriting(self) -> Write:
        """Writes a row that is news already: steps that depend on the key alone have been done."""
        return self._write

    def _folder(self, initializer: Callable[[], Any], aggregator: Callable[[Any, Any, Any], Any]) -> Fold:
        first = super()._folder(initializer, aggregator)
        if self._silent:
            return first
        put_row = self.put_row
        task, news_of, rewrite, use = self._task, self._news.get, self._rewriting(), self._use
        show, keep, value_class, sound = (
            self._values.show,
            self._keep_value,
            self._value_class,
            self._sound_value,
        )
        size_of, equal, exact, cache = self._value_size, self._equal_values, self._values.exact, self._cache

        def fold(row_key: Any, key: Any, value: Any, timestamp: int) -> tuple[Any, Any, int]:
            news = news_of(row_key)
            if news is None or news.row[0] is None:
                return first(row_key, key, value, timestamp)
            before, latest = news.row
            old = news.value
            if old is None:
                old = show(before)
            new = after = aggregator(key, value, old)
            if new is None:
                put_row(row_key, (None, timestamp))
                return None, old, timestamp if timestamp > latest else latest
            if timestamp > latest:
                latest = timestamp
            if new.__class__ is not value_class or not sound(new):
                after = keep(new)
            news.row = row = after, latest
            news.offset, news.timestamp, news.number = task.offset, task.timestamp, use()
            news.value = new if new.__class__ is exact else None
            rewrite(row_key, row)
            grown = 0 if equal else size_of(after) - size_of(before)
            topic, headers = task.topic, task.headers
            if news.topic is not topic or news.headers is not headers:
                grown += context_bytes(topic, headers) - context_bytes(news.topic, news.headers)
                news.topic, news.headers = topic, headers
            if grown:
                news.size += grown
                self._grow(grown)
            elif cache.used > cache.max_bytes:
                self._make_room()
            return new, old, latest

        return fold

    def flush(self) -> None:
        if self._news:
            news = sorted(self._news.items(), key=_number)
            # The listener may put again, which is then news of its own.
            self._news.clear()
            self._flush(news)

    def _flush(self, told: list[tuple[Any, CacheEntry]]) -> None:
        """Tells of entries that have changed. A deletion then leaves the cache."""
        self._telling += 1
        try:
            self._task.work_through(told, self._tell)
        finally:
            self._telling -= 1
        for row_key, entry in told:
            if entry.row[0] is None and self._held.get(row_key) is entry:
                del self._held[row_key]
                self._take_out(row_key, entry)

    def flush_key(self, key: Any) -> None:
        row_key = self._row_key(key)
        news = self._news.pop(row_key, None)
        if news is not None:
            self._flush([(row_key, news)])

    def _tell(self, row_key: Any, news: CacheEntry) -> None:
        """A row that has changed leaves for the store, its changelog and the listener."""
        row, before, show = news.row, news.before, self._values.show
        news.before = MISSING
        old, new = self._leaves(row_key, before, row), row[0]
        if new is None and old is None and self._of_table:
            return
        if self._log_at_flush:
            self._log(row_key, row)
        if self._listener is not None:
            self._listener(
                self._heard_key(row_key),
                None if new is None else show(new),
                None if old is None else show(old),
                self._heard_timestamp(row_key, row),
                news.headers,
            )

    def _leaves(self, row_key: Any, before: Row, row: Row) -> Any:
        """A row leaves the cache for the store; returns the value that the store had."""
        return before[0]

    def _let_go(self, row_key: Any) -> None:
        """A row is not in the cache any more."""

    def _make_room(self) -> None:
        """Lets entries go until the limit holds, or the store has none: others make room with writes of their own."""
        cache, entries, news = self._cache, self._held, self._news
        while entries and cache.used > cache.max_bytes:
            row_key, entry = self._by_use.find()
            del entries[row_key]
            if news.pop(row_key, None) is not None:
                others = sorted(news.items(), key=_number)
                news.clear()
                self._flush([(row_key, entry), *others])
            # Only now, as in Kafka Streams: stores that hear of the flush find the limit exceeded and make room themselves.
            self._take_out(row_key, entry)

    def _take_out(self, row_key: Any, entry: CacheEntry) -> None:
        self._bytes -= entry.size
        self._cache.used -= entry.size
        self._let_go(row_key)

    def close(self) -> None:
        self._cache.used -= self._bytes
        self._bytes = 0

    def _heard_key(self, row_key: Any) -> Any:
        return self._keys.show(row_key)

    def _row_key(self, key: Any) -> Any:
        """The form in memory of a key that the listener hears."""
        return key if key.__class__ is self._key_class else self._keep_key(key)

    def _heard_timestamp(self, row_key: Any, row: Row) -> int:
        return row[1]


class ShowingCachedStore(CachedStore):
    """For stores that know less than their cache: rows that stay in the cache are seen there, until it must make room.

    So it is in Kafka Streams, whose caches keep what they have handed on. For most stores that makes no difference; but windows
    expire, a bounded store forgets rows, and one without timestamps forgets those.
    """

    def let_through(self) -> None:
        """Here what the cache holds is also what reads see."""
        self._of_table = True
