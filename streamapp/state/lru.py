"""A key-value store that is bounded by a number of entries: the least recently used one goes."""

from __future__ import annotations

from typing import Any

from streamapp.errors import InvalidStoreError
from streamapp.records import RecordBatch
from streamapp.state.backend import OrderedBytes, WriteSet
from streamapp.state.formats import LONG
from streamapp.state.key_value import KeyValueStore, TimestampedKeyValueStore
from streamapp.state.spec import StoreSpec
from streamapp.state.write_behind import CACHED_ROWS, MISSING, Row, StoreContext

__all__ = ["LruStore", "TimestampedLruStore"]


class LruStore(KeyValueStore):
    """A `KeyValueStore` with a limit (`StoreKind` ``lru``).

    It holds the ``spec.max_entries`` entries that were read or written last, all in memory; what it evicts
    gets a tombstone in the changelog. Iterating does not count as use.
    """

    def __init__(
        self, spec: StoreSpec, table: OrderedBytes, task: StoreContext, cached_rows: int = CACHED_ROWS
    ) -> None:
        super().__init__(spec, table, task, cached_rows)
        if spec.max_entries < 1:
            raise InvalidStoreError(
                f"store {spec.name!r}: max_entries has to be at least 1, got {spec.max_entries}"
            )
        self._rows: dict[Any, Row] = {}
        """Least recently used first."""
        for key, data in table.range(None, None):
            self._rows[self._keys.from_bytes(key)] = self._unpack(data)

    def row(self, row_key: Any) -> Row:
        row = self._rows.pop(row_key, None)
        if row is None:
            return MISSING
        self._rows[row_key] = row
        return row

    def get(self, key: Any) -> Any:
        value = self.row(key if key.__class__ is self._key_class else self._keep_key(key))[0]
        return None if value is None else self._values.show(value)

    def put_row(self, row_key: Any, row: Row) -> None:
        self._rows.pop(row_key, None)
        if row[0] is not None:
            self._rows[row_key] = row
            if len(self._rows) > self.spec.max_entries:
                eldest = next(iter(self._rows))
                del self._rows[eldest]
                self._evicted(eldest, (None, self._task.timestamp))
        super().put_row(row_key, row)

    def _evicted(self, row_key: Any, row: Row) -> None:
        super().put_row(row_key, row)

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
                if len(self._rows) > self.spec.max_entries:
                    eldest = next(iter(self._rows))
                    del self._rows[eldest]
                    puts.append((self._keys.to_bytes(eldest), None))

    def approximate_num_entries(self) -> int:
        return len(self._rows)


class TimestampedLruStore(LruStore, TimestampedKeyValueStore):
    """The table of a DSL operator with a limit: `StoreKind` ``timestamped`` with ``max_entries``.

    What it evicts is deleted with the commit; where every write is logged, it leaves no record of its own (as in Kafka
    Streams, whose DSL wraps the store so that nobody hears of evictions).
    """

    def _evicted(self, row_key: Any, row: Row) -> None:
        self._dirty[row_key] = row

    def get(self, key: Any) -> tuple[Any, int] | None:
        value, timestamp = self.row(key if key.__class__ is self._key_class else self._keep_key(key))
        return None if value is None else (self._values.show(value), timestamp)
