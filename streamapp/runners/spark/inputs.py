"""The inputs of a batch, known before the batch begins: topics, their partitions, and their numbers of records."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamapp._base.counted import counted
from streamapp.errors import ConfigError
from streamapp.records import TopicPartition
from streamapp.runners.connection import client_of
from streamapp.runners.spark.archive import ParquetPart, ParquetSource, gap_warnings
from streamapp.runners.spark.batch_source import (
    FrameSource,
    KafkaPart,
    KafkaRange,
    KafkaSource,
    Part,
    check_named,
)
from streamapp.runners.spark.columns import ColumnSource
from streamapp.runners.spark.failures import raised_in_tasks
from streamapp.runners.spark.partitioning import PartitionCounts
from streamapp.runners.spark.run_order import topics_of
from streamapp.runners.spark.sessions import few_groups, kept, stage_settings
from streamapp.topology import Plan

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    Sources = KafkaSource | Mapping[str, "Source | DataFrame"] | None

__all__ = ["Inputs", "Source", "resolve"]

logger: logging.Logger = logging.getLogger(__name__)

Source = KafkaSource | ParquetSource | FrameSource | ColumnSource


@dataclass
class Inputs:
    """The source topics of a batch: tasks read the topics in ``parts``, and Spark brings the topics in ``rows``."""

    topics: tuple[str, ...] = ()
    parts: dict[TopicPartition, Part] = field(default_factory=dict)
    rows: dict[str, DataFrame] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=dict)
    """The partition counts of all inputs and internal topics, and of all other topics in Kafka if Kafka is a source."""
    totals: dict[TopicPartition, int] = field(default_factory=dict)
    """The number of records in each partition of the topics in ``rows``."""
    largest: dict[str, int] = field(default_factory=dict)
    """Topic in ``rows`` -> the bytes of key and value of its largest record."""
    letters: dict[str, list[DataFrame]] = field(default_factory=dict)
    """Topic -> the dead letters for rows of column sources that are no records."""
    rejections: int = 0
    """The number of rows of column sources that are no records."""
    letter_partitions: PartitionCounts = field(default_factory=lambda: PartitionCounts({}, 1))
    kept: list[DataFrame] = field(default_factory=list)
    """The frames on the executors' disks; closing the batch deletes them."""

    def of(self, topics: tuple[str, ...]) -> dict[TopicPartition, Part]:
        return {tp: part for tp, part in self.parts.items() if tp.topic in topics}

    def size(self, topics: tuple[str, ...]) -> int:
        """The approximate number of records of the topics."""
        return sum(part.size for part in self.of(topics).values()) + sum(
            total for tp, total in self.totals.items() if tp.topic in topics
        )

    def largest_of(self, topics: tuple[str, ...]) -> int | None:
        """The bytes of the largest record of topics that Spark brings; None if an earlier stage writes one of them."""
        sizes = [self.largest.get(topic) for topic in topics]
        return None if None in sizes else max(filter(None, sizes), default=0)


def resolve(plan: Plan, sources: Sources) -> Inputs:
    """Finds the sources of all topics.

    Raises `ConfigError` for a topic without a source, and `CopartitionError` in the same cases as workers.
    """
    kafka = KafkaRange(client_of(plan.config))
    wanted = [topic for topic in plan.source_topics if topic not in plan.sink_topics]
    on_kafka: dict[str, int] = {}
    if sources is None or isinstance(sources, KafkaSource):
        on_kafka = kafka.partition_counts()
        matched = [
            t for s in plan.subtopologies if any(n.pattern for n in s.sources) for t in topics_of(s, on_kafka)
        ]
        names = dict.fromkeys([*wanted, *(topic for topic in matched if topic not in plan.sink_topics)])
        by_topic: dict[str, Source] = dict.fromkeys(names, sources or KafkaSource())
    elif not isinstance(sources, Mapping):
        raise ConfigError(
            f"a {type(sources).__name__} is a source for one topic: name the topic, as "
            f"{{{', '.join(f'{topic!r}: ...' for topic in wanted)}}}. Only a KafkaSource is a source for all topics"
        )
    else:
        by_topic = {t: s if isinstance(s, Source) else FrameSource(s) for t, s in sources.items()}
        missing = [topic for topic in wanted if topic not in by_topic]
        if missing:
            raise ConfigError(
                f"there is no source for {', '.join(missing)}: give a DataFrame, a KafkaSource, a ParquetSource or a "
                f"ColumnSource for each of {', '.join(wanted)}"
            )
        if any(isinstance(source, KafkaSource) for source in by_topic.values()):
            on_kafka = kafka.partition_counts()
    plan.check_patterns(by_topic)
    found = Inputs(tuple(by_topic))
    external = {topic: on_kafka[topic] for topic in plan.source_topics if topic in on_kafka}
    for topic, source in by_topic.items():
        if isinstance(source, FrameSource):
            external[topic] = _add_rows(found, topic, source)
        elif isinstance(source, ColumnSource):
            external[topic] = source.partitions
        elif isinstance(source, ParquetSource):
            parts = source.parts(topic)
            external[topic] = len(parts)
            found.parts.update(parts)
            # A backfill names the gaps of its files before it begins; its parts are no `ParquetPart`.
            gaps = {tp: part.gaps for tp, part in parts.items() if isinstance(part, ParquetPart)}
            for warning in gap_warnings(gaps):
                logger.warning("%s", warning)
        elif topic in on_kafka:
            external[topic] = on_kafka[topic]
            every = [TopicPartition(topic, partition) for partition in range(on_kafka[topic])]
            ranges = kafka.resolve(source, every)
            found.parts.update({tp: KafkaPart(client_of(plan.config), *span) for tp, span in ranges.items()})
    if isinstance(sources, KafkaSource):
        for name in ("since", "until"):
            check_named(getattr(sources, name), found.parts, name, "the topology")
    found.letter_partitions = PartitionCounts(on_kafka, max(external.values(), default=1))
    for topic, source in by_topic.items():
        if isinstance(source, ColumnSource):
            _add_columns(found, topic, source, plan)
    for topic in plan.source_topics:
        if topic in plan.sink_topics and topic not in external:
            external[topic] = max(external.values(), default=1)
    found.partitions = {**on_kafka, **external, **plan.partition_counts(external)}
    return found


