"""The common part of window and session stores with a record cache (`cache.py`)."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from streamapp.state.cache import RecordCache, ShowingCachedStore
from streamapp.state.cache_order import CacheOrder
from streamapp.state.time_buckets import TimeBucketedStore
from streamapp.state.write_behind import MISSING, Row, Write

__all__ = ["WALKED", "CachedTimes"]

WALKED = 1_000
"""The largest number of entries for which a look-up of one key marks the entries of other keys that it passes."""


class CachedTimes(ShowingCachedStore, TimeBucketedStore):
    """Window and session stores with a cache. Reads also show rows that have expired but are still in the cache.

    As in Kafka Streams, the cache knows no stream time. The store's stream time advances only when a flush hands rows
    to the store. So only then the store refuses late rows and hides expired rows. Expired rows in the cache are found
    in `_held`; all other rows are read as in a store without a cache.
    """

    def attach(self, cache: RecordCache) -> None:
        super().attach(cache)
        self._of_key: dict[Any, list[tuple[Any, Any]]] = {}
        """For each key, slot and row key of its entries in order, as far as a look-up has needed the order."""
        self._ordered = 0
        """The number of entries in `_of_key`."""
        self._latest = self._observed
        self._order_of_cache = CacheOrder(self._held, self._place_in_cache)
        """The rows in the order of Kafka Streams' cache."""

    def _expiring(self, write: Write) -> Write:
        """A step of a write, in place of the check for late rows.

        The cache takes every row, and the store refuses a late row when a flush hands the row to the store.
        """
        images, keep_in_image, time_at = self._images, self._keep_in_image, self._time_at

        def write_and_see(row_key: Any, row: Row) -> None:
            time = row_key[time_at]
            if time > self._latest:
                self._latest = time
            write(row_key, row)
            if images.young or images.old:
                keep_in_image(row_key, row)

        return write_and_see

    def _rewriting(self) -> Write:
        if self._sized:
            return self._write
        images, keep_in_image, dirty = self._images, self._keep_in_image, self._dirty
        watches, note = self._order.watches, self._order.note

        def rewrite(row_key: Any, row: Row) -> None:
            if watches:
                note(row_key)
            dirty[row_key] = row
            if images.young or images.old:
                keep_in_image(row_key, row)

        return rewrite

    def _beside(self) -> tuple[int, int]:
        beside_key, beside_value = super()._beside()
        # A cache key of Kafka Streams begins with the segment and, with time-ordered stores, the kind of key.
        prefix = 8 + (self._by_time and not self._exact)
        return beside_key + prefix + self._suffix, beside_value

    def row(self, row_key: Any) -> Row:
        """The row of a key. A read marks the row's entry as used, but puts no row of the store into the cache."""
        entry = self._held.get(row_key)
        if entry is not None:
            entry.used = self._use()
            return entry.row
        if row_key[self._time_at] >= self._min_live():
            return self._dirty.get(row_key) or self._read(row_key)
        return MISSING

    def _before(self, row_key: Any) -> Row:
        """The row below the cache. The image of the row's key, which a look-up has left, often knows the row.

        The cache has no entry of the row, so the row in the image is the row below the cache.
        """
        time, image = row_key[self._time_at], self._images.young.get(row_key[0])
        if image is None or not image.complete_from <= time <= image.complete_to:
            return self._stored(row_key)
        return image.get(self._slot(row_key)) if time >= self._min_live() else MISSING

    def _leaves(self, row_key: Any, before: Row, row: Row) -> Any:
        old = None if row_key[self._time_at] < self._min_live() else before[0]
        if row[0] is not None or old is not None or not self._of_table:
            self._takes(row_key, row)
        return old

    def _leave(self, row_key: Any) -> None:
        super()._leave(row_key)
        self._order_of_cache.leave(row_key)
        entries = self._of_key.get(row_key[0])
        if entries is not None:
            slot = self._slot(row_key)
            at = bisect_left(entries, (slot,))
            if at < len(entries) and entries[at][0] == slot:
                del entries[at]
                self._ordered -= 1
                if not entries:
                    del self._of_key[row_key[0]]

    def _newest(self) -> int:
        return max(self._latest, self._observed)  # restored rows pass the cache by

    def _expired(self, key: Any, time_from: int, time_to: int) -> list[tuple[Any, Row]]:
        """Slots and rows of a key that have expired in the store and are still in the cache."""
        return self._in_cache_of(key, time_from, min(time_to, self._min_live() - 1))

    def _in_cache_of(self, key: Any, time_from: int, time_to: int) -> list[tuple[Any, Row]]:
        """Slots and rows of a key in the cache, without deleted rows."""
        if time_from > time_to:
            return []
        entries = self._entries_of(key)
        low, high = bisect_left(entries, ((time_from,),)), bisect_left(entries, ((time_to + 1,),))
        held = self._held
        rows = [(slot, held[row_key].row) for slot, row_key in entries[low:high]]
        return [entry for entry in rows if entry[1][0] is not None]

    def _entries_of(self, key: Any) -> Sequence[tuple[Any, Any]]:
        """Slot and row key of the entries of a key in order, also of those with a deleted row."""
        held, of_key = self._held, self._of_key
        new = len(held) - self._ordered
        if new:  # new entries are at the end of the dict
            self._ordered = len(held)
            for row_key in reversed(list(islice(reversed(held), new))):
                insort(of_key.setdefault(row_key[0], []), (self._slot(row_key), row_key))
        return of_key.get(key, ())

    def _in_cache(self) -> Iterator[tuple[Any, Row]]:
        """All rows in the cache, without deleted rows."""
        for row_key, entry in self._held.items():
            if entry.row[0] is not None:
                yield row_key, entry.row

    def _visible(
        self, low: bytes | None, high: bytes | None, time_from: int, time_to: int, reverse: bool = False
    ) -> Iterator[tuple[bytes, Row]]:
        rows = self._shown_between(low, high, time_from, time_to, reverse)
        return self._using(rows) if self._held else rows

    def _using(self, rows: Iterator[tuple[bytes, Row]]) -> Iterator[tuple[bytes, Row]]:
        for data, row in rows:
            entry = self._held.get(self._row_key_of(data))
            if entry is not None:
                entry.used = self._use()
            yield data, row

    def _place_in_cache(self, row_key: Any) -> tuple[int, bytes, Any]:
        """Segment, bytes and key of a row. In memory, a segment has 1 ms."""
        segment = 1 if self._exact else self._segment
        return row_key[self._time_at] // segment, self._row_bytes(row_key), row_key

    def _use_each(self, passed: list[Any]) -> None:
        """Marks the entries of the rows that a scan passes as used."""
        held, use = self._held, self._use
        for row_key in passed:
            held[row_key].used = use()

    def _shown_between(
        self, low: bytes | None, high: bytes | None, time_from: int, time_to: int, reverse: bool
    ) -> Iterator[tuple[bytes, Row]]:
        stored = super()._visible(low, high, time_from, time_to, reverse)
        expired_to = min(self._min_live() - 1, time_to)
        if time_from > expired_to:
            return stored
        suffix = self._suffix
        only_cached = []
        for row_key, row in self._in_cache():
            if time_from <= row_key[self._time_at] <= expired_to:
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
