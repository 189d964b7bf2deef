"""Stores that only operators of the DSL use, with methods of their own.

`OuterJoinStore` (kind ``list``): the records of outer and left stream-stream joins that have no match yet, by time.

    append(timestamp, is_left, key, value, logged_at=None)
        adds a value to the list of (timestamp, is_left, key)
    delete(timestamp, is_left, key, logged_at=None)
        deletes the list, and logs a tombstone even if there is no list
    delete_if_present(timestamp, is_left, key, logged_at=None)
        deletes the list; if there is none, logs nothing
    all() -> (timestamp, is_left, key, value), ...
        all values in the order of timestamp, side (right first) and key bytes

`TimeOrderedBuffer` (kind ``time_ordered_buffer``): the stream records that wait for the grace period of a stream-table
join.

    put(key, value, timestamp, headers) -> bool
        adds a record; False, and nothing is added, if the record's grace period is over already
    evict(callback)
        for each record whose grace period is over, by time: calls callback(key, value, context), then deletes it

`SuppressBuffer` (kind ``suppress_buffer``): the latest update of each key, ordered by the time of the key's first
buffered update.

    put(time, key, new, old, timestamp, headers)
        adds the update of a key, or replaces a buffered update, which stays at its place in the order
    evict_while(predicate, callback)
        while predicate() is true: calls callback(key, new, old, context) for the first update, then deletes the update
    prior_value(key) -> (value,) | None
        the value before the first buffered update, which readers still see; None if the key is not buffered
    num_records, buffer_size, min_timestamp
        the number of updates, their bytes as Kafka Streams counts them, and the first time (MAX_LONG if it is empty)

``context`` is a `RecordContext` with the timestamp and headers of the put. Topic, partition and offset are those of the
record that the task was processing. The value serde of an outer-join store is a `LeftOrRightSerde`, whose values are
``(is_left, value)``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

from streamapp._base.java_hash import bucket, bytes_hash
from streamapp.errors import SerializationError
from streamapp.records import NO_HEADERS, Headers, RecordBatch, RecordContext
from streamapp.serdes import BytesSerde
from streamapp.serdes.base import Serde
from streamapp.state.backend import OrderedBytes, WriteSet
from streamapp.state.formats import LONG, MAX_LONG, BufferedChange, pack_list, unpack_list
from streamapp.state.key_value import KeyValueStore
from streamapp.state.row_memory import RowMemory
from streamapp.state.sorted_entries import SortedEntries
from streamapp.state.spec import StoreSpec
from streamapp.state.store import Store, StoreContext

__all__ = ["OuterJoinStore", "SuppressBuffer", "TimeOrderedBuffer"]

_TIME_SIDE = struct.Struct(">qB")
_INT = struct.Struct(">i")
_VERSION_3: Headers = (("v", b"\x03"),)


class OuterJoinStore(Store):
    """Unmatched records of outer and left stream-stream joins; the module's docstring has the methods."""

    def __init__(
        self, spec: StoreSpec, table: OrderedBytes, task: StoreContext, memory: RowMemory | None = None
    ) -> None:
        super().__init__(spec, table, task)
        self._key_serde, self._value_serde = _serdes(spec)
        self._rows = _raw_store(spec, table, task, memory, logged=spec.logged)
        self._since = 0
        """No row has an earlier time. A scan from here does not pass over the rows that were deleted before."""

    def log_dirty(self) -> None:
        self._rows.log_dirty()

    def drain(self, write_set: WriteSet) -> None:
        self._rows.drain(write_set)

    def restore(self, batch: RecordBatch, write_set: WriteSet) -> None:
        self._rows.restore(batch, write_set)
        self._since = 0

    def append(
        self, timestamp: int, is_left: bool, key: Any, value: Any, logged_at: int | None = None
    ) -> None:
        row_key = self._row_key(timestamp, is_left, key)
        data = self._rows.get(row_key)
        entries = [] if data is None else unpack_list(data)
        entries.append(self._value_serde.serialize(value))
        self._rows.put(row_key, pack_list(entries), logged_at)
        self._since = min(self._since, timestamp)

    def delete(self, timestamp: int, is_left: bool, key: Any, logged_at: int | None = None) -> None:
        self._rows.put(self._row_key(timestamp, is_left, key), None, logged_at)

    def delete_if_present(
        self, timestamp: int, is_left: bool, key: Any, logged_at: int | None = None
    ) -> None:
        row_key = self._row_key(timestamp, is_left, key)
        if self._rows.get(row_key) is not None:
            self._rows.put(row_key, None, logged_at)

    def all(self) -> Iterator[tuple[int, bool, Any, Any]]:
        rows = self._rows.range(LONG.pack(self._since))
        first = next(rows, None)
        if first is None:
            self._since = MAX_LONG
            return
        self._since, _ = _TIME_SIDE.unpack_from(first[0])
        for row_key, data in chain((first,), rows):
            timestamp, side = _TIME_SIDE.unpack_from(row_key)
            key = self._key_serde.deserialize(row_key[9:])
            for entry in unpack_list(data):
                yield timestamp, side == 1, key, self._value_serde.deserialize(entry)

    @property
    def dirty_bytes(self) -> int:
        return self._rows.dirty_bytes

    def _row_key(self, timestamp: int, is_left: bool, key: Any) -> bytes:
        return _TIME_SIDE.pack(timestamp, is_left) + self._key_serde.serialize(key)


