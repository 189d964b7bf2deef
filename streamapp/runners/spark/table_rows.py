"""The rows of tables that leave the executors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from streamapp.runners.spark.frames import ROW, output_batch
from streamapp.runners.spark.partitioning import key_partitions
from streamapp.state.spec import StoreSpec

__all__ = ["readable", "table_batches"]

ROWS_PER_BATCH = 20_000


def readable(spec: StoreSpec) -> bool:
    """True if the rows of a store can be shown as a table.

    The store needs a `RowShape` and serdes. Windows need a length, which the stores of a join of records with equal
    timestamps do not have.
    """
    shape = spec.kind.shape
    return (
        shape is not None
        and spec.key_serde is not None
        and spec.value_serde is not None
        and (shape.family != "window" or spec.kind.window_size_ms > 0)
    )


def table_batches(
    stores: Mapping[str, Any], partition: int, homes: Mapping[str, int]
) -> Iterator[pa.RecordBatch]:
    """All rows of the readable stores of one task.

    Rows belong to the task's partition. ``homes`` has the partition counts of stores with rows of all partitions. Such
    a row belongs to the partition that Kafka's default partitioner chooses for its key.
    """
    for name, store in stores.items():
        if not readable(store.spec):
            continue
        rows, first = _rows(store), 0
        while part := list(islice(rows, ROWS_PER_BATCH)):
            size = len(part)
            keys, values, timestamps, starts, ends = zip(*part, strict=True)
            key_array = pa.array(keys, pa.binary())
            at_home = key_partitions(key_array, homes[name]) if name in homes else [partition] * size
            yield output_batch(
                ROW,
                partition,
                size,
                name=[name] * size,
                task=at_home,
                seq=np.arange(first, first + size),
                key=key_array,
                value=values,
                timestamp=timestamps,
                start=starts,
                end=ends,
            )
            first += size


def _rows(store: Any) -> Iterator[tuple[bytes, bytes, int | None, int | None, int | None]]:
    """(key bytes, value bytes, timestamp, start, end) of each row of a store."""
    spec: StoreSpec = store.spec
    assert spec.key_serde is not None
    assert spec.value_serde is not None
    assert spec.kind.shape is not None
    key_bytes, value_bytes = spec.key_serde.serialize, spec.value_serde.serialize
    for key, value, timestamp, start, end in spec.kind.shape.flat(store):
        yield key_bytes(key), value_bytes(value), timestamp, start, end
