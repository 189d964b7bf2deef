"""Where the records of a batch come from: ranges of Kafka topics, archives in Parquet, or DataFrames."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import OffsetSpec

from streamapp.broker.consumer import ConsumerEvent, open_consumer
from streamapp.broker.requests import LastingAdmin, list_offsets
from streamapp.engine.runner_ports import RecordReader
from streamapp.errors import BrokerError, ConfigError
from streamapp.records import RecordBatch, TopicPartition
from streamapp.runners.spark.offset_times import TimeSearch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["FrameSource", "KafkaPart", "KafkaRange", "KafkaReader", "KafkaSource", "Part", "Ranges"]

TIMEOUT_SECONDS = 30.0
SETTLE_SECONDS = 10.0
BATCH = 10_000

Ranges = dict[TopicPartition, tuple[int, int]]
"""First offset, and the offset behind the last, of each partition."""


class Part(Protocol):
    """One partition of a topic, wherever it lies; goes from the driver to an executor."""

    @property
    def size(self) -> int:
        """About how many records it has."""

    def open(self, partition: TopicPartition) -> RecordReader: ...


@dataclass(frozen=True)
class KafkaSource:
    """Topics as they are in Kafka, from ``since`` (default: the first record) to ``until`` (default: the end
    of the log when the batch starts).

    Both are either a time in ms, which means the first record of each partition with at least that timestamp,
    or offsets by partition. ``until`` is exclusive. Only committed records are read: what a transaction wrote that
    has not ended 10 seconds after the batch began, and what lies behind it in its partitions, is not among them.

    >>> KafkaSource(until=1_385_874_000_000)                       # everything before December 2013
    KafkaSource(since=None, until=1385874000000)
    """

    since: int | Mapping[TopicPartition, int] | None = None
    until: int | Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True)
class FrameSource:
    """One topic as a DataFrame: Parquet files, or Spark's own Kafka reader.

    Columns: ``key`` and ``value`` (binary or string), ``timestamp`` (bigint in ms, or timestamp),
    ``partition`` (int), ``offset`` (bigint, the order within a partition), and optionally ``headers``.
    ``partitions`` is the number of the topic's partitions; by default the largest one that occurs, and one.
    """

    frame: DataFrame
    partitions: int | None = None

    def rows(self, topic: str) -> DataFrame:
        """The frame with columns of the types that the stages want; raises `ConfigError` if it can't be."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import TimestampType

        from streamapp.runners.spark.frames import HEADERS

        names = set(self.frame.columns)
        missing = [n for n in ("key", "value", "timestamp", "partition", "offset") if n not in names]
        if missing:
            raise ConfigError(
                f"the frame for topic {topic} has no column {', '.join(missing)}; it has "
                f"{', '.join(sorted(names))}. A frame needs key, value, timestamp, partition and offset"
            )
        time = F.col("timestamp")
        if isinstance(self.frame.schema["timestamp"].dataType, TimestampType):
            time = F.unix_millis(time)
        headers = F.col("headers") if "headers" in names else F.lit(None)
        return self.frame.select(
            F.col("partition").cast("int").alias("task"),
            F.col("offset").cast("bigint").alias("seq"),
            F.col("key").cast("binary").alias("key"),
            F.col("value").cast("binary").alias("value"),
            time.cast("bigint").alias("timestamp"),
            headers.cast(HEADERS).alias("headers"),
        )


