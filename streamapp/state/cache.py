"""Record caches, which join several updates of a key: operators downstream get only the last one, at a flush.

Reads of a store with a cache see all updates. The cache has an entry for each row that was written, until the entry is
dropped. In a store by key, a row that was read also gets an entry. The entry of a changed row also has the row as of
the last flush, and the source of its last change. `Store.flush` calls the listener for each changed row, in the order
of the last updates. A table leaves out a row that was inserted and deleted since the last flush. During a call, the
task's topic, offset, timestamp and headers are those of the record that made the last change, and so are its bytes.

All caches of a process share one limit, Kafka Streams' ``statestore.cache.max.bytes``. A store whose write or read
exceeds the limit drops its own entries, beginning with the one used longest ago. If a dropped entry has changed, the
whole store is flushed. Sources: Kafka Streams' ThreadCache and NamedCache; docs/decisions/record-cache.md.

`cached_tables.py`, `cached_windows.py` and `cached_sessions.py` have the stores with a cache.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar

from streamapp.records import NO_HEADERS
from streamapp.state.backend import WriteSet
from streamapp.state.cache_entry import (
    ENTRY_BYTES,
    CacheEntry,
    LeastRecentlyUsed,
    context_bytes,
    size_of_kept,
)
from streamapp.state.store import FlushListener
from streamapp.state.write_behind import MISSING, Fold, Row, Write, WriteBehindStore

__all__ = ["CachedStore", "RecordCache", "ShowingCachedStore", "entry_number"]

R = TypeVar("R")

_UNREAD: Row = (None, -2)
"""Stands in place of a row below the cache that only the backend has, and that only a deletion would need."""

_APART = 1 << 32
"""The distance between the numbers of two uses. No cache has so many entries."""


class RecordCache:
    """The limit that all record caches of a process share, and the bytes in use."""

    __slots__ = ("max_bytes", "used")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes: int = max_bytes
        self.used: int = 0


def _source_size(entry: CacheEntry) -> int:
    return len(entry.source_raw_key or b"") + len(entry.source_raw_value or b"")


def entry_number(item: tuple[Any, CacheEntry]) -> int:
    return item[1].number


class CachedStore(WriteBehindStore):
    """The record cache of a store. A store with a cache derives from this class first, then from the plain store."""

    cached = True
    _write: Write
    """Writes a row to the store below the cache."""

    def attach(self, cache: RecordCache) -> None:
        """Gives the store its cache. Called once, before `open_writes`."""
        self._cache = cache
        self._held: dict[Any, CacheEntry] = {}
        """All entries of this store by the key of their row."""
        self._news: dict[Any, CacheEntry] = {}
        """The entries whose rows have changed since the last flush."""
        self._bytes = 0
        # A look-up that passes many entries takes one number, and the entries get the numbers behind this one.
        self._use = count(_APART, _APART).__next__
        self._by_use = self._eldest_first()
        self._telling = 0
        """The number of flushes that are running now. A flush may cause another flush."""
        self._asked = False
        """True during a read from outside of the task."""
        self._silent = False
        """True if writes do not go through the cache, because no listener needs updates (`let_through`)."""
        self._stored = super().row
        self._listener: FlushListener | None = None
        self._send_old = False
        """True if the listener needs the value that each row had at the last flush."""
        self._of_table = False
        """True for a table, whose listener does not need a row that was inserted and deleted since the last flush."""
        # A store that logs each write waits for the flush that hands the row to the store below.
        self._log_at_flush, self._log_each = self._log_each, False
        values = self._values
        self._as_put = values.exact if values.immutable and not self._shown else None
        """The class of values that need no decoding: the listener and joins get the object that was put."""
        self._source_bytes = 0
        """The bytes of all source records that the entries keep for dead letters."""
        self._put_value: Any = None
        """The value that is being put, if its class is `_as_put`."""
        self._key_size, _ = size_of_kept(self._keys)
        self._value_size, self._equal_values = size_of_kept(self._values)
        self._beside_key, self._beside_value = self._beside()

    def _eldest_first(self) -> LeastRecentlyUsed:
        """The search for the entry to evict next."""
        return LeastRecentlyUsed(self._held, self._use)

    def _beside(self) -> tuple[int, int]:
        """The bytes of an entry besides its key and value. The second number is added only if the value is not None."""
        return ENTRY_BYTES, 8 * self._timestamped + self.spec.headers_format

    def set_flush_listener(self, listener: FlushListener, send_old: bool = True) -> None:
        self._listener, self._of_table, self._send_old = listener, True, send_old

    def let_through(self) -> None:
        """Called if no operator downstream gets the updates of a flush. Writes then go directly to the store below.

        There are two exceptions. A store in the headers format keeps the cache. With ``log_each_write``
        (`TopologyTestDriver`), a store with a changelog keeps the cache, because the flush writes the changelog.
        """
        self._of_table = True
        self._silent = not self._log_at_flush and not self.spec.headers_format
        self.open_writes()

    def _write_steps(self) -> list[Callable[[Write], Write]]:
        steps = super()._write_steps()
        return steps if self._silent else [*steps, self._caching]

    def _caching(self, write: Write) -> Write:
        """The step of a write that notes the change in the row's entry, besides the write to the store below."""
        self._write = write
        task, cache, news, use = self._task, self._cache, self._news, self._use
        begin, size_of, beside_value = self._begin_news, self._value_size, self._beside_value
        note_deletion = self._note_deletion
        keeps_bytes, keep_source = task.keeps_source_bytes, self._keep_source

        def put_news(row_key: Any, row: Row) -> None:
            entry = news.get(row_key)
            if entry is None:
                entry = begin(row_key)
            write(row_key, row)
            value, topic, headers = row[0], task.topic, task.headers
            entry.row, entry.value, entry.number = row, self._put_value, use()
            self._put_value = None
            entry.topic, entry.headers = topic, headers
            entry.offset, entry.timestamp = task.offset, task.timestamp
            if keeps_bytes:
                keep_source(entry)
            size = entry.key_bytes + (context_bytes(topic, headers) if headers else len(topic or ""))
            if value is not None:
                size += beside_value + size_of(value)
            else:
                note_deletion(row_key)
            grown = size - entry.size
            entry.size = size
            # As in Kafka Streams, each write checks the limit, also a write that adds no bytes.
            self._bytes += grown
            cache.used = used = cache.used + grown
            if used > cache.max_bytes:
                self._make_room()

        return put_news

    def row(self, row_key: Any) -> Row:
        """The row of a key. Each read marks the row's entry in the record cache as used, also a read by `ask`. If only
        the store below has the row, the row gets an entry, with two exceptions. A read by `ask`, from outside of the
        task, makes no entry. A cache that lets writes through (`let_through`) makes no entry either."""
        entry = self._held.get(row_key)
        if entry is not None:
            entry.used = self._use()
            return entry.row
        row = self._stored(row_key)
        if row[0] is not None and not self._silent and not self._asked:
            entry = self._held[row_key] = CacheEntry()
            entry.key_bytes = self._beside_key + self._key_size(self._key_of(row_key))
            entry.size = entry.key_bytes + self._beside_value + self._value_size(row[0])
            entry.row, entry.value, entry.number, entry.used = row, None, self._use(), 0
            entry.topic, entry.headers = "", NO_HEADERS
            self._grow(entry.size)
        return row

    def ask(self, question: Callable[[Any], R]) -> R:
        """The result of ``question(store)``, for a reader outside of the task. As in Kafka Streams, rows that are read
        get no entry in the cache. So the read evicts no entry and flushes no update."""
        asked, self._asked = self._asked, True
        try:
            return question(self)
        finally:
            self._asked = asked

    def _begin_news(self, row_key: Any) -> CacheEntry:
        """The entry for the first change of a row since the last flush."""
        held = self._held.get(row_key)
        if held is not None and not self._telling:
            entry, entry.before = held, held.row
        else:
            entry = CacheEntry()
            if held is None:
                if self._send_old:
                    entry.before = self._before(row_key)
                else:
                    entry.before = self._dirty.get(row_key) or _UNREAD
                entry.size = 0
                entry.key_bytes = self._beside_key + self._key_size(self._key_of(row_key))
            else:  # a flush that is running may still need the old entry
                entry.before, entry.size, entry.key_bytes = held.row, held.size, held.key_bytes
            entry.used = 0
            self._held[row_key] = entry
        entry.source_raw_key = entry.source_raw_value = None
        self._news[row_key] = entry
        return entry

    def _keep_source(self, entry: CacheEntry) -> None:
        """Keeps the key and value bytes of the source record in the entry, in place of those of an earlier record."""
        before = _source_size(entry)
        entry.source_raw_key, entry.source_raw_value = self._task.source_bytes()
        self._source_bytes += _source_size(entry) - before

    @property
    def dirty_bytes(self) -> int:
        # So a worker commits early if records are large. The limit of the cache does not count these bytes.
        return super().dirty_bytes + self._source_bytes

    def _note_deletion(self, row_key: Any) -> None:
        """Called when a row is deleted. The deletion stays as an entry until the next flush, and reads mark it as
        used."""

    def _before(self, row_key: Any) -> Row:
        """The row below the cache."""
        return self._stored(row_key)

    def _grow(self, size: int) -> None:
        """Adds the bytes of an entry to the bytes in use, and evicts entries if the cache exceeds its limit."""
        self._bytes += size
        cache = self._cache
        cache.used += size
        if cache.used > cache.max_bytes:
            self._make_room()

    def _rewriting(self) -> Write:
        """The write for a row that has already changed since the last flush. A subclass may leave out steps that only a
        new key needs."""
        return self._write

    def _folder(
        self, initializer: Callable[[], Any], aggregator: Callable[[Any, Any, Any], Any], keep_old: bool
    ) -> Fold:
        first = super()._folder(initializer, aggregator, keep_old)
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
        keeps_bytes, keep_source = task.keeps_source_bytes, self._keep_source

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
            if keeps_bytes:
                keep_source(news)
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
            news = sorted(self._news.items(), key=entry_number)
            # The listener may put rows, which belong to the next flush.
            self._news.clear()
            self._flush(news)

    def _flush(self, told: list[tuple[Any, CacheEntry]]) -> None:
        """Hands changed entries to the listener. Afterwards, entries of deleted rows leave the cache."""
        self._telling += 1
        try:
            self._task.work_through(told, self._tell)
        finally:
            self._telling -= 1
        for row_key, entry in told:
            if entry.row[0] is None and self._held.get(row_key) is entry:
                self._leave(row_key)
                self._take_out(row_key, entry)

    def flush_key(self, key: Any) -> None:
        row_key = self._row_key(key)
        news = self._news.pop(row_key, None)
        if news is not None:
            self._flush([(row_key, news)])

    def _tell(self, row_key: Any, news: CacheEntry) -> None:
        """Hands a changed row to the store below, to the changelog and to the listener."""
        row, before, show = news.row, news.before, self._values.show
        news.before = MISSING
        if news.source_raw_key is not None or news.source_raw_value is not None:
            self._source_bytes -= _source_size(news)
            news.source_raw_key = news.source_raw_value = None
        new = row[0]
        if before is _UNREAD and new is None:
            before = self._read_to_write(row_key)
        old = self._leaves(row_key, before, row)
        if new is None and old is None and self._of_table:
            return
        if self._log_at_flush:
            self._log(row_key, row)
        if self._listener is not None:
            heard = None
            if new is not None:
                heard = show(new) if self._as_put is None or news.value is None else news.value
            if new is not None:
                self._last.value, self._last.data = heard, new
            self._listener(
                self._heard_key(row_key),
                heard,
                show(old) if self._send_old and old is not None else None,
                self._heard_timestamp(row_key, row),
                news.headers,
            )

    def _leaves(self, row_key: Any, before: Row, row: Row) -> Any:
        """Hands a row to the store below. Returns the old value in this store."""
        return before[0]

    def _leave(self, row_key: Any) -> None:
        """Removes the entry of a row. Its bytes still count, until `_take_out`."""
        del self._held[row_key]

    def _make_room(self) -> None:
        """Drops entries of this store until the limit holds or no entry is left.

        Other stores drop entries at their own writes and reads.
        """
        cache, entries, news = self._cache, self._held, self._news
        while entries and cache.used > cache.max_bytes:
            row_key, entry = self._by_use.find()
            self._leave(row_key)
            if news.pop(row_key, None) is not None:
                others = sorted(news.items(), key=entry_number)
                news.clear()
                self._flush([(row_key, entry), *others])
            # As in Kafka Streams, the bytes are subtracted after the flush. So stores to which the flush writes still
            # find the limit exceeded, and evict entries, too.
            self._take_out(row_key, entry)

    def _take_out(self, row_key: Any, entry: CacheEntry) -> None:
        """Subtracts the bytes of an entry that has left the cache."""
        self._bytes -= entry.size
        self._cache.used -= entry.size

    def drain(self, write_set: WriteSet) -> None:
        # A flush may put rows into a store that was flushed before. These rows come to the backend unheard.
        for row_key, entry in self._news.items():
            if entry.before is _UNREAD:
                entry.before = self._read_to_write(row_key)
        super().drain(write_set)

    def close(self) -> None:
        self._cache.used -= self._bytes
        self._bytes = 0

    def _heard_key(self, row_key: Any) -> Any:
        return self._keys.show(row_key)

    def _row_key(self, key: Any) -> Any:
        """The key in memory of a row. ``key`` has the form in which listeners get keys."""
        return key if key.__class__ is self._key_class else self._keep_key(key)

    def _heard_timestamp(self, row_key: Any, row: Row) -> int:
        return row[1]


class ShowingCachedStore(CachedStore):
    """A store with a cache whose reads also show rows that only the cache still has.

    As in Kafka Streams, a cache keeps entries after a flush. So the cache may still have windows or sessions that the
    store below has deleted as expired. The cache may have rows that a store with ``max_entries`` has evicted. The cache
    of a table without timestamps (`PlainTableStore`) has the timestamps, which the store below does not keep.
    """

    def let_through(self) -> None:
        """Called if no operator downstream gets the updates of a flush. Writes still go through the cache, because
        reads show its rows."""
        self._of_table = True
