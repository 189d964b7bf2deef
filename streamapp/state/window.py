"""Window stores: rows by key and window start, which expire by the stream time of the store.

A row is visible while start > observed stream time - retention, the observed stream time being the
largest start put so far. As in Kafka Streams, a persistent store forgets by segments: a row that is put
into a segment which still lives is logged though it may not be visible, and only one for a dead segment
is dropped and counted.

In the backend a row's key is its bucket (start // bucket size, 8 bytes) before its changelog key. So a
scan by time touches few buckets, expiry is one range delete, and what one key has is one short range in
each bucket.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from streamapp.errors import InvalidStoreError
from streamapp.records import NO_HEADERS, Headers, RecordBatch, Windowed
from streamapp.state.backend import OrderedBytes, WriteSet
from streamapp.state.formats import LONG, MAX_LONG
from streamapp.state.spec import StoreSpec
from streamapp.state.write_behind import CACHED_ROWS, MISSING, Row, StoreContext, WriteBehindStore

__all__ = ["KeyImage", "TimeBucketedStore", "TimestampedWindowStore", "WindowStore"]

_START_SEQUENCE = struct.Struct(">qi")
_META = b"\xff"
"""Local key of the observed stream time and the last sequence number; after all buckets."""
_NO_TIME = -1


class KeyImage:
    """All rows of one key from a time on, so that a lookup by time needs no iterator of the backend."""

    __slots__ = ("complete_from", "rows", "slots")

    def __init__(self, complete_from: int) -> None:
        self.complete_from = complete_from
        self.slots: list[Any] = []
        self.rows: list[Row] = []

    def put(self, slot: Any, row: Row) -> None:
        slots = self.slots
        if not slots or slots[-1] < slot:
            if row[0] is not None:
                slots.append(slot)
                self.rows.append(row)
            return
        at = bisect_left(slots, slot)
        found = slots[at] == slot
        if row[0] is None:
            if found:
                del slots[at], self.rows[at]
        elif found:
            self.rows[at] = row
        else:
            slots.insert(at, slot)
            self.rows.insert(at, row)

    def trim(self, slot: Any) -> None:
        at = bisect_left(self.slots, slot)
        del self.slots[:at], self.rows[:at]


class TimeBucketedStore(WriteBehindStore):
    """What window and session stores share: buckets, expiry, images of keys that are looked up by time."""

    _timestamped_values = False
    _suffix = 0
    """How many bytes of a changelog key follow the key proper."""

    def __init__(
        self, spec: StoreSpec, table: OrderedBytes, task: StoreContext, cached_rows: int = CACHED_ROWS
    ) -> None:
        super().__init__(spec, table, task, timestamped=self._timestamped_values, cached_rows=cached_rows)
        self._retention = spec.retention_ms
        self._segment = spec.segment_interval_ms or max(spec.retention_ms // 2, 60_000)
        self._bucket = self._segment
        self._exact = not spec.persistent
        self._by_time = self._exact or spec.time_ordered
        self._images: dict[Any, KeyImage] = {}
        self._old_images: dict[Any, KeyImage] = {}
        self._observed = _NO_TIME
        self._sequence = 0
        self._written_meta = self._sealed_meta = meta = table.get(_META)
        if meta is not None:
            self._observed, self._sequence = _START_SEQUENCE.unpack(meta)
        self._deleted_before = max(0, self._min_live()) // self._bucket

    def _min_live(self) -> int:
        """The smallest time that is still visible."""
        return self._observed - self._retention + 1

    def _observe(self, time: int) -> bool:
        """Advances the observed stream time; False, and counted, if a row of that time is too old to keep."""
        if time > self._observed:
            self._observed = time
        oldest = self._observed - self._retention
        if time > oldest or (not self._exact and time // self._segment >= oldest // self._segment):
            return True
        self._task.drop()
        return False

    def _time_of(self, row_bytes: bytes) -> int:
        """The time by which a row expires, from its changelog key."""
        raise NotImplementedError

    def _time(self, row_key: Any) -> int:
        """The time by which a row expires."""
        raise NotImplementedError

    def _slot(self, row_key: Any) -> Any:
        """A row's place among those of its key: a tuple that begins with its time."""
        raise NotImplementedError

    def _slot_of(self, row_bytes: bytes) -> Any:
        """The same from its changelog key."""
        raise NotImplementedError

    def _takes(self, row_key: Any, row: Row) -> bool:
        """Advances the observed stream time by a row that is written; False if it is too old to keep."""
        raise NotImplementedError

    def _scan_order(self, row_bytes: bytes) -> Any:
        """What rows of several keys are sorted by."""
        raise NotImplementedError

    def _visible(
        self, low: bytes | None, high: bytes | None, time_from: int, time_to: int, reverse: bool = False
    ) -> Iterator[tuple[bytes, Row]]:
        """Changelog keys and rows of a range of keys and times, both inclusive, without what has expired."""
        return self._between(
            low, high, max(time_from, self._min_live(), 0), min(time_to, self._newest()), reverse
        )

    def _between(
        self, low: bytes | None, high: bytes | None, time_from: int, time_to: int, reverse: bool = False
    ) -> Iterator[tuple[bytes, Row]]:
        if time_to < time_from or (low is not None and high is not None and low > high):
            return
        within = None if low is None and high is None else (low or b"", None)
        suffix, time_of, bucket = self._suffix, self._time_of, self._bucket
        for rows in self._bucket_rows(time_from // bucket, time_to // bucket, within, reverse):
            if self._by_time:
                rows = iter(sorted(rows, key=lambda entry: self._scan_order(entry[0]), reverse=reverse))
            for data, row in rows:
                if time_from <= time_of(data) <= time_to:
                    key = data[:-suffix]
                    if (low is None or low <= key) and (high is None or key <= high):
                        yield data, row

    def _load(self, key: Any, time_from: int) -> KeyImage:
        key_bytes, suffix, bucket = self._keys.to_bytes(key), self._suffix, self._bucket
        first, last = time_from // bucket, max(self._newest(), 0) // bucket
        image = KeyImage(first * bucket)
        size = len(key_bytes) + suffix
        within = (key_bytes, key_bytes + b"\x80")  # times are not negative
        for rows in self._bucket_rows(first, last, within):
            for data, row in rows:
                if len(data) == size and data.startswith(key_bytes):
                    image.put(self._slot_of(data), row)
        self._keep_image(key, image)
        return image

    def _newest(self) -> int:
        """No row is newer."""
        return self._observed

    def _show_key(self, row_bytes: bytes) -> Any:
        return self._keys.show(self._keys.from_bytes(row_bytes[: -self._suffix]))

    def _keep_in_image(self, row_key: Any, row: Row) -> None:
        image = self._image_of(row_key[0])
        if image is not None:
            image.put(self._slot(row_key), row)

    def _seal(self, logged: bool) -> None:
        super()._seal(logged)
        self._sealed_meta = _START_SEQUENCE.pack(self._observed, self._sequence)
        if self._sealed_meta != self._written_meta and self._observed != _NO_TIME:
            self._batch.append((_META, self._sealed_meta))

    def drain(self, write_set: WriteSet) -> None:
        super().drain(write_set)
        if self._batch:  # the meta row alone: it is not a row of `_dirty`
            write_set.puts.setdefault(self.name, []).extend(self._batch)
            self._batch = []
        self._written_meta = self._sealed_meta
        self._expire(write_set)

    def _expire(self, write_set: WriteSet) -> None:
        live = max(0, self._min_live()) // self._bucket
        if live > self._deleted_before:
            self._deleted_before = live
            write_set.range_deletes.setdefault(self.name, []).append((b"", LONG.pack(live)))

    def restore(self, batch: RecordBatch, write_set: WriteSet) -> None:
        time_of = self._time_of
        rows = [
            (key, value, timestamp, time_of(key))
            for key, value, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True)
            if key is not None
        ]
        if not rows:
            return
        if self.spec.retain_duplicates:
            self._sequence = int.from_bytes(rows[-1][0][-4:], "big")
            if not self._exact:
                rows = [row for row in rows if row[1] is not None]  # see `WindowStore.put`
        self._observed = max([self._observed, *[row[3] for row in rows]])
        bucket, pack = self._bucket, LONG.pack
        live = max(0, self._min_live()) // bucket
        timestamped = self._timestamped
        puts = write_set.puts.setdefault(self.name, [])
        puts.extend(
            [
                (
                    pack(time // bucket) + key,
                    pack(timestamp) + value if timestamped and value is not None else value,
                )
                for key, value, timestamp, time in rows
                if time // bucket >= live
            ]
        )
        self._written_meta = _START_SEQUENCE.pack(self._observed, self._sequence)
        puts.append((_META, self._written_meta))
        self._forget_clean()

    def _forget_clean(self) -> None:
        super()._forget_clean()
        self._images.clear()
        self._old_images.clear()

    def _image_of(self, key: Any) -> KeyImage | None:
        image = self._images.get(key)
        if image is None:
            image = self._old_images.pop(key, None)
            if image is not None:
                self._images[key] = image
        return image

    def _keep_image(self, key: Any, image: KeyImage) -> None:
        self._images[key] = image
        if len(self._images) > self._cached_rows:
            self._old_images, self._images = self._images, {}

    def _bucket_rows(
        self, first: int, last: int, within: tuple[bytes, bytes | None] | None, reverse: bool = False
    ) -> Iterator[Iterator[tuple[bytes, Row]]]:
        """The rows of each bucket from first to last that holds any; ``within``: a range of key bytes."""
        step = -1 if reverse else 1
        bucket: int | None = last if reverse else first
        while bucket is not None and first <= bucket <= last:
            prefix = LONG.pack(bucket)
            if within is None:
                start, end = prefix, LONG.pack(bucket + 1)
            else:
                start = prefix + within[0]
                end = LONG.pack(bucket + 1) if within[1] is None else prefix + within[1]
            rows = ((key[8:], row) for key, row in self._merged(start, end, reverse))
            head = next(rows, None)
            if head is not None:
                yield chain((head,), rows)
            bucket += step
            # Few buckets are tried one by one; over a long gap the next one with rows is looked up.
            if head is None and (bucket - first if reverse else last - bucket) > 3:
                bucket = self._next_bucket(bucket, first, last, reverse)

    def _next_bucket(self, bucket: int, first: int, last: int, reverse: bool) -> int | None:
        """The next bucket, this one included, that has rows."""
        if reverse:
            start, end = LONG.pack(first), LONG.pack(bucket + 1)
        else:
            start, end = LONG.pack(bucket), LONG.pack(last + 1)
        for key, _ in self._merged(start, end, reverse):
            return int.from_bytes(key[:8], "big")
        return None

    def approximate_num_entries(self) -> int:
        live = self._min_live()
        return sum(1 for key, _ in self._merged(None, _META) if self._time_of(key[8:]) >= live)


class WindowStore(TimeBucketedStore):
    """Values by key and window start (`StoreKind` ``window``).

    get(key, start)
        the value, or None
    put(key, value, start, timestamp=None, headers=())
        sets it, None deletes; timestamp and headers go to the changelog. With ``retain_duplicates``
        it adds another row, and None does nothing
    fetch(key, time_from, time_to, reverse=False)
        (start, value) of one key, by start
    fetch_range(low, high, time_from, time_to, reverse=False)
        (Windowed, value) of the keys from low to high, None is open
    fetch_all(time_from, time_to, reverse=False), all(reverse=False)
        (Windowed, value) of all keys

    Times are window starts in ms, both ends inclusive. Rows of several keys come by key bytes, then start,
    within a segment if the store is persistent, else by start, then key bytes.
    """

    _suffix = _START_SEQUENCE.size

    def __init__(
        self, spec: StoreSpec, table: OrderedBytes, task: StoreContext, cached_rows: int = CACHED_ROWS
    ) -> None:
        self._inclusive = spec.time_ordered and spec.persistent
        super().__init__(spec, table, task, cached_rows)
        if spec.time_ordered and 0 < spec.window_size_ms < self._segment:
            # Emission scans by time: with the window size as bucket, a tumbling window is exactly one bucket.
            self._bucket = spec.window_size_ms
            self._deleted_before = max(0, self._min_live()) // self._bucket
        self._duplicates = spec.retain_duplicates
        self._size = spec.window_size_ms

    def _min_live(self) -> int:
        # Stores of on_window_close show one millisecond more, to find a window that closes as it expires.
        return self._observed - self._retention + (0 if self._inclusive else 1)

    def _row_bytes(self, row_key: Any) -> bytes:
        return self._keys.to_bytes(row_key[0]) + _START_SEQUENCE.pack(*row_key[1:])

    def _local_key(self, row_key: Any, row_bytes: bytes) -> bytes:
        return LONG.pack(row_key[1] // self._bucket) + row_bytes

    def _encoder(self) -> Callable[[Any], tuple[bytes, bytes | None]]:
        to_bytes, bucket, live = self._keys.to_bytes, self._bucket, self._min_live()
        pack_suffix, pack_bucket = _START_SEQUENCE.pack, LONG.pack

        def encode(row_key: Any) -> tuple[bytes, bytes | None]:
            key, start, sequence = row_key
            data = to_bytes(key) + pack_suffix(start, sequence)
            return data, None if start < live else pack_bucket(start // bucket) + data

        return encode

    def _time_of(self, row_bytes: bytes) -> int:
        return int.from_bytes(row_bytes[-12:-4], "big")

    def _time(self, row_key: Any) -> int:
        return int(row_key[1])

    def _slot(self, row_key: Any) -> tuple[int, int]:
        return row_key[1], row_key[2]

    def _slot_of(self, row_bytes: bytes) -> tuple[int, int]:
        return _START_SEQUENCE.unpack(row_bytes[-12:])

    def _takes(self, row_key: Any, row: Row) -> bool:
        return self._observe(row_key[1])

    def _scan_order(self, row_bytes: bytes) -> tuple[int, bytes]:
        start = int.from_bytes(row_bytes[-12:-4], "big")
        return (start if self._by_time else start // self._segment), row_bytes

    def get(self, key: Any, start: int) -> Any:
        if key.__class__ is not self._key_class:
            key = self._keep_key(key)
        value = self.row((key, start, self._sequence))[0]
        return None if value is None else self._values.show(value)

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
        if key.__class__ is not self._key_class:
            key = self._keep_key(key)
        if value.__class__ is not self._value_class and value is not None:
            value = self._keep_value(value)
        row = (value, self._task.timestamp if timestamp is None else timestamp)
        if self._duplicates:
            self._sequence = (self._sequence + 1) & 0x7FFFFFFF
        row_key = (key, start, self._sequence)
        if headers:
            self._log_headers[row_key] = headers
        if value is None and self._duplicates:
            # Nothing to add and nothing to delete, yet Kafka Streams logs it, and in memory its time counts.
            if self._exact:
                self._observe(start)
            if self._log_each:
                self._log(row_key, row)
        else:
            self.put_row(row_key, row)

    def put_row(self, row_key: Any, row: Row) -> None:
        start = row_key[1]
        if start > self._observed:
            self._observed = start
        if start > self._observed - self._retention or self._observe(start):
            self._dirty[row_key] = row
            if self._images or self._old_images:
                self._keep_in_image(row_key, row)
        if self._log_each:
            self._log(row_key, row)

    def fetch(self, key: Any, time_from: int, time_to: int, reverse: bool = False) -> Iterator[Any]:
        if key.__class__ is not self._key_class:
            key = self._keep_key(key)
        time_from = max(time_from, self._min_live(), 0)
        if time_to < time_from:
            return iter(())
        image = self._image_of(key)
        if image is None or image.complete_from > time_from:
            image = self._load(key, time_from)
        slots = image.slots
        if len(slots) > 64 and slots[0][0] < self._min_live():
            image.trim((self._min_live(),))
        low = bisect_left(slots, (time_from,))
        high = bisect_right(slots, (time_to, MAX_LONG))
        found = zip(slots[low:high], image.rows[low:high], strict=True)
        rows = self._show_fetched([(slot[0], row) for slot, row in found])
        return reversed(rows) if reverse else iter(rows)

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
        )

    def fetch_all(self, time_from: int, time_to: int, reverse: bool = False) -> Iterator[tuple[Any, ...]]:
        return self._scan(None, None, time_from, time_to, reverse)

    def all(self, reverse: bool = False) -> Iterator[tuple[Any, ...]]:
        return self._scan(None, None, 0, MAX_LONG, reverse)

    def _scan(
        self, low: bytes | None, high: bytes | None, time_from: int, time_to: int, reverse: bool
    ) -> Iterator[tuple[Any, ...]]:
        show_key, size = self._show_key, self._size
        for data, row in self._visible(low, high, time_from, time_to, reverse):
            if not size:
                raise InvalidStoreError(
                    f"the rows of store {self.name} cannot be shown as windows: its windows have no length "
                    "(a join of equal timestamps). Fetch them by key"
                )
            start = int.from_bytes(data[-12:-4], "big")
            yield self._show_scanned(Windowed(show_key(data), start, min(start + size, MAX_LONG)), row)

    def _show_fetched(self, rows: list[tuple[int, Row]]) -> list[Any]:
        if self._shown:
            return [(start, row[0]) for start, row in rows]
        show = self._values.show
        return [(start, show(row[0])) for start, row in rows]

    def _show_scanned(self, key: Windowed, row: Row) -> tuple[Any, ...]:
        return key, self._values.show(row[0])


class TimestampedWindowStore(WindowStore):
    """Window rows with a timestamp (`StoreKind` ``timestamped_window``): the tables of windowed aggregations.

    As `WindowStore`, but ``get`` gives ``(value, timestamp)`` and all other rows end with the timestamp.
    """

    _timestamped_values = True

    def get(self, key: Any, start: int) -> tuple[Any, int] | None:
        if key.__class__ is not self._key_class:
            key = self._keep_key(key)
        row = self.row((key, start, self._sequence))
        if row[0] is None:
            return None
        return row if self._shown else (self._values.show(row[0]), row[1])

    def _show_fetched(self, rows: list[tuple[int, Row]]) -> list[Any]:
        show = self._values.show
        return [(start, show(row[0]), row[1]) for start, row in rows]

    def _show_scanned(self, key: Windowed, row: Row) -> tuple[Any, ...]:
        return key, self._values.show(row[0]), row[1]
