"""What is in Kafka, read from outside."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, TopicPartition

from streamapp.records import TopicPartition as Partition
from streamapp.runners.spark.batch_source import KafkaRange

__all__ = ["read"]

Bytes = tuple[bytes | None, bytes | None, int]


def read(servers: str, topic: str) -> list[Bytes]:
    """Key, value and timestamp of all committed records of a topic, partition by partition in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    partitions = list(consumer.list_topics(topic).topics[topic].partitions)
    # A commit returns before all partitions know of it.
    unsettled = KafkaRange({"bootstrap.servers": servers}).settle(
        [Partition(topic, p) for p in partitions], 30
    )
    assert not unsettled
    found: dict[int, list[Bytes]] = {p: [] for p in partitions}
    open_ = set(partitions)
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    while open_:
        message = consumer.poll(10)
        assert message is not None
        if message.error() is None:
            found[message.partition()].append((message.key(), message.value(), message.timestamp()[1]))
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            open_.discard(message.partition())
    consumer.close()
    return [record for p in partitions for record in found[p]]
