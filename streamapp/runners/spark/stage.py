"""A stage in an executor: the engine's task of one sub-topology on one partition, over a bounded input.

A stage is one ``mapInArrow`` over as many Spark partitions as the sub-topology has tasks (a cycle: one task). The task
itself reads parts of Kafka topics or Parquet archives. Spark brings the rows of earlier stages and of DataFrames. The
task processes all inputs in the order of timestamps, and no input runs ahead of another. The result does not depend on
batch sizes.

All results leave in one frame of `OUTPUT`, for example records for topics, rows of tables, and counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamapp._base.repetitions import quieten_drops
from streamapp.engine.feed import Feed
from streamapp.engine.global_state import GlobalState
from streamapp.engine.runner_ports import TaskEnvironment
from streamapp.engine.task import Task
from streamapp.engine.task_session import TaskSession
from streamapp.records import RecordBatch, TopicPartition
from streamapp.runners.spark.archives import forget_archives
from streamapp.runners.spark.batch_rules import cycle_rules
from streamapp.runners.spark.batch_source import Part, Ranges
from streamapp.runners.spark.changelogs import KafkaChangelogs
from streamapp.runners.spark.frames import CHANGE, COUNTS, INPUT, OUTPUT, PACK, POSITION, RECORD, ROW
from streamapp.runners.spark.output import OUTPUT_ROWS, Output
from streamapp.runners.spark.packing import pieces
from streamapp.runners.spark.progress import Reporter
from streamapp.runners.spark.rows import Rows
from streamapp.runners.spark.spill import SpillingHome
from streamapp.topology.plan import Plan, Subtopology

if TYPE_CHECKING:
    from pyspark import Broadcast

__all__ = [
    "CHANGE",
    "COUNTS",
    "INPUT",
    "OUTPUT",
    "PACK",
    "POSITION",
    "RECORD",
    "ROW",
    "Resume",
    "Stage",
]

OUTPUT_BYTES = 1 << 24
"""The approximate limit of a batch that leaves a task."""
COMMIT_EVERY = 200_000
"""The number of records between two commits of a task, fixed so that caches give the same results in every run."""


@dataclass(frozen=True)
class Resume:
    """The state of an application at its committed offsets: the ranges of its changelogs, and the offsets' metadata.

    A stage with a `Resume` continues from this state. The stage gives out what a worker commits: results, changelog
    records and positions. Only a stage without a `Resume` gives out tables.
    """

    changelogs: Ranges = field(default_factory=dict)
    metadata: Mapping[TopicPartition, str] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Kafka's ids of the inputs, which the metadata of the next positions names."""

    def bring(self, session: TaskSession, inputs: list[TopicPartition], client: Mapping[str, Any]) -> None:
        """Restores the stores and times of a task that does not run yet."""
        session.continue_from({tp: self.metadata[tp] for tp in inputs if tp in self.metadata})
        session.restore_from(KafkaChangelogs(client, self.changelogs))


