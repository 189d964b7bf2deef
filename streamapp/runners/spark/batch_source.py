"""The sources of a batch: ranges of Kafka topics, archives in Parquet, or DataFrames."""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from confluent_kafka import KafkaError
from confluent_kafka.admin import OffsetSpec

from streamapp.broker.bounded_reads import TO_THE_END
from streamapp.broker.consumer import ConsumerEvent, lost_at_end, passes
from streamapp.broker.lasting_consumer import open_consumer
from streamapp.broker.requests import LastingAdmin, at_time, find_cluster, list_offsets
from streamapp.engine.runner_ports import RecordReader
from streamapp.errors import BrokerError, ConfigError
from streamapp.records import RecordBatch, TopicPartition
from streamapp.runners.spark.given_columns import (
    BYTES,
    HEADER_PAIRS,
    NUMBER,
    TIME,
    check_names,
    check_types,
    milliseconds,
)
from streamapp.runners.spark.offset_times import TimeSearch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "NO_TIMESTAMP",
    "READERS",
    "Bound",
    "FrameSource",
    "KafkaPart",
    "KafkaRange",
    "KafkaReader",
    "KafkaSource",
    "Part",
    "Ranges",
    "check_named",
    "check_partitions",
]

NO_TIMESTAMP = -1
"""The timestamp of a record without one in Kafka, which timestamp extractors know."""

TIMEOUT_SECONDS = 30.0
SETTLE_SECONDS = 10.0
BATCH = 10_000
READERS = "streamapp-batch"
"""The group that librdkafka requires of each reader. No reader joins it."""

_OPEN_TRANSACTIONS = (
    "No reader of committed records can read behind an open transaction. Kafka ends the transaction of a killed "
    "producer after its time-out; kafka-transactions.sh find-hanging finds other open transactions"
)

logger: logging.Logger = logging.getLogger(__name__)

Ranges = dict[TopicPartition, tuple[int, int]]
"""The first offset, and the offset behind the last, of each partition."""


Bound = int | Mapping[TopicPartition, int] | None
"""A time in ms, offsets by partition, or None for the default."""


class Part(Protocol):
    """One partition of a topic in Kafka or in files; the driver sends the part to an executor."""

    @property
    def size(self) -> int:
        """The approximate number of records."""

    def open(self, partition: TopicPartition) -> RecordReader: ...


@dataclass(frozen=True)
class KafkaSource:
    """Topics in Kafka, from ``since`` (default: the first record) to ``until`` (default: the end at the batch's start).

    Each bound is a time in ms, or offsets by partition. A time stands for the first record of each partition with at
    least this timestamp, or else for the end. A partition without an offset in a bound gets the default. ``until`` is
    exclusive.

    The batch reads committed records only, and waits, for each topic, at most 10 seconds for open transactions to end.
    In a partition with a transaction that stays open, the batch ends at the first record of this transaction, and logs
    a warning.

    >>> KafkaSource(until=1_385_874_000_000)                       # everything before December 2013
    KafkaSource(since=None, until=1385874000000)
    """

    since: Bound = None
    until: Bound = None


