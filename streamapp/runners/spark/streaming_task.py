"""A task in an executor, for one micro-batch.

The task processes and commits like a worker's task. Its records begin at the group's committed offsets. Its state
comes from the changelogs; a copy on the executor's disk saves most of the restore. One Kafka transaction has the
outputs, the changelog records and the offsets. So after a crash at any time, state and offsets still fit each other.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import KafkaException, Producer

from streamapp._base.repetitions import quieten_drops
from streamapp.broker.admin import KafkaAdmin
from streamapp.engine.feed import Feed
from streamapp.engine.global_letters import GlobalLetters, makes_letters
from streamapp.engine.global_state import GlobalState
from streamapp.engine.runner_ports import Position, TaskEnvironment
from streamapp.engine.task_session import TaskSession, commit
from streamapp.errors import BrokerError, ProcessorStateError, StreamsError
from streamapp.records import TopicPartition
from streamapp.runners.connection import client_of, settings_of
from streamapp.runners.first_offsets import FirstOffsets
from streamapp.runners.lost_offsets import offsets_from_outside
from streamapp.runners.spark.archives import forget_archives
from streamapp.runners.spark.batch_rules import BATCH_RULES
from streamapp.runners.spark.batch_source import KafkaRange, KafkaReader, Ranges
from streamapp.runners.spark.changelogs import KafkaChangelogs
from streamapp.runners.spark.executor_disk import ExecutorDisk
from streamapp.runners.spark.handover_group import Group
from streamapp.runners.spark.produce import transactional_producer
from streamapp.runners.spark.streaming_transaction import Deliveries, StreamTransaction, output_client
from streamapp.topology import Plan, Subtopology

__all__ = ["RESULT", "StreamStage"]

RESULT = (
    "task int, processed bigint, dropped bigint, restored bigint, needless map<string,bigint>, seconds double"
)
"""One row for each task. ``needless`` has changelogs, and the offset below which no restore needs a record."""


@dataclass(frozen=True)
class StreamStage:
    """All tasks of one sub-topology in one micro-batch; cloudpickle sends the stage to the executors."""

    plan: Plan
    subtopology: Subtopology
    topics: tuple[str, ...]
    """The inputs, in the order of the topology."""
    partitions: Mapping[str, int]
    begins: Mapping[TopicPartition, int]
    """The first offsets of source partitions in which the group has no offset, or one whose records are deleted."""
    ends: Mapping[TopicPartition, int]
    """The end of the micro-batch in each source partition with new records.

    Repartition topics are read to their ends.
    """
    more: frozenset[TopicPartition]
    """The source partitions that have records behind the end.

    Until the next micro-batch, these partitions hold back the other inputs of their task. A join then sees its sides in
    the order of time, as on a worker.
    """
    topic_ids: Mapping[str, str]
    """Kafka's ids of the inputs, the changelogs and the global topics."""
    tombstones: Mapping[str, float]
    """The time in seconds for which each changelog keeps tombstones (`tombstone_seconds`)."""
    member: bytes
    """The driver's proof of membership, with which the tasks may commit."""
    with_offsets: frozenset[str]
    """The inputs in which the group had committed offsets at the start of the run."""
    run_id: str
    """A name of the run, which has the same topology and the same topics in all micro-batches."""

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
                f"task {task_id}: Kafka refuses a request: {error.args[0].str()}. If this error comes again, another "
                f"run of {self.plan.application_id} may be alive: stop one of the two"
            ) from error
        row = context.partitionId(), *result, time.monotonic() - started
        yield pa.RecordBatch.from_arrays(
            [pa.array([value], field.type) for value, field in zip(row, _RESULT, strict=True)], schema=_RESULT
        )


_RESULT = pa.schema(
    [
        ("task", pa.int32()),
        ("processed", pa.int64()),
        ("dropped", pa.int64()),
        ("restored", pa.int64()),
        ("needless", pa.map_(pa.string(), pa.int64())),
        ("seconds", pa.float64()),
    ]
)
"""`RESULT` for Arrow."""


class _Outcome(NamedTuple):
    """The numbers of processed, dropped and restored records, and the needless changelog records (`RESULT`)."""

    processed: int = 0
    dropped: int = 0
    restored: int = 0
    needless: tuple[tuple[str, int], ...] = ()


