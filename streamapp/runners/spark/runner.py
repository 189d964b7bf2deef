"""Runs a topology over history on Spark: the tasks of the engine in stages, each over a bounded input."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial, reduce
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from streamapp._base import failpoints
from streamapp.config import StreamsConfig
from streamapp.records import NO_HEADERS, RecordBatch, TopicPartition
from streamapp.runners.connection import client_of, connected
from streamapp.runners.spark.driver_globals import GlobalResult, apply_globals
from streamapp.runners.spark.failures import raised_in_tasks
from streamapp.runners.spark.frames import COUNTS, INPUT_COLUMNS, OUTPUT, PACK, RECORD, SENT
from streamapp.runners.spark.inputs import Inputs, resolve
from streamapp.runners.spark.native import native_table
from streamapp.runners.spark.packing import record_headers
from streamapp.runners.spark.partitioning import exact_partitions
from streamapp.runners.spark.progress import records_bar
from streamapp.runners.spark.result import BatchResult, OutputTable, OutputTopic
from streamapp.runners.spark.run_order import Group, check_runnable, in_order, topics_of
from streamapp.runners.spark.sessions import kept, spark_session, stage_settings
from streamapp.runners.spark.stage import Resume, Stage
from streamapp.runners.spark.table_rows import GlobalRows, readable, row_frame, rows_of
from streamapp.topology import Plan, Topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streamapp.runners.spark.columns import ColumnSource
    from streamapp.runners.spark.inputs import Sources

__all__ = ["Run", "SparkRunner"]


class SparkRunner:
    """Runs one topology on Spark.

    >>> runner = SparkRunner(topology, StreamsConfig("delays", bootstrap_servers=servers))   # doctest: +SKIP
    >>> with runner.batch(KafkaSource(until=1_385_874_000_000)) as result:                   # doctest: +SKIP
    ...     for row in result.tables["delays-per-hour"].rows():
    ...         print(row.key, row.start, row.value)

    ``spark`` is your own session. Without it, the runner uses the running session, or `spark_session` makes one.
    """

    def __init__(self, topology: Topology, config: StreamsConfig, spark: SparkSession | None = None) -> None:
        plan = topology.plan(connected(config))
        # A batch knows where its inputs end, so there is nothing to idle for.
        self._plan = replace(plan, config=plan.config.replace(max_task_idle_ms=0))
        self._spark = spark

    @property
    def plan(self) -> Plan:
        """The topology prepared for Spark, with its sub-topologies and internal topics."""
        return self._plan

    def batch(self, sources: Sources = None, *, progress: bool = False) -> BatchResult:
        """Processes all records of the sources once, and returns the results. Nothing is written to Kafka.

        ``sources`` is one `KafkaSource` for all topics (default: all their records), or a dict with a source for each
        topic that the topology reads. Topics that the topology itself also writes need no source, because their records
        stay inside the batch. A task flushes its record caches after each 200,000 records and at the end, so another
        run gives the same results. ``progress`` shows a bar for each stage, if standard error is a terminal.

        Raises `UnsupportedOperation` for topologies that Spark cannot run, for example with punctuators by the wall
        clock or with asynchronous steps. Raises `ConfigError` for a topic without source, and `CopartitionError` as
        workers do.
        """
        return Run.compute(self._plan, self._spark, sources, progress=progress).result()

    def native(self, table: str, source: ColumnSource) -> DataFrame:
        """Computes one table with Spark SQL alone, which is faster than the engine.

        The functions between the source and the table must be `Expression` and `Aggregates`. The result has the columns
        of `OutputTable.typed`, except ``partition``. The column ``value`` is a number for ``count``, and a struct for
        `Aggregates`.

        A row without a time, or with a time before 1970, is dropped if a batch would drop it without a dead letter. Any
        other answer of the source's ``on_error``, or else of ``deserialization_exception_handler``, is an error. With
        windows this method raises the error, and without windows the query over the DataFrame does.

        - `UnsupportedOperation`: only the engine can compute an operator, which the error names.
        - `StreamsError`: the table or a column is unknown, or the rows span at least the retention of the windows.
        """
        return native_table(self._plan, table, source)


class Run:
    """One batch while it runs, stage by stage. Each stage is computed once and kept until `close`."""

    def __init__(
        self, spark: SparkSession, plan: Plan, inputs: Inputs, resume: Resume | None, now_ms: int
    ) -> None:
        self._spark, self._plan, self._inputs, self._resume = spark, plan, inputs, resume
        self._totals = dict(inputs.totals)
        self._now, self._id = now_ms, str(uuid4())
        self._counted = {"processed": 0, "dropped": inputs.rejections}
        self._writers: dict[str, list[int]] = {}
        self._packed = frozenset(t.name for sub in plan.subtopologies for t in sub.repartition_topics)
        self.frames: dict[int, DataFrame] = {}
        """Sub-topology -> its results, with the columns of `OUTPUT`. Spark's partition p has the rows of task p."""
        self._global_result = GlobalResult()
        self._globals = self._broadcast_globals()

    @classmethod
    def compute(
        cls,
        plan: Plan,
        spark: SparkSession | None,
        sources: Sources = None,
        *,
        resume: Resume | None = None,
        now_ms: int | None = None,
        progress: bool = False,
    ) -> Run:
        """Computes all stages of a batch. ``now_ms`` is the wall clock that operators see.

        With ``resume``, the stages continue from an application's state, and their results are the records that its
        workers would have written.
        """
        check_runnable(plan)
        inputs = resolve(plan, sources)
        groups = in_order(plan, inputs.topics, whole=resume is None)
        session = spark or spark_session(plan.application_id)
        run = cls(session, plan, inputs, resume, now_ms or int(time.time() * 1000))
        try:
            for group in groups:
                failpoints.hit("batch-stage")
                run.stage(group, progress)
        except BaseException:
            run.close()
            raise
        return run

    def stage(self, group: Group, progress: bool = False) -> None:
        """Computes one sub-topology, or a cycle of several, from its sources and the results of earlier stages."""
        from pyspark.sql import functions as F

        sub, cycle = group.subtopology, group.cycle
        topics = topics_of(sub, self._inputs.topics)
        outside = tuple(topic for topic in topics if topic not in cycle)
        tasks = 1 if cycle else max(self._inputs.partitions[topic] for topic in topics)
        parts = self._inputs.of(outside)
        row_topics = tuple(t for t in outside if t not in {tp.topic for tp in parts})
        totals = self._row_totals(row_topics, bool(cycle))
        with ExitStack() as stack:
            size = sum(part.size for part in parts.values()) + sum(totals.values())
            listener = (
                stack.enter_context(records_bar(self._spark, sub.id, sub.name, size)) if progress else None
            )
            stage = Stage(
                self._plan,
                sub,
                tasks,
                self._inputs.partitions,
                topics,
                parts,
                row_topics,
                totals,
                self._packed,
                cycle,
                client_of(self._plan.config),
                self._now,
                self._id,
                self._globals,
                self._resume,
                listener.reporter if listener else None,
            )
            packed = [topic in self._packed for topic in row_topics]
            stack.enter_context(
                stage_settings(
                    self._spark,
                    packs=any(packed),
                    rows=not all(packed),
                    row_bytes=self._inputs.largest_of(row_topics),
                )
            )
            stack.enter_context(raised_in_tasks())
            frame = self._input_frame(row_topics, tasks, bool(cycle))
            out = kept(frame.mapInArrow(stage, OUTPUT))
            for number in group.ids:
                self.frames[number] = out
            # Spark knows the smallest and largest kind in each piece of the kept frame. So Spark skips pieces whose
            # kinds are all smaller or larger than the wanted kinds.
            counted = (
                out.where(F.col("kind").isin(COUNTS, SENT)).select("kind", "name", "task", "seq").collect()
            )
        for kind, name, task, number in counted:
            if kind == COUNTS:
                self._counted[name] += number
                continue
            tp = TopicPartition(name, task)
            self._totals[tp] = self._totals.get(tp, 0) + number
            if sub.id not in self._writers.setdefault(name, []):
                self._writers[name].append(sub.id)

    def _row_totals(self, topics: tuple[str, ...], as_one: bool) -> dict[TopicPartition, int]:
        totals: dict[TopicPartition, int] = {}
        for tp, count in self._totals.items():
            if tp.topic in topics:
                target = TopicPartition(tp.topic, 0) if as_one else tp
                totals[target] = totals.get(target, 0) + count
        return totals

    def _input_frame(self, topics: tuple[str, ...], tasks: int, as_one: bool) -> DataFrame:
        """The rows that Spark brings to the tasks, in order.

        If Spark brings no topic, each task gets one row, so that the task runs.
        """
        from pyspark.sql import functions as F

        if not topics:
            return self._spark.range(0, tasks, 1, tasks).toDF("task")
        frames = [self._rows(topic, number, len(topics) > 1) for number, topic in enumerate(topics)]
        rows = reduce(lambda a, b: a.unionAll(b), frames)
        if as_one:
            rows = rows.withColumn("task", F.lit(0))
        return exact_partitions(rows, tasks, F.col("task")).sortWithinPartitions("mx", "input", "src", "seq")

    @property
    def processed(self) -> int:
        return self._counted["processed"]

    @property
    def dropped(self) -> int:
        return self._counted["dropped"]

    def close(self) -> None:
        for frame in (*self.frames.values(), *self._inputs.kept):
            frame.unpersist()

    def result(self) -> BatchResult:
        internal = {topic.name for topic in self._plan.internal_topics}
        topics = {t: OutputTopic(t, self._records(t)) for t in self._named_outputs() if t not in internal}
        tables = {
            spec.name: OutputTable(spec, rows_of(self.frames[sub.id], spec.name))
            for sub in self._plan.subtopologies
            for spec in sub.stores
            if readable(spec)
        }
        global_tables = {
            store.name: OutputTable(store.spec, self._global_frame(store.name))
            for store in self._plan.global_stores
            if readable(store.spec)
        }
        kept_frames = (table.frame for table in global_tables.values())
        frames = (*dict.fromkeys(self.frames.values()), *self._inputs.kept, *kept_frames)
        return BatchResult(topics, {**tables, **global_tables}, self.processed, self.dropped, frames)

    def _global_frame(self, name: str) -> DataFrame:
        """The rows of a global table. Spark computes the rows at the first use of the frame, and then keeps them."""
        records = partial(attrgetter("value"), self._globals)
        return kept(row_frame(self._spark, name, 1, GlobalRows(self._plan, name, records, self._now)))

    def _named_outputs(self) -> list[str]:
        letters = (*self._inputs.letters, *self._global_result.topics)
        return list(dict.fromkeys([*self._plan.sink_topics, *self._writers, *letters]))

    def _records(self, topic: str) -> DataFrame:
        """The records of a topic with their order, out of all stages that write it."""
        from pyspark.sql import functions as F

        writers = self._writers.get(topic) or list(self.frames)[:1]
        columns = ("mx", "src", "seq", "key", "value", "timestamp", "headers")
        parts = [
            self.frames[writer]
            .where((F.col("kind").isin(RECORD, PACK)) & (F.col("name") == topic))
            .select(F.col("name").alias("topic"), F.col("task").alias("partition"), *columns)
            for writer in writers
        ]
        place = ("topic", F.col("task").alias("partition"), "mx", F.lit(-1).alias("src"))
        parts += [each.select(*place, *columns[2:]) for each in self._inputs.letters.get(topic, ())]
        if topic in self._global_result.topics:
            partitions = self._inputs.letter_partitions.of(topic)
            parts.append(self._global_result.frame(self._spark, topic, self._now, partitions))
        return reduce(lambda a, b: a.unionAll(b), parts)

    def _rows(self, topic: str, number: int, merged: bool) -> DataFrame:
        """The rows of a topic as input of a stage.

        Frames of users have no ``mx``. With ``merged``, their ``mx`` becomes the largest timestamp so far. So Spark can
        merge several topics in order.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        given = self._inputs.rows.get(topic)
        if given is None:
            frame = self._records(topic).withColumnRenamed("partition", "task")
        elif "mx" in given.columns:  # a column source: in the order of time
            frame = given.withColumn("src", F.col("task"))
        else:
            so_far = F.max("timestamp").over(Window.partitionBy("task").orderBy("seq"))
            mx = so_far if merged else F.lit(0)
            frame = given.withColumn("mx", mx.cast("bigint")).withColumn("src", F.col("task"))
        return frame.withColumn("input", F.lit(number)).select(*INPUT_COLUMNS)

    def _broadcast_globals(self) -> Any:
        if not self._plan.global_stores:
            return None
        records = [
            record for store in self._plan.global_stores for record in self._global_records(store.topic)
        ]
        self._global_result = apply_globals(self._plan, records, self._now)
        self._counted["dropped"] += self._global_result.dropped
        return self._spark.sparkContext.broadcast(records)

    def _global_records(self, topic: str) -> Iterator[tuple[TopicPartition, RecordBatch]]:
        for tp, part in self._inputs.of((topic,)).items():
            with closing(part.open(tp)) as reader:
                while (batch := reader.read()) is not None:
                    yield tp, batch
        rows = self._inputs.rows.get(topic)
        if rows is None:
            return
        table = rows.orderBy("task", *(["mx"] if "mx" in rows.columns else []), "seq").toArrow()
        for batch in table.to_batches():
            keys, values, times, offsets = (
                batch.column(name).to_pylist() for name in ("key", "value", "timestamp", "seq")
            )
            headers = record_headers(batch.column("headers")) or [NO_HEADERS] * len(keys)
            for partition, *record in zip(
                batch.column("task").to_pylist(), keys, values, times, offsets, headers, strict=True
            ):
                yield TopicPartition(topic, partition), RecordBatch(*([field] for field in record))
