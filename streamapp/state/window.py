"""Window stores: rows by key and window start, which expire by the stream time of the store.

The observed stream time is the largest start of all puts. A row is visible while its start > observed stream time -
retention; a store for final results on disk shows the row for 1 ms more. As in Kafka Streams, a persistent store
deletes rows by segments, which are spans of time. A store for final results of tumbling or hopping windows deletes rows
by shorter spans. A put into a segment that still exists goes to the changelog, even if the row has expired and reads do
not show the row. The store drops and counts a put into a deleted segment. A store in memory drops and counts each put
of an expired row. In the test driver, the changelog also gets the dropped puts.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from streamapp.errors import InvalidStoreError
from streamapp.records import NO_HEADERS, Headers, Windowed, check_timestamp
from streamapp.state.backend import OrderedBytes
from streamapp.state.formats import LONG, MAX_LONG
from streamapp.state.row_memory import RowMemory
from streamapp.state.spec import StoreSpec
from streamapp.state.store import StoreContext
from streamapp.state.time_buckets import TimeBucketedStore
from streamapp.state.write_behind import MISSING, Fold, Row

__all__ = ["TimestampedWindowStore", "WindowStore"]

_START_SEQUENCE = struct.Struct(">qi")


class WindowStore(TimeBucketedStore):
    """A store of one value for each key and window start.

    - ``get(key, start)``: the value, or None.
    - ``put(key, value, start, timestamp=None, headers=())``: sets the value; None deletes the window. Timestamp and
      headers go to the changelog. With ``retain_duplicates`` a put adds a row, and None changes no row.
    - ``fetch(key, time_from, time_to, reverse=False)``: (start, value) of one key, by start.
    - ``fetch_range(low, high, time_from, time_to, reverse=False)``: (Windowed, value) of the keys from low to high.
      None means no bound.
    - ``fetch_all(time_from, time_to, reverse=False)``, ``all(reverse=False)``: (Windowed, value) of all keys.

    Times are window starts in ms, and bounds are inclusive. A read of several keys has one of two orders. A persistent
    store gives rows by segment, then key bytes, then start. A store in memory, or for final results (``time_ordered``),
    gives rows by start, then key bytes. But ``fetch_range`` of a persistent store for final results that is ``indexed``
    has the first order.
    """

    _suffix = _START_SEQUENCE.size

    def __init__(
        self,
        spec: StoreSpec,
        table: OrderedBytes,
        task: StoreContext,
        memory: RowMemory | None = None,
        *,
        retention_ms: int,
        segment_ms: int,
        bucket_ms: int,
        time_ordered: bool,
        time_index: bool,
        size_ms: int,
        retain_duplicates: bool,
        indexed: bool,
    ) -> None:
        self._inclusive = time_ordered and spec.persistent
        self._size = size_ms
        super().__init__(
            spec,
            table,
            task,
            memory,
            retention_ms=retention_ms,
            segment_ms=segment_ms,
            bucket_ms=bucket_ms,
            time_ordered=time_ordered,
            time_index=time_index,
        )
        # Kafka Streams 4.3.1 gives each time-ordered store with headers an index by key.
        self._indexed = (indexed or spec.headers_format) and self._inclusive
        self._duplicates = retain_duplicates

    def _min_live(self) -> int:
        # Stores of on_window_close keep rows 1 ms longer, because a window may close and expire at the same time.
        return self._observed - self._retention + (0 if self._inclusive else 1)

    def _row_bytes(self, row_key: Any) -> bytes:
        return self._keys.to_bytes(row_key[0]) + _START_SEQUENCE.pack(*row_key[1:])

    def _local_key(self, row_key: Any, row_bytes: bytes) -> bytes:
        return LONG.pack(row_key[1] // self._bucket) + row_bytes

    def _encoded(self, row_keys: Collection[Any]) -> tuple[list[bytes], Sequence[bytes | None]]:
        to_bytes, bucket, live = self._keys.to_bytes, self._bucket, self._min_live()
        pack_suffix, pack_bucket = _START_SEQUENCE.pack, LONG.pack
        keys = [to_bytes(key) + pack_suffix(start, sequence) for key, start, sequence in row_keys]
        return keys, [
            None if row_key[1] < live else pack_bucket(row_key[1] // bucket) + key
            for row_key, key in zip(row_keys, keys, strict=True)
        ]

    def _time_of(self, row_bytes: bytes) -> int:
        return int.from_bytes(row_bytes[-12:-4], "big")

    def _slot(self, row_key: Any) -> tuple[int, int]:
        return row_key[1], row_key[2]

    def _slot_of(self, row_bytes: bytes) -> tuple[int, int]:
        return _START_SEQUENCE.unpack(row_bytes[-12:])

    def _row_key_of(self, row_bytes: bytes) -> Any:
        return self._keys.from_bytes(row_bytes[:-12]), *_START_SEQUENCE.unpack(row_bytes[-12:])

    def _takes(self, row_key: Any, row: Row) -> bool:
        start: int = row_key[1]
        if start > self._observed:
            self._observed = start
        return start > self._observed - self._retention or self._observe(start)

    def _scan_order(self, row_bytes: bytes) -> tuple[int, bytes]:
        return (self._time_of(row_bytes), row_bytes) if self._by_time else self._index_order(row_bytes)

    def _index_order(self, row_bytes: bytes) -> tuple[int, bytes]:
        return self._time_of(row_bytes) // self._segment, row_bytes

    def get(self, key: Any, start: int) -> Any:
        if key.__class__ is not self._key_class:
            key = self._keep_key(key)
        value = self._row_of_get(key, start)[0]
        return None if value is None else self._values.show(value)

    def _row_of_get(self, key: Any, start: int) -> Row:
        if self._duplicates and self._exact:
            return MISSING  # in memory, as in Kafka Streams, get finds no row among duplicates
        return self.row((key, start, self._sequence))

    def row(self, row_key: Any) -> Row:
        if row_key[1] <= self._observed - self._retention and row_key[1] < self._min_live():
            return MISSING
        return self._dirty.get(row_key) or self._read(row_key)

    def put(
        self,
        key: Any,
        value: Any,
        start: int,
        timestamp: int | None = None,
        headers: Headers = NO_HEADERS,
    ) -> None:
        if key.__class__ is not self._key_class or not self._sound_key(key):
            key = self._keep_key(key)
        if value is not None and (value.__class__ is not self._value_class or not self._sound_value(value)):
            value = self._keep_value(value)
        if timestamp is None:
            timestamp = self._task.timestamp
        elif timestamp.__class__ is not int or timestamp > MAX_LONG:
            check_timestamp(timestamp)
        if start.__class__ is not int or start > MAX_LONG:
            check_timestamp(start)
        row = (value, timestamp)
        if self._duplicates:
            self._sequence = (self._sequence + 1) & 0x7FFFFFFF
        row_key = (key, start, self._sequence)
        self._note_headers(row_key, headers)
        if value is None and self._duplicates:
            # No row changes. Nevertheless Kafka Streams logs the put, and in memory the put advances stream time. The
            # deletion waits for the commit, because a restore learns this time from the changelog.
            if self._exact and self._takes(row_key, row):
                self._store(row_key, row)
            if self._log_each:
                self._log(row_key, row)
        else:
            self.put_row(row_key, row)

    def fetch(self, key: Any, time_from: int, time_to: int, reverse: bool = False) -> Iterator[Any]:
        if key.__class__ is not self._key_class:
            key = self._keep_key(key)
        time_from = max(time_from, self._min_live(), 0)
        if time_to < time_from:
            return iter(())
        image = self._image_from(key, time_from, time_to)
        slots = image.slots
        low = bisect_left(slots, (time_from,))
        high = bisect_right(slots, (time_to, MAX_LONG))
        rows = self._show_fetched(zip(slots[low:high], image.rows[low:high], strict=True))
        return reversed(rows) if reverse else iter(rows)

    def scan_key(self, key: Any, time_from: int, time_to: int, reverse: bool = False) -> Iterator[Any]:
        """The rows of `fetch`, for the operator of sliding windows.

        In Kafka Streams, this operator reads a range that goes from the key to the same key. So another part of a
        record cache counts as used.
        """
        return self.fetch(key, time_from, time_to, reverse)

    def fetch_range(
        self, low: Any, high: Any, time_from: int, time_to: int, reverse: bool = False
    ) -> Iterator[tuple[Any, ...]]:
        serialize = self._keys.serialize
        return self._scan(
            None if low is None else serialize(low),
            None if high is None else serialize(high),
            time_from,
            time_to,
            reverse,
            by_index=self._indexed,
        )

    def fetch_all(self, time_from: int, time_to: int, reverse: bool = False) -> Iterator[tuple[Any, ...]]:
        return self._scan(None, None, time_from, time_to, reverse)

    def all(self, reverse: bool = False) -> Iterator[tuple[Any, ...]]:
        return self._scan(None, None, 0, MAX_LONG, reverse)

    def find_closed(self, time_from: int, time_to: int) -> Iterator[tuple[Any, ...]]:
        """The rows of ``fetch_all``, for an operator that asks for one range of times after the other."""
        if self._time_index is None:
            return self.fetch_all(time_from, time_to)
        time_from, time_to = max(time_from, self._min_live(), 0), min(time_to, self._newest())
        return self._show_all(self._closed_between(time_from, time_to, self._scan_order))

    def _scan(
        self,
        low: bytes | None,
        high: bytes | None,
        time_from: int,
        time_to: int,
        reverse: bool,
        by_index: bool = False,
    ) -> Iterator[tuple[Any, ...]]:
        rows = self._visible(low, high, time_from, time_to, reverse)
        if by_index:
            rows = iter(sorted(rows, key=lambda entry: self._index_order(entry[0]), reverse=reverse))
        return self._show_all(rows)

    def _show_all(self, rows: Iterator[tuple[bytes, Row]]) -> Iterator[tuple[Any, ...]]:
        show_key, size = self._show_key, self._size
        for data, row in rows:
            if not size:
                raise InvalidStoreError(
                    f"the rows of store {self.name} cannot be shown as windows: its windows have no length "
                    "(a join of equal timestamps). Fetch them by key"
                )
            start = int.from_bytes(data[-12:-4], "big")
            yield self._show_scanned(Windowed(show_key(data), start, min(start + size, MAX_LONG)), row)

    def _show_fetched(self, rows: Iterable[tuple[Any, Row]]) -> list[Any]:
        """The rows of one key as readers see them; each comes with its slot."""
        if self._shown:
            return [(slot[0], row[0]) for slot, row in rows]
        show = self._values.show
        return [(slot[0], show(row[0])) for slot, row in rows]

    def _show_scanned(self, key: Windowed, row: Row) -> tuple[Any, ...]:
        return key, self._values.show(row[0])


class TimestampedWindowStore(WindowStore):
    """A `WindowStore` whose rows have a timestamp, for the tables of windowed aggregations.

    An aggregation gives a row the largest timestamp of its records. ``get`` gives ``(value, timestamp)``. The rows of
    all other reads have the timestamp as their last element.
    """

    _timestamped_values = True

    def get(self, key: Any, start: int) -> tuple[Any, int] | None:
        if key.__class__ is not self._key_class:
            key = self._keep_key(key)
        row = self._row_of_get(key, start)
        if row[0] is None:
            return None
        return row if self._shown else (self._values.show(row[0]), row[1])

    def folder(
        self,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
        keep_old: bool = False,
    ) -> Callable[[Any, int, Any, int], tuple[Any, Any, int]]:
        """A function of key, window start, value and timestamp that adds a value to a window's aggregate (`Fold`)."""
        kept, fold = self.row_folder(initializer, aggregator, keep_old)

        def fold_value(key: Any, start: int, value: Any, timestamp: int) -> tuple[Any, Any, int]:
            return fold((kept(key), start, 0), key, value, timestamp)

        return fold_value

    def row_folder(
        self,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
        keep_old: bool = False,
    ) -> tuple[Callable[[Any], Any], Fold]:
        """Two functions: the first gives the kept form of a key, the second adds a value to a row's aggregate (`Fold`).

        The second takes ``(kept key, window start, 0)`` as the key of the row. So a record that belongs to several
        windows needs only one call of the first function.
        """
        key_class, keep_key = self._key_class, self._keep_key

        def kept(key: Any) -> Any:
            return key if key.__class__ is key_class else keep_key(key)

        return kept, self._folder(initializer, aggregator, keep_old)

    def _show_fetched(self, rows: Iterable[tuple[Any, Row]]) -> list[Any]:
        show = self._values.show
        return [(slot[0], show(value), timestamp) for slot, (value, timestamp) in rows]

    def _show_scanned(self, key: Windowed, row: Row) -> tuple[Any, ...]:
        return key, self._values.show(row[0]), row[1]
