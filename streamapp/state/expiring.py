"""A key-value store whose rows expire, for tables with a time to live.

An index of the rows by time finds the rows that expire without a scan. Rows and index are in the same table of the
backend, and change in the same commit:

    0x00 key                    -> the row, as in every timestamped store
    0x01 timestamp (8) key      -> no bytes

Only the rows that expire next are in memory as a heap, so the store may be larger than the memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from heapq import heappop, heappush
from typing import Any

from streamapp.records import RecordBatch
from streamapp.state.backend import OrderedBytes, WriteSet
from streamapp.state.formats import LONG
from streamapp.state.key_value import TimestampedKeyValueStore
from streamapp.state.row_memory import RowMemory
from streamapp.state.spec import StoreSpec
from streamapp.state.store import StoreContext
from streamapp.state.write_behind import Row, Write

__all__ = ["ExpiringStore"]

_ROWS, _INDEX = b"\0", b"\1"
_LOOKAHEAD = 16
"""The number of parts in which the index of one time to live is read."""


class ExpiringStore(TimestampedKeyValueStore):
    """A `TimestampedKeyValueStore` whose rows have a time to live of ``expires_after_ms``.

    ``observed`` is the stream time. ``expire(expired)`` deletes the rows with timestamp + time to live <= ``observed``,
    in the order of timestamp and key. For each deleted row, the method calls ``expired(key, old value, timestamp + time
    to live)``.
    """

    def __init__(
        self,
        spec: StoreSpec,
        table: OrderedBytes,
        task: StoreContext,
        memory: RowMemory | None = None,
        *,
        expires_after_ms: int,
    ) -> None:
        super().__init__(spec, table, task, memory)
        self.observed = -1
        """The stream time of the operators that write to the store."""
        self._ttl = expires_after_ms
        self._step = max(1, expires_after_ms // _LOOKAHEAD)
        self._covered = 0
        self._next: list[tuple[int, bytes]] = []
        """A heap of (timestamp, key bytes) of all rows with timestamps before `_covered`. `expire` skips an entry if
        its row has changed."""
        self._ahead: defaultdict[int, set[Any]] = defaultdict(set)
        """The keys of dirty rows that were written with timestamps from `_covered` on, by timestamp // step."""
        self._indexed: dict[Any, int] = {}
        """The timestamp under which the backend's index has each dirty row; -1 if the index does not have it."""
        self._cleared = self._sealed_expired = self._expired = -1

    def expire(self, expired: Callable[[Any, Any, int], None]) -> None:
        limit = self.observed - self._ttl
        if limit >= self._covered:
            self._cover((limit // self._step + 1) * self._step)
        waiting = self._next
        while waiting and waiting[0][0] <= limit:
            timestamp, key = heappop(waiting)
            row_key = self._keys.from_bytes(key)
            value, current = self.row(row_key)
            if value is not None and current == timestamp:
                due = timestamp + self._ttl
                self.put_row(row_key, (None, due))
                expired(self._keys.show(row_key), self._values.show(value), due)
        self._expired = max(self._expired, limit)

    def _cover(self, until: int) -> None:
        """Reads the next part of the index into the heap: all timestamps before ``until``, a multiple of the step."""
        begin, self._covered = self._covered, until
        for entry, _ in self._table.range(_INDEX + LONG.pack(begin), _INDEX + LONG.pack(until)):
            heappush(self._next, (int.from_bytes(entry[1:9], "big"), entry[9:]))
        for part in [part for part in self._ahead if part * self._step < until]:
            for row_key in self._ahead.pop(part):
                value, timestamp = self._dirty[row_key]
                if value is not None and begin <= timestamp < until:
                    heappush(self._next, (timestamp, self._row_bytes(row_key)))

    def _write_steps(self) -> list[Callable[[Write], Write]]:
        return [*super()._write_steps(), self._indexing]

    def _indexing(self, write: Write) -> Write:
        def index_and_write(row_key: Any, row: Row) -> None:
            if row_key not in self._dirty:
                value, timestamp = self._read(row_key)
                self._indexed[row_key] = -1 if value is None else timestamp
            write(row_key, row)
            if row[0] is not None:
                if row[1] < self._covered:
                    heappush(self._next, (row[1], self._row_bytes(row_key)))
                else:
                    self._ahead[row[1] // self._step].add(row_key)

        return index_and_write

    def _seal(self, logged: bool) -> None:
        super()._seal(logged)
        self._sealed_expired = self._expired
        assert self._sealed is not None
        for row_key, (value, timestamp) in self._sealed.items():
            key, before = self._row_bytes(row_key), self._indexed[row_key]
            if before >= 0 and (value is None or before != timestamp):
                self._batch.append((_index_key(before, key), None))
            if value is not None:
                self._batch.append((_index_key(timestamp, key), b""))

    def drain(self, write_set: WriteSet) -> None:
        if self._sealed is None:
            self._seal(False)
        written = self._sealed or {}
        super().drain(write_set)
        for row_key, (value, timestamp) in written.items():
            self._indexed[row_key] = -1 if value is None else timestamp
        self._indexed = {row_key: self._indexed[row_key] for row_key in self._dirty}
        self._ahead.clear()
        for row_key, (value, timestamp) in self._dirty.items():
            if value is not None and timestamp >= self._covered:
                self._ahead[timestamp // self._step].add(row_key)
        if self._sealed_expired > self._cleared:
            self._cleared = self._sealed_expired
            write_set.range_deletes.setdefault(self.name, []).append(
                (_INDEX, _INDEX + LONG.pack(self._cleared + 1))
            )

    def restore(self, batch: RecordBatch, write_set: WriteSet) -> None:
        puts = write_set.puts.setdefault(self.name, [])
        for key, value, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True):
            if key is not None:
                puts.append((_ROWS + key, None if value is None else LONG.pack(timestamp) + value))
                if value is not None:
                    puts.append((_index_key(timestamp, key), b""))
        self.forget_read()

    # ------------------------------------------------------------------ where the rows are

    def _local_key(self, row_key: Any, row_bytes: bytes) -> bytes:
        return _ROWS + row_bytes

    def _encoded(self, row_keys: Collection[Any]) -> tuple[list[bytes], Sequence[bytes | None]]:
        keys, _ = super()._encoded(row_keys)
        return keys, [_ROWS + key for key in keys]

    def _stored_rows(self) -> int:
        return self._table.approximate_count() // 2  # each row has an entry in the index

    def _merged(
        self, start: bytes | None, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Row]]:
        rows = super()._merged(_ROWS + (start or b""), _INDEX if end is None else _ROWS + end, reverse)
        return ((key[1:], row) for key, row in rows)


def _index_key(timestamp: int, key: bytes) -> bytes:
    return _INDEX + LONG.pack(timestamp) + key
