"""Stores by key with a record cache (`cache.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from streamapp.state.cache import CachedStore, RecordCache, ShowingCachedStore
from streamapp.state.cache_entry import CacheEntry
from streamapp.state.key_value import KeyValueStore, PlainTableStore, TimestampedKeyValueStore
from streamapp.state.lru import LruStore, TimestampedLruStore
from streamapp.state.sorted_entries import SortedEntries
from streamapp.state.write_behind import MISSING, Row, Write

__all__ = [
    "CachedKeyValueStore",
    "CachedLruStore",
    "CachedPlainTableStore",
    "CachedTimestampedLruStore",
    "CachedTimestampedStore",
]


class _CachedKeys(CachedStore, KeyValueStore):
    """A store by key with a cache, in which a range scan marks the entries that it finds as used."""

    def attach(self, cache: RecordCache) -> None:
        super().attach(cache)
        self._deleted: dict[Any, None] = {}
        """The keys of the rows that were deleted since the last flush."""
        self._deleted_order = SortedEntries()
        """Key bytes and key of the deleted rows, as far as a scan has needed their order."""

    def _note_deletion(self, row_key: Any) -> None:
        self._deleted[row_key] = None

    def _flush(self, told: list[tuple[Any, CacheEntry]]) -> None:
        super()._flush(told)
        if not self._news:
            self._deleted.clear()
            self._deleted_order.clear()

    def _merged(
        self, start: bytes | None, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Row]]:
        rows = super()._merged(start, end, reverse)
        return self._using(rows, start, end, reverse) if self._held else rows

    def _using(
        self, rows: Iterator[tuple[bytes, Row]], start: bytes | None, end: bytes | None, reverse: bool
    ) -> Iterator[tuple[bytes, Row]]:
        kept, to_bytes, order = self._keys.from_bytes, self._keys.to_bytes, self._deleted_order
        new = len(self._deleted) - len(order)
        if new:
            # Rows leave `_deleted` only together, so new rows are at the end of the dict.
            order.update([(to_bytes(row_key), row_key) for row_key in islice(reversed(self._deleted), new)])
        deleted = order.between(None if start is None else (start,), None if end is None else (end,), reverse)
        entry = next(deleted, None)
        for data, row in rows:
            while entry is not None and (entry[0] > data if reverse else entry[0] < data):
                self._use_entry(entry[1])
                entry = next(deleted, None)
            self._use_entry(kept(data))
            yield data, row
        while entry is not None:
            self._use_entry(entry[1])
            entry = next(deleted, None)

    def _use_entry(self, row_key: Any) -> None:
        entry = self._held.get(row_key)
        if entry is not None:
            entry.used = self._use()


class CachedKeyValueStore(_CachedKeys):
    def get(self, key: Any) -> Any:
        if key.__class__ is not self._key_class:
            key = self._keep_key(key)
        value = self.row(key)[0]
        return value if value is None or self._shown else self._values.show(value)


class CachedTimestampedStore(_CachedKeys, TimestampedKeyValueStore):
    def put(self, key: Any, value: Any, timestamp: int | None = None) -> None:
        self._put_value = value if value.__class__ is self._as_put else None
        try:
            super().put(key, value, timestamp)
        finally:
            self._put_value = None  # a put that raises must leave no value to the next write

    def get(self, key: Any) -> tuple[Any, int] | None:
        if key.__class__ is not self._key_class:
            key = self._keep_key(key)
        row = self.row(key)
        if row[0] is None:
            return None
        return row if self._shown else (self._values.show(row[0]), row[1])

    def reader(self) -> Callable[[Any], tuple[Any, int] | None]:
        if self._shown or not self._values.immutable:
            return self.get
        key_class, keep_key, show = self._key_class, self._keep_key, self._values.show
        entry_of, use, row_of, read_below = self._held.get, self._use, self.row, self._decoding_once()

        def get(key: Any) -> tuple[Any, int] | None:
            row_key = key if key.__class__ is key_class else keep_key(key)
            entry = entry_of(row_key)
            if entry is None:
                if self._silent:
                    return read_below(key)
                value, timestamp = row_of(row_key)
                return None if value is None else (show(value), timestamp)
            entry.used = use()
            kept, timestamp = entry.row
            if kept is None:
                return None
            value = entry.value
            if value is None:
                value = entry.value = show(kept)
            return value, timestamp

        return get

    def reader_with_bytes(self, decoded: bool) -> Callable[[Any], tuple[Any, int, bytes] | None] | None:
        if self._shown:
            return None
        keep_key, read, row_of = self._row_key, self.reader(), self.row

        def get(key: Any) -> tuple[Any, int, bytes] | None:
            row = read(key)
            return None if row is None else (*row, row_of(keep_key(key))[0])

        return get

    def _rows_to_fold(self) -> tuple[dict[Any, Row], Callable[[Any], Row]]:
        return (self._dirty, self._read_to_write) if self._silent else ({}, self.row)


class CachedPlainTableStore(ShowingCachedStore, _CachedKeys, PlainTableStore):
    """A plain table with a cache. The store below keeps no timestamps, but the cache still has them."""

    def attach(self, cache: RecordCache) -> None:
        super().attach(cache)
        stored = self._stored
        self._stored = lambda row_key: (stored(row_key)[0], -1)

    def _beside(self) -> tuple[int, int]:
        beside_key, beside_value = super()._beside()
        return beside_key, beside_value + 8

    @property
    def below_cache(self) -> Any:
        return _BelowPlainTable(self)

    def _shown_timestamp(self, row_key: Any) -> int:
        entry = self._held.get(row_key)
        return -1 if entry is None else entry.row[1]


class _BelowPlainTable:
    def __init__(self, store: CachedPlainTableStore) -> None:
        self._store = store

    def range(self, low: Any, high: Any, reverse: bool) -> Iterator[tuple[Any, tuple[Any, int]]]:
        return ((key, (row[0], -1)) for key, row in self._store.range(low, high, reverse))


class CachedLruStore(ShowingCachedStore, _CachedKeys, LruStore):
    """A store of at most ``max_entries`` rows with a record cache. When the store is full, it evicts the row that was
    used longest ago.

    The cache may have rows that the store has evicted, and reads by key still find them. A read that the cache answers
    does not count as use of the row in the store.
    """

    def _caching(self, write: Write) -> Write:
        self._put_below = write
        return super()._caching(self._wait)

    def _wait(self, row_key: Any, row: Row) -> None:
        """Writes nothing yet. The store below gets the row at the flush, and may then evict another row."""

    def _before(self, row_key: Any) -> Row:
        return self._rows.get(row_key, MISSING)  # does not count as use in the bounded store

    def _leaves(self, row_key: Any, before: Row, row: Row) -> Any:
        old = self._before(row_key)[0]
        if row[0] is not None or old is not None or not self._of_table:
            self._put_below(row_key, row)
        return old

    def _evicted(self, row_key: Any, row: Row) -> None:
        # The eviction is not an entry of the cache, so operators downstream get no update for it.
        self._remember(row_key, row)
        if self._log_at_flush:
            self._log(row_key, row)

    def _merged(
        self, start: bytes | None, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Row]]:
        rows = {**self._rows, **{row_key: entry.row for row_key, entry in self._held.items()}}
        to_bytes = self._keys.to_bytes
        found = sorted((to_bytes(row_key), row) for row_key, row in rows.items() if row[0] is not None)
        within = (
            entry
            for entry in (reversed(found) if reverse else found)
            if (start is None or start <= entry[0]) and (end is None or entry[0] < end)
        )
        return self._using(within, start, end, reverse)

    @property
    def below_cache(self) -> Any:
        return _BelowLru(self)


class _BelowLru:
    def __init__(self, store: CachedLruStore) -> None:
        self._store = store

    def range(self, low: Any, high: Any, reverse: bool) -> Iterator[tuple[Any, Any]]:
        remembered = self._store._rows
        keep = self._store._keep_key
        return (entry for entry in self._store.range(low, high, reverse) if keep(entry[0]) in remembered)


class CachedTimestampedLruStore(CachedLruStore, TimestampedLruStore):
    def _evicted(self, row_key: Any, row: Row) -> None:
        TimestampedLruStore._evicted(self, row_key, row)
