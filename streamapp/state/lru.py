"""A key-value store with a limit of entries: at the limit, the entry that was used longest ago is deleted (LRU)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from typing import Any

from streamapp.records import RecordBatch
from streamapp.state.backend import OrderedBytes, WriteSet
from streamapp.state.formats import LONG
from streamapp.state.key_value import KeyValueStore, TimestampedKeyValueStore
from streamapp.state.row_memory import RowMemory
from streamapp.state.spec import StoreSpec
from streamapp.state.store import StoreContext
from streamapp.state.write_behind import MISSING, Row, Write

__all__ = ["LruStore", "TimestampedLruStore"]


class LruStore(KeyValueStore):
    """A `KeyValueStore` in memory that keeps the ``max_entries`` entries that were read or written last.

    Every other entry is deleted (evicted), and its tombstone goes to the changelog. A scan does not count as use of the
    entries that it shows. After a restore, the order of use is that of the changelog, which does not know of reads.
    """

    def __init__(
        self,
        spec: StoreSpec,
        table: OrderedBytes,
        task: StoreContext,
        memory: RowMemory | None = None,
        *,
        max_entries: int,
    ) -> None:
        super().__init__(spec, table, task, memory)
        self._most = max_entries
        self._rows: OrderedDict[Any, Row] = OrderedDict()
        """All rows, in the order of their last use."""
        for key, data in table.range(None, None):
            self._rows[self._keys.from_bytes(key)] = self._unpack(data)

    def row(self, row_key: Any) -> Row:
        row = self._rows.get(row_key)
        if row is None:
            return MISSING
        self._rows.move_to_end(row_key)
        return row

    def get(self, key: Any) -> Any:
        value = self.row(key if key.__class__ is self._key_class else self._keep_key(key))[0]
        return None if value is None else self._values.show(value)

    def _write_steps(self) -> list[Callable[[Write], Write]]:
        return [*super()._write_steps(), self._bounding]

    def _bounding(self, write: Write) -> Write:
        self._delete = write

        def use_and_write(row_key: Any, row: Row) -> None:
            self._rows.pop(row_key, None)
            if row[0] is not None:
                self._rows[row_key] = row
                if len(self._rows) > self._most:
                    eldest, _ = self._rows.popitem(last=False)
                    self._evicted(eldest, (None, self._task.timestamp))
            write(row_key, row)

        return use_and_write

    def _evicted(self, row_key: Any, row: Row) -> None:
        self._delete(row_key, row)

    def _in_log_order(self) -> dict[Any, Row]:
        """Deletions first, then the other rows by their last use, so that a restored store evicts the same rows.

        All dirty rows were used since the last commit. So the search from the end stops before it comes to rows that
        were used earlier.
        """
        order = {row_key: row for row_key, row in self._dirty.items() if row[0] is None}
        kept = len(self._dirty) - len(order)
        last_first = islice((row_key for row_key in reversed(self._rows) if row_key in self._dirty), kept)
        for row_key in reversed(list(last_first)):
            order[row_key] = self._dirty[row_key]
        return order

    def restore(self, batch: RecordBatch, write_set: WriteSet) -> None:
        puts = write_set.puts.setdefault(self.name, [])
        for data, value, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True):
            if data is None:
                continue
            if value is not None and self._timestamped:
                value = LONG.pack(timestamp) + value
            puts.append((data, value))
            key = self._keys.from_bytes(data)
            self._rows.pop(key, None)
            if value is not None:
                self._rows[key] = self._unpack(value)
                if len(self._rows) > self._most:
                    eldest, _ = self._rows.popitem(last=False)
                    puts.append((self._keys.to_bytes(eldest), None))

    def approximate_num_entries(self) -> int:
        return len(self._rows)


class TimestampedLruStore(LruStore, TimestampedKeyValueStore):
    """The table of a DSL operator with a limit of entries.

    On workers and Spark, the deletion of an evicted row goes to the changelog at the next commit. The test driver logs
    each other write at once, but never an eviction, like the DSL of Kafka Streams.
    """

    def _evicted(self, row_key: Any, row: Row) -> None:
        self._remember(row_key, row)

    def get(self, key: Any) -> tuple[Any, int] | None:
        value, timestamp = self.row(key if key.__class__ is self._key_class else self._keep_key(key))
        return None if value is None else (self._values.show(value), timestamp)