class _Attempt:
    def __init__(self, stage: StreamStage, partition: int) -> None:
        self._stage, self._partition = stage, partition
        self._config = stage.plan.config
        self._client = client_of(self._config)
        self._process = _of_process(stage)
        self._admin, self._kafka = self._process.admin, self._process.kafka
        self._group = Group(self._config)
        self._first_offsets = FirstOffsets(
            self._config.application_id, stage.plan.offset_reset, self._kafka.offset_at
        )
        self._inputs = [TopicPartition(t, partition) for t in stage.topics if partition < stage.partitions[t]]

    def run(self) -> _Outcome:
        if not self._work(self._group.read(self._inputs)):
            return _Outcome()
        stores = {topic.name: name for name, topic in self._stage.subtopology.changelog_topics.items()}
        deliveries = Deliveries(stores, self._config.dead_letter_queue_topic)
        while True:
            smaller = deliveries.refusals.batch_bytes
            client = output_client(self._config, self._stage.subtopology.id, self._partition)
            client |= {} if smaller is None else {"batch.size": smaller}
            try:
                with transactional_producer(client) as producer:
                    try:
                        return self._commit_work(producer, deliveries)
                    except BaseException:
                        producer.poll(0)  # collects reports
                        raise
            except Exception:
                if not deliveries.refused():
                    raise

    def _commit_work(self, producer: Producer, deliveries: Deliveries) -> _Outcome:
        """Processes and commits the records of the micro-batch in one transaction."""
        # Earlier attempts are fenced now, and their open transactions are rolled back.
        committed = self._group.read(self._inputs)
        ranges = self._work(committed)
        if not ranges:
            return _Outcome()
        producer.begin_transaction()
        transaction = StreamTransaction(
            producer, self._stage.member, self._stage.partitions, self._admin, deliveries
        )
        session, restored = self._open(transaction, committed, ranges)
        with closing(session):
            for tp in self._begins_to_commit(committed):
                session.task.skip_to(tp, ranges[tp][0])
            readers = {
                tp: KafkaReader(self._client, tp, *span, partial(self._first_left, tp))
                for tp, span in ranges.items()
                if span[0] < span[1]
            }
            more = self._stage.more
            # Records that are left in the end wait for an input that goes on in the next micro-batch.
            with closing(Feed(session.task, readers, set(ranges) - set(readers) - more, more)) as feed:
                feed.run()
            session.pass_over_gaps(lambda tp: ranges[tp][1])
            letters = self._global_letters()
            transaction.write(letters)
            commit([session], transaction)
            letters.learn(letters.positions)
            needless = tuple((tp.topic, at) for tp, at in session.task.needless_changes.items())
        metrics = session.task.metrics
        return _Outcome(metrics.processed, metrics.dropped_records, restored, needless)

    def _first_left(self, tp: TopicPartition, offset: int) -> int:
        """The offset at which an input goes on if its records at ``offset`` are deleted, as on workers."""
        first, end = self._kafka.committed([tp])[tp]
        return self._first_offsets.of(tp, offset, first, end)

    def _global_letters(self) -> GlobalLetters:
        """The dead letters of global records to write in the commit of this task. Only the first task writes any."""
        plan = self._stage.plan
        first = min(sub.id for sub in plan.subtopologies), 0
        known = self._process.globals
        if known is None or not makes_letters(plan) or (self._stage.subtopology.id, self._partition) != first:
            return GlobalLetters()
        known.learn(self._group, self._admin)
        return known.letters

    def _work(self, committed: Mapping[TopicPartition, Position]) -> Ranges:
        """The ranges to process; no ranges if all are empty."""
        internal = {topic.name for topic in self._stage.plan.internal_topics}
        open_ends = self._admin.log_end_offsets([tp for tp in self._inputs if tp.topic in internal])
        ends = {**open_ends, **self._stage.ends}
        known = {tp: at.offset for tp, at in committed.items()}
        starts = {
            tp: max(known.get(tp, 0), self._stage.begins.get(tp, 0))
            for tp in self._inputs
            if tp in known or tp in self._stage.begins
        }
        first = self._kafka.committed([tp for tp in self._inputs if tp not in starts])
        starts |= {tp: span[0] for tp, span in first.items()}
        ranges = {tp: (starts[tp], max(starts[tp], ends.get(tp, 0))) for tp in self._inputs}
        work = any(start < end for start, end in ranges.values()) or self._begins_to_commit(committed)
        return ranges if work else {}

    def _begins_to_commit(self, committed: Mapping[TopicPartition, Position]) -> list[TopicPartition]:
        """The inputs whose begin a restart would choose anew (`FirstOffsets.moves`), or would refuse.

        A restart would refuse the offset of another tool, because tables have rows by then.
        """
        outside = offsets_from_outside(committed)
        return [
            tp
            for tp in self._inputs
            if tp in outside
            or (tp in self._stage.begins and tp not in committed and self._first_offsets.moves(tp.topic))
        ]

    def _open(
        self,
        transaction: StreamTransaction,
        committed: Mapping[TopicPartition, Position],
        ranges: Ranges,
        *,
        again: bool = True,
    ) -> tuple[TaskSession, int]:
        """Opens the session of the task and restores its state; also returns the number of restored records.

        Damaged state is deleted and restored from the beginning.
        """
        stage = self._stage
        quieten_drops()
        environment = TaskEnvironment(
            stage.plan,
            transaction.results,
            wall_clock_ms=lambda: int(time.time() * 1000),
            changelogs=transaction.changelogs,
            global_stores=self._global_stores(),
            rules=BATCH_RULES,
            topic_ids=stage.topic_ids,
            with_offsets=stage.with_offsets,
        )
        home = ExecutorDisk(stage.plan, stage.topic_ids)
        logs = {
            store: TopicPartition(topic.name, self._partition)
            for store, topic in stage.subtopology.changelog_topics.items()
        }
        task = f"{stage.subtopology.id}_{self._partition}"
        home.forget_aged_rows(task, logs, stage.tombstones, self._admin.log_end_offsets)
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

    def _global_stores(self) -> Mapping[str, Any]:
        """The global stores, with all records up to the ends of their topics."""
        known = self._process.globals
        if known is None:
            return {}
        state, counts = known.state, self._kafka.partition_counts()
        positions = state.positions()
        known.partitions = [TopicPartition(topic, p) for topic in state.topics for p in range(counts[topic])]
        for tp, (first, end) in self._kafka.committed(known.partitions).items():
            start = max(first, positions.get(tp, 0))
            if start >= end:
                continue
            with closing(KafkaReader(self._client, tp, start, end)) as reader:
                while (batch := reader.read()) is not None:
                    known.check_room(self._group, self._admin)
                    if batch.offsets:
                        state.process(tp, batch)
        return state.stores

    def _changelogs(
        self, session: TaskSession, committed: Mapping[TopicPartition, Position]
    ) -> KafkaChangelogs:
        """The changelogs up to their ends; a source topic that serves as a changelog up to its committed offset."""
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
        """Asks the group which dead letters are written. A position after the end of its log does not count, because
        the topic was deleted and created anew."""
        ends = admin.log_end_offsets(self.partitions)
        found = group.read(self.partitions)
        self.letters.learn({tp: at.offset for tp, at in found.items() if at.offset <= ends.get(tp, 0)})

    def check_room(self, group: Group, admin: KafkaAdmin) -> None:
        """Raises `StreamsError` if more dead letters wait for the first task than fit into memory."""
        if self.letters.full:
            self.learn(group, admin)
        if self.letters.full:
            raise StreamsError(
                "many records of global tables have failed, and their dead letters no longer fit into the memory of an "
                "executor. Run a worker of the application until it has written them, or repair the topic"
            )


class _OfProcess:
    """The objects of one run that a Python worker keeps from task to task, because Spark uses a worker for many."""

    def __init__(self, stage: StreamStage) -> None:
        config = stage.plan.config
        self.run_id: str = stage.run_id
        self.admin: KafkaAdmin = KafkaAdmin(settings_of(config))
        self.kafka: KafkaRange = KafkaRange(client_of(config))
        self.globals: _Globals | None = _Globals(stage.plan) if stage.plan.global_stores else None


_of_processes: dict[str, _OfProcess] = {}
"""Application -> the objects of its latest run. Another run may have another topology, or topics created anew."""


def _of_process(stage: StreamStage) -> _OfProcess:
    name = stage.plan.application_id
    found = _of_processes.get(name)
    if found is None or found.run_id != stage.run_id:
        found = _of_processes[name] = _OfProcess(stage)
    return found
