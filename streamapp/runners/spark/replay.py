"""`Replay`: computes one table or output topic again while the application runs, and compares the two.

The application is not disturbed: a replay only reads its topics, joins no group, and commits no offset. So you can
check a new version of a topology with the history of the old version, or find an error in old results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from streamapp.broker.admin import KafkaAdmin, TopicSpec
from streamapp.config import StreamsConfig
from streamapp.errors import ConfigError, StreamsError
from streamapp.records import TopicPartition
from streamapp.runners.connection import client_of, connected, settings_of
from streamapp.runners.spark.batch_source import (
    Bound,
    KafkaRange,
    KafkaReader,
    KafkaSource,
    Ranges,
    check_named,
)
from streamapp.runners.spark.failures import raised_in_tasks
from streamapp.runners.spark.handover_group import Group
from streamapp.runners.spark.late_inputs import late_inputs
from streamapp.runners.spark.partitioning import exact_partitions
from streamapp.runners.spark.replay_write import TopicWriter, read_topic
from streamapp.runners.spark.result import BatchResult, OutputTable
from streamapp.runners.spark.run_order import topics_of
from streamapp.runners.spark.runner import SparkRunner
from streamapp.runners.spark.table_frames import live_tables
from streamapp.runners.spark.table_rows import readable
from streamapp.serdes import Serde
from streamapp.state.spec import StoreSpec
from streamapp.topology import Topology
from streamapp.topology.nodes import SinkNode

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["Difference", "Replay"]

ATTEMPTS = 20


@dataclass(frozen=True)
class Difference:
    """The numbers of rows in which the replayed and the live version of a table agree and differ.

    For an output topic, the rows are records. ``examples`` are some rows that differ, as (key, start, replayed value,
    live value). In a table, start is the start of the window, the session or the version, else None. In a topic, start
    is the record's timestamp. A value is None if this side has no such row, or fewer copies of the same record than the
    other side. The value of a tombstone is None, too.
    """

    equal: int
    different: int
    """Rows that both sides have, with different values."""
    only_replayed: int
    only_live: int
    examples: tuple[tuple[Any, Any, Any, Any], ...]
    under_way: int = 0
    """Records in repartition topics that the application had not processed yet, but the replay has. They cause
    differences that are no errors, so compare again when no new records come."""

    @property
    def none(self) -> bool:
        """True if both sides have the same rows."""
        return not (self.different or self.only_replayed or self.only_live)


class _Standing(NamedTuple):
    """The state of an application at one moment."""

    offsets: dict[TopicPartition, int]
    """The application's committed offsets of the source topics."""
    tables: Mapping[str, OutputTable]
    output: Ranges
    """The offsets of the output topic that is computed again."""
    inside: Ranges
    """The offsets in its repartition topics of records that it has not processed yet."""
    still: bool
    """True if the application committed nothing while the other fields were looked up, so that they belong together."""


