"""`SparkStream`: runs a topology continuously with Spark's Structured Streaming.

Structured Streaming only decides when a micro-batch begins, and counts the micro-batches in its checkpoint. In a
micro-batch, each task with new records does the work of a worker between two commits (`streaming_task`). The progress
is stored only in Kafka, so a lost checkpoint, driver or executor costs only time. For the same reason, workers can take
over from a stopped stream, and a stream from stopped workers.

The query reads Spark's source `rate-micro-batch`, which gives each micro-batch one row that nobody needs. The tasks
read Kafka themselves. Spark's own Kafka source would keep its own offsets, and its records would go through Java. A
data source in Python must start within 10 seconds, which fails on a busy machine.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from confluent_kafka import KafkaException

from streamapp._base import failpoints
from streamapp._base.counted import counted
from streamapp.broker.admin import KafkaAdmin, TopicSpec
from streamapp.config import StreamsConfig
from streamapp.engine.metadata import decode_metadata, from_outside
from streamapp.engine.store_notes import check_stores, noted_changelogs
from streamapp.errors import BrokerError, StreamsError, TopologyError
from streamapp.records import TopicPartition
from streamapp.runners.aged_state import tombstone_seconds
from streamapp.runners.connection import admin_of, client_of, connected, settings_of
from streamapp.runners.earlier_topics import check_changelogs, check_not_anew, ids_of
from streamapp.runners.first_offsets import FirstOffsets, check_within, first_new_partitions
from streamapp.runners.lost_offsets import NO_OFFSET, check_repartition_topics
from streamapp.runners.purge import Purge
from streamapp.runners.spark.batch_source import KafkaRange, Ranges
from streamapp.runners.spark.failures import raised_in_tasks
from streamapp.runners.spark.handover_group import Group
from streamapp.runners.spark.handover_survey import offset_check, read_topics
from streamapp.runners.spark.produce import roll_back
from streamapp.runners.spark.run_order import check_runnable, topics_of
from streamapp.runners.spark.streaming_membership import StreamingMembership
from streamapp.runners.spark.streaming_task import RESULT, StreamStage
from streamapp.runners.spark.streaming_transaction import output_client
from streamapp.topology import Subtopology, Topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["BatchMetrics", "SparkStream"]

_COUNT_SECONDS = 30.0
"""The time between two looks at the numbers of partitions of the inputs."""


@dataclass(frozen=True)
class BatchMetrics:
    """The numbers of one micro-batch."""

    batch: int
    """The number of the micro-batch in the checkpoint."""
    processed: int
    """Records that tasks have processed."""
    dropped: int
    """Records that operators have dropped."""
    restored: int
    """Changelog records that tasks have read, because an executor's disk had no state of theirs, or an old one."""
    tasks: int
    """Tasks that have processed records; a task counts once for each of its runs."""
    seconds: float


