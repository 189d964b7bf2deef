"""`Backfill`: processes history on Spark, and then hands the application over to workers, which continue at the cut.

The cut is the offset of each input at which the backfill ends. The steps, and the consequences of a kill at each one:

1. *Survey.* Looks at the cluster. Nothing is changed.
2. *Compute.* Missing internal topics are created. Every sub-topology runs as a stage of a batch, from the group's
   offsets up to the cut. The results stay in Spark, so a kill leaves only empty topics behind.
3. *Begin.* One commit notes the backfill and its cut in the metadata of the group's offsets. The offsets stay the same.
   From here on, workers refuse to start.
4. *Write.* Each task writes its outputs and changelogs to Kafka, in transactions that also note the number of rows
   written. After a kill, the same command computes the same rows again, and continues after those already written.
5. *End.* A commit in another group keeps the fingerprint of the topology. Then one commit moves all offsets of the
   group to the cut. Workers start there, with the state that was written.

The offsets of a task are not moved in its own transactions, because tasks feed each other through repartition topics.
If some offsets were at the cut and others before, records would be missing or count twice. So all move at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streamapp._base import failpoints
from streamapp._base.counted import counted
from streamapp.broker.admin import KafkaAdmin, TopicSpec
from streamapp.config import StreamsConfig
from streamapp.engine.runner_ports import Position
from streamapp.errors import ConfigError, TopologyError
from streamapp.records import TopicPartition
from streamapp.runners.connection import client_of, connected, settings_of
from streamapp.runners.spark.archive import gap_warnings
from streamapp.runners.spark.backfill_files import History, HistoryPart, archives, check_cut, gaps_within
from streamapp.runners.spark.batch_source import NO_TIMESTAMP, Bound, KafkaPart, KafkaSource
from streamapp.runners.spark.failures import raised_in_tasks
from streamapp.runners.spark.frames import CHANGE, POSITION, RECORD
from streamapp.runners.spark.handover_group import Group
from streamapp.runners.spark.handover_survey import Survey, fingerprint_group, survey
from streamapp.runners.spark.handover_topics import Extent, check_retention, check_taken, first_times
from streamapp.runners.spark.handover_write import TaskWriter, compacted_topics, rows_to_write
from streamapp.runners.spark.progress import records_bar
from streamapp.runners.spark.runner import Run, SparkRunner
from streamapp.runners.spark.sessions import few_groups
from streamapp.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Backfill", "BackfillReport"]


@dataclass(frozen=True)
class BackfillReport:
    """The result of a backfill."""

    processed: int
    """The number of records that tasks processed. A record that passed through a repartition topic counts twice."""
    dropped: int
    """The number of records that operators dropped, for example late records."""
    rows: int
    """The number of outputs and changelog records that the backfill has written to Kafka, over all its runs."""
    written: int
    """The part of ``rows`` that this run wrote; earlier, interrupted runs had written the other rows."""
    seconds: dict[str, float]
    """The duration of each phase, ``compute`` and ``write``."""


class Backfill:
    """Processes the records of one application from its committed offsets up to a cut.

    ``until`` is the cut: a time in ms, offsets by partition, or None for all present records. A time means, in each
    partition, all records before the first one with at least this timestamp. If an earlier backfill was interrupted
    after its step *begin*, that is, while it wrote, this backfill continues the earlier one. The cut is then the
    earlier cut, and ``until`` has no effect.

    ``files`` has folders of Parquet files by topic, in the form of ``ParquetSource``, for records that Kafka has
    deleted. The offsets in the files are those that the records had in the topic. After the last offset of the files,
    records are read from Kafka. Raises `ConfigError` if the cut is at a record that only files have.

    >>> backfill = Backfill(topology, config, until=1_385_874_000_000)                     # doctest: +SKIP
    >>> backfill.survey.records                                                            # doctest: +SKIP
    307573
    >>> backfill.run()                                                                     # doctest: +SKIP
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        *,
        until: Bound = None,
        files: Mapping[str, str] | None = None,
        spark: SparkSession | None = None,
        progress: bool = False,
    ) -> None:
        config = connected(topology.plan(config).config)
        self._runner, self._spark = SparkRunner(topology, config, spark), spark
        self._config, self._progress = config, progress
        self._group = Group(config)
        self._files = files or {}
        counts = KafkaAdmin(settings_of(config)).partition_counts(self._files)
        archived, spans = archives(self._files, counts)
        self.survey: Survey = survey(self._runner.plan, until, spans)
        """The plan of the backfill."""
        read = {tp.topic for tp in self.survey.external}
        if unread := sorted(self._files.keys() - read):
            raise ConfigError(
                f"files are given for {', '.join(unread)}, but a backfill reads only "
                f"{', '.join(sorted(read))} from files"
            )
        if self.survey.note is None:
            check_cut(until, archived, self.survey.external)
        self.warnings: list[str] = gap_warnings(gaps_within(archived, self.survey.external))
        """Sentences about files that may be missing."""
        client = client_of(config)
        self.first_times: dict[TopicPartition, int] = first_times(
            {
                tp: HistoryPart(archived[tp], client, *span) if tp in archived else KafkaPart(client, *span)
                for tp, span in self.survey.external.items()
            }
        )
        """The timestamp of the first record of each partition that the backfill reads, from files or from Kafka."""
        if self.first_times:
            logs = [topic.name for topic in self.survey.plan.internal_topics if topic.kind == "changelog"]
            written = [*self.outputs, *(topic for topic in logs if topic not in self.survey.missing)]
            check_retention(config, dict.fromkeys(written, min(self.first_times.values())))

    @property
    def nothing_to_do(self) -> bool:
        """True if no records lie between the committed offsets and the cut, and no interrupted backfill waits."""
        return not self.survey.records and self.survey.note is None

    def run(self, tell: Callable[[str], None] = lambda _: None) -> BackfillReport | None:
        """Runs the backfill; None if there is nothing to do. ``tell`` is called with a line when a phase begins.

        Raises a `StreamsError` if the backfill cannot continue. After an error or a kill, run a new `Backfill` with
        the same arguments, or the same command again.
        """
        if self.nothing_to_do:
            return None
        found = self.survey
        configs = {topic.name: dict(topic.config) for topic in found.plan.internal_topics}
        admin = KafkaAdmin(settings_of(self._config))
        admin.ensure_topics([TopicSpec(t, n, configs[t]) for t, n in found.missing.items()])
        now_ms = found.note.now_ms if found.note is not None else int(time.time() * 1000)
        started = time.monotonic()
        tell(f"computing {counted(found.records, 'record')}")
        run = Run.compute(
            self._runner.plan,
            self._spark,
            self._sources(),
            resume=found.resume,
            now_ms=now_ms,
            progress=self._progress,
        )
        try:
            computed = time.monotonic()
            failpoints.hit("backfill-computed")
            self._check_results(run, admin)
            if found.note is None:
                self._begin(now_ms)
            failpoints.hit("backfill-begun")
            tell("writing results and state")
            rows, written = self._write(run)
            failpoints.hit("backfill-written")
            self._end(run)
            failpoints.hit("backfill-ended")
        finally:
            run.close()
        seconds = {"compute": computed - started, "write": time.monotonic() - computed}
        return BackfillReport(run.processed, run.dropped, rows, written, seconds)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The topics that results go to, except those that are chosen for each record."""
        inside = {topic.name for topic in self.survey.plan.internal_topics}
        return tuple(topic for topic in self.survey.plan.sink_topics if topic not in inside)

    def _sources(self) -> dict[str, Any]:
        external = self.survey.external
        since = {tp: start for tp, (start, _) in external.items()}
        until = {tp: end for tp, (_, end) in external.items()}
        global_tables = {
            topic: KafkaSource(until={TopicPartition(topic, p): end for p, end in enumerate(ends)})
            for topic, ends in self.survey.global_ends.items()
        }
        kafka = {tp.topic: KafkaSource(since, until) for tp in external}
        counts, client = self.survey.partitions, client_of(self._config)
        files = {
            topic: History(
                path, counts[topic], client, {tp: external[tp] for tp in external if tp.topic == topic}
            )
            for topic, path in self._files.items()
        }
        return {**global_tables, **kafka, **files}

    def _check_results(self, run: Run, admin: KafkaAdmin) -> None:
        """Checks the results before any is written: topics chosen for each record exist, and brokers take and keep the
        results."""
        extents = self._extents(run)
        absent = sorted(extents.keys() - admin.partition_counts(extents).keys())
        if absent:
            raise TopologyError(
                f"there are results for {', '.join(absent)}, which does not exist: create it first"
            )
        check_retention(
            self._config, {t: each.oldest for t, each in extents.items() if each.oldest is not None}
        )
        if self.survey.note is not None:
            return  # brokers have some of the results already, and judge the others when they get them
        try:
            check_taken(self._config, extents)
        except ConfigError:
            # Perhaps only rows of changelogs are refused that are not written, because later rows replace them.
            check_taken(self._config, self._extents(run, last=True))

    def _extents(self, run: Run, *, last: bool = False) -> dict[str, Extent]:
        """The extents of the results by topic.

        With ``last``, only the last row of each key counts in a changelog of which no other row is written. Spark then
        shuffles the results.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        subs = self.survey.plan.subtopologies
        inside = [topic.name for sub in subs for topic in sub.repartition_topics]
        logs = [log for sub in subs for log in compacted_topics(sub)]
        size = sum((F.coalesce(F.octet_length(column), F.lit(0)) for column in ("key", "value")), F.lit(0))
        extremes = F.min("timestamp"), F.max("timestamp"), F.max("size"), F.count_if(F.col("key").isNull())
        found: dict[str, Extent] = {}
        for frame in run.frames.values():
            results = frame.where(F.col("kind").isin(RECORD, CHANGE) & ~F.col("name").isin(inside))
            # A record without a time has the timestamp -1, which every topic takes.
            time = F.nullif("timestamp", F.lit(NO_TIMESTAMP)).alias("timestamp")
            results = results.select("name", "task", "key", "seq", time, size.alias("size"))
            if last:
                of_key = Window.partitionBy("name", "task", "key").orderBy(F.desc("seq"))
                results = results.withColumn("place", F.row_number().over(of_key))
                results = results.where((F.col("place") == 1) | ~F.col("name").isin(logs))
            with few_groups(frame.sparkSession):
                rows = results.groupBy("name").agg(*extremes).collect()
            for name, *values in rows:
                extent = Extent(*values)
                found[name] = found[name] | extent if name in found else extent
        return found

    def _begin(self, now_ms: int) -> None:
        found, metadata = self.survey, self.survey.resume.metadata
        now = self._group.read(list(found.ranges))
        if now != {tp: Position(found.ranges[tp][0], was) for tp, was in metadata.items()}:
            raise ConfigError(
                f"workers of {self._group.name} have run since this backfill began: run the backfill again, and it "
                "continues from their offsets"
            )
        notes = found.notes(now_ms).items()
        self._group.commit({tp: Position(found.ranges[tp][0], note.to_metadata()) for tp, note in notes})

    def _write(self, run: Run) -> tuple[int, int]:
        rows = written = 0
        plan = self.survey.plan
        for sub in plan.subtopologies:
            first = {task: self.survey.inputs(sub, task)[0] for task in range(self.survey.tasks(sub))}
            frame = rows_to_write(run.frames[sub.id], plan, sub)
            writer = TaskWriter(self._config, self.survey.job, sub.id, first, compacted_topics(sub))
            with ExitStack() as stack:
                if self._progress:
                    bar = records_bar(frame.sparkSession, sub.id, f"write {sub.name}", frame.count())
                    writer = replace(writer, reporter=stack.enter_context(bar).reporter)
                stack.enter_context(raised_in_tasks())
                for row in frame.mapInArrow(writer, "rows bigint, written bigint").collect():
                    rows, written = rows + row[0], written + row[1]
        return rows, written

    def _end(self, run: Run) -> None:
        from pyspark.sql import functions as F

        metadata = dict(self.survey.resume.metadata)
        for frame in run.frames.values():
            for name, task, text in (
                frame.where(F.col("kind") == POSITION).select("name", "task", "value").collect()
            ):
                metadata[TopicPartition(name, task)] = text.decode()
        ranges = self.survey.ranges
        # The fingerprint comes first. After a kill between the two commits, the next run finds the note in the group,
        # and repeats both commits.
        kept = fingerprint_group(self.survey.plan)
        kept.commit({tp: Position(0, self.survey.plan.fingerprint) for tp in ranges})
        failpoints.hit("backfill-ending")
        self._group.commit({tp: Position(cut, metadata.get(tp, "")) for tp, (_, cut) in ranges.items()})