class Replay:
    """Computes ``name``, a table or an output topic, from ``since`` to ``until``.

    Without ``since``, the replay begins with the first records. Without ``until``, the replay ends at the committed
    offsets of the application. A partition without a committed offset is read to its end, and global topics are always
    read completely.

    >>> with Replay(topology, config, "airport-delays", spark=spark) as replay:            # doctest: +SKIP
    ...     replay.write_parquet("delays")
    ...     print(replay.diff())

    Raises `ConfigError` if the topology has no such table or output.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        name: str,
        *,
        since: Bound = None,
        until: Bound = None,
        spark: SparkSession,
        progress: bool = False,
    ) -> None:
        config = connected(topology.plan(config).config)
        self._runner = SparkRunner(topology, config, spark)
        self._config = config
        self.name: str = name
        self._spark = spark
        self._progress = progress
        self._since = since
        plan = self._runner.plan
        self._stores = {
            spec.name: spec for sub in plan.subtopologies for spec in sub.stores if readable(spec)
        }
        internal = {topic.name for topic in plan.internal_topics}
        outputs = {*plan.sink_topics} - internal
        if name not in self._stores and name not in outputs:
            raise ConfigError(
                f"there is no table or output {name!r}; there are {', '.join(sorted([*self._stores, *outputs]))}"
            )
        existing = KafkaRange(client_of(config)).partition_counts()
        read = [
            TopicPartition(topic, number)
            for sub in plan.subtopologies
            for topic in topics_of(sub, existing)
            for number in range(existing.get(topic, 0))
        ]
        check_named(since, read, "since", "the application")
        check_named(until, read, "until", "the application")
        self.late: dict[TopicPartition, int] = late_inputs(plan, [name]) if since is None else {}
        """The partitions whose first records Kafka has deleted, with their first offsets. The replay lacks the deleted
        records, but the application may have their results. Only inputs of the table or output count."""
        self._topology = topology
        self._stands = self._look()
        self.until: Bound = until if until is not None else self._stands.offsets or None
        """The cut of what is computed."""
        self._result: BatchResult | None = None

    @property
    def frame(self) -> DataFrame:
        """The computed rows of the table, or records of the topic."""
        if self._result is None:
            sources = self._sources(KafkaSource(self._since, self.until))
            self._result = self._runner.batch(sources, progress=self._progress)
        found = self._result
        return found.tables[self.name].frame if self.name in self._stores else found.topics[self.name].frame

    def write_parquet(self, path: str) -> None:
        """Writes `frame` as Parquet files below ``path``. Raises `ConfigError` if ``path`` exists.

        Spark writes the file ``_SUCCESS`` last, so an interrupted run leaves a folder without this file. Delete
        such a folder before the next run.
        """
        self._check_no_folder(path)
        self.frame.write.parquet(path)

    def _check_no_folder(self, path: str) -> None:
        """Raises `ConfigError` if ``path`` exists. Spark itself looks for the folder only after the
        computation, and advises a save mode, which users of a command cannot set."""
        context = self._spark.sparkContext
        place = context._jvm.org.apache.hadoop.fs.Path(path)
        if place.getFileSystem(context._jsc.hadoopConfiguration()).exists(place):
            raise ConfigError(
                f"{path} exists: name a new folder, or delete this one. A folder without the file _SUCCESS is the "
                "unfinished result of an interrupted run"
            )

    def write_topic(self, topic: str) -> int:
        """Writes a new topic with as many partitions as the original, and returns the number of its records.

        A row of a table becomes a record with the row's timestamp. Without a timestamp, a version has the time of its
        start, and a window or session the time of its end. A row without any time gets the time of writing. The key of
        a window ends with the window's start, and the key of a session with the session's end and start, 8 bytes each.
        Each partition is one transaction. Raises `ConfigError` if the topic exists.
        """
        from pyspark.sql import functions as F

        admin = KafkaAdmin(settings_of(self._config))
        if topic in admin.partition_counts([topic]):
            raise ConfigError(
                f"the topic {topic} exists: name a new one, or delete it first. A run that was interrupted while it "
                "wrote may have left an incomplete topic"
            )
        frame = self.frame
        if self.name in self._stores:
            frame = frame.select(
                "partition",
                _topic_key(self._stores[self.name]).alias("key"),
                "value",
                _row_time(self._stores[self.name]).alias("timestamp"),
                F.lit(None).cast("array<struct<key:string,value:binary>>").alias("headers"),
                F.lit(0).alias("mx"),
                F.lit(0).alias("src"),
                F.lit(0).alias("seq"),
            )
        of = self._changelog() if self.name in self._stores else self.name
        partitions = (
            admin.partition_counts([of]).get(of) or (frame.agg(F.max("partition")).collect()[0][0] or 0) + 1
        )
        admin.ensure_topics([TopicSpec(topic, partitions, {"retention.ms": "-1"})])
        rows = exact_partitions(frame, partitions, F.col("partition")).sortWithinPartitions(
            "mx", "src", "seq", "key"
        )
        with raised_in_tasks():
            written = rows.mapInArrow(TopicWriter(client_of(self._config), topic), "written bigint").collect()
        return sum(row[0] for row in written)

    def diff(self, examples: int = 5) -> Difference:
        """Compares the result with the table of the application row by row, or with its output record by record.

        The table or output is compared as it was when this object was made. With ``since``, older records and rows, and
        windows that begin earlier, are left out on both sides. Raises `StreamsError` if the application has committed
        during each of 20 looks at its offsets and tables. Raises `ConfigError` if ``since`` has offsets, or if the
        application has no such changelog or topic.
        """
        if not self._stands.still:
            raise StreamsError(
                f"{self._config.application_id} has committed again each time that its offsets and tables "
                "were looked at, so they are not of one moment and cannot be compared. Pause it while the "
                "replay starts: streamapp pause http://<a worker>, and streamapp resume once stages are "
                "under way"
            )
        replayed = self._within(self.frame)
        if self.name in self._stores:
            live = self._stands.tables.get(self.name)
            if live is None:
                raise ConfigError(
                    f"the table {self.name} has no changelog to compare with: the application has not run, or "
                    "it is not logged"
                )
            found = self._diff_rows(replayed, self._within(live.frame), examples)
        else:
            if not self._stands.output:
                raise ConfigError(
                    f"there is no topic {self.name} to compare with: the application has not run"
                )
            there = read_topic(self._spark, client_of(self._config), self._stands.output)
            found = self._diff_records(replayed, self._within(there), examples)
        return replace(found, under_way=self._count(self._stands.inside))

    def close(self) -> None:
        """Deletes the computed rows from the executors' disks."""
        if self._result is not None:
            self._result.close()

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _look(self) -> _Standing:
        """The state of the application. Looks up to 20 times, until no worker has committed during a look."""
        plan, group, kafka = self._runner.plan, Group(self._config), KafkaRange(client_of(self._config))
        existing = kafka.partition_counts()
        inside = {topic.name for topic in plan.internal_topics}
        read = {t for sub in plan.subtopologies for t in topics_of(sub, existing) if t in existing}
        every = [TopicPartition(topic, p) for topic in read for p in range(existing[topic])]
        written = 0 if self.name in self._stores else existing.get(self.name, 0)
        outputs = [TopicPartition(self.name, p) for p in range(written)]
        for _ in range(ATTEMPTS):
            before = group.read_settled(every)
            tables = live_tables(self._topology, self._config, self._spark)
            output = kafka.resolve(KafkaSource(), outputs)
            ends = kafka.committed([tp for tp in every if tp.topic in inside])
            still = group.read_settled(every) == before
            if still:
                break
        offsets = {tp: entry.offset for tp, entry in before.items() if tp.topic not in inside}
        left = {
            tp: (max(first, before[tp].offset if tp in before else 0), end)
            for tp, (first, end) in ends.items()
        }
        return _Standing(offsets, tables, output, left, still)

    def _count(self, ranges: Ranges) -> int:
        """Counts the records; offsets would also count the markers of transactions."""
        found, client = 0, client_of(self._config)
        for tp, (start, end) in ranges.items():
            reader = KafkaReader(client, tp, start, end)
            try:
                while (batch := reader.read()) is not None:
                    found += len(batch.keys)
            finally:
                reader.close()
        return found

    def _changelog(self) -> str:
        sub = self._runner.plan.store_subtopology.get(self.name)
        return sub.changelog_topics[self.name].name if sub and self.name in sub.changelog_topics else ""

    def _sources(self, source: KafkaSource) -> dict[str, KafkaSource]:
        """The `KafkaSource` of each topic: all records for global tables, and ``source`` for each other input.

        Topics that the application itself writes have no source, because the replay computes their records.
        """
        plan = self._runner.plan
        existing = KafkaRange(client_of(self._config)).partition_counts()
        read = {t for sub in plan.subtopologies for t in topics_of(sub, existing)}.difference(
            plan.sink_topics
        )
        return {**dict.fromkeys(read, source), **{g.topic: KafkaSource() for g in plan.global_stores}}

    def _within(self, frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        if self._since is None:
            return frame
        if not isinstance(self._since, int):
            raise ConfigError(
                "a range that begins at offsets cannot be compared: name a time, or the beginning"
            )
        time = F.col("timestamp")
        return frame.where((F.coalesce("start", time) if "start" in frame.columns else time) >= self._since)

    def _diff_rows(self, replayed: DataFrame, live: DataFrame, examples: int) -> Difference:
        from pyspark.sql import functions as F

        spec = self._stores[self.name]
        assert spec.kind.shape is not None
        keys = spec.kind.shape.identity
        columns = [*keys, F.struct("value", "timestamp", "end").alias("row")]
        a, b = replayed.select(*columns).alias("a"), live.select(*columns).alias("b")
        same_key = [F.col(f"a.{name}").eqNullSafe(F.col(f"b.{name}")) for name in keys]
        ours, theirs = F.col("a.row"), F.col("b.row")
        verdict = (
            F.when(theirs.isNull(), "only_replayed")
            .when(ours.isNull(), "only_live")
            .when(ours.eqNullSafe(theirs), "equal")
            .otherwise("different")
        )
        key, start = F.coalesce("a.key", "b.key"), F.coalesce("a.start", "b.start")
        joined = a.join(b, same_key, "full_outer").select(
            verdict.alias("verdict"),
            key.alias("key"),
            start.alias("start"),
            ours.value.alias("ours"),
            theirs.value.alias("theirs"),
        )
        counts = {row[0]: row[1] for row in joined.groupBy("verdict").count().collect()}
        some = joined.where(F.col("verdict") != "equal").orderBy("key", "start").limit(examples).collect()
        key_of, value_of = _text(spec.key_serde), _text(spec.value_serde)
        return Difference(
            counts.get("equal", 0),
            counts.get("different", 0),
            counts.get("only_replayed", 0),
            counts.get("only_live", 0),
            tuple((key_of(row.key), row.start, value_of(row.ours), value_of(row.theirs)) for row in some),
        )

    def _diff_records(self, replayed: DataFrame, live: DataFrame, examples: int) -> Difference:
        from pyspark.sql import functions as F

        names = ("partition", "key", "value", "timestamp")
        a = replayed.groupBy(*names).agg(F.count("*").alias("ours")).alias("a")
        b = live.groupBy(*names).agg(F.count("*").alias("theirs")).alias("b")
        same = [F.col(f"a.{name}").eqNullSafe(F.col(f"b.{name}")) for name in names]
        zero = F.lit(0)
        counted = a.join(b, same, "full_outer").select(
            *(F.coalesce(f"a.{name}", f"b.{name}").alias(name) for name in names),
            F.coalesce("ours", zero).alias("ours"),
            F.coalesce("theirs", zero).alias("theirs"),
        )
        ours, theirs = F.col("ours"), F.col("theirs")
        both = F.sum(F.least(ours, theirs))
        equal, replay_only, live_only = counted.agg(both, F.sum(ours) - both, F.sum(theirs) - both).collect()[
            0
        ]
        some = counted.where(ours != theirs).orderBy("timestamp", "key").limit(examples).collect()
        key_of, value_of = self._texts_of_output()
        return Difference(
            equal or 0,
            0,
            replay_only or 0,
            live_only or 0,
            tuple(
                (
                    key_of(r.key),
                    r.timestamp,
                    value_of(r.value) if r.ours > r.theirs else None,
                    value_of(r.value) if r.theirs > r.ours else None,
                )
                for r in some
            ),
        )

    def _texts_of_output(self) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        """The functions of `_text` for keys and values of the output topic. Two sinks of a topic may have different
        serdes, so their records stay bytes."""
        nodes = (node for sub in self._runner.plan.subtopologies for node in sub.nodes)
        sinks = [node for node in nodes if isinstance(node, SinkNode) and node.topic == self.name]
        if len(sinks) != 1:
            return _text(None), _text(None)
        key, value = sinks[0].key_serde, sinks[0].value_serde
        return _text(key.bind(self.name, True)), _text(value.bind(self.name, False))


def _topic_key(spec: StoreSpec) -> Column:
    from pyspark.sql import functions as F

    def eight_bytes(name: str) -> Column:
        return F.unhex(F.lpad(F.hex(name), 16, "0"))

    assert spec.kind.shape is not None
    times = spec.kind.shape.times_in_key
    return F.concat("key", *map(eight_bytes, times)) if times else F.col("key")


def _row_time(spec: StoreSpec) -> Column:
    from pyspark.sql import functions as F

    assert spec.kind.shape is not None
    # A version ends when the next one begins.
    ends = () if spec.kind.shape.family == "versioned" else ("end",)
    known = F.when(F.col("timestamp") >= 0, F.col("timestamp"))  # -1: the table keeps no timestamps
    return F.coalesce(known, *ends, "start")


def _text(serde: Serde[Any] | None) -> Callable[[Any], Any]:
    """A function that turns bytes into values for people to read. Bytes that the serde cannot read stay as they are."""

    def text(data: Any) -> Any:
        if data is None:
            return None
        raw = bytes(data)
        try:
            return raw if serde is None else serde.deserialize(raw)
        except StreamsError:
            return raw

    return text