@dataclass(frozen=True)
class Stage:
    """One sub-topology with all that its tasks need; cloudpickle sends the stage to the executors.

    ``cycle`` has the topics that the sub-topology both writes and reads. A stage with a cycle has one task, which takes
    all partitions of its inputs.
    """

    plan: Plan
    subtopology: Subtopology
    tasks: int
    partitions: Mapping[str, int]
    """The partition counts of known topics; an unknown output topic gets as many partitions as there are tasks."""
    topics: tuple[str, ...]
    """The inputs, in the order of the topology."""
    parts: Mapping[TopicPartition, Part] = field(default_factory=dict)
    """The inputs that tasks read themselves."""
    row_topics: tuple[str, ...] = ()
    """The inputs that Spark brings."""
    row_totals: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The numbers of records in ``row_topics``."""
    packed: frozenset[str] = frozenset()
    """The inputs and outputs whose records travel in packs."""
    cycle: frozenset[str] = frozenset()
    client: Mapping[str, Any] = field(default_factory=dict)
    """librdkafka settings of the application's cluster."""
    wall_clock_ms: int = 0
    run_id: str = ""
    global_records: Broadcast[list[tuple[TopicPartition, RecordBatch]]] | None = None
    resume: Resume | None = None
    report_to: Reporter | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        forget_archives()
        yield from self.run(context.partitionId(), batches)

    def run(self, partition: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs one task to its end, and yields its results in Arrow batches of limited size.

        The size is limited because Spark holds a whole batch in memory.
        """
        for batch in self._run(partition, batches):
            yield from pieces(batch, OUTPUT_BYTES)

    def _run(self, partition: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        inputs = self._inputs(partition)
        out = self._output(partition)
        quieten_drops()
        environment = TaskEnvironment(
            self.plan,
            out,
            wall_clock_ms=lambda: self.wall_clock_ms,
            global_stores=self._global_stores(),
            # Spark numbers the records that it brings, and the task those of its own cycle.
            rules=replace(
                cycle_rules(self.cycle), numbered_topics=frozenset({*self.row_topics, *self.cycle})
            ),
            topic_ids={} if self.resume is None else self.resume.topic_ids,
        )
        home = SpillingHome(self.plan.config.state_memory_bytes)
        with closing(TaskSession(environment, self.subtopology, partition, home, inputs)) as session:
            out.task = session.task
            if self.resume is not None:
                self.resume.bring(session, inputs, self.client)
            session.start()
            rows = Rows(self.row_topics, self.packed, self.row_totals, partition, batches)
            cycling = (TopicPartition(topic, 0) for topic in self.cycle)
            readers = {tp: self.parts[tp].open(tp) for tp in inputs if tp in self.parts}
            with closing(Feed(session.task, readers, {*rows.ended(), *cycling})) as feed:
                yield from self._drive(session, out, feed, rows)
            rows.finish()
            yield from out.batches(0)
            yield from out.counts()
            yield from out.tables() if self.resume is None else out.positions()

    def _inputs(self, partition: int) -> list[TopicPartition]:
        if not self.cycle:
            return [TopicPartition(t, partition) for t in self.topics if partition < self.partitions[t]]
        # With a cycle, rows of all partitions come as rows of partition 0.
        return [
            TopicPartition(topic, number)
            for topic in self.topics
            for number in range(1 if topic in {*self.row_topics, *self.cycle} else self.partitions[topic])
        ]

    def _output(self, partition: int) -> Output:
        changelog_topics = self.subtopology.changelog_topics
        own = {topic.name for topic in changelog_topics.values()}
        changelogs = frozenset(own - set(self.subtopology.source_topics))
        gives_changes = self.resume is not None
        return Output(
            partition,
            self.partitions,
            self.tasks,
            packed=self.packed & set(self.subtopology.sink_topics),
            changelogs=changelogs,
            dropped=frozenset() if gives_changes else changelogs,
            cycle=self.cycle,
            homes={store: self.partitions.get(t.name, 1) for store, t in changelog_topics.items()},
        )

    def _global_stores(self) -> Mapping[str, Any]:
        if self.global_records is None:
            return {}
        # Spark uses a Python worker for many tasks, which share one copy of the global stores.
        known = _global_states.get(self.run_id)
        if known is None:
            _global_states.clear()
            state = GlobalState(self.plan, wall_clock_ms=lambda: self.wall_clock_ms)
            for partition, batch in self.global_records.value:
                state.process(partition, batch)
            known = _global_states[self.run_id] = state.stores
        return known

    def _drive(self, session: TaskSession, out: Output, feed: Feed, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Feeds a task with records until all its input partitions are at their ends.

        A partition gets new records when its buffer is empty, because the task then waits for this partition.
        """
        task = session.task
        tell = self.report_to.start(task.task_id) if self.report_to else _silent
        since_commit = 0
        while True:
            buffered = task.buffered
            feed.top_up()
            if any(not buffered.get(tp) for tp in rows.left):
                for tp, batch in rows.read():
                    task.enqueue(tp, batch)
                feed.ended |= rows.ended()
            done = self._process(task, out, COMMIT_EVERY - since_commit, feed.ended)
            since_commit += done
            at_end = not (done or feed.readers or rows.left)
            if since_commit == COMMIT_EVERY or at_end:
                session.commit_alone()
                since_commit = 0
                if not out.circulate(task) and at_end:
                    break
            tell(task.metrics.processed)
            yield from out.batches(OUTPUT_ROWS)

    def _process(self, task: Task, out: Output, limit: int, ended: set[TopicPartition]) -> int:
        if not self.cycle:
            return task.process(limit, caught_up=ended)
        done = 0
        while done < min(limit, CYCLE_ROUND) and task.process(1, caught_up=ended):
            out.circulate(task)
            done += 1
        return done


CYCLE_ROUND = 10_000
"""The most records that the task of a cycle processes between two checks of inputs and outputs."""

_global_states: dict[str, dict[str, Any]] = {}


def _silent(processed: int) -> None:
    """Stands in for a reporter if no bar is shown."""
