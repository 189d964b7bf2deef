"""Window and session stores with a record cache (`cache.py`)."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import chain
from typing import Any

from streamapp.records import Windowed
from streamapp.state.cache import RecordCache, ShowingCachedStore
from streamapp.state.formats import MAX_LONG
from streamapp.state.key_image import KeyImage
from streamapp.state.session_store import SessionStore
from streamapp.state.time_buckets import TimeBucketedStore
from streamapp.state.window import TimestampedWindowStore, WindowStore
from streamapp.state.write_behind import MISSING, Row, Write

__all__ = ["CachedSessionStore", "CachedTimestampedWindowStore", "CachedWindowStore"]


class _CachedTimes(ShowingCachedStore, TimeBucketedStore):
    """Windows and sessions: what the cache holds is seen though it has expired.

    As in Kafka Streams the store's stream time advances, late rows are refused, and expired ones go out of
    sight when rows leave the cache for the store; the cache itself knows no time. What it shows and the store does
    not is looked up in `_held`, which leaves the reads of what is live as they are.
    """

    def attach(self, cache: RecordCache) -> None:
        super().attach(cache)
        self._by_key: dict[Any, KeyImage] | None = None
        """What is in the cache by key, once somebody asks for rows that expired."""
        self._latest = self._observed

    def _expiring(self, write: Write) -> Write:
        """The cache takes every row. A row that is too late shows when the row leaves for the store."""
        images, keep_in_image, time_of = self._images, self._keep_in_image, self._time

        def write_and_see(row_key: Any, row: Row) -> None:
            time = time_of(row_key)
            if time > self._latest:
                self._latest = time
            write(row_key, row)
            if images.young or images.old:
                keep_in_image(row_key, row)
            if self._by_key is not None:
                self._index(self._by_key, row_key, row)

        return write_and_see

    def _rewriting(self) -> Write:
        if self._sized:
            return self._write
        images, keep_in_image, dirty = self._images, self._keep_in_image, self._dirty

        def rewrite(row_key: Any, row: Row) -> None:
            dirty[row_key] = row
            if images.young or images.old:
                keep_in_image(row_key, row)
            if self._by_key is not None:
                self._index(self._by_key, row_key, row)

        return rewrite

    def row(self, row_key: Any) -> Row:
        known = self._news.get(row_key)
        if known is not None:
            return known.row
        if self._time(row_key) >= self._min_live():
            return self._dirty.get(row_key) or self._read(row_key)
        return self._held.get(row_key, MISSING)

    def _leaves(self, row_key: Any, before: Row, row: Row) -> Any:
        old = None if self._time(row_key) < self._min_live() else before[0]
        self._hold(row_key, row)
        if row[0] is not None or old is not None or not self._of_table:
            self._takes(row_key, row)
        return old

    def _let_go(self, row_key: Any) -> None:
        if self._by_key is not None and row_key not in self._news:
            self._index(self._by_key, row_key, MISSING)

    def _newest(self) -> int:
        return max(self._latest, self._observed)  # what is restored passes the cache by

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
            for row_key, row in self._in_cache():
                self._index(self._by_key, row_key, row)
        image = self._by_key.get(key if key.__class__ is self._key_class else self._keep_key(key))
        if image is None:
            return []
        slots = image.slots
        low, high = bisect_left(slots, (time_from,)), bisect_right(slots, (time_to, MAX_LONG))
        return list(zip(slots[low:high], image.rows[low:high], strict=True))

    def _in_cache(self) -> Iterator[tuple[Any, Row]]:
        """All rows in the cache."""
        for row_key, row in self._held.items():
            if row_key not in self._news:
                yield row_key, row
        for row_key, news in self._news.items():
            if news.row[0] is not None:
                yield row_key, news.row

    def _visible(
        self, low: bytes | None, high: bytes | None, time_from: int, time_to: int, reverse: bool = False
    ) -> Iterator[tuple[bytes, Row]]:
        stored = super()._visible(low, high, time_from, time_to, reverse)
        expired_to = min(self._min_live() - 1, time_to)
        if time_from > expired_to:
            return stored
        suffix = self._suffix
        only_cached = []
        for row_key, row in self._in_cache():
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


class CachedWindowStore(_CachedTimes, WindowStore):
    @property
    def below_cache(self) -> Any:
        return _LiveWindows(self)

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

    def _row_key(self, key: Windowed) -> Any:
        return super()._row_key(key.key), key.start, self._sequence


class CachedTimestampedWindowStore(CachedWindowStore, TimestampedWindowStore):
    pass


class _LiveWindows:
    """What queries ask of windows, without those that have expired in the store."""

    def __init__(self, store: CachedWindowStore) -> None:
        self._store = store

    def fetch(self, key: Any, time_from: int, time_to: int) -> Iterator[Any]:
        return self._store.fetch(key, max(time_from, self._store._min_live()), time_to)

    def fetch_all(self, time_from: int, time_to: int) -> Iterator[tuple[Any, ...]]:
        return self._store.fetch_all(max(time_from, self._store._min_live()), time_to)


class CachedSessionStore(_CachedTimes, SessionStore):
    @property
    def below_cache(self) -> Any:
        return _LiveSessions(self)

    def find_sessions(
        self, key: Any, earliest_end: int, latest_start: int, reverse: bool = False
    ) -> Iterator[tuple[int, int, Any]]:
        if key.__class__ is not self._key_class:
            key = self._keep_key(key)
        min_live = self._min_live()
        found = self._find(key, earliest_end, latest_start, min_live)
        if earliest_end < min_live:
            found = self._show_found(self._expired(key, max(earliest_end, 0), MAX_LONG), latest_start) + found
        return reversed(found) if reverse else iter(found)

    def _heard_key(self, row_key: Any) -> Windowed:
        key, start, end = row_key
        return Windowed(self._keys.show(key), start, end)

    def _row_key(self, key: Windowed) -> Any:
        return super()._row_key(key.key), key.start, key.end

    def _heard_timestamp(self, row_key: Any, row: Row) -> int:
        return int(row_key[2])


class _LiveSessions:
    """What queries ask of sessions, without those that have expired in the store."""

    def __init__(self, store: CachedSessionStore) -> None:
        self._store = store

    def fetch(self, key: Any) -> Iterator[tuple[int, int, Any]]:
        return self._store.find_sessions(key, max(0, self._store._min_live()), MAX_LONG)
