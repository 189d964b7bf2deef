"""The tables that Spark shows, and their rows, which leave the executors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streamapp.engine.global_state import GlobalState
from streamapp.records import RecordBatch, TopicPartition
from streamapp.runners.spark.frames import OUTPUT, ROW, output_batch
from streamapp.runners.spark.partitioning import key_partitions
from streamapp.serdes.placing import placing_bytes
from streamapp.state.spec import StoreSpec
from streamapp.topology import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["GlobalRows", "readable", "row_frame", "rows_of", "table_batches"]

ROWS_PER_BATCH = 20_000


def readable(spec: StoreSpec) -> bool:
    """True if Spark shows the store as a table.

    The stores that operators have for themselves (`StoreSpec.internal`) are no tables. A table needs a `RowShape` and
    serdes. Windows need a length, which a store of a processor may lack.
    """
    shape = spec.kind.shape
    return (
        not spec.internal
        and shape is not None
        and spec.key_serde is not None
        and spec.value_serde is not None
        and (shape.family != "window" or spec.kind.window_size_ms > 0)
    )


def table_batches(
    stores: Mapping[str, Any], partition: int, homes: Mapping[str, int]
) -> Iterator[pa.RecordBatch]:
    """All rows of the readable stores of one task.

    Rows belong to the task's partition. But the one task of a cycle has the rows of all partitions, and ``homes`` then
    has the partition counts of its stores. Each row belongs to the partition that Kafka's default partitioner chooses
    for its key.
    """
    for name, store in stores.items():
        if not readable(store.spec):
            continue
        rows, first = _rows(store), 0
        while part := list(islice(rows, ROWS_PER_BATCH)):
            size = len(part)
            keys, values, timestamps, starts, ends = zip(*part, strict=True)
            at_home: Any = [partition] * size
            if name in homes:
                placing = pa.array([placing_bytes(store.spec.key_serde, key) for key in keys], pa.binary())
                at_home = key_partitions(placing, homes[name])
            yield output_batch(
                ROW,
                partition,
                size,
                name=[name] * size,
                task=at_home,
                seq=np.arange(first, first + size),
                key=pa.array(keys, pa.binary()),
                value=values,
                timestamp=timestamps,
                start=starts,
                end=ends,
            )
            first += size


def rows_of(frame: DataFrame, name: str) -> DataFrame:
    """The rows of a table, out of a frame of `OUTPUT`, with the columns of `OutputTable.frame`."""
    from pyspark.sql import functions as F

    rows = frame.where((F.col("kind") == ROW) & (F.col("name") == name))
    return rows.select(F.col("task").alias("partition"), "key", "value", "timestamp", "start", "end")


def row_frame(
    spark: SparkSession,
    name: str,
    tasks: int,
    rows: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
) -> DataFrame:
    """The rows of a table that the function ``rows`` gives in each of the Spark partitions."""
    count = max(tasks, 1)
    return rows_of(spark.range(0, count, 1, count).mapInArrow(rows, OUTPUT), name)


@dataclass(frozen=True)
class GlobalRows:
    """The rows of a global store, which one executor builds from the records of all partitions of its topic.

    ``records`` may have other topics, whose records are left out.
    """

    plan: Plan
    store: str
    records: Callable[[], Iterable[tuple[TopicPartition, RecordBatch]]]
    now_ms: int
    """The wall clock that processors see."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:  # Spark discards Python workers that do not read to the end
            pass
        with closing(GlobalState(self.plan, wall_clock_ms=lambda: self.now_ms)) as state:
            own = {store.topic for store in self.plan.global_stores if store.name == self.store}
            for partition, batch in self.records():
                if partition.topic in own:
                    state.process(partition, batch)
            yield from table_batches({self.store: state.stores[self.store]}, 0, {})


def _rows(store: Any) -> Iterator[tuple[bytes, bytes, int | None, int | None, int | None]]:
    """(key bytes, value bytes, timestamp, start, end) of each row of a store."""
    spec: StoreSpec = store.spec
    assert spec.key_serde is not None
    assert spec.value_serde is not None
    assert spec.kind.shape is not None
    key_bytes, value_bytes = spec.key_serde.serialize, spec.value_serde.serialize
    for key, value, timestamp, start, end in spec.kind.shape.flat(store):
        yield key_bytes(key), value_bytes(value), timestamp, start, end
