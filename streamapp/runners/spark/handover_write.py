"""Writes the results of a backfill's stages to Kafka: outputs and changelogs, task by task, each row once."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from streamapp._base import failpoints
from streamapp.broker.refused import REMEDIES, is_refusal
from streamapp.config import StreamsConfig
from streamapp.engine.runner_ports import Position
from streamapp.errors import BrokerError, StreamsError
from streamapp.records import TopicPartition
from streamapp.runners.connection import client_of
from streamapp.runners.spark.frames import CHANGE, RECORD
from streamapp.runners.spark.handover_group import Group, Progress
from streamapp.runners.spark.produce import (
    TIMEOUT_SECONDS,
    TRANSACTION_TIMEOUT_MS,
    produce,
    transactional_producer,
)
from streamapp.runners.spark.progress import Reporter
from streamapp.topology import Plan, Subtopology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["TaskWriter", "compacted_topics", "rows_to_write"]

ROWS_PER_TRANSACTION = 1_000_000
ROWS_PER_REPORT = 1_000

Row = tuple[Any, ...]
"""Topic, partition, key, value, timestamp, headers."""


def compacted_topics(sub: Subtopology) -> dict[str, str]:
    """Changelog -> store, for stores that need only the last record of each key."""
    plain = {spec.name for spec in sub.stores if spec.kind.latest_is_enough}
    return {topic.name: store for store, topic in sub.changelog_topics.items() if store in plain}


def rows_to_write(frame: DataFrame, plan: Plan, sub: Subtopology) -> DataFrame:
    """The outputs of a stage, then its changelogs, ready for `TaskWriter`.

    Records of repartition topics are left out: other stages have processed them.
    """
    from pyspark.sql import functions as F

    inside = [topic.name for s in plan.subtopologies for topic in s.repartition_topics]
    kind, name = F.col("kind"), F.col("name")
    output = (kind == RECORD) & ~name.isin(inside)
    by_key = F.when((kind == CHANGE) & name.isin(list(compacted_topics(sub))), F.col("key"))
    return frame.where(output | (kind == CHANGE)).sortWithinPartitions(kind, name, by_key, "seq")


@dataclass(frozen=True)
class TaskWriter:
    """Writes the rows of one task in order, in an executor. The number of the task is the number of Spark's partition.

    Each transaction also commits the number of written rows and their checksum to the application's group, as metadata
    of the task's first input. A second run continues behind these rows.
    """

    config: StreamsConfig
    job: str
    subtopology: int
    first_inputs: Mapping[int, TopicPartition]
    compacted: Mapping[str, str]
    """`compacted_topics` of the sub-topology."""
    reporter: Reporter | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        try:
            rows, written = self.write(context.partitionId(), batches)
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            # No exception handler is asked, because the source record of a result is not known any more.
            first = f"{REMEDIES[reason.code()]}. Then run" if is_refusal(reason) else "Run"
            raise BrokerError(
                f"Kafka refused the results of task {self.subtopology}_{context.partitionId()}: {reason.str()}. "
                f"{first} the backfill again: it continues after the last commit"
            ) from error
        yield pa.RecordBatch.from_pydict({"rows": [rows], "written": [written]})

    def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> tuple[int, int]:
        """Writes the rows of ``task`` to Kafka, except the rows that an interrupted run has written.

        Changelog rows that compaction would remove anyway are left out, and do not count. Returns the number of all
        rows, and the number of rows that this call has written. Raises `StreamsError` if the rows differ from those of
        the interrupted run, or if another run has ended the backfill.
        """
        with transactional_producer(self._client(task)) as producer:
            return self._write(task, producer, batches)

    def _write(self, task: int, producer: Producer, batches: Iterator[pa.RecordBatch]) -> tuple[int, int]:
        first = self.first_inputs[task]
        group = Group(self.config)
        start, done = self._so_far(group, first)
        with closing(Consumer({**client_of(self.config), "group.id": group.name})) as consumer:
            member = consumer.consumer_group_metadata()
        tell = self.reporter.start(f"{self.subtopology}_{task}") if self.reporter else None
        rows = checksum = 0
        position = done.rows

        def commit() -> None:
            progress = msgspec.structs.replace(done, rows=rows, checksum=checksum)
            entry = KafkaPartition(*first, start.offset, metadata=progress.to_metadata())
            producer.send_offsets_to_transaction([entry], member, TIMEOUT_SECONDS)
            producer.flush()
            failpoints.hit("backfill-rows-sent")
            producer.commit_transaction(TRANSACTION_TIMEOUT_MS / 1000)
            failpoints.hit("backfill-rows-committed")

        for topic, partition, key, value, timestamp, headers in self._wanted(_rows(batches), done.logs):
            rows += 1
            if tell and not rows % ROWS_PER_REPORT:
                tell(rows)
            checksum = zlib.crc32(value or b"", zlib.crc32(key or b"", checksum))
            if rows <= done.rows:
                if rows == done.rows and checksum != done.checksum:
                    raise self._differs(task, done)
                continue
            if rows == position + 1:
                producer.begin_transaction()
            produce(producer, topic, key, value, partition, timestamp, headers)
            if rows - position == ROWS_PER_TRANSACTION:
                commit()
                position = rows
        if rows < done.rows:
            raise self._differs(task, done)
        if rows > position:
            commit()
        return rows, max(0, rows - done.rows)

    def _differs(self, task: int, done: Progress) -> StreamsError:
        return StreamsError(
            f"the results of task {self.subtopology}_{task} up to result {done.rows:,} are not those of the "
            "interrupted backfill. Functions of the topology have changed, or do not give the same for "
            "the same input. Repair these functions (no clock, no random numbers), delete the "
            "application's internal topics and group, and begin anew"
        )

    def _client(self, task: int) -> dict[str, Any]:
        return {
            **client_of(self.config),
            "transactional.id": f"{self.config.application_id}-backfill-{self.subtopology}_{task}",
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            # No compression: readers such as aiokafka need libraries for most codecs.
            "linger.ms": 50,
            "batch.num.messages": 10_000,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 200_000,
            "delivery.report.only.error": True,
        }

    def _so_far(self, group: Group, first: TopicPartition) -> tuple[Position, Progress]:
        entry = group.read([first]).get(first, Position(0))
        progress = Progress.of(entry.metadata)
        if progress is None or progress.job != self.job:
            raise StreamsError(
                f"the group {group.name} does not say any more that this backfill writes: another run has ended the "
                "backfill, or the group's offsets were changed. Find out which, before another run"
            )
        return entry, progress

    def _wanted(self, rows: Iterator[Row], logs: Collection[str]) -> Iterator[Row]:
        """Leaves out rows of `compacted_topics` that compaction would remove anyway, because writing them takes time.

        All rows of a key but the last one are left out. A deletion is also left out if the changelog had no records
        before the backfill.
        """
        compacted = self.compacted
        pointless = set(compacted.values()) - set(logs)
        held: Row | None = None
        for row in rows:
            if held is not None and not (row[2] == held[2] and row[0] == held[0] and row[0] in compacted):
                yield held
            held = None if row[3] is None and compacted.get(row[0]) in pointless else row
        if held is not None:
            yield held


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        columns = [batch.column(n).to_pylist() for n in ("name", "task", "key", "value", "timestamp")]
        headers = batch.column("headers")
        pairs: Any = repeat(None)
        if headers.null_count < len(headers):
            pairs = ([(h["key"], h["value"]) for h in some or ()] for some in headers.to_pylist())
        yield from zip(*columns, pairs, strict=False)