@dataclass(frozen=True)
class FrameSource:
    """One topic as a DataFrame, for example from Parquet files or from Spark's own Kafka reader.

    Columns: ``key`` and ``value`` (binary or string), ``timestamp`` (bigint in ms, or timestamp), ``partition`` (int)
    and ``offset`` (bigint, the order within a partition). The column ``headers`` may be missing, and is an array of
    structs of ``key`` (string) and ``value`` (binary). A null ``timestamp`` is -1, as in Kafka, and a timestamp
    extractor can give the record a time. A batch refuses rows without a partition or an offset.
    ``partitions`` is the number of the topic's partitions; default: the largest partition number in the frame, plus 1.
    """

    frame: DataFrame
    partitions: int | None = None

    def __post_init__(self) -> None:
        if self.partitions is not None:
            check_partitions(self.partitions)

    def rows(self, topic: str) -> DataFrame:
        """The frame with the columns and types that the stages need.

        Raises `ConfigError` for a column that is missing or has the wrong type.
        """
        from pyspark.sql import functions as F

        from streamapp.runners.spark.frames import HEADERS

        kinds = {"key": BYTES, "value": BYTES, "timestamp": TIME, "partition": NUMBER, "offset": NUMBER}
        check_names(self.frame, topic, kinds)
        with_headers = "headers" in self.frame.columns
        check_types(self.frame, topic, kinds | {"headers": HEADER_PAIRS} if with_headers else kinds)
        headers = F.col("headers") if with_headers else F.lit(None)
        return self.frame.select(
            F.col("partition").cast("int").alias("task"),
            F.col("offset").cast("bigint").alias("seq"),
            F.col("key").cast("binary").alias("key"),
            F.col("value").cast("binary").alias("value"),
            F.coalesce(milliseconds(self.frame, "timestamp"), F.lit(NO_TIMESTAMP)).alias("timestamp"),
            headers.cast(HEADERS).alias("headers"),
        )


def check_partitions(count: int) -> None:
    """Raises `ConfigError` if a source cannot have so many partitions."""
    if count < 1:
        raise ConfigError(f"partitions of a source has to be at least 1, got {count}")


def check_named(bound: Bound, read: Collection[TopicPartition], name: str, reader: str) -> None:
    """Raises `ConfigError` if a bound by offsets names partitions that ``reader`` does not read."""
    unknown = sorted(bound.keys() - set(read)) if isinstance(bound, Mapping) else []
    if unknown:
        topics = ", ".join(sorted({tp.topic for tp in read}))
        raise ConfigError(
            f"{name} names {', '.join(map(str, unknown))}, which {reader} does not read: name partitions of "
            f"{topics or 'topics that it reads'}"
        )


