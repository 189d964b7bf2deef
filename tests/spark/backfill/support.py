"""What is in Kafka, read from outside."""

from __future__ import annotations

from contextlib import closing

from streamapp.records import TopicPartition as Partition
from streamapp.runners.spark.batch_source import KafkaRange

from ...topic_reader import TopicReader

__all__ = ["read"]

Bytes = tuple[bytes | None, bytes | None, int]


def read(servers: str, topic: str) -> list[Bytes]:
    """Key, value and timestamp of all committed records of a topic, partition by partition in order."""
    with closing(TopicReader(servers)) as reader:
        partitions = [Partition(topic, number) for number in reader.partitions(topic)]
        # A commit returns before all partitions know of it.
        unsettled = KafkaRange({"bootstrap.servers": servers}).settle(partitions, 30)
        assert not unsettled
        records = sorted(reader.read(topic), key=lambda message: message.partition() or 0)
    return [(message.key(), message.value(), message.timestamp()[1]) for message in records]