class KafkaRange:
    """Asks a cluster which offsets a `KafkaSource` means."""

    def __init__(self, client: Mapping[str, Any]) -> None:
        self._settings = client
        self._client = LastingAdmin({**client, "log_level": 0})
        self._servers = client["bootstrap.servers"]

    def partition_counts(self) -> dict[str, int]:
        """All topics of the cluster with their numbers of partitions."""
        try:
            topics = self._client.list_topics(timeout=TIMEOUT_SECONDS).topics
        except KafkaException as error:
            raise BrokerError(
                f"Kafka at {self._servers} does not answer ({error.args[0].str()}): is it running, and is "
                "bootstrap_servers right?"
            ) from error
        return {name: len(found.partitions) for name, found in topics.items()}

    def committed(self, partitions: Iterable[TopicPartition]) -> Ranges:
        """What readers of committed records can read at this moment. Not all that was committed before may be among it:
        Kafka tells partitions of a commit after it has answered."""
        asked = list(partitions)
        first = self._offsets(asked, OffsetSpec.earliest())
        end = self._offsets(asked, OffsetSpec.latest())
        return {tp: (first[tp], end[tp]) for tp in asked}

    def settle(
        self, partitions: Collection[TopicPartition], seconds: float = SETTLE_SECONDS
    ) -> set[TopicPartition]:
        """Waits until all transactions that are open now have ended, in these partitions; returns those where some have
        not in time. From then on all can be read that was committed before."""
        ends = self._offsets(partitions, OffsetSpec.latest(), read_committed=False)
        deadline = time.monotonic() + seconds
        while True:
            stable = self._offsets(ends, OffsetSpec.latest())
            ends = {tp: end for tp, end in ends.items() if stable[tp] < end}
            if not ends or time.monotonic() > deadline:
                return set(ends)
            time.sleep(0.02)

    def resolve(self, source: KafkaSource, partitions: Sequence[TopicPartition]) -> Ranges:
        """The ranges that a source means."""
        self.settle(partitions)
        there = self.committed(partitions)
        first = {tp: span[0] for tp, span in there.items()}
        end = {tp: span[1] for tp, span in there.items()}
        starts = self._bound(source.since, first, end) if source.since is not None else first
        ends = self._bound(source.until, end, end) if source.until is not None else end
        gone = [tp for tp in partitions if starts[tp] < first[tp]]
        beyond = [tp for tp in partitions if ends[tp] > end[tp]]
        if gone or beyond:
            named = ", ".join(f"{tp} has {first[tp]} to {end[tp]}" for tp in gone + beyond)
            raise ConfigError(f"offsets are asked for that Kafka does not have: {named}")
        return {tp: (starts[tp], max(starts[tp], ends[tp])) for tp in partitions}

    def _bound(
        self,
        bound: int | Mapping[TopicPartition, int],
        default: dict[TopicPartition, int],
        end: dict[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        if not isinstance(bound, int):
            return {tp: bound.get(tp, offset) for tp, offset in default.items()}
        found = self._offsets(list(default), OffsetSpec.for_timestamp(bound))
        search = TimeSearch(self._settings)
        try:
            return {
                tp: end[tp] if not 0 <= offset < end[tp] else search.first(tp, offset, end[tp], bound)
                for tp, offset in found.items()
            }
        finally:
            search.close()

    def _offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, *, read_committed: bool = True
    ) -> dict[TopicPartition, int]:
        return list_offsets(
            self._client, partitions, spec, read_committed=read_committed, seconds=TIMEOUT_SECONDS
        )


@dataclass(frozen=True)
class KafkaPart:
    """The `Part` of a Kafka partition from ``start`` to before ``end``."""

    client: Mapping[str, Any]
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    def open(self, partition: TopicPartition) -> KafkaReader:
        return KafkaReader(self.client, partition, self.start, self.end)


class KafkaReader:
    """Reads one range of one partition, in an executor. Its task has a reader for each of its inputs."""

    def __init__(self, client: Mapping[str, Any], partition: TopicPartition, start: int, end: int) -> None:
        self._partition, self._end, self._next = partition, end, start
        self._consumer = open_consumer(
            {
                **client,
                "group.id": "streamapp-batch",  # required, never joined
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
            }
        )
        self._consumer.assign({partition: start})

    def read(self) -> RecordBatch | None:
        """The next records, or None at the end of the range; an empty batch when Kafka is slow."""
        if self._next >= self._end:
            return None
        found, events = self._consumer.poll(BATCH, 1.0)
        for event in events:
            self._on_event(event)
        if not found:
            return None if self._next >= self._end else RecordBatch([], [], [], [])
        ((_, records),) = found
        self._next = max(self._next, records.offsets[-1] + 1)
        if self._next <= self._end:
            return records
        inside = slice(bisect_left(records.offsets, self._end))
        keys, values, timestamps, offsets, headers = records
        return RecordBatch(
            keys[inside], values[inside], timestamps[inside], offsets[inside], headers and headers[inside]
        )

    def close(self) -> None:
        self._consumer.close()

    def _on_event(self, event: ConsumerEvent) -> None:
        error = event.error
        if error.code() == KafkaError._PARTITION_EOF:
            self._next = max(self._next, event.offset)  # behind the markers of transactions
        elif error.fatal() or not error.retriable():
            raise BrokerError(f"{self._partition} cannot be read at offset {self._next}: {error.str()}")
