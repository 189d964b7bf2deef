"""A task for the time of one micro-batch, in an executor.

It is a worker's task with a worker's commit: state from the changelog (what lies on the executor's disk saves
reading it anew), records from where the group stands, and one Kafka transaction with outputs, changelog and
offsets. Whatever is killed, the next attempt finds the state that belongs to the committed offsets.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from streamapp._base import failpoints
from streamapp.broker.admin import KafkaAdmin
from streamapp.config import StreamsConfig
from streamapp.engine.global_state import GlobalState
from streamapp.errors import BrokerError, LockError, ProcessorStateError
from streamapp.records import Headers, TopicPartition
from streamapp.runners.connection import client_of, settings_of
from streamapp.runners.repetitions import quieten_drops
from streamapp.runners.spark.archives import forget_archives
from streamapp.runners.spark.batch_source import KafkaRange, KafkaReader
from streamapp.runners.spark.handover_group import Committed, Group
from streamapp.runners.spark.produce import TIMEOUT_SECONDS, produce, transactional_producer
from streamapp.runners.spark.stage import BatchTask
from streamapp.state.backend import MemoryBackend, StateBackend
from streamapp.state.rocks import RocksBackend
from streamapp.topology import Plan, Subtopology

__all__ = ["RESULT", "StreamStage", "output_client"]

RESULT = "task int, processed bigint, dropped bigint, restored bigint, seconds double"
LOCK_SECONDS = 5.0


@dataclass(frozen=True)
class StreamStage:
    """All tasks of one sub-topology in one micro-batch; shipped to the executors by cloudpickle."""

    plan: Plan
    subtopology: Subtopology
    topics: tuple[str, ...]
    """The inputs, in the order of the topology."""
    partitions: Mapping[str, int]
    ends: Mapping[TopicPartition, int]
    """Where the micro-batch ends in the source topics that have something new. Repartition topics are read to
    their ends."""
    more: frozenset[TopicPartition]
    """Those that go on behind the end: until the next micro-batch they hold the other inputs of their task back,
    so that a join sees its sides in the order of time, as on a worker."""
    member: bytes
    """Proof, for the group, that this run is the one that may commit."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        forget_archives()
        for _ in batches:
            pass
        started = time.monotonic()
        task_id = f"{self.subtopology.id}_{context.partitionId()}"
        try:
            result = _Attempt(self, context.partitionId()).run()
        except KafkaException as error:
            raise BrokerError(
                f"task {task_id}: Kafka refused: {error.args[0].str()}. If this goes on, another run of "
                f"{self.plan.application_id} is alive: stop one of the two"
            ) from error
        row = [context.partitionId(), *result, time.monotonic() - started]
        names = [column.split()[0] for column in RESULT.split(", ")]
        yield pa.RecordBatch.from_pydict(
            {name: [value] for name, value in zip(names, row, strict=True)}
        ).cast(
            pa.schema(
                [("task", pa.int32()), *((n, pa.int64()) for n in names[1:4]), ("seconds", pa.float64())]
            )
        )


def output_client(config: StreamsConfig, subtopology: int, partition: int) -> dict[str, Any]:
    """The settings of a task's producer, which has the same name in every attempt and every run."""
    return {
        **client_of(config),
        "transactional.id": f"{config.application_id}-spark-{subtopology}_{partition}",
        "transaction.timeout.ms": int(TIMEOUT_SECONDS * 1000),
        "partitioner": "murmur2_random",
        "linger.ms": 20,
        "batch.num.messages": 10_000,
        "queue.buffering.max.messages": 200_000,
        "delivery.report.only.error": True,
    }


