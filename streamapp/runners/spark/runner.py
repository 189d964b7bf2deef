"""Runs a topology over history on Spark: the tasks of the engine in stages, each over a bounded input."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from streamapp.config import StreamsConfig
from streamapp.errors import ConfigError
from streamapp.records import NO_HEADERS, RecordBatch, TopicPartition
from streamapp.runners.spark.failures import raised_in_tasks
from streamapp.runners.spark.partitioning import exact_partitions
from streamapp.runners.spark.planner import check_runnable, in_order, topics_of
from streamapp.runners.spark.progress import polling, progress_bar
from streamapp.runners.spark.result import BatchResult, OutputTable, OutputTopic
from streamapp.runners.spark.session import spark_session
from streamapp.runners.spark.source import FrameSource, KafkaRange, KafkaReader, KafkaSource, Ranges
from streamapp.runners.spark.stage import COUNTS, INPUT, OUTPUT, RECORD, ROW, Resume, Stage, readable
from streamapp.topology import Plan, Subtopology, Topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Sources = KafkaSource | Mapping[str, KafkaSource | FrameSource | DataFrame] | None

__all__ = ["Run", "Source", "SparkRunner", "client_of"]

Source = KafkaSource | FrameSource


class SparkRunner:
    """Runs one topology on Spark.

    >>> runner = SparkRunner(topology, StreamsConfig("delays", bootstrap_servers=servers))   # doctest: +SKIP
    >>> with runner.batch(KafkaSource(until=1_385_874_000_000)) as result:                   # doctest: +SKIP
    ...     for row in result.tables["delays-per-hour"].rows():
    ...         print(row.key, row.start, row.value)

    ``spark`` is a session of your own; by default `spark_session` makes one, or takes the one that runs.
    """

    def __init__(self, topology: Topology, config: StreamsConfig, spark: SparkSession | None = None) -> None:
        plan = topology.plan(config)
        # A batch knows where its inputs end, so there is nothing to idle for.
        self._plan = replace(plan, config=plan.config.replace(max_task_idle_ms=0))
        self._spark = spark

    @property
    def plan(self) -> Plan:
        return self._plan

    def batch(
        self,
        sources: Sources = None,
        *,
        progress: bool = False,
    ) -> BatchResult:
        """Processes all records of the sources, once, and returns what came out. Nothing is written to Kafka.

        ``sources`` is one `KafkaSource` for all topics (the default: everything in them), or a source for
        each topic that the topology reads. Topics that it writes and reads itself need none: they stay
        inside. Caches are flushed every 200,000 records of a task and at the end. Run it again: the result is
        the same.

        Raises `UnsupportedOperation` for topologies that need the wall clock, or whose sub-topologies feed
        each other in a circle; `ConfigError` for a topic without source; `CopartitionError` as workers do.
        """
        return self.compute(sources, progress=progress).result()

    def compute(
        self,
        sources: Sources = None,
        *,
        resume: Resume | None = None,
        now_ms: int | None = None,
        progress: bool = False,
    ) -> Run:
        """The stages of a batch, computed. With ``resume`` they go on from an application's state, and hold
        what its workers would have written. ``now_ms`` is the wall clock that operators see."""
        check_runnable(self._plan)
        kafka = KafkaRange(client_of(self._plan.config))
        inputs = self._inputs(sources, kafka)
        order = in_order(self._plan, inputs.by_topic)
        spark = self._spark or spark_session(self._plan.application_id)
        counts = self._partition_counts(inputs)
        run = Run(spark, self._plan, inputs, counts, kafka, resume, now_ms or int(time.time() * 1000))
        try:
            for sub in order:
                with _progress(spark, f"{sub.id}: {sub.name}", progress):
                    run.stage(sub)
        except BaseException:
            run.close()
            raise
        return run

    def _inputs(self, sources: Any, kafka: KafkaRange) -> _Inputs:
        plan = self._plan
        written = {topic for sub in plan.subtopologies for topic in sub.sink_topics}
        wanted = [topic for topic in plan.source_topics if topic not in written]
        if sources is None or isinstance(sources, KafkaSource):
            on_kafka = kafka.partition_counts()
            patterns = [
                topics_of(s, on_kafka) for s in plan.subtopologies if any(n.pattern for n in s.sources)
            ]
            wanted += [t for topics in patterns for t in topics if t not in written and t not in wanted]
            by_topic: dict[str, Source] = dict.fromkeys(wanted, sources or KafkaSource())
        else:
            by_topic = {t: s if isinstance(s, Source) else FrameSource(s) for t, s in sources.items()}
            missing = [topic for topic in wanted if topic not in by_topic]
            if missing:
                raise ConfigError(
                    f"there is no source for {', '.join(missing)}: give a DataFrame or a KafkaSource for "
                    f"each of {', '.join(wanted)}"
                )
            on_kafka = (
                kafka.partition_counts() if any(isinstance(s, KafkaSource) for s in by_topic.values()) else {}
            )
        rows = {topic: s.rows(topic) for topic, s in by_topic.items() if isinstance(s, FrameSource)}
        inputs = _Inputs(by_topic, rows)
        for topic, source in by_topic.items():
            if isinstance(source, FrameSource):
                sizes: dict[int, int] = dict(map(tuple, rows[topic].groupBy("task").count().collect()))
                inputs.totals.update({TopicPartition(topic, task): size for task, size in sizes.items()})
                inputs.partitions[topic] = source.partitions or max(sizes, default=0) + 1
                if sizes and max(sizes) >= inputs.partitions[topic]:
                    raise ConfigError(
                        f"the frame for {topic} has rows of partition {max(sizes)}, but partitions is "
                        f"{source.partitions}"
                    )
            elif topic in on_kafka:
                inputs.partitions[topic] = on_kafka[topic]
        inputs.on_kafka = on_kafka
        return inputs

    def _partition_counts(self, inputs: _Inputs) -> dict[str, int]:
        """Of all topics that are read, and of those that are written as far as Kafka has them."""
        external = {
            topic: inputs.on_kafka[topic] for topic in self._plan.source_topics if topic in inputs.on_kafka
        }
        external.update(inputs.partitions)
        written = {topic for sub in self._plan.subtopologies for topic in sub.sink_topics}
        for topic in self._plan.source_topics:
            if topic in written and topic not in external:
                external[topic] = max(inputs.partitions.values(), default=1)
        return {**inputs.on_kafka, **external, **self._plan.partition_counts(external)}


def client_of(config: StreamsConfig) -> dict[str, Any]:
    """librdkafka's settings for the application's cluster."""
    return {"bootstrap.servers": config.bootstrap_servers, **config.client_properties}


@dataclass
class _Inputs:
    by_topic: dict[str, Source]
    rows: dict[str, DataFrame]
    partitions: dict[str, int] = field(default_factory=dict)
    totals: dict[TopicPartition, int] = field(default_factory=dict)
    on_kafka: dict[str, int] = field(default_factory=dict)


class Run:
    """One batch while it runs, stage by stage. Each stage is computed once and kept until `close`."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        inputs: _Inputs,
        partitions: dict[str, int],
        kafka: KafkaRange,
        resume: Resume | None,
        now_ms: int,
    ) -> None:
        self._spark, self._plan, self._inputs, self._partitions = spark, plan, inputs, partitions
        self._resume = resume
        self._kafka = kafka
        self._client = client_of(plan.config)
        self._totals = dict(inputs.totals)
        self._now, self._id = now_ms, str(uuid4())
        self._counted = {"processed": 0, "dropped": 0}
        self._writers: dict[str, list[int]] = {}
        self.frames: dict[int, DataFrame] = {}
        """The rows that came out, as `OUTPUT` says, by sub-topology; Spark's partition p is of task p."""
        self._globals = self._broadcast_globals()

    def stage(self, sub: Subtopology) -> None:
        """Computes one sub-topology from its sources and what earlier stages wrote."""
        from pyspark import StorageLevel
        from pyspark.sql import functions as F

        topics = topics_of(sub, self._inputs.by_topic)
        tasks = max(self._partitions[topic] for topic in topics)
        from_kafka = [t for t in topics if isinstance(self._inputs.by_topic.get(t), KafkaSource)]
        row_topics = tuple(t for t in topics if t not in from_kafka)
        stage = Stage(
            self._plan,
            sub,
            tasks,
            self._partitions,
            row_topics,
            {tp: size for tp, size in self._totals.items() if tp.topic in row_topics},
            self._ranges(from_kafka),
            self._client,
            self._now,
            self._id,
            self._globals,
            self._resume,
        )
        if row_topics:
            parts = [
                self._rows(topic, number, len(row_topics) > 1) for number, topic in enumerate(row_topics)
            ]
            rows = exact_partitions(reduce(lambda a, b: a.unionAll(b), parts), tasks, F.col("task"))
            frame = rows.sortWithinPartitions("mx", "input", "src", "seq")
        else:
            frame = self._spark.range(0, tasks, 1, tasks).toDF("task")
        out = frame.mapInArrow(stage, OUTPUT).persist(StorageLevel.MEMORY_AND_DISK)
        self.frames[sub.id] = out
        with raised_in_tasks():
            sizes = out.groupBy("kind", "name", "task").agg(F.count("*"), F.sum("seq")).collect()
        for kind, name, task, size, total in sizes:
            if kind == COUNTS:
                self._counted[name] += total
            elif kind == RECORD:
                tp = TopicPartition(name, task)
                self._totals[tp] = self._totals.get(tp, 0) + size
                if sub.id not in self._writers.setdefault(name, []):
                    self._writers[name].append(sub.id)

    @property
    def processed(self) -> int:
        return self._counted["processed"]

    @property
    def dropped(self) -> int:
        return self._counted["dropped"]

    def close(self) -> None:
        for frame in self.frames.values():
            frame.unpersist()

    def result(self) -> BatchResult:
        from pyspark.sql import functions as F

        internal = {topic.name for topic in self._plan.internal_topics}
        topics = {t: OutputTopic(t, self._records(t)) for t in self._named_outputs() if t not in internal}
        tables = {
            spec.name: OutputTable(
                spec,
                self.frames[sub.id]
                .where((F.col("kind") == ROW) & (F.col("name") == spec.name))
                .select(F.col("task").alias("partition"), "key", "value", "timestamp", "start", "end"),
            )
            for sub in self._plan.subtopologies
            for spec in sub.stores
            if readable(spec)
        }
        frames = tuple(self.frames.values())
        return BatchResult(topics, tables, self.processed, self.dropped, frames)

    def _named_outputs(self) -> list[str]:
        static = [topic for sub in self._plan.subtopologies for topic in sub.sink_topics]
        return list(dict.fromkeys([*static, *self._writers]))

    def _records(self, topic: str) -> DataFrame:
        """The records of a topic with their order, out of all stages that write it."""
        from pyspark.sql import functions as F

        writers = self._writers.get(topic) or list(self.frames)[:1]
        columns = ("mx", "src", "seq", "key", "value", "timestamp", "headers")
        parts = [
            self.frames[writer]
            .where((F.col("kind") == RECORD) & (F.col("name") == topic))
            .select(F.col("name").alias("topic"), F.col("task").alias("partition"), *columns)
            for writer in writers
        ]
        return reduce(lambda a, b: a.unionAll(b), parts)

    def _rows(self, topic: str, number: int, merged: bool) -> DataFrame:
        """A topic as input of a stage. Merging several needs ``mx``, which a frame from outside does not
        have."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        given = self._inputs.rows.get(topic)
        if given is None:
            frame = self._records(topic).withColumnRenamed("partition", "task")
        else:
            so_far = F.max("timestamp").over(Window.partitionBy("task").orderBy("seq"))
            mx = so_far if merged else F.lit(0)
            frame = given.withColumn("mx", mx.cast("bigint")).withColumn("src", F.col("task"))
        frame = frame.withColumn("input", F.lit(number))
        return frame.select([part.split()[0] for part in INPUT.split(", ")])

    def _ranges(self, topics: list[str]) -> Ranges:
        found: Ranges = {}
        for topic in topics:
            source = self._inputs.by_topic[topic]
            assert isinstance(source, KafkaSource)
            every = [TopicPartition(topic, partition) for partition in range(self._partitions[topic])]
            found.update(self._kafka.resolve(source, every))
        return found

    def _broadcast_globals(self) -> Any:
        if not self._plan.global_stores:
            return None
        records = [
            record for store in self._plan.global_stores for record in self._global_records(store.topic)
        ]
        return self._spark.sparkContext.broadcast(records)

    def _global_records(self, topic: str) -> Iterator[tuple[TopicPartition, RecordBatch]]:
        rows = self._inputs.rows.get(topic)
        if rows is None:
            for tp, (start, end) in self._ranges([topic]).items():
                reader = KafkaReader(self._client, tp, start, end)
                while (batch := reader.read()) is not None:
                    yield tp, batch
                reader.close()
            return
        for row in rows.orderBy("task", "seq").toLocalIterator():
            key, value = (None if data is None else bytes(data) for data in (row.key, row.value))
            headers = tuple((h.key, h.value and bytes(h.value)) for h in row.headers or ()) or NO_HEADERS
            yield (
                TopicPartition(topic, row.task),
                RecordBatch([key], [value], [row.timestamp], [row.seq], [headers]),
            )


@contextmanager
def _progress(spark: SparkSession, name: str, shown: bool) -> Iterator[None]:
    """A bar over the tasks of what runs in the body."""
    if not shown:
        yield
        return
    context = spark.sparkContext
    group = f"streamapp-{uuid4()}"
    context.setJobGroup(group, name)
    tracker = context.statusTracker()
    with progress_bar() as bar:
        line = bar.add_task(name, total=None)

        def report() -> None:
            jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group)]
            stages = [tracker.getStageInfo(number) for job in jobs if job for number in job.stageIds]
            known = [stage for stage in stages if stage]
            total, done = sum(s.numTasks for s in known), sum(s.numCompletedTasks for s in known)
            bar.update(line, total=total or None, completed=done)

        with polling(report):
            yield
