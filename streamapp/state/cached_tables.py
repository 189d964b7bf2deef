"""Stores by key with a record cache (`cache.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streamapp.state.cache import CachedStore, RecordCache, ShowingCachedStore
from streamapp.state.key_value import KeyValueStore, PlainTableStore, TimestampedKeyValueStore
from streamapp.state.lru import LruStore, TimestampedLruStore
from streamapp.state.write_behind import MISSING, Row, Write

__all__ = [
    "CachedKeyValueStore",
    "CachedLruStore",
    "CachedPlainTableStore",
    "CachedTimestampedLruStore",
    "CachedTimestampedStore",
]


class CachedKeyValueStore(CachedStore, KeyValueStore):
    pass


class CachedTimestampedStore(CachedStore, TimestampedKeyValueStore):
    pass


class CachedPlainTableStore(ShowingCachedStore, PlainTableStore):
    """The cache still knows the timestamps that the store forgets."""

    @property
    def below_cache(self) -> Any:
        return _BelowPlainTable(self)

    def _shown_timestamp(self, row_key: Any) -> int:
        row = self._cached_row(row_key)
        return -1 if row is None else row[1]


class _BelowPlainTable:
    def __init__(self, store: CachedPlainTableStore) -> None:
        self._store = store

    def range(self, low: Any, high: Any, reverse: bool) -> Iterator[tuple[Any, tuple[Any, int]]]:
        return ((key, (row[0], -1)) for key, row in self._store.range(low, high, reverse))


class CachedLruStore(ShowingCachedStore, LruStore):
    """The cache still knows rows that the bounded store below has forgotten, and reads that it answers are no use of those."""

    def attach(self, cache: RecordCache) -> None:
        super().attach(cache)
        self._read_below, self._stored = self._stored, self._below

    def _caching(self, write: Write) -> Write:
        self._put_below = write
        return super()._caching(self._wait)

    def _wait(self, row_key: Any, row: Row) -> None:
        """The bounded store takes a row, and forgets another one, when it leaves the cache."""

    def _below(self, row_key: Any) -> Row:
        """What the bounded store has, without using it."""
        return self._rows.get(row_key, MISSING)

    def _leaves(self, row_key: Any, before: Row, row: Row) -> Any:
        old = self._below(row_key)[0]
        self._hold(row_key, row)
        if row[0] is not None or old is not None or not self._of_table:
            self._put_below(row_key, row)
        return old

    def row(self, row_key: Any) -> Row:
        row = self._cached_row(row_key)
        if row is None:
            row = self._read_below(row_key)
            if row[0] is not None:
                self._hold(row_key, row)
                self._evict()
        return row

    def _evicted(self, row_key: Any, row: Row) -> None:
        # No news: downstream keeps what a bounded store forgets.
        self._remember(row_key, row)
        if self._log_at_flush:
            self._log(row_key, row)

    def _merged(
        self, start: bytes | None, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Row]]:
        news = {row_key: known.row for row_key, known in self._news.items()}
        rows = {**self._rows, **self._held, **news}
        to_bytes = self._keys.to_bytes
        found = sorted((to_bytes(row_key), row) for row_key, row in rows.items() if row[0] is not None)
        for data, row in reversed(found) if reverse else found:
            if (start is None or start <= data) and (end is None or data < end):
                yield data, row

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