class TimeOrderedBuffer(Store):
    """Stream records that wait for a stream-table join's grace period; the module's docstring has the methods.

    The key of a row consists of a byte 0, the timestamp (8 bytes), the record's key, and a sequence number (4 bytes).
    """

    def __init__(
        self,
        spec: StoreSpec,
        table: OrderedBytes,
        task: StoreContext,
        memory: RowMemory | None = None,
        *,
        grace_ms: int,
    ) -> None:
        super().__init__(spec, table, task)
        self._key_serde, self._value_serde = _serdes(spec)
        self._grace = grace_ms
        # `_rows` does not log. This class does, because the records of its changelog have no timestamp.
        self._rows = _raw_store(spec, table, task, memory, logged=False)
        self._unlogged: dict[bytes, bytes | None] = {}
        self._observed, self._sequence = -1, 0
        self._has_times = False
        """False until `_read_times` has found `_since`, the earliest time of a row that waits."""

    def _read_times(self) -> None:
        # The rows are read at the first use, because a restore may follow the opening of the store.
        self._has_times = True
        self._since: int = MAX_LONG
        for row_key, _ in self._rows.all():
            timestamp = _timestamp_of(row_key)
            self._since = min(self._since, timestamp)
            self._observed = max(self._observed, timestamp)
            self._sequence = max(self._sequence, int.from_bytes(row_key[-4:], "big"))

    def put(self, key: Any, value: Any, timestamp: int, headers: Headers) -> bool:
        if not self._has_times:
            self._read_times()
        if timestamp < self._observed - self._grace:
            return False
        self._observed = max(self._observed, timestamp)
        self._sequence = (self._sequence + 1) & 0x7FFFFFFF
        row_key = b"\0" + LONG.pack(timestamp) + self._key_serde.serialize(key) + _INT.pack(self._sequence)
        change = BufferedChange(
            None, None, self._value_serde.serialize(value), _context(self._task, timestamp, headers)
        )
        self._put(row_key, change.pack(0))
        self._since = min(self._since, timestamp)
        return True

    def evict(self, callback: Callable[[Any, Any, RecordContext], None]) -> None:
        if not self._has_times:
            self._read_times()
        until = self._observed - self._grace
        if self._since > until:
            return
        # All rows to evict are read before the first callback, because a callback may put other rows.
        due, stays = [], MAX_LONG
        for row_key, (data, _) in self._rows._merged(b"\0" + LONG.pack(self._since), None):
            timestamp = _timestamp_of(row_key)
            if timestamp > until:
                stays = timestamp
                break
            due.append((row_key, data))
        self._since = stays
        try:
            for row_key, data in due:
                change, _ = BufferedChange.unpack(data)
                key = self._key_serde.deserialize(row_key[9:-4])
                callback(key, self._value_serde.deserialize(change.new or b""), change.context)
                self._put(row_key, None)
        except BaseException:
            self._since = min(self._since, _timestamp_of(row_key))  # this row and later ones stay due
            raise

    def _put(self, row_key: bytes, data: bytes | None) -> None:
        self._rows.put(row_key, data, 0)
        if self._log_each:
            self._task.log(self.name, row_key, data, None, NO_HEADERS)
        elif self._log_at_commit:
            self._unlogged[row_key] = data

    def log_dirty(self) -> None:
        for row_key, data in self._unlogged.items():
            self._task.log(self.name, row_key, data, None, NO_HEADERS)
        self._unlogged.clear()
        self._rows.log_dirty()

    def drain(self, write_set: WriteSet) -> None:
        self._rows.drain(write_set)

    def restore(self, batch: RecordBatch, write_set: WriteSet) -> None:
        self._rows.restore(batch, write_set)
        times = [_timestamp_of(key) for key in batch.keys if key is not None]
        self._observed = max([self._observed, *times])
        self._has_times = False

    @property
    def dirty_bytes(self) -> int:
        return self._rows.dirty_bytes


