"""A task for the time of one micro-batch, in an executor.

It is a worker's task with a worker's commit: state from the changelog (what lies on the executor's disk saves
reading it anew), records from where the group stands, and one Kafka transaction with outputs, changelog and
offsets. Whatever is killed, the next attempt finds the state that belongs to the committed offsets.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaException

from streamapp.broker.admin import KafkaAdmin
from streamapp.engine.feed import Feed
from streamapp.engine.global_letters import GlobalLetters, makes_letters
from streamapp.engine.global_state import GlobalState
from streamapp.engine.runner_ports import Position, TaskEnvironment
from streamapp.engine.task_session import TaskSession, commit
from streamapp.errors import BrokerError, ProcessorStateError, StreamsError
from streamapp.records import TopicPartition
from streamapp.runners.connection import client_of, settings_of
from streamapp.runners.repetitions import quieten_drops
from streamapp.runners.spark.archives import forget_archives
from streamapp.runners.spark.batch_rules import BATCH_RULES
from streamapp.runners.spark.batch_source import KafkaRange, KafkaReader, Ranges
from streamapp.runners.spark.changelogs import KafkaChangelogs
from streamapp.runners.spark.executor_disk import ExecutorDisk
from streamapp.runners.spark.handover_group import Group
from streamapp.runners.spark.produce import transactional_producer
from streamapp.runners.spark.streaming_transaction import StreamTransaction, output_client
from streamapp.topology import Plan, Subtopology

__all__ = ["RESULT", "StreamStage"]

RESULT = "task int, processed bigint, dropped bigint, restored bigint, seconds double"


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
            transaction = StreamTransaction(producer, self._stage.member, self._stage.partitions, self._admin)
            session, restored = self._open(transaction, committed, ranges)
            with closing(session):
                readers = {
                    tp: KafkaReader(self._client, tp, *span)
                    for tp, span in ranges.items()
                    if span[0] < span[1]
                }
                more = self._stage.more
                # What is left in the end waits for an input that goes on in the next micro-batch.
                with closing(Feed(session.task, readers, set(ranges) - set(readers) - more, more)) as feed:
                    feed.run()
                session.pass_over_gaps(lambda tp: ranges[tp][1])
                letters = self._global_letters()
                transaction.write(letters)
                commit([session], transaction)
                letters.learn(letters.positions)
        metrics = session.task.metrics
        return metrics.processed, metrics.dropped_records, restored

    def _global_letters(self) -> GlobalLetters:
        """The letters of global records that the commit of this task writes: those of the first task are not empty."""
        plan = self._stage.plan
        first = min(sub.id for sub in plan.subtopologies), 0
        known = _global.get(plan.application_id)
        if (
            known is None
            or not makes_letters(plan.config)
            or (self._stage.subtopology.id, self._partition) != first
        ):
            return GlobalLetters()
        known.learn(self._group, self._admin)
        return known.letters

    def _work(self, committed: Mapping[TopicPartition, Position]) -> Ranges:
        """The ranges to process, if any has records."""
        internal = {topic.name for topic in self._stage.plan.internal_topics}
        open_ends = self._admin.log_end_offsets([tp for tp in self._inputs if tp.topic in internal])
        ends = {**open_ends, **self._stage.ends}
        new = [tp for tp in self._inputs if tp not in committed]
        first = self._kafka.committed(new)
        starts = {tp: committed[tp].offset if tp in committed else first[tp][0] for tp in self._inputs}
        ranges = {tp: (starts[tp], max(starts[tp], ends.get(tp, 0))) for tp in self._inputs}
        return ranges if any(start < end for start, end in ranges.values()) else {}

    def _open(
        self,
        transaction: StreamTransaction,
        committed: Mapping[TopicPartition, Position],
        ranges: Ranges,
        *,
        again: bool = True,
    ) -> tuple[TaskSession, int]:
        """A session that runs, and how many records were restored. State that does not fit is restored anew."""
        stage = self._stage
        quieten_drops()
        environment = TaskEnvironment(
            stage.plan,
            transaction.results,
            wall_clock_ms=lambda: int(time.time() * 1000),
            changelogs=transaction.changelogs,
            global_stores=_global_stores(stage.plan, self._client, self._group, self._admin),
            rules=BATCH_RULES,
        )
        home = ExecutorDisk(stage.plan)
        session = TaskSession(environment, stage.subtopology, self._partition, home, self._inputs)
        try:
            session.continue_from(
                {tp: entry.metadata for tp, entry in committed.items()},
                {tp: start for tp, (start, _) in ranges.items()},
            )
            restored = session.restore_from(self._changelogs(session, committed))
            session.start()
        except BaseException as error:
            session.close()
            if not again or not isinstance(error, ProcessorStateError):
                raise
            session.wipe()
            return self._open(transaction, committed, ranges, again=False)
        return session, restored

    def _changelogs(
        self, session: TaskSession, committed: Mapping[TopicPartition, Position]
    ) -> KafkaChangelogs:
        """The changelogs to their ends; a source topic that serves as changelog to where it was processed."""
        logs = session.changelogs
        ends = self._admin.log_end_offsets([tp for tp in logs if tp not in self._inputs])
        ends |= {tp: committed[tp].offset for tp in logs if tp in committed}
        first = {tp: span[0] for tp, span in self._kafka.committed(ends).items()}
        return KafkaChangelogs(self._client, {tp: (first[tp], end) for tp, end in ends.items()})


class _Globals:
    """The global stores of a Python worker, and the dead letters of their records (`GlobalLetters`)."""

    def __init__(self, plan: Plan) -> None:
        self.letters = GlobalLetters()
        self.state = GlobalState(
            plan, wall_clock_ms=lambda: int(time.time() * 1000), letters=self.letters.take
        )
        self.partitions: list[TopicPartition] = []

    def learn(self, group: Group, admin: KafkaAdmin) -> None:
        """Asks the group which letters are written. A position behind the end of a log is that of a deleted topic."""
        ends = admin.log_end_offsets(self.partitions)
        found = group.read(self.partitions)
        self.letters.learn({tp: at.offset for tp, at in found.items() if at.offset <= ends.get(tp, 0)})

    def check_room(self, group: Group, admin: KafkaAdmin) -> None:
        """Raises `StreamsError` while too many letters wait for the first task."""
        if self.letters.full:
            self.learn(group, admin)
        if self.letters.full:
            raise StreamsError(
                "many records of global tables have failed, and their dead letters no longer fit into the memory of an "
                "executor. Run a worker of the application until it has written them, or repair the topic"
            )


# What a Python worker keeps, by application: Spark uses its processes again and again.
_known_clients: dict[str, tuple[KafkaAdmin, KafkaRange]] = {}
_global: dict[str, _Globals] = {}


def _clients(plan: Plan) -> tuple[KafkaAdmin, KafkaRange]:
    found = _known_clients.get(plan.application_id)
    if found is None:
        found = KafkaAdmin(settings_of(plan.config)), KafkaRange(client_of(plan.config))
        _known_clients[plan.application_id] = found
    return found


def _global_stores(
    plan: Plan, client: Mapping[str, Any], group: Group, admin: KafkaAdmin
) -> Mapping[str, Any]:
    """The global stores, brought to the ends of their topics."""
    if not plan.global_stores:
        return {}
    known = _global.get(plan.application_id)
    if known is None:
        known = _global[plan.application_id] = _Globals(plan)
    state, kafka = known.state, _clients(plan)[1]
    counts = kafka.partition_counts()
    positions = state.positions()
    known.partitions = [TopicPartition(topic, p) for topic in state.topics for p in range(counts[topic])]
    for tp, (first, end) in kafka.committed(known.partitions).items():
        start = max(first, positions.get(tp, 0))
        if start >= end:
            continue
        with closing(KafkaReader(client, tp, start, end)) as reader:
            while (batch := reader.read()) is not None:
                known.check_room(group, admin)
                if batch.offsets:
                    state.process(tp, batch)
    return state.stores