class SparkStream:
    """Runs one application continuously.

    ``checkpoint`` is a folder or URI that the driver finds again after a restart. A micro-batch goes forward by at most
    ``records_per_batch`` offsets in each source partition. ``interval_ms`` is the time between the starts of two
    micro-batches; a long micro-batch delays the next. ``on_batch`` is called with the metrics of each micro-batch.

    >>> with SparkStream(topology, config, spark, checkpoint="data/checkpoint") as stream:   # doctest: +SKIP
    ...     stream.wait()

    `start` raises `ConfigError` while workers or another run are members of the group. `start` raises `TopologyError`
    or `TaskCorruptedError` if the group's offsets belong to an earlier topic of the same name.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        spark: SparkSession,
        *,
        checkpoint: str,
        interval_ms: int = 1_000,
        records_per_batch: int = 100_000,
        on_batch: Callable[[BatchMetrics], None] = lambda _: None,
    ) -> None:
        config = connected(config)
        # A micro-batch knows the ends of its inputs, so no task needs to idle.
        self._plan = topology.plan(config.replace(max_task_idle_ms=0))
        self._config, self._spark = self._plan.config, spark
        self._checkpoint, self._interval_ms, self._most = checkpoint, interval_ms, records_per_batch
        self._on_batch = on_batch
        self._one_batch = threading.Lock()
        self._stopped = False
        self._group = Group(self._config)
        self._first_offsets = FirstOffsets(
            self._plan.application_id,
            self._plan.offset_reset,
            lambda tp, timestamp: KafkaRange(client_of(self._config)).offset_at(tp, timestamp),
        )
        self._admin = admin_of(self._config)
        self._purge = Purge(self._admin, self._config.repartition_purge_interval_ms)
        self._membership: StreamingMembership | None = None
        self._query: StreamingQuery | None = None
        self._failure: BaseException | None = None
        self._partitions: dict[str, int] = {}
        self._topics: dict[int, tuple[str, ...]] = {}
        self._id = str(uuid4())
        self._topic_ids: dict[str, str] = {}
        self._tombstones: dict[str, float] = {}
        self._counted_at = time.monotonic()
        self._with_offsets: frozenset[str] = frozenset()
        self._begins: dict[TopicPartition, int] = {}
        """The first offsets of the partitions in which the group has no offset to go on from."""

    def start(self) -> None:
        """Joins the group, and starts the query; returns when the query runs."""
        plan, client = self._plan, client_of(self._config)
        check_runnable(plan)
        existing = KafkaRange(client).partition_counts()
        self._partitions, missing = read_topics(plan, existing)
        configs = {topic.name: dict(topic.config) for topic in plan.internal_topics}
        admin = KafkaAdmin(settings_of(self._config))
        admin.ensure_topics([TopicSpec(topic, n, configs[topic]) for topic, n in missing.items()])
        self._topics = {sub.id: topics_of(sub, self._partitions) for sub in plan.subtopologies}
        self._membership = StreamingMembership(self._config, sorted(self._outside()))
        self._roll_back()
        self._find_positions(existing.keys())
        query = (
            self._spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", 1)
            .load()
            .writeStream.queryName(plan.application_id)
            .option("checkpointLocation", self._checkpoint)
            .trigger(processingTime=f"{self._interval_ms} milliseconds")
            .foreachBatch(self._on_tick)
        )
        with self._clear_errors_of_spark():
            self._query = query.start()

    @contextmanager
    def _clear_errors_of_spark(self) -> Iterator[None]:
        """Raises the error of the micro-batch that has failed. An error of Spark itself becomes a `StreamsError`."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            yield
        except Exception as error:
            if self._failure is not None:
                raise self._failure from None
            if not isinstance(error, PySparkException | Py4JJavaError):
                raise
            said = str(error.java_exception.toString() if isinstance(error, Py4JJavaError) else error)
            raise StreamsError(
                f"Spark has ended the query: {said.splitlines()[0]}. Perhaps Spark cannot read or write the checkpoint "
                f"{self._checkpoint}. The checkpoint only counts micro-batches, so nothing is lost if you delete it or "
                "name another folder"
            ) from error

    def _roll_back(self) -> None:
        """Ends the transactions that an earlier, killed run has left open.

        A stage may read the output of a later stage, for example the answers of a foreign-key join. So the
        earlier stage could wait for an open transaction that only the later stage would end.
        """
        clients = [
            output_client(self._config, sub.id, task)
            for sub in self._plan.subtopologies
            for task in range(self._task_count(sub))
        ]
        try:
            roll_back(clients)
        except KafkaException as error:
            raise BrokerError(
                f"Kafka at {self._config.bootstrap_servers} does not end the transactions of an earlier run of "
                f"{self._config.application_id}: {error.args[0].str()}. Check the brokers, then start again"
            ) from error

    def _find_positions(self, existing: Collection[str]) -> None:
        """Waits for the last commit of the members before, and finds the offsets at which this run begins.

        The commit of a stopped worker may still be on its way into the group, because Kafka answers before.
        ``existing`` are the topics that this run has not made.
        """
        topics = {topic for topics in self._topics.values() for topic in topics}
        every = [TopicPartition(topic, p) for topic in topics for p in range(self._partitions[topic])]
        committed = self._group.read_settled(every)
        for position in committed.values():
            decode_metadata(position.metadata)  # refuses the notes of an unfinished backfill
        check_not_anew(self._group.name, self._admin, committed)
        texts = {tp: at.metadata for tp, at in committed.items()}
        check_stores(self._plan, texts, self._partitions)
        check_changelogs(self._group.name, self._admin, noted_changelogs(self._plan, texts), existing)
        check_repartition_topics(self._plan, texts, existing, self._partitions)
        counts = {topic: count for topic, count in self._partitions.items() if topic in existing}
        offset_check(self._plan, self._group).check(
            {tp: committed.get(tp, NO_OFFSET) for tp in every}, counts
        )
        self._with_offsets = frozenset(tp.topic for tp in committed)
        self._topic_ids = self._ids_now()
        self._tombstones = tombstone_seconds(self._plan, self._admin)
        outside = self._outside()
        found = {tp: committed[tp].offset if tp in committed else -1 for tp in every}
        self._first_offsets = replace(self._first_offsets, first_new=first_new_partitions(found))
        read = [tp for tp in every if tp.topic in outside]
        for tp, (first, end) in KafkaRange(client_of(self._config)).committed(read).items():
            begin = self._first_offsets.of(tp, found[tp], first, end)
            if begin != found[tp]:
                self._begins[tp] = begin

    def _ids_now(self) -> dict[str, str]:
        """Kafka's ids of all topics that hold positions or state."""
        held = {topic.name for topic in self._plan.internal_topics} | {
            s.topic for s in self._plan.global_stores
        }
        return ids_of(self._admin, held.union(*self._topics.values()))

    def _check_same_topics(self) -> None:
        """Raises `TopologyError` if a topic was created anew during this run."""
        now = self._ids_now()
        for topic in sorted(
            topic for topic in now if now[topic] != self._topic_ids.setdefault(topic, now[topic])
        ):
            raise TopologyError(
                f"the topic {topic} was deleted and created anew during this run, so the tables of "
                f"{self._group.name} do not fit its records any more. To begin anew with the new topic, run "
                "`streamapp reset`"
            )

    def _refuse_beyond(self, beyond: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Raises an error for positions that are beyond the ends of their logs. ``beyond`` has position and end."""
        if beyond:
            self._check_same_topics()
        for tp, (position, end) in sorted(beyond.items()):
            check_within(tp, position, end)

    def _proof(self) -> bytes:
        """The proof of membership. Raises `StreamsError` if the membership is lost.

        Raises `TopologyError` if an input has more partitions than at the start. At the latest after some minutes, the
        group's client finds the new partitions, and its membership is lost.
        """
        assert self._membership is not None
        if self._membership.lost is not None or time.monotonic() - self._counted_at > _COUNT_SECONDS:
            self._counted_at = time.monotonic()
            now = KafkaRange(client_of(self._config)).partition_counts()
            for topic in sorted({topic for topics in self._topics.values() for topic in topics}):
                if now.get(topic, 0) > self._partitions[topic]:
                    raise TopologyError(
                        f"the topic {topic} had {counted(self._partitions[topic], 'partition')} when this run started, "
                        f"and now has {now[topic]}. Start the run again, which then checks if the tables still fit"
                    )
        return self._membership.proof()

    def _outside(self) -> set[str]:
        """The inputs, except internal topics."""
        inside = {topic.name for topic in self._plan.internal_topics}
        return {topic for topics in self._topics.values() for topic in topics} - inside

    def _task_count(self, sub: Subtopology) -> int:
        return max(self._partitions[topic] for topic in self._topics[sub.id])

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until the query ends, or for ``seconds``; returns True if the query has ended.

        Raises the error with which the query has failed.
        """
        assert self._query is not None
        with self._clear_errors_of_spark():
            ended = self._query.awaitTermination(seconds)
        return True if ended is None else bool(ended)

    def stop(self) -> None:
        """Stops after the running micro-batch, and leaves the group, so that workers can start at once."""
        self._stopped = True
        with self._one_batch:
            pass
        # The query stops without the lock. Spark waits for a tick that has just begun, and this tick needs the lock.
        if self._query is not None:
            self._query.stop()
        if self._membership is not None:
            self._membership.leave()

    def __enter__(self) -> SparkStream:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _on_tick(self, frame: DataFrame, batch: int) -> None:
        try:
            self._run_batch(batch)
            failpoints.hit("stream-batch-done")
        except BaseException as error:
            self._failure = error
            raise

    def _run_batch(self, batch: int) -> None:
        """Runs the sub-topologies that have new records, again and again, until no task processes any."""
        with self._one_batch:
            if self._stopped:
                return
            started = time.monotonic()
            self._proof()
            results: list[Any] = []
            ends, more = self._new()
            waiting, processed = ends.keys() | self._left(), True
            while waiting and processed:
                topics = {tp.topic for tp in waiting}
                rows: list[Any] = []
                for sub in self._plan.subtopologies:
                    if topics & set(self._topics[sub.id]):
                        rows += self._run_stage(sub, ends, more)
                results += rows
                # Records that are left now wait for source records of the next micro-batch.
                processed = any(row.processed for row in rows)
                waiting = self._left()
            active = [row for row in results if row.processed]
            sums = {name: sum(row[name] for row in results) for name in ("processed", "dropped", "restored")}
            self._on_batch(BatchMetrics(batch, **sums, tasks=len(active), seconds=time.monotonic() - started))

    def _new(self) -> tuple[dict[TopicPartition, int], frozenset[TopicPartition]]:
        """The end of this micro-batch in each source partition with new records; and the partitions that have more."""
        every = [
            TopicPartition(topic, p) for topic in self._outside() for p in range(self._partitions[topic])
        ]
        committed = self._group.read(every)
        found, more, beyond = {}, set(), {}
        for tp, (first, end) in self._spans(every).items():
            start = max(committed[tp].offset if tp in committed else -1, self._begins.get(tp, -1))
            if start < first:
                start = self._begins[tp] = self._first_offsets.of(tp, start, first, end)
            if start > end:
                beyond[tp] = start, end
            outside = tp in committed and from_outside(committed[tp].metadata)
            if start < end or outside or (tp not in committed and self._first_offsets.moves(tp.topic)):
                found[tp] = min(end, start + self._most)
                if found[tp] < end:
                    more.add(tp)
        self._refuse_beyond(beyond)
        if found:
            self._check_same_topics()
        return found, frozenset(more)

    def _spans(self, partitions: Collection[TopicPartition]) -> Ranges:
        """The first offset and the end of each partition. Raises `TopologyError` if an input was deleted."""
        kafka = KafkaRange(client_of(self._config))
        try:
            return kafka.committed(partitions)
        except BrokerError as error:
            gone = {tp.topic for tp in partitions} - kafka.partition_counts().keys()
            if not gone:
                raise
            raise TopologyError(
                f"Kafka has {', '.join(sorted(gone))} no more: the topic was deleted during this run. Create the topic "
                "before the next start; a topic that only a pattern matches may stay away"
            ) from error

    def _run_stage(
        self, sub: Subtopology, ends: Mapping[TopicPartition, int], more: frozenset[TopicPartition]
    ) -> list[Any]:
        topics = self._topics[sub.id]
        tasks = self._task_count(sub)
        mine = {tp: end for tp, end in ends.items() if tp.topic in topics}
        stage = StreamStage(
            self._plan,
            sub,
            topics,
            self._partitions,
            {tp: begin for tp, begin in self._begins.items() if tp.topic in topics},
            mine,
            more,
            self._topic_ids,
            self._tombstones,
            self._proof(),
            self._with_offsets,
            self._id,
        )
        try:
            with raised_in_tasks():
                rows = self._spark.range(0, tasks, 1, tasks).mapInArrow(stage, RESULT).collect()
        except StreamsError:
            self._proof()  # brokers refuse the commits of tasks whose driver is no member any more
            raise
        for row in rows:
            self._purge.note({TopicPartition(topic, row.task): at for topic, at in row.needless.items()})
        return list(rows)

    def _left(self) -> set[TopicPartition]:
        """The partitions of repartition topics with records that no task has processed."""
        topics = {topic.name for sub in self._plan.subtopologies for topic in sub.repartition_topics}
        every = [TopicPartition(topic, p) for topic in topics for p in range(self._partitions[topic])]
        ends = KafkaAdmin(settings_of(self._config)).log_end_offsets(every)
        committed = self._group.read(list(ends))
        positions = {tp: committed[tp].offset if tp in committed else 0 for tp in ends}
        self._refuse_beyond({tp: (positions[tp], end) for tp, end in ends.items() if positions[tp] > end})
        self._purge.note(positions)
        self._purge.ask_if_due()
        return {tp for tp, end in ends.items() if end > positions[tp]}
