"""What runs in an executor: the engine's task of one sub-topology on one partition, over a bounded input.

A stage is one ``mapInArrow`` over as many Spark partitions as the sub-topology has tasks. Inputs are ranges
of Kafka, which the task reads itself, and rows that Spark brings: what earlier stages wrote, or DataFrames.
All of them are given to the task by timestamp, and none runs ahead of another, so the result does not depend
on batch sizes.

Everything that leaves goes out once, in one frame of `OUTPUT`: records for topics, rows of tables, and
counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from streamapp.engine.global_state import GlobalState
from streamapp.engine.processor import PunctuationType
from streamapp.engine.punctuation import Schedule
from streamapp.engine.task import Task
from streamapp.errors import StreamsError, UnsupportedOperation
from streamapp.records import NO_HEADERS, Headers, RecordBatch, TopicPartition, Windowed
from streamapp.runners.spark.partitioning import key_partitions
from streamapp.runners.spark.source import KafkaReader, Ranges
from streamapp.state.backend import MemoryBackend
from streamapp.state.spec import StoreSpec
from streamapp.topology.plan import Plan, Subtopology

if TYPE_CHECKING:
    from pyspark import Broadcast

__all__ = [
    "CHANGE",
    "COUNTS",
    "HEADERS",
    "INPUT",
    "OUTPUT",
    "POSITION",
    "RECORD",
    "ROW",
    "BatchTask",
    "Resume",
    "Stage",
    "readable",
]

HEADERS = "array<struct<key:string,value:binary>>"
INPUT = (
    "task int, input int, mx bigint, src int, seq bigint, key binary, value binary, timestamp bigint, "
    + (f"headers {HEADERS}")
)
"""Rows into a stage. ``input`` is an index into `Stage.row_topics`. (mx, src, seq) is their order: the
largest timestamp that the writing task had seen, its partition, and a counter."""

OUTPUT = "kind int, name string, task int, mx bigint, src int, seq bigint, key binary, value binary, " + (
    f"timestamp bigint, headers {HEADERS}, start bigint, end bigint"
)
"""Rows out of a stage: records (``name`` is the topic, ``task`` the partition), rows of tables (the store),
and counts (``seq`` has the number). With a `Resume`, instead of rows: changelog records, and positions
(``name`` and ``task`` are the input, ``value`` is what is to be committed beside its offset)."""

RECORD, ROW, COUNTS, CHANGE, POSITION = range(5)

COMMIT_EVERY = 200_000
"""Records between two commits of a task. A fixed number, so that caches emit the same in every run."""
OUTPUT_ROWS = 20_000

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_OUTPUT_TYPES = {
    "kind": pa.int32(),
    "name": pa.string(),
    "task": pa.int32(),
    "mx": pa.int64(),
    "src": pa.int32(),
    "seq": pa.int64(),
    "key": pa.binary(),
    "value": pa.binary(),
    "timestamp": pa.int64(),
    "headers": _HEADERS,
    "start": pa.int64(),
    "end": pa.int64(),
}
_READABLE = ("key_value", "lru", "timestamped", "window", "timestamped_window", "session", "versioned")


def readable(spec: StoreSpec) -> bool:
    """Whether a store is a table to users, and not the inside of an operator."""
    return spec.kind in _READABLE and spec.key_serde is not None and spec.value_serde is not None


class BatchTask(Task):
    """A task that refuses punctuators by the wall clock, which in a batch says nothing about the records."""

    def schedule(self, node: str, interval_ms: int, type: PunctuationType, callback: Any) -> Schedule:
        if type is PunctuationType.WALL_CLOCK_TIME:
            raise UnsupportedOperation(
                node,
                "Spark in batch",
                "it asks for the wall clock, and a batch runs through history at a pace of its own",
                "Use PunctuationType.STREAM_TIME, or run this topology on workers",
            )
        return super().schedule(node, interval_ms, type, callback)


@dataclass(frozen=True)
class Resume:
    """Where an application stands: its changelogs up to there, and the metadata of its committed offsets.

    A stage that has one goes on from it, and gives out what a worker's commit would write."""

    changelogs: Ranges = field(default_factory=dict)
    metadata: Mapping[TopicPartition, str] = field(default_factory=dict)

    def bring(self, task: Task, inputs: list[TopicPartition], client: Mapping[str, Any]) -> None:
        """Restores the stores and times of a task that is not initialized yet."""
        for store, topic in task.subtopology.changelog_topics.items():
            tp = TopicPartition(topic.name, task.partition)
            if tp in self.changelogs:
                reader = KafkaReader(client, tp, *self.changelogs[tp])
                while (batch := reader.read()) is not None:
                    task.restore(store, batch)
                reader.close()
        task.continue_from({tp: self.metadata[tp] for tp in inputs if tp in self.metadata})


