"""Writes records from Spark to Kafka in time order and exactly once, also over a killed run and its repetition.

Spark's own Kafka sink ignores timestamps, and may write a record twice. Here, each task has a transactional producer.
With the rows, each transaction commits the number of rows that are now done, for each partition. The number is stored
as an offset of the consumer group with the name of the job. The metadata of the offset has a checksum of these rows,
and the number of rows that were written.

The next run reads the number, and continues after these rows. If the checksum differs, the run is refused: its input
has changed, so the number would point to a wrong row.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from streamapp.broker.requests import CHECK_KAFKA, committed, until_coordinated
from streamapp.broker.settings import KafkaSettings
from streamapp.errors import BrokerError, ConfigError
from streamapp.records import TopicPartition
from streamapp.runners.spark.failures import raised_in_tasks
from streamapp.runners.spark.frames import HEADERS
from streamapp.runners.spark.given_columns import (
    BYTES,
    HEADER_PAIRS,
    NUMBER,
    TIME,
    check_names,
    check_types,
    milliseconds,
)
from streamapp.runners.spark.partitioning import exact_partitions
from streamapp.runners.spark.produce import (
    TIMEOUT_SECONDS,
    TRANSACTION_TIMEOUT_MS,
    produce,
    roll_back,
    transactional_producer,
)
from streamapp.runners.spark.progress import polling
from streamapp.runners.spark.sessions import kept

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Published", "publish"]

COLUMNS = ("topic", "partition", "key", "value", "timestamp", "headers", "wanted")
BATCH_ORDER = ("mx", "src", "seq")
"""The columns of an `OutputTopic` that give the order of its records."""
RECORDS_PER_TRANSACTION = 20_000

logger: logging.Logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Published:
    """The result of one run of `publish`: numbers of rows by topic."""

    total: dict[str, int]
    """All rows of the input."""
    written: dict[str, int]
    """The rows that this run has written."""
    there_before: dict[str, int]
    """The rows that earlier runs have written."""


def publish(
    frame: DataFrame,
    kafka: KafkaSettings,
    *,
    job: str,
    topics: Sequence[str],
    tasks: int = 1,
    on_progress: Callable[[int, int], None] | None = None,
) -> Published:
    """Writes the rows of ``frame`` to Kafka in the order of their timestamps, each row exactly once over all runs.

    Columns: ``topic``, ``partition`` (int), ``key``, ``value`` (binary or string), ``timestamp`` (bigint in ms, or
    timestamp), and optionally ``headers`` and ``wanted`` (boolean). Rows with ``wanted`` false are not written, but
    count as done.

    The ``topics`` exist already, and only this ``job`` writes to them. Rows with the same timestamp are in the order of
    ``topics``. With one task, the time order holds over all partitions, as in a live stream. More ``tasks`` write
    faster, and keep the time order within each partition. The frame of an `OutputTopic` has the columns ``mx``, ``src``
    and ``seq``. Its records are in the order of stream time (``mx``), and so in the order of the batch.

    ``on_progress(done, total)`` is called about three times a second from another thread, and once at the end.

    - `ConfigError`: a topic does not exist or has records of other producers. A column is missing or has the wrong
      type. Or the rows differ from those that earlier runs have written. A frame with fewer rows is no error.
    - `BrokerError`: Kafka refuses the records. The same call, repeated, continues after the last commit.
    """
    from pyspark.sql import functions as F

    _check(frame, topics)
    with ExitStack() as stack:
        ledger = stack.enter_context(closing(_Ledger(kafka, job)))
        partitions = ledger.begin(topics, tasks)
        before = ledger.read(partitions)
        if not (frame.storageLevel.useMemory or frame.storageLevel.useDisk):
            frame = kept(frame)
            stack.callback(frame.unpersist)
        frame = _records(frame)
        sizes = {
            TopicPartition(row[0], row[1]): row[2]
            for row in frame.groupBy("topic", "partition").count().collect()
        }
        unknown = sizes.keys() - set(partitions)
        if unknown:
            raise ConfigError(
                f"The frame has rows for {sorted(map(str, unknown))}, but Kafka has no such partitions"
            )
        rank = F.array_position(F.array(*map(F.lit, topics)), F.col("topic"))
        of_a_batch = set(BATCH_ORDER) <= set(frame.columns)
        # A later run has to find all rows in the same order, also rows that differ in one column only.
        others = [name for name in ("headers", "wanted") if name in frame.columns]
        time, *ties = BATCH_ORDER if of_a_batch else ("timestamp", "key", "value", *others)
        order = [F.col(time), rank, *map(F.col, ("partition", *ties))]
        slices = exact_partitions(frame, tasks, F.pmod(F.col("partition"), F.lit(tasks)))
        write = _Writer(kafka, job)
        total = sum(sizes.values())

        def done() -> int:
            return sum(min(at.rows, sizes.get(tp, 0)) for tp, at in ledger.read(partitions).items())

        with raised_in_tasks(), polling(on_progress and (lambda: on_progress(done(), total))):
            rows = (
                slices.sortWithinPartitions(*order)
                .select([name for name in COLUMNS if name in frame.columns])
                .mapInArrow(write, "topic string, partition int, written bigint")
                .collect()
            )
    totals, there = dict.fromkeys(topics, 0), dict.fromkeys(topics, 0)
    written = dict.fromkeys(topics, 0)
    for tp, size in sizes.items():
        totals[tp.topic] += size
        there[tp.topic] += min(size, before[tp].written)
    for row in rows:
        written[row[0]] += row[2]
    return Published(totals, written, there)


def _check(frame: DataFrame, topics: Sequence[str]) -> None:
    """Raises `ConfigError` for a column that is missing or has the wrong type."""
    named = ", ".join(topics)
    kinds = {"partition": NUMBER, "key": BYTES, "value": BYTES, "timestamp": TIME}
    check_names(frame, named, ("topic", *kinds))
    check_types(frame, named, kinds | {"headers": HEADER_PAIRS} if "headers" in frame.columns else kinds)


def _records(frame: DataFrame) -> DataFrame:
    """The frame with the types of records."""
    from pyspark.sql import functions as F

    columns = {
        "partition": F.col("partition").cast("int"),
        "key": F.col("key").cast("binary"),
        "value": F.col("value").cast("binary"),
        "timestamp": milliseconds(frame, "timestamp"),
    }
    if "headers" in frame.columns:
        columns["headers"] = F.col("headers").cast(HEADERS)
    return frame.withColumns(columns)


class Position(NamedTuple):
    """The number of rows of a partition that are done, and the checksum of these rows in hexadecimal.

    ``written`` is the number of these rows that are in Kafka. The job does not write the rows whose column ``wanted``
    is false.
    """

    rows: int
    checksum: str
    written: int


class _Ledger:
    """The progress of a job, stored in Kafka as offsets of the consumer group ``job``."""

    def __init__(self, kafka: KafkaSettings, job: str) -> None:
        self._kafka, self._job = kafka, job
        self.consumer = Consumer({**kafka.librdkafka(), "group.id": job, "enable.auto.commit": False})

    def begin(self, topics: Sequence[str], tasks: int) -> list[TopicPartition]:
        """Fences the producers of earlier runs, and adds empty partitions that are not in the ledger yet.

        Raises `ConfigError` for a topic that does not exist, or that has records but no entry in the ledger.
        """
        try:
            roll_back(_client(self._kafka, self._job, task) for task in range(tasks))
            known = self.consumer.list_topics(timeout=TIMEOUT_SECONDS).topics
            missing = [topic for topic in topics if topic not in known]
            if missing:
                raise ConfigError(f"Kafka has no topics {missing}: create these topics, then publish")
            partitions = [
                TopicPartition(topic, p) for topic in topics for p in sorted(known[topic].partitions)
            ]
            new = [tp for tp, at in self.read(partitions).items() if at.rows < 0]
            for tp in new:
                low, high = self.consumer.get_watermark_offsets(KafkaPartition(*tp), timeout=TIMEOUT_SECONDS)
                if high > low:
                    raise ConfigError(
                        f"{tp} has records (offsets {low} to {high}), but Kafka has no progress of the job "
                        f"{self._job!r}. Another program wrote the records, or the group's offsets have expired. "
                        "Delete the topic and run again, or publish to another topic."
                    )
            if new:
                begun = [_entry(tp, Position(0, "0", 0)) for tp in new]
                commit = partial(self.consumer.commit, offsets=begun, asynchronous=False)
                until_coordinated(commit, seconds=TIMEOUT_SECONDS)
        except KafkaException as error:
            raise BrokerError(f"Kafka at {self._kafka.bootstrap_servers} refused: {error}") from error
        return partitions

    def read(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Position]:
        """The `Position` of each partition, from the offsets of the group. Raises `BrokerError`.

        The ``rows`` of a partition without an entry are -1.
        """
        try:
            found = committed(self.consumer, partitions, seconds=TIMEOUT_SECONDS)
        except KafkaException as error:
            raise BrokerError(
                f"the progress of job {self._job!r} cannot be read from Kafka at {self._kafka.bootstrap_servers}: "
                f"{error.args[0].str()}. {CHECK_KAFKA} Then run the job again: it continues after the last commit."
            ) from error
        return {TopicPartition(entry.topic, entry.partition): _position(entry) for entry in found}

    def close(self) -> None:
        self.consumer.close()


def _entry(tp: TopicPartition, at: Position) -> KafkaPartition:
    return KafkaPartition(tp.topic, tp.partition, at.rows, metadata=f"{at.checksum} {at.written}")


def _position(entry: KafkaPartition) -> Position:
    rows = max(entry.offset, -1)
    checksum, _, written = (entry.metadata or "").partition(" ")
    # Jobs of earlier versions have not noted the number of written rows.
    return Position(rows, checksum, int(written) if written else max(rows, 0))


def _client(kafka: KafkaSettings, job: str, task: int) -> dict[str, Any]:
    return {
        **kafka.librdkafka(),
        "transactional.id": f"{job}-{task}",
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        "linger.ms": 50,
        "batch.size": 262_144,
        "compression.type": "lz4",
        "queue.buffering.max.messages": 2 * RECORDS_PER_TRANSACTION,
        "logger": logger,  # without a logger, librdkafka writes to the terminal, over the progress bar
    }


class _Writer:
    """Writes one sorted slice in an executor, transaction by transaction."""

    def __init__(self, kafka: KafkaSettings, job: str) -> None:
        self.kafka, self.job = kafka, job

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield self.run(context.partitionId(), batches)

    def run(self, task: int, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
        """Writes the rows that are not in Kafka yet; returns the numbers of written records by topic and partition."""
        ledger = _Ledger(self.kafka, self.job)
        try:
            with transactional_producer(_client(self.kafka, self.job, task)) as producer:
                written = self._write(batches, producer, ledger)
        except KafkaException as error:
            raise BrokerError(
                f"Kafka refused the records of job {self.job!r}: {error}. Run the job again: it continues after the "
                "last commit."
            ) from error
        finally:
            ledger.close()
        columns = [[tp.topic for tp in written], [tp.partition for tp in written], list(written.values())]
        return pa.RecordBatch.from_arrays(
            [pa.array(c, t) for c, t in zip(columns, (pa.string(), pa.int32(), pa.int64()), strict=True)],
            ["topic", "partition", "written"],
        )

    def _write(
        self, batches: Iterator[pa.RecordBatch], producer: Producer, ledger: _Ledger
    ) -> dict[TopicPartition, int]:
        group = ledger.consumer.consumer_group_metadata()
        done: dict[TopicPartition, Position] = {}  # the ledger in Kafka
        seen: dict[TopicPartition, list[int]] = {}  # [rows, checksum] of this run
        before: dict[TopicPartition, int] = {}  # the rows that earlier runs have written
        written: dict[TopicPartition, int] = {}
        pending = 0

        def commit() -> None:
            reached = {
                tp: Position(rows, f"{checksum:x}", before[tp] + written[tp])
                for tp, (rows, checksum) in seen.items()
                if rows > done[tp].rows
            }
            if not pending:  # rows that are not wanted move the position too
                producer.begin_transaction()
            entries = [_entry(tp, at) for tp, at in reached.items()]
            producer.send_offsets_to_transaction(entries, group, TIMEOUT_SECONDS)
            producer.commit_transaction(TIMEOUT_SECONDS)
            done.update(reached)

        for topic, partition, key, value, timestamp, headers, wanted in _rows(batches):
            tp = TopicPartition(topic, partition)
            if tp not in seen:
                seen[tp], written[tp] = [0, 0], 0
                done.update(ledger.read([tp]))
                before[tp] = done[tp].written
            mine = seen[tp]
            position, checksum, _ = done[tp]
            rows = mine[0] = mine[0] + 1
            mine[1] = zlib.crc32(value or b"", zlib.crc32(key or b"", mine[1]))
            if rows <= position:
                if rows == position and f"{mine[1]:x}" != checksum:
                    raise ConfigError(
                        f"The rows for {tp} up to row {rows:,} differ from those that job {self.job!r} wrote before: "
                        "the input has changed. Delete the topic and begin anew, or publish under another "
                        "job to another topic."
                    )
                continue
            if not wanted:
                continue
            if not pending:
                producer.begin_transaction()
            produce(producer, topic, key, value, partition, timestamp, headers)
            written[tp] += 1
            pending += 1
            if pending == RECORDS_PER_TRANSACTION:
                commit()
                pending = 0
        if any(rows > done[tp].rows for tp, (rows, _) in seen.items()):
            commit()
        return written


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        columns = [batch.column(n).to_pylist() for n in ("topic", "partition", "key", "value", "timestamp")]
        headers = batch.column("headers").to_pylist() if "headers" in batch.schema.names else repeat(None)
        wanted = batch.column("wanted").to_pylist() if "wanted" in batch.schema.names else repeat(True)
        pairs = (h and [(item["key"], item["value"]) for item in h] for h in headers)
        yield from zip(*columns, pairs, wanted, strict=False)
