"""The base of window and session stores, whose rows expire by a time: the window's start, or the session's end.

In the backend, the key of a row begins with its *bucket* (time // bucket size, 8 bytes), followed by its changelog key.
So a scan by time reads only some buckets, and a single range delete removes all expired buckets. The rows of a key are
one short range in each bucket. A time index, if the store has one, follows the buckets (`TimeIndex`).

The changelog of such a store may lose its first records when all their rows have expired. The store knows these
records by *marks*. A mark is an offset of the changelog, and a time that no row of the records below the offset
exceeds.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any

from streamapp._base.counted import counted
from streamapp.errors import SerializationError
from streamapp.records import RecordBatch
from streamapp.serdes.types import excerpt
from streamapp.state.backend import OrderedBytes, WriteSet
from streamapp.state.formats import LONG, MAX_LONG
from streamapp.state.key_image import KeyImage
from streamapp.state.row_memory import Generations, RowMemory, kept_size
from streamapp.state.spec import StoreSpec
from streamapp.state.store import StoreContext
from streamapp.state.time_index import INDEX, TimeIndex
from streamapp.state.write_behind import Row, Write, WriteBehindStore

__all__ = ["TimeBucketedStore"]

_TIME_SEQUENCE_BUCKET = struct.Struct(">qiq")
_META = b"\xff"
"""The key of a row with the observed stream time, the last sequence number and the bucket size in ms. This key sorts
after all buckets."""
_MARK = struct.Struct(">qq")
_MARKS = b"\xff\0"
"""The key of a row with the marks: offset of the changelog, time in ms."""
_MOST_MARKS = 32
"""The number of marks within the retention, also if segments are much shorter. Each new mark writes all marks."""
_NO_TIME = -1
_LATER_ROWS, _LATER_PARTS = 8, 4
"""A load of an image ends within the rows behind the read, as soon as the image has so many rows. The second number
is a factor of the rows of the read; the larger result counts."""
_INDEXED_BYTES = 350
"""The estimated bytes in memory of a row in the time index: a set, and an entry of a dictionary and of a heap."""


def _bucket_of(prefix: bytes) -> int:
    return int.from_bytes(prefix, "big")


class TimeBucketedStore(WriteBehindStore):
    """Rows by key and time, with buckets and expiry.

    After a read of a key by time, an image (`KeyImage`) keeps the key's rows between two times in memory. A later read
    within these times needs no scan while the image is in memory. With ``time_index``, reads of closed windows use a
    `TimeIndex`.

    A store with rows on disk keeps the bucket size of these rows, and ignores ``bucket_ms``. A new version of the
    topology may have another retention, and so another ``bucket_ms``.
    """

    _ROW_BYTES = 350
    _timestamped_values = False
    _duplicates = False
    """True if each put adds a row."""
    _suffix = 0
    """The number of bytes that follow the key in a changelog key, such as start and end of a session."""
    _time_at = 1
    """The index of the time by which a row expires, in the row's key in memory."""

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
    ) -> None:
        super().__init__(spec, table, task, memory, timestamped=self._timestamped_values)
        self._retention = retention_ms
        self._segment = segment_ms
        self._bucket = bucket_ms
        self._exact = not spec.persistent
        self._by_time = self._exact or time_ordered
        self._images: Generations[KeyImage] = Generations(self._memory)
        self._dirty_of: dict[Any, tuple[Any, Any]] = {}
        """The dirty rows of each key, as a linked list: (the row's key in memory, the rest of the list or None)."""
        self._buckets: set[int] | None = None
        """The buckets in the backend; None until the first look-up that needs the buckets."""
        self._dirty_known = 0
        """The number of rows of `_dirty`, from its beginning, that `_dirty_of` already has."""
        self._observed = _NO_TIME
        self._sequence = 0
        self._written_meta = self._sealed_meta = meta = table.get(_META)
        if meta is not None:
            self._observed, self._sequence, self._bucket = _TIME_SEQUENCE_BUCKET.unpack(meta)
        self._time_index = TimeIndex(table, self._row_key_of, self._time_at) if time_index else None
        if time_index:
            self._ROW_BYTES += _INDEXED_BYTES
        self._deleted_before = self._sealed_live = self._first_live_bucket()
        self._marks: list[tuple[int, int]] = list(_MARK.iter_unpack(table.get(_MARKS) or b""))

    def _min_live(self) -> int:
        """The smallest time of a row that reads show; earlier rows have expired."""
        return self._observed - self._retention + 1

    def _first_live_bucket(self) -> int:
        """The oldest bucket that is kept.

        As in Kafka Streams, this is the bucket of (observed stream time - retention), although rows of this time are
        not visible.
        """
        return max(0, self._observed - self._retention) // self._bucket

    def _observe(self, time: int) -> bool:
        """Advances the observed stream time. If ``time`` is too old, counts a dropped row and returns False."""
        if time > self._observed:
            self._observed = time
        oldest = self._observed - self._retention
        if time > oldest or (not self._exact and time // self._segment >= oldest // self._segment):
            return True
        self._task.drop(1, self.name, "expired")
        return False

    def _time_of(self, row_bytes: bytes) -> int:
        """The time by which a row expires, from its changelog key."""
        raise NotImplementedError

    def _slot(self, row_key: Any) -> Any:
        """The sort key of a row among the rows of its key: a tuple that begins with the row's time."""
        raise NotImplementedError

    def _slot_of(self, row_bytes: bytes) -> Any:
        """The slot of a row, from its changelog key."""
        raise NotImplementedError

    def _row_key_of(self, row_bytes: bytes) -> Any:
        """A row's key in memory, from its changelog key."""
        raise NotImplementedError

    def _takes(self, row_key: Any, row: Row) -> bool:
        """Advances the observed stream time to the time of a written row. False if the row is too old to be kept."""
        raise NotImplementedError

    def _scan_order(self, row_bytes: bytes) -> Any:
        """The sort key of a row in a scan over several keys, from its changelog key."""
        raise NotImplementedError

    def _visible(
        self, low: bytes | None, high: bytes | None, time_from: int, time_to: int, reverse: bool = False
    ) -> Iterator[tuple[bytes, Row]]:
        """Changelog keys and rows of a range of keys and times, both inclusive, without expired rows."""
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
            rows = (row for row in rows if time_from <= time_of(row[0]) <= time_to)
            if self._by_time:
                rows = iter(sorted(rows, key=lambda entry: self._scan_order(entry[0]), reverse=reverse))
            for data, row in rows:
                key = data[:-suffix]
                if (low is None or low <= key) and (high is None or key <= high):
                    yield data, row

    def _closed_between(
        self, time_from: int, time_to: int, order: Callable[[bytes], Any]
    ) -> Iterator[tuple[bytes, Row]]:
        """Changelog keys and rows of closed windows, by time; ``order`` is the sort key of the rows of the same time.

        With a time index, a caller asks for one range of times after the other. An earlier range is possible, but takes
        longer.
        """
        if self._time_index is None:
            time_of = self._time_of
            scanned = self._between(None, None, time_from, time_to)
            yield from sorted(scanned, key=lambda entry: (time_of(entry[0]), order(entry[0])))
            return
        dirty, read, row_bytes = self._dirty, self._read_to_write, self._row_bytes
        for row_keys in self._time_index.take(time_from, time_to, dirty):
            rows = ((row_bytes(row_key), dirty.get(row_key) or read(row_key)) for row_key in row_keys)
            found = [entry for entry in rows if entry[1][0] is not None]
            found.sort(key=lambda entry: order(entry[0]))
            yield from found

    def _image_from(self, key: Any, time_from: int, time_to: int = MAX_LONG) -> KeyImage:
        """The image of a key, with all rows between two times (ms, not negative, both inclusive)."""
        image = self._images.young.get(key) or self._image_of(key)
        if image is None or image.complete_from > time_from or image.complete_to < time_to:
            return self._load(key, time_from, time_to, 0 if image is None else 2 * len(image.slots) + 1)
        if len(image.slots) > image.limit and self._images.young.get(key) is image:
            self._memory.give_back(image.shorten(time_from))
        return image

    def _load(self, key: Any, time_from: int, time_to: int, further: int) -> KeyImage:
        """Reads the image of a key between two times: its rows in the backend, with its dirty rows in their place.

        The image also gets the later rows, unless they are many more than the rows between the times. ``further`` is
        not 0 if the key had an image without these rows. The load then reads at least ``further`` rows from
        ``time_from`` on, if there are so many. The load also reads earlier rows of the first bucket, at most as many.
        So the image grows while reads miss it, and is not loaded for each read.
        """
        key_bytes, suffix, bucket = self._keys.to_bytes(key), self._suffix, self._bucket
        image = KeyImage(time_from)
        size, time_at, first = len(key_bytes) + suffix + 8, self._time_at, time_from // bucket
        unpack, slot_of, scan = self._unpack, self._slot_of, self._table.range
        start = LONG.pack(first) + key_bytes + LONG.pack(time_from)

        def stored() -> Iterator[tuple[Any, bytes]]:
            for number in self._stored_buckets(first):
                prefix = LONG.pack(number) + key_bytes
                begin, end = start if number == first else prefix, prefix + b"\x80"  # no time is negative
                for local, data in scan(begin, end):
                    if len(local) == size:
                        yield slot_of(local[8:]), data

        most = (
            -1
        )  # the number of rows with which the image ends, as soon as the rows between the times are known
        for slot, data in stored():
            read = len(image.slots)
            if most < 0 and slot[0] > time_to:
                most = max(_LATER_ROWS, _LATER_PARTS * read, further)
            if read == most:
                image.complete_to = slot[0] - 1
                break
            image.put(slot, unpack(data))
        read = len(image.slots)
        if further:
            rows = (row for row in scan(LONG.pack(first) + key_bytes, start, True) if len(row[0]) == size)
            earlier = [(slot_of(local[8:]), data) for local, data in islice(rows, max(1, read))]
            # Further rows may have the time of the last row, unless no row is left.
            image.complete_from = earlier[-1][0][0] + 1 if len(earlier) == max(1, read) else first * bucket
            for slot, data in earlier:
                if slot[0] >= image.complete_from:
                    image.put(slot, unpack(data))
            read += len(earlier)
        for row_key in self._dirty_rows_of(key):
            read += 1
            if image.complete_from <= row_key[time_at] <= image.complete_to:
                image.put(self._slot(row_key), self._dirty[row_key])
        image.loaded(read)
        self._images.keep(key, image, image.size + kept_size(key))
        return image

    def _dirty_rows_of(self, key: Any) -> Iterator[Any]:
        """The dirty rows of a key, each as the row's key in memory."""
        by_key, dirty = self._dirty_of, self._dirty
        new = len(dirty) - self._dirty_known
        if new:
            # Rows leave `_dirty` only in `drain`, therefore new rows stand at the end of the dict.
            for row_key in islice(reversed(dirty), new):
                by_key[row_key[0]] = row_key, by_key.get(row_key[0])
            self._dirty_known = len(dirty)
        entry = by_key.get(key)
        while entry is not None:
            row_key, entry = entry
            yield row_key

    def _newest(self) -> int:
        """The largest time of a row."""
        return self._observed

    def _show_key(self, row_bytes: bytes) -> Any:
        return self._keys.show(self._keys.from_bytes(row_bytes[: -self._suffix]))

    def _key_of(self, row_key: Any) -> Any:
        return row_key[0]

    def _write_steps(self) -> list[Callable[[Write], Write]]:
        return [self._expiring, *super()._write_steps()]

    def _expiring(self, write: Write) -> Write:
        """The step of a write that does not store rows that are too late. Outer steps still log these rows."""
        takes, store = self._takes, self._storing(write)

        def write_in_time(row_key: Any, row: Row) -> None:
            if takes(row_key, row):
                store(row_key, row)

        return write_in_time

    def _storing(self, write: Write) -> Write:
        """The function that writes a row without a check of its time."""
        images, keep_in_image = self._images, self._keep_in_image
        if self._time_index is not None:
            write = self._time_index.noting(write)

        def store(row_key: Any, row: Row) -> None:
            write(row_key, row)
            if images.young or images.old:
                keep_in_image(row_key, row)

        self._store = store
        return store

    def _keep_in_image(self, row_key: Any, row: Row) -> None:
        key = row_key[0]
        image = self._images.young.get(key) or self._image_of(key)
        if image is not None and image.complete_from <= row_key[self._time_at] <= image.complete_to:
            grown = image.put(self._slot(row_key), row)
            if grown and not self._memory.take(grown):
                self._images.forget(key)

    def _seal(self, logged: bool) -> None:
        super()._seal(logged)
        if self._buckets is not None:
            self._buckets.update(map(_bucket_of, {local[:8] for local, _ in self._batch}))
        if self._time_index is not None:
            self._batch += self._index_entries((local[8:], value) for local, value in self._batch)
        self._sealed_meta = self._meta()
        self._sealed_live = self._first_live_bucket()
        if self._sealed_meta != self._written_meta and self._observed != _NO_TIME:
            self._batch.append((_META, self._sealed_meta))

    def drain(self, write_set: WriteSet) -> None:
        written = len(self._dirty)
        super().drain(write_set)
        self._dirty_of.clear()
        self._dirty_known = 0
        if self._time_index is not None:
            self._time_index.written(written, self._dirty)
        if self._batch:  # without dirty rows the batch still may have the meta row
            write_set.puts.setdefault(self.name, []).extend(self._batch)
            self._batch = []
        self._written_meta = self._sealed_meta
        self._expire(write_set)

    def _expire(self, write_set: WriteSet) -> None:
        if self._sealed_live > self._deleted_before:
            self._deleted_before = self._sealed_live
            if self._buckets is not None:
                self._buckets = {number for number in self._buckets if number >= self._sealed_live}
            deletes = write_set.range_deletes.setdefault(self.name, [])
            deletes.append((b"", LONG.pack(self._sealed_live)))
            if self._time_index is not None:
                deletes.append((INDEX, INDEX + LONG.pack(self._sealed_live * self._bucket)))

    def note_logged(self, end: int, write_set: WriteSet) -> None:
        span = max(self._segment, self._retention // _MOST_MARKS)
        if self._observed != _NO_TIME and (
            not self._marks or self._observed // span > self._marks[-1][1] // span
        ):
            while len(self._marks) > 1 and self._is_needless(self._marks[1]):
                del self._marks[0]
            self._marks.append((end, self._observed))
            data = b"".join(_MARK.pack(*mark) for mark in self._marks)
            write_set.puts.setdefault(self.name, []).append((_MARKS, data))

    @property
    def needless_below(self) -> int:
        return max((mark[0] for mark in self._marks if self._is_needless(mark)), default=0)

    def _is_needless(self, mark: tuple[int, int]) -> bool:
        return mark[1] // self._bucket < self._deleted_before

    def _meta(self) -> bytes:
        return _TIME_SEQUENCE_BUCKET.pack(self._observed, self._sequence, self._bucket)

    def _index_entries(self, rows: Iterable[tuple[bytes, bytes | None]]) -> list[tuple[bytes, bytes | None]]:
        """The entries of the time index for rows, which are given as changelog key and value."""
        time_of, pack = self._time_of, LONG.pack
        return [(INDEX + pack(time_of(key)) + key, None if value is None else b"") for key, value in rows]

    def restore(self, batch: RecordBatch, write_set: WriteSet) -> None:
        time_of = self._time_of
        rows = [
            (key, value, timestamp, time_of(key))
            for key, value, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True)
            if key is not None
        ]
        if not rows:
            return
        short = next((key for key, *_ in rows if len(key) < self._suffix), None)
        if short is not None:
            raise SerializationError(
                f"expected a key and {counted(self._suffix, 'byte')} of times, got {excerpt(short)}"
            )
        if self._duplicates:
            # A backfill writes the rows in the order of their keys, so the last row may have a smaller number.
            self._sequence = max(self._sequence, *[int.from_bytes(key[-4:], "big") for key, *_ in rows])
            if not self._exact:
                # Tombstones delete nothing here, see `WindowStore.put`.
                rows = [row for row in rows if row[1] is not None]
        self._observed = max([self._observed, *[row[3] for row in rows]])
        bucket, pack = self._bucket, LONG.pack
        live = self._first_live_bucket()
        timestamped = self._timestamped
        puts = write_set.puts.setdefault(self.name, [])
        rows = [row for row in rows if row[3] // bucket >= live]
        puts.extend(
            [
                (
                    pack(time // bucket) + key,
                    pack(timestamp) + value if timestamped and value is not None else value,
                )
                for key, value, timestamp, time in rows
            ]
        )
        if self._time_index is not None:
            puts.extend(self._index_entries((row[0], row[1]) for row in rows))
        self._written_meta = self._meta()
        puts.append((_META, self._written_meta))
        if self._time_index is not None:
            self._time_index.forget(self._dirty)
        self._buckets = None
        self.forget_read()

    def forget_read(self) -> None:
        super().forget_read()
        self._images.clear()

    def _image_of(self, key: Any) -> KeyImage | None:
        image = self._images.young.get(key)
        if image is None:
            image = self._images.old.pop(key, None)
            if image is not None:
                self._images.keep(key, image, image.size + kept_size(key))
        return image

    def _bucket_rows(
        self, first: int, last: int, within: tuple[bytes, bytes | None] | None, reverse: bool = False
    ) -> Iterator[Iterator[tuple[bytes, Row]]]:
        """The rows of each bucket from first to last that has rows; ``within`` is a range of key bytes."""
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
            # A few buckets are tried one by one. If the gap may be long, a scan finds the next bucket with rows.
            if head is None and (bucket - first if reverse else last - bucket) > 3:
                bucket = self._next_bucket(bucket, first, last, reverse)

    def _next_bucket(self, bucket: int, first: int, last: int, reverse: bool) -> int | None:
        """The first bucket with rows from ``bucket`` up to ``last``. None: no bucket there has rows. With ``reverse``,
        the search goes from ``bucket`` down to ``first``."""
        if reverse:
            start, end = LONG.pack(first), LONG.pack(bucket + 1)
        else:
            start, end = LONG.pack(bucket), LONG.pack(last + 1)
        for key, _ in self._merged(start, end, reverse):
            return int.from_bytes(key[:8], "big")
        return None

    def _stored_buckets(self, first: int) -> list[int]:
        """The buckets from ``first`` on that may have rows in the backend."""
        if self._buckets is None:
            # The rows of a commit under way come into the backend later.
            self._buckets = {row_key[self._time_at] // self._bucket for row_key in self._sealed or ()}
            start = 0
            while True:
                key = next((key for key, _ in self._table.range(LONG.pack(start), INDEX)), None)
                if key is None:
                    break
                start = int.from_bytes(key[:8], "big")
                self._buckets.add(start)
                start += 1
        return sorted(number for number in self._buckets if number >= first)

    def _stored_rows(self) -> int:
        # Expired rows count until their bucket is deleted.
        entries = self._table.approximate_count() - (self._table.get(_META) is not None) - bool(self._marks)
        return entries if self._time_index is None else entries // 2