class _Attempt:
    def __init__(self, stage: StreamStage, partition: int) -> None:
        self._stage, self._partition = stage, partition
        self._config = stage.plan.config
        self._client = client_of(self._config)
        self._admin, self._kafka = _clients(stage.plan)
        self._group = Group(self._config)
        self._inputs = [TopicPartition(t, partition) for t in stage.topics if partition < stage.partitions[t]]

    def run(self) -> tuple[int, int, int]:
        """Processed and dropped records, and how many were restored."""
        if not self._work(self._group.read(self._inputs)):
            return 0, 0, 0
        client = output_client(self._config, self._stage.subtopology.id, self._partition)
        with transactional_producer(client) as producer:
            # From here on no earlier attempt can commit any more, and what it had left open is rolled back.
            committed = self._group.read(self._inputs)
            ranges = self._work(committed)
            if not ranges:
                return 0, 0, 0
            producer.begin_transaction()
            out = _Output(producer, self._stage.partitions)
            task, restored = self._open(out, committed)
            try:
                self._process(task, ranges)
                self._commit(task, out, ranges)
            finally:
                task.close()
        return task.metrics.processed, task.metrics.dropped_records, restored

    def _work(self, committed: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, tuple[int, int]]:
        """The ranges to process, if any has records."""
        internal = {topic.name for topic in self._stage.plan.internal_topics}
        open_ends = self._admin.log_end_offsets([tp for tp in self._inputs if tp.topic in internal])
        ends = {**open_ends, **self._stage.ends}
        new = [tp for tp in self._inputs if tp not in committed]
        first = self._kafka.committed(new)
        starts = {tp: committed[tp].offset if tp in committed else first[tp][0] for tp in self._inputs}
        ranges = {tp: (starts[tp], max(starts[tp], ends.get(tp, 0))) for tp in self._inputs}
        return ranges if any(start < end for start, end in ranges.values()) else {}

    def _open(self, out: _Output, committed: Mapping[TopicPartition, Committed]) -> tuple[BatchTask, int]:
        backend = self._backend()
        try:
            return self._restore(backend, out, committed)
        except ProcessorStateError:
            backend.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            return self._restore(self._backend(), out, committed)

    def _restore(
        self, backend: StateBackend, out: _Output, committed: Mapping[TopicPartition, Committed]
    ) -> tuple[BatchTask, int]:
        stage = self._stage
        quieten_drops()
        task = BatchTask(
            stage.plan,
            stage.subtopology,
            self._partition,
            out,
            backend,
            global_stores=_global_stores(stage.plan, self._client),
            wall_clock_ms=lambda: int(time.time() * 1000),
            inputs=self._inputs,
        )
        logs = {
            TopicPartition(t.name, self._partition): s for s, t in stage.subtopology.changelog_topics.items()
        }
        ends = self._admin.log_end_offsets([tp for tp in logs if tp not in self._inputs])
        ends |= {tp: committed[tp].offset for tp in logs if tp in committed}
        first = {tp: span[0] for tp, span in self._kafka.committed(ends).items()}
        restored = 0
        for tp, end in ends.items():
            local = task.changelog_offsets.get(logs[tp], 0)
            if local > end:
                raise ProcessorStateError(f"the local state is ahead of {tp}: the topic was made anew")
            start = max(local, first[tp])
            if start == end:
                continue
            reader = KafkaReader(self._client, tp, start, end)
            while (batch := reader.read()) is not None:
                task.restore(logs[tp], batch)
                restored += len(batch.offsets)
            reader.close()
        task.continue_from({tp: entry.metadata for tp, entry in committed.items()})
        task.init()
        return task, restored

    @property
    def _folder(self) -> Path:
        plan = self._stage.plan
        root = Path(self._config.state_dir) / f"{plan.application_id}-spark" / plan.fingerprint
        return root / f"{self._stage.subtopology.id}_{self._partition}"

    def _backend(self) -> StateBackend:
        if not any(spec.persistent for spec in self._stage.subtopology.stores):
            return MemoryBackend()
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                return RocksBackend(self._folder)
            except LockError:
                # An attempt that Spark has given up is still alive here. Its state is not needed.
                if time.monotonic() > deadline:
                    return RocksBackend(tempfile.mkdtemp(prefix="streamapp-"))
                time.sleep(0.2)
            except ProcessorStateError:
                shutil.rmtree(self._folder, ignore_errors=True)

    def _process(self, task: BatchTask, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        readers = {
            tp: KafkaReader(self._client, tp, *span) for tp, span in ranges.items() if span[0] < span[1]
        }
        ended = set(ranges) - set(readers) - self._stage.more
        while True:
            for tp in [tp for tp in readers if not task.buffered.get(tp)]:
                batch = readers[tp].read()
                if batch is None:
                    readers.pop(tp).close()
                    if tp not in self._stage.more:
                        ended.add(tp)
                else:
                    task.enqueue(tp, batch)
            if not task.process(caught_up=ended) and all(task.buffered.get(tp) for tp in readers):
                break  # all is done, or what is left waits for an input that goes on in the next micro-batch
        for reader in readers.values():
            reader.close()

    def _commit(
        self, task: BatchTask, out: _Output, ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> None:
        task.flush()
        failpoints.hit("stream-state-flushed")
        metadata, left = task.commit_metadata, task.buffered
        positions = {
            tp: task.positions.get(tp, start) if left.get(tp) else end
            for tp, (start, end) in ranges.items()
            if start < end
        }
        entries = [KafkaPartition(*tp, at, metadata=metadata.get(tp, "")) for tp, at in positions.items()]
        out.producer.send_offsets_to_transaction(entries, self._stage.member, TIMEOUT_SECONDS)
        failpoints.hit("stream-offsets-sent")
        out.producer.commit_transaction(TIMEOUT_SECONDS)
        failpoints.hit("stream-committed")
        logs = [
            TopicPartition(t.name, self._partition) for t in self._stage.subtopology.changelog_topics.values()
        ]
        task.persist(self._admin.log_end_offsets([tp for tp in logs if tp not in self._inputs]))


class _Output:
    """The engine's `Collector`: the open transaction of the task's own producer."""

    def __init__(self, producer: Producer, partitions: Mapping[str, int]) -> None:
        self.producer = producer
        self._partitions = dict(partitions)

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int | None,
        headers: Headers,
        partition: int | None,
    ) -> None:
        where = -1 if partition is None else partition
        produce(self.producer, topic, key, value, where, timestamp, headers)

    def partition_count(self, topic: str) -> int:
        if topic not in self._partitions:
            self._partitions[topic] = len(
                self.producer.list_topics(topic, TIMEOUT_SECONDS).topics[topic].partitions
            )
        return self._partitions[topic]


# What a Python worker keeps, by application: Spark uses its processes again and again.
_known_clients: dict[str, tuple[KafkaAdmin, KafkaRange]] = {}
_global: dict[str, GlobalState] = {}


def _clients(plan: Plan) -> tuple[KafkaAdmin, KafkaRange]:
    found = _known_clients.get(plan.application_id)
    if found is None:
        found = KafkaAdmin(settings_of(plan.config)), KafkaRange(client_of(plan.config))
        _known_clients[plan.application_id] = found
    return found


def _global_stores(plan: Plan, client: Mapping[str, Any]) -> Mapping[str, Any]:
    """The global stores, brought to the ends of their topics."""
    if not plan.global_stores:
        return {}
    state = _global.get(plan.application_id)
    if state is None:
        state = GlobalState(plan, lambda _: MemoryBackend(), wall_clock_ms=lambda: int(time.time() * 1000))
        _global[plan.application_id] = state
    kafka = _clients(plan)[1]
    counts = kafka.partition_counts()
    known = state.positions()
    every = [TopicPartition(topic, p) for topic in state.topics for p in range(counts[topic])]
    for tp, (first, end) in kafka.committed(every).items():
        start = max(first, known.get(tp, 0))
        if start >= end:
            continue
        reader = KafkaReader(client, tp, start, end)
        while (batch := reader.read()) is not None:
            if batch.offsets:
                state.process(tp, batch)
        reader.close()
    return state.stores
