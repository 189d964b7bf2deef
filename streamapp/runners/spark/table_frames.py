"""Tables of a live application as DataFrames, from their changelogs in Kafka."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError

from streamapp.config import StreamsConfig
from streamapp.engine.collector import NoWayOut
from streamapp.engine.metadata import decode_metadata
from streamapp.engine.runner_ports import TaskEnvironment
from streamapp.engine.task_session import TaskSession
from streamapp.errors import BrokerError
from streamapp.records import RecordBatch, TopicPartition
from streamapp.runners.connection import client_of, connected
from streamapp.runners.spark.batch_source import KafkaPart, KafkaRange, KafkaSource
from streamapp.runners.spark.changelogs import KafkaChangelogs
from streamapp.runners.spark.handover_group import Group
from streamapp.runners.spark.result import OutputTable
from streamapp.runners.spark.sessions import spark_session
from streamapp.runners.spark.spill import SpillingHome
from streamapp.runners.spark.table_rows import GlobalRows, readable, row_frame, table_batches
from streamapp.topology import Plan, Subtopology, Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["create_views", "live_tables"]


def live_tables(
    topology: Topology, config: StreamsConfig, spark: SparkSession | None = None
) -> dict[str, OutputTable]:
    """The tables of an application by name, with global tables, as they are in Kafka now.

    No worker has to run. The tables have the committed changes, and no others. Changes behind a transaction that stays
    open for 10 seconds are missing. If the source topic of a table is also its changelog (``topology_optimization``),
    the table has all committed records of this topic. So the table may be ahead of the workers. The same holds for
    global tables.

    A table whose store is not logged has no changelog, so the table is missing here. Compute such a table with
    `SparkRunner.batch`. Raises `StreamsError` if a backfill of the application has begun and not ended, because its
    tables are incomplete. Without the right to read the group, this is not checked.

    >>> tables = live_tables(topology, config)                                     # doctest: +SKIP
    >>> tables["carrier-flights"].typed.orderBy("value").show()                    # doctest: +SKIP
    """
    plan = topology.plan(connected(config))
    spark = spark or spark_session(plan.application_id)
    kafka = KafkaRange(client_of(plan.config))
    counts = kafka.partition_counts()

    logs = {log.name for sub in plan.subtopologies for log in sub.changelog_topics.values()}
    topics = sorted(counts.keys() & (logs | {store.topic for store in plan.global_stores}))
    every = [TopicPartition(topic, number) for topic in topics for number in range(counts[topic])]
    spans = kafka.resolve(KafkaSource(), every)
    _check_no_backfill(plan, counts)

    def parts(topic: str) -> dict[int, KafkaPart]:
        client = client_of(plan.config)
        return {tp.partition: KafkaPart(client, *span) for tp, span in spans.items() if tp.topic == topic}

    tables, now_ms = {}, int(time.time() * 1000)
    for sub in plan.subtopologies:
        for spec in sub.stores:
            changelog = sub.changelog_topics.get(spec.name)
            if readable(spec) and changelog is not None and changelog.name in counts:
                found = parts(changelog.name)
                one = replace(sub, nodes=(), stores=(spec,))
                frame = row_frame(spark, spec.name, len(found), _Restored(plan, one, changelog.name, found))
                tables[spec.name] = OutputTable(spec, frame)
    for store in plan.global_stores:
        if readable(store.spec) and store.topic in counts:
            records = partial(_records, store.topic, parts(store.topic))
            frame = row_frame(spark, store.name, 1, GlobalRows(plan, store.name, records, now_ms))
            tables[store.name] = OutputTable(store.spec, frame)
    return tables


def _check_no_backfill(plan: Plan, counts: Mapping[str, int]) -> None:
    """Raises `StreamsError` if the offsets of the group have the notes of an unfinished backfill.

    Readers of tables need no right to the group. Without the right, nothing is checked.
    """
    read = {
        topic
        for sub in plan.subtopologies
        for topic in counts
        if topic in sub.source_topics or any(n.pattern and n.pattern.fullmatch(topic) for n in sub.sources)
    }
    try:
        found = Group(plan.config).read(
            [TopicPartition(topic, p) for topic in read for p in range(counts[topic])]
        )
    except BrokerError as error:
        if not isinstance(error.__cause__, GroupAuthorizationFailedError | TopicAuthorizationFailedError):
            raise
        return
    for position in found.values():
        decode_metadata(position.metadata)


def create_views(spark: SparkSession, tables: Mapping[str, OutputTable]) -> dict[str, str]:
    """Creates a view of Spark SQL for each table; returns view -> table.

    In the name of a view, characters other than letters and digits become ``_``, and a digit at the beginning gets a
    ``_`` before it. If two names become the same (SQL does not distinguish capitals), the second one gets another ``_``
    at its end.
    """
    views: dict[str, str] = {}
    for name, table in tables.items():
        view = re.sub(r"\W", "_", name)
        view = view if not view[0].isdigit() else f"_{view}"
        while view.lower() in {taken.lower() for taken in views}:
            view += "_"
        table.typed.createOrReplaceTempView(view)
        views[view] = name
    return views


@dataclass(frozen=True)
class _Restored:
    """Restores one store of a task from its changelog, in an executor."""

    plan: Plan
    subtopology: Subtopology
    changelog: str
    parts: Mapping[int, KafkaPart]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for _ in batches:  # Spark discards Python workers that do not read to the end
            pass
        partition = context.partitionId()
        if partition not in self.parts:
            return
        environment = TaskEnvironment(
            self.plan, NoWayOut("a task that only restores"), wall_clock_ms=lambda: 0
        )
        home = SpillingHome(self.plan.config.state_memory_bytes)
        part = self.parts[partition]
        changelog = TopicPartition(self.changelog, partition)
        with closing(TaskSession(environment, self.subtopology, partition, home, inputs=())) as session:
            ranges = {changelog: (part.start, part.end)}
            session.restore_from(KafkaChangelogs(part.client, ranges, shortened=self._shortened))
            yield from table_batches(session.task.own_stores, partition, {})

    @property
    def _shortened(self) -> bool:
        """True if workers may delete records of the changelog before this task reads them."""
        return any(
            "delete" in log.config.get("cleanup.policy", "")
            for log in self.subtopology.changelog_topics.values()
        )


def _records(topic: str, parts: Mapping[int, KafkaPart]) -> Iterator[tuple[TopicPartition, RecordBatch]]:
    for partition, part in parts.items():
        tp = TopicPartition(topic, partition)
        with closing(part.open(tp)) as reader:
            while (batch := reader.read()) is not None:
                yield tp, batch
