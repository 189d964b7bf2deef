"""A topic as a DataFrame, and a DataFrame as a new topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from confluent_kafka import KafkaException

from streamapp.errors import BrokerError
from streamapp.records import TopicPartition
from streamapp.runners.spark.batch_source import KafkaRange, KafkaReader, Ranges
from streamapp.runners.spark.produce import TRANSACTION_TIMEOUT_MS, produce, transactional_producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["TopicWriter", "read_topic"]


@dataclass(frozen=True)
class TopicWriter:
    """Writes the rows of each Spark partition, in their order, in one transaction.

    The rows of Spark's partition p are those of the topic's partition p. Spark may run a task again after its commit,
    if an executor ends before the driver has the result. Such a task finds the records, and writes nothing.
    """

    client: Mapping[str, Any]
    topic: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        try:
            written = self.write(context.partitionId(), batches)
        except KafkaException as error:
            raise BrokerError(
                f"Kafka refused records for {self.topic}: {error.args[0].str()}. Delete the topic and run this again"
            ) from error
        yield pa.RecordBatch.from_pydict({"written": [written]})

    def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> int:
        settings = {
            **self.client,
            "transactional.id": f"{self.topic}-replay-{task}",
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            # Not compressed: readers such as aiokafka need libraries for most codecs.
            "linger.ms": 50,
            "delivery.report.only.error": True,
        }
        written = 0
        with transactional_producer(settings) as producer:  # ends the transactions of earlier attempts
            if before := self._records(task):
                return before
            producer.begin_transaction()
            for batch in batches:
                names = ("key", "value", "partition", "timestamp", "headers")
                for key, value, partition, timestamp, headers in zip(
                    *(batch.column(name).to_pylist() for name in names), strict=True
                ):
                    pairs = [(item["key"], item["value"]) for item in headers or ()]
                    produce(producer, self.topic, key, value, partition, timestamp, pairs)
                    written += 1
            producer.commit_transaction(TRANSACTION_TIMEOUT_MS / 1000)
        return written

    def _records(self, partition: int) -> int:
        """The number of committed records in a partition of the topic."""
        tp = TopicPartition(self.topic, partition)
        kafka, found = KafkaRange(self.client), 0
        if partition >= kafka.partition_counts().get(self.topic, 0):
            return 0
        with closing(KafkaReader(self.client, tp, *kafka.committed([tp])[tp])) as reader:
            while (batch := reader.read()) is not None:
                found += len(batch.offsets)
        return found


def read_topic(spark: SparkSession, client: Mapping[str, Any], ranges: Ranges) -> DataFrame:
    """The records of one topic: partition, key, value, timestamp."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        for tp, span in [item for item in ranges.items() if item[0].partition in numbers]:
            with closing(KafkaReader(client, tp, *span)) as reader:
                while (found := reader.read()) is not None:
                    columns = [
                        [tp.partition] * len(found.offsets),
                        found.keys,
                        found.values,
                        found.timestamps,
                    ]
                    types = (pa.int32(), pa.binary(), pa.binary(), pa.int64())
                    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
                    yield pa.RecordBatch.from_arrays(arrays, ["partition", "key", "value", "timestamp"])

    schema = "partition int, key binary, value binary, timestamp bigint"
    return spark.range(0, len(ranges), 1, len(ranges)).toDF("number").mapInArrow(read, schema)