@dataclass(frozen=True)
class Stage:
    """One sub-topology with all that its tasks need; shipped to the executors by cloudpickle."""

    plan: Plan
    subtopology: Subtopology
    tasks: int
    partitions: Mapping[str, int]
    """Partition counts of the topics that are known; any other output topic gets as many as there are
    tasks."""
    row_topics: tuple[str, ...] = ()
    row_totals: Mapping[TopicPartition, int] = field(default_factory=dict)
    ranges: Ranges = field(default_factory=dict)
    client: Mapping[str, Any] = field(default_factory=dict)
    """librdkafka settings of the cluster that ``ranges`` are in."""
    wall_clock_ms: int = 0
    run_id: str = ""
    global_records: Broadcast[list[tuple[TopicPartition, RecordBatch]]] | None = None
    resume: Resume | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from self.run(context.partitionId(), batches)

    def run(self, partition: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs one task to its end."""
        inputs = [
            TopicPartition(topic, partition)
            for topic in dict.fromkeys([*self.row_topics, *(tp.topic for tp in self.ranges)])
            if partition < self.partitions[topic]
        ]
        out = _Output(self, partition)
        readers = {tp: KafkaReader(self.client, tp, *self.ranges[tp]) for tp in inputs if tp in self.ranges}
        task = BatchTask(
            self.plan,
            self.subtopology,
            partition,
            out,
            MemoryBackend(),
            global_stores=self._global_stores(),
            wall_clock_ms=lambda: self.wall_clock_ms,
            inputs=inputs,
        )
        out.task = task
        try:
            if self.resume is not None:
                self.resume.bring(task, inputs, self.client)
            task.init()
            rows = _Rows(self, partition, batches)
            yield from _drive(task, out, readers, rows)
            rows.finish()
            out.counts()
            if self.resume is None:
                out.tables()
            else:
                out.positions()
            yield from out.batches(0)
        finally:
            task.close()
            for reader in readers.values():
                reader.close()

    def _global_stores(self) -> Mapping[str, Any]:
        if self.global_records is None:
            return {}
        # One copy for all tasks of a Python worker, which Spark uses again and again.
        known = _global_states.get(self.run_id)
        if known is None:
            _global_states.clear()
            state = GlobalState(
                self.plan, lambda _: MemoryBackend(), wall_clock_ms=lambda: self.wall_clock_ms
            )
            for partition, batch in self.global_records.value:
                state.process(partition, batch)
            known = _global_states[self.run_id] = state.stores
        return known


_global_states: dict[str, dict[str, Any]] = {}


def _drive(
    task: Task, out: _Output, readers: dict[TopicPartition, KafkaReader], rows: _Rows
) -> Iterator[pa.RecordBatch]:
    """Feeds a task until all its inputs are at their end. An input is topped up before it runs dry."""
    ended = rows.ended()
    since_commit = 0
    while True:
        buffered = task.buffered
        for tp in [tp for tp in readers if not buffered.get(tp)]:
            batch = readers[tp].read()
            if batch is None:
                readers.pop(tp).close()
                ended.add(tp)
            else:
                task.enqueue(tp, batch)
        if any(not buffered.get(tp) for tp in rows.left):
            for tp, batch in rows.read():
                task.enqueue(tp, batch)
            ended |= rows.ended()
        done = task.process(COMMIT_EVERY - since_commit, caught_up=ended)
        since_commit += done
        if since_commit == COMMIT_EVERY:
            task.flush()
            task.persist({})
            since_commit = 0
        elif not done and not readers and not rows.left:
            break
        yield from out.batches(OUTPUT_ROWS)
    task.flush()
    task.persist({})


class _Rows:
    """The rows that Spark brings to one task, in order. Totals tell when a topic has no more of them."""

    def __init__(self, stage: Stage, partition: int, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._topics = [TopicPartition(topic, partition) for topic in stage.row_topics]
        self.left = {tp: stage.row_totals[tp] for tp in self._topics if stage.row_totals.get(tp)}
        self._offsets = dict.fromkeys(self._topics, 0)
        self._partition = partition

    def ended(self) -> set[TopicPartition]:
        return {tp for tp in self._topics if tp not in self.left}

    def read(self) -> list[tuple[TopicPartition, RecordBatch]]:
        """The next rows, as a batch for each topic that is among them."""
        batch = next(self._batches, None)
        if batch is None:
            raise StreamsError(
                f"partition {self._partition} ended with rows missing: {self.left}. The input changed while "
                "it was read"
            )
        if batch.num_rows == 0:
            return []
        strays = pc.any(pc.not_equal(batch.column("task"), self._partition)).as_py()
        assert not strays, "Spark brought rows of another partition"
        if len(self._topics) == 1:
            return [self._convert(self._topics[0], batch)]
        index = batch.column("input")
        return [
            self._convert(tp, batch.filter(pc.equal(index, number)))
            for number, tp in enumerate(self._topics)
            if pc.any(pc.equal(index, number)).as_py()
        ]

    def finish(self) -> None:
        """Reads to the end of the stream, where nothing is left: Spark throws workers away that do not."""
        if any(batch.num_rows for batch in self._batches) and self._topics:
            raise StreamsError(f"partition {self._partition} had more rows than were counted before")

    def _convert(self, tp: TopicPartition, batch: pa.RecordBatch) -> tuple[TopicPartition, RecordBatch]:
        first = self._offsets[tp]
        size = batch.num_rows
        self._offsets[tp] += size
        self.left[tp] -= size
        if not self.left[tp]:
            del self.left[tp]
        headers = batch.column("headers")
        return tp, RecordBatch(
            batch.column("key").to_pylist(),
            batch.column("value").to_pylist(),
            batch.column("timestamp").to_pylist(),
            range(first, first + size),
            None if headers.null_count == size else [_headers(h) for h in headers.to_pylist()],
        )


def _headers(items: list[dict[str, Any]] | None) -> Headers:
    return tuple((item["key"], item["value"]) for item in items) if items else NO_HEADERS


class _Output:
    """Collects what a task sends and makes Arrow batches of it; the engine's `Collector`."""

    def __init__(self, stage: Stage, partition: int) -> None:
        self._stage, self._partition = stage, partition
        self._changelogs = {topic.name for topic in stage.subtopology.changelog_topics.values()} - set(
            stage.subtopology.source_topics
        )
        self._order = count()
        self._waiting: list[tuple[Any, ...]] = []
        self.task: Task

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int | None,
        headers: Headers,
        partition: int | None,
    ) -> None:
        kind = RECORD
        if topic in self._changelogs:
            if self._stage.resume is None:
                return
            kind = CHANGE
        now = self.task.stream_time
        self._waiting.append(
            (
                kind,
                topic,
                partition,
                now,
                next(self._order),
                key,
                value,
                timestamp,
                headers or None,
                None,
                None,
            )
        )

    def partition_count(self, topic: str) -> int:
        return self._stage.partitions.get(topic, self._stage.tasks)

    def counts(self) -> None:
        """Reports how many records the task has processed, and how many it dropped."""
        metrics = self.task.metrics
        for name, number in (("processed", metrics.processed), ("dropped", metrics.dropped_records)):
            self._waiting.append((COUNTS, name, self._partition, 0, number, *[None] * 6))

    def positions(self) -> None:
        """Adds what is to be committed beside the offsets of the inputs."""
        self._waiting.extend(
            (POSITION, tp.topic, tp.partition, 0, 0, None, text.encode(), *[None] * 4)
            for tp, text in self.task.commit_metadata.items()
        )

    def tables(self) -> None:
        """Adds the rows of all tables."""
        for name, store in self.task.own_stores.items():
            if readable(store.spec):
                rows = enumerate(_table_rows(store))
                self._waiting.extend((ROW, name, self._partition, 0, seq, *row) for seq, row in rows)

    def batches(self, at_least: int) -> Iterator[pa.RecordBatch]:
        """Gives out what waits, once it is ``at_least`` so many rows."""
        if not self._waiting or len(self._waiting) < at_least:
            return
        waiting, self._waiting = self._waiting, []
        for first in range(0, len(waiting), 2 * OUTPUT_ROWS):
            yield self._batch(waiting[first : first + 2 * OUTPUT_ROWS])

    def _batch(self, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
        kinds, names, partitions, times, order, keys, values, timestamps, headers, starts, ends = zip(
            *rows, strict=True
        )
        key_array = pa.array(keys, pa.binary())
        columns = {
            "kind": kinds,
            "name": names,
            "task": self._place(names, partitions, key_array),
            "mx": times,
            "src": [self._partition] * len(rows),
            "seq": order,
            "key": key_array,
            "value": values,
            "timestamp": timestamps,
            "headers": [h and [{"key": k, "value": v} for k, v in h] for h in headers],
            "start": starts,
            "end": ends,
        }
        arrays = [pa.array(columns[name], kind) for name, kind in _OUTPUT_TYPES.items()]
        return pa.RecordBatch.from_arrays(arrays, list(_OUTPUT_TYPES))

    def _place(self, names: tuple[str, ...], chosen: tuple[int | None, ...], keys: pa.Array) -> Any:
        """The partition of each row: the chosen one, or Kafka's for the key. A null key stays with its
        task."""
        if None not in chosen:
            return chosen
        counts = {name: self.partition_count(name) for name in set(names)}
        if len(set(counts.values())) == 1 and set(chosen) == {None}:
            return key_partitions(keys, next(iter(counts.values())), self._partition)
        placed = {n: key_partitions(keys, n, self._partition).tolist() for n in set(counts.values())}
        return [
            placed[counts[name]][i] if partition is None else partition
            for i, (name, partition) in enumerate(zip(names, chosen, strict=True))
        ]


def _table_rows(store: Any) -> Iterator[tuple[Any, ...]]:
    """(key bytes, value bytes, timestamp, headers, start, end) of each row of a store."""
    spec: StoreSpec = store.spec
    assert spec.key_serde is not None
    assert spec.value_serde is not None
    key_bytes, value_bytes = spec.key_serde.serialize, spec.value_serde.serialize
    for row in store.all():
        key, value, rest = row[0], row[1], row[2:]
        timestamp = start = end = None
        if isinstance(key, Windowed):
            key, start, end = key
        if spec.kind == "timestamped":
            value, timestamp = value
        elif spec.kind == "timestamped_window":
            timestamp = rest[0]
        elif spec.kind == "versioned":
            start, end = rest
        yield key_bytes(key), value_bytes(value), timestamp, None, start, end