class SuppressBuffer(Store):
    """The updates that a suppression holds back, all in memory; the module's docstring has the methods.

    As in Kafka Streams, the buffer writes its changelog only at the commit. With ``log_each_write``, most other stores
    log each write at once.
    """

    def __init__(
        self, spec: StoreSpec, table: OrderedBytes, task: StoreContext, memory: RowMemory | None = None
    ) -> None:
        super().__init__(spec, table, task)
        self._key_serde, self._value_serde = _serdes(spec)
        self._times: dict[bytes, int] = {}
        self._changes: dict[bytes, BufferedChange] = {}
        self._order = SortedEntries()  # of time and key
        self._dirty: dict[bytes, None] = {}
        self._hash_buckets = 16
        self._batch: list[tuple[bytes, bytes | None]] | None = None
        self.buffer_size: int = 0
        for key, data in table.range(None, None):
            change, time = BufferedChange.unpack(data)
            self._add(key, change, time)
        self._order.update((time, key) for key, time in self._times.items())

    @property
    def num_records(self) -> int:
        return len(self._times)

    @property
    def min_timestamp(self) -> int:
        return int(self._order.first[0]) if self._times else MAX_LONG

    def put(self, time: int, key: Any, new: Any, old: Any, timestamp: int, headers: Headers) -> None:
        row_key = self._key_serde.serialize(key)
        old_data, new_data = self._bytes(old), self._bytes(new)
        before = self._changes.get(row_key)
        prior = old_data if before is None else before.prior
        change = BufferedChange(prior, old_data, new_data, _context(self._task, timestamp, headers))
        if before is None:
            self._times[row_key] = time
            self._order.add((time, row_key))
            self.buffer_size += 8 + len(row_key)
        else:
            self.buffer_size -= before.size
        self.buffer_size += change.size
        self._changes[row_key] = change
        self._dirty[row_key] = None

    def evict_while(
        self, predicate: Callable[[], bool], callback: Callable[[Any, Any, Any, RecordContext], None]
    ) -> None:
        while self._times and predicate():
            _, row_key = self._order.first
            change = self._changes[row_key]
            callback(
                self._key_serde.deserialize(row_key),
                self._value(change.new),
                self._value(change.old),
                change.context,
            )
            self._remove(row_key)
            self._dirty[row_key] = None

    def prior_value(self, key: Any) -> tuple[Any] | None:
        change = self._changes.get(self._key_serde.serialize(key))
        return None if change is None else (self._value(change.prior),)

    def log_dirty(self) -> None:
        batch = self._batch = []
        while len(self._dirty) > self._hash_buckets * 3 // 4:
            self._hash_buckets *= 2
        for row_key in sorted(self._dirty, key=self._hash_bucket):
            data = self._packed(row_key)
            batch.append((row_key, data))
            if self.spec.logged:
                headers = NO_HEADERS if data is None else _VERSION_3
                self._task.log(self.name, row_key, data, None, headers)
        self._dirty.clear()

    def drain(self, write_set: WriteSet) -> None:
        if self._batch is None:
            self._batch = [(key, self._packed(key)) for key in self._dirty]
            self._dirty.clear()
        if self._batch:
            write_set.puts.setdefault(self.name, []).extend(self._batch)
        self._batch = None

    def restore(self, batch: RecordBatch, write_set: WriteSet) -> None:
        puts = write_set.puts.setdefault(self.name, [])
        headers = batch.headers or [NO_HEADERS] * len(batch.keys)
        columns = zip(batch.keys, batch.values, batch.timestamps, headers, strict=True)
        for key, value, timestamp, record_headers in columns:
            if key is None:
                continue
            before = self._changes.get(key)
            if before is not None:
                self._remove(key)
            if value is not None:
                change, time = BufferedChange.unpack_logged(value, timestamp, record_headers, before)
                self._add(key, change, time)
                self._order.add((time, key))
                value = change.pack(time)
            puts.append((key, value))

    @property
    def dirty_bytes(self) -> int:
        return 200 * len(self._dirty)

    def _hash_bucket(self, row_key: bytes) -> int:
        # Kafka Streams holds changed keys in a java.util.HashSet, and logs them in the order of its iterator.
        return bucket(bytes_hash(row_key), self._hash_buckets)

    def _packed(self, row_key: bytes) -> bytes | None:
        change = self._changes.get(row_key)
        return None if change is None else change.pack(self._times[row_key])

    def _add(self, row_key: bytes, change: BufferedChange, time: int) -> None:
        self._times[row_key] = time
        self._changes[row_key] = change
        self.buffer_size += 8 + len(row_key) + change.size

    def _remove(self, row_key: bytes) -> None:
        time = self._times.pop(row_key)
        change = self._changes.pop(row_key)
        self._order.remove((time, row_key))
        self.buffer_size -= 8 + len(row_key) + change.size

    def _bytes(self, value: Any) -> bytes | None:
        return None if value is None else self._value_serde.serialize(value)

    def _value(self, data: bytes | None) -> Any:
        return None if data is None else self._value_serde.deserialize(data)


def _raw_store(
    spec: StoreSpec, table: OrderedBytes, task: StoreContext, memory: RowMemory | None, *, logged: bool
) -> KeyValueStore:
    raw = replace(spec, key_serde=BytesSerde(), value_serde=BytesSerde(), logged=logged)
    store = KeyValueStore(raw, table, task, memory)
    store.open_writes()
    return store


def _serdes(spec: StoreSpec) -> tuple[Serde[Any], Serde[Any]]:
    if spec.key_serde is None or spec.value_serde is None:
        raise SerializationError(f"store {spec.name!r} needs a key serde and a value serde")
    return spec.key_serde, spec.value_serde


def _context(task: StoreContext, timestamp: int, headers: Headers) -> RecordContext:
    return RecordContext(task.topic, task.partition, task.offset, timestamp, headers)


def _timestamp_of(row_key: bytes) -> int:
    return int.from_bytes(row_key[1:9], "big", signed=True)