def _add_rows(found: Inputs, topic: str, source: FrameSource) -> int:
    """Adds a frame, and returns the number of partitions of its topic.

    Raises `ConfigError` for rows whose place in the topic is not known.
    """
    from pyspark.sql import functions as F

    rows = found.rows[topic] = source.rows(topic)
    with few_groups(rows.sparkSession):
        counted_rows = rows.groupBy("task").agg(F.count("*"), F.count("seq"), _largest()).collect()
    lost = sum(size for task, size, *_ in counted_rows if task is None or task < 0)
    if lost:
        raise ConfigError(
            f"the frame for topic {topic} has {counted(lost, 'row')} whose partition is null or negative: give each "
            "row the number of its partition, from 0 on"
        )
    unordered = sum(size - numbered for _, size, numbered, _ in counted_rows)
    if unordered:
        raise ConfigError(
            f"the frame for topic {topic} has {counted(unordered, 'row')} whose offset is null: give each row its "
            "place in the partition"
        )
    sizes: dict[int, int] = {task: size for task, size, *_ in counted_rows}
    found.largest[topic] = max((largest for *_, largest in counted_rows), default=0)
    found.totals.update({TopicPartition(topic, task): size for task, size in sizes.items()})
    partitions = source.partitions or max(sizes, default=0) + 1
    if sizes and max(sizes) >= partitions:
        raise ConfigError(
            f"the frame for {topic} has rows of partition {max(sizes)}, but partitions is {source.partitions}"
        )
    return partitions


def _add_columns(found: Inputs, topic: str, source: ColumnSource, plan: Plan) -> None:
    from pyspark.sql import functions as F

    nodes = [node for sub in plan.subtopologies if (node := sub.source_of(topic))]
    nodes += [store.source for store in plan.global_stores if store.topic == topic]
    if not nodes:
        raise ConfigError(f"the topology does not read {topic}; it reads {', '.join(plan.source_topics)}")
    session = source.frame.sparkSession
    # Nobody knows the sizes of the rows before they are encoded.
    with (
        raised_in_tasks(),
        stage_settings(session, packs=False, rows=True, row_bytes=None),
        few_groups(session),
    ):
        encoded = kept(source.rows(topic, nodes[0], plan.config, found.letter_partitions))
        found.kept.append(encoded)
        groups = encoded.groupBy("task", "rejected", "topic").agg(F.count("*"), _largest()).collect()
    sizes = [group[:4] for group in groups]
    found.largest[topic] = max((group[4] for group in groups), default=0)
    found.totals.update(
        {TopicPartition(topic, task): size for task, rejected, _, size in sizes if not rejected}
    )
    found.rows[topic] = encoded.where(~F.col("rejected")).drop("rejected", "topic")
    found.rejections += sum(size for _, rejected, to, size in sizes if rejected and to is None)
    for to in dict.fromkeys(to for _, _, to, _ in sizes if to is not None):
        found.letters.setdefault(to, []).append(encoded.where(F.col("topic") == to))


def _largest() -> Column:
    """The bytes of key and value of the largest row."""
    from pyspark.sql import functions as F

    return F.max(sum((F.coalesce(F.octet_length(name), F.lit(0)) for name in ("key", "value")), F.lit(0)))