class KafkaRange:
    """Asks a cluster for the offsets of a `KafkaSource`."""

    def __init__(self, client: Mapping[str, Any]) -> None:
        self._settings = client
        self._client = LastingAdmin({**client, "log_level": 0})

    def partition_counts(self) -> dict[str, int]:
        """All topics of the cluster with their numbers of partitions; raises `BrokerError` if Kafka does not answer."""
        topics = find_cluster(self._client, self._settings, seconds=TIMEOUT_SECONDS).topics
        return {name: len(found.partitions) for name, found in topics.items()}

    def committed(self, partitions: Iterable[TopicPartition]) -> Ranges:
        """The first offset of each partition, and the offset up to which readers of committed records can read now.

        Records of a recent commit may have larger offsets, because Kafka confirms a commit before all partitions have
        its marker.
        """
        asked = list(partitions)
        first = self._offsets(asked, OffsetSpec.earliest())
        end = self._offsets(asked, OffsetSpec.latest())
        return {tp: (first[tp], end[tp]) for tp in asked}

    def offset_at(self, tp: TopicPartition, timestamp: int) -> int:
        """The first offset of a record that is not older than ``timestamp`` (ms); negative: there is no such record."""
        return self._offsets([tp], OffsetSpec.for_timestamp(timestamp))[tp]

    def settle(self, partitions: Collection[TopicPartition], seconds: float) -> set[TopicPartition]:
        """Waits until the transactions that are open now in these partitions have ended.

        Returns the partitions with a transaction that is still open after ``seconds``. In the other partitions, all
        records that were committed before the call can be read.
        """
        ends = self._offsets(partitions, OffsetSpec.latest(), read_committed=False)
        deadline = time.monotonic() + seconds
        while True:
            stable = self._offsets(ends, OffsetSpec.latest())
            ends = {tp: end for tp, end in ends.items() if stable[tp] < end}
            if not ends or time.monotonic() > deadline:
                return set(ends)
            time.sleep(0.02)

    def resolve(self, source: KafkaSource, partitions: Sequence[TopicPartition]) -> Ranges:
        """The ranges of a source; raises `ConfigError` for offsets that Kafka does not have.

        Logs a warning about each transaction that stays open, if ``source`` wants the records behind.
        """
        unsettled = self.settle(partitions, SETTLE_SECONDS)
        there = self.committed(partitions)
        first = {tp: span[0] for tp, span in there.items()}
        end = {tp: span[1] for tp, span in there.items()}
        starts = self._bound(source.since, first, end) if source.since is not None else first
        ends = self._bound(source.until, end, end) if source.until is not None else end
        gone = [tp for tp in partitions if starts[tp] < first[tp]]
        beyond = [tp for tp in partitions if ends[tp] > end[tp]]
        if gone or beyond:
            named = ", ".join(f"{tp} has {first[tp]} to {end[tp]}" for tp in gone + beyond)
            raise ConfigError(
                f"since or until names offsets that Kafka does not have: {named}"
                + (f". {_OPEN_TRANSACTIONS}" if unsettled.intersection(beyond) else "")
            )
        chosen = source.until if isinstance(source.until, Mapping) else {}
        if cut := sorted(tp for tp in unsettled if ends[tp] == end[tp] and tp not in chosen):
            read = ", ".join(f"{tp} is read up to offset {end[tp]}" for tp in cut)
            logger.warning(
                "transactions are still open, so the records behind are left out: %s. %s",
                read,
                _OPEN_TRANSACTIONS,
            )
        return {tp: (starts[tp], max(starts[tp], ends[tp])) for tp in partitions}

    def _bound(
        self,
        bound: int | Mapping[TopicPartition, int],
        default: dict[TopicPartition, int],
        end: dict[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        if not isinstance(bound, int):
            return {tp: bound.get(tp, offset) for tp, offset in default.items()}
        found = self._offsets(list(default), at_time(bound))
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
    """Reads one range of one partition, mostly in an executor.

    Records may be deleted from the log while the reader is on its way to them. ``first_left`` is then called with the
    offset of the deleted records, and returns the offset at which reading goes on. Without ``first_left``, such a loss
    is an error.
    """

    def __init__(
        self,
        client: Mapping[str, Any],
        partition: TopicPartition,
        start: int,
        end: int,
        first_left: Callable[[int], int] | None = None,
    ) -> None:
        self._partition, self._end, self._next = partition, end, start
        self._first_left = first_left
        self._consumer = open_consumer(
            {
                **client,
                "group.id": READERS,
                **TO_THE_END,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
            }
        )
        self._consumer.assign({partition: start})

    def read(self) -> RecordBatch | None:
        """The next records; None at the end of the range; an empty batch if none arrive within a second.

        Raises `BrokerError` for an error that the client does not retry.
        """
        if self._next >= self._end:
            return None
        found, events = self._consumer.poll(BATCH, 1.0)
        for _, records in found:
            self._next = max(self._next, records.offsets[-1] + 1)
        for event in events:
            self._on_event(event)
        if not found:
            return None if self._next >= self._end else RecordBatch([], [], [], [])
        ((_, records),) = found
        if records.offsets[-1] < self._end:
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
            self._next = max(self._next, event.offset)  # the position behind the markers of transactions
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._go_on_where_there_are_records(lost_at_end(error))
        elif not passes(error):
            raise BrokerError(f"{self._partition} cannot be read at offset {self._next}: {error.str()}")

    def _go_on_where_there_are_records(self, lost: range | None) -> None:
        if lost is not None:
            raise BrokerError(
                f"{self._partition} has lost the records from offset {lost.start} on, while they were read. An unclean "
                "leader election is one cause. Later records get the same offsets, so run this again from the start"
            )
        if self._first_left is None:
            raise BrokerError(
                f"{self._partition} has no record at offset {self._next} any more, because records were deleted "
                "(retention) before they were read. Give the topic a longer retention, and run this again"
            )
        self._next = self._first_left(self._next)
        self._consumer.remove([self._partition])
        if self._next < self._end:
            self._consumer.add({self._partition: self._next})
