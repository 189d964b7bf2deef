"""Reads topics to their ends: results of runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from streamapp.broker import KafkaSettings

__all__ = ["records"]


def records(kafka: KafkaSettings, topic: str) -> Iterator[tuple[bytes, Any]]:
    """Key and value of all committed records, in the order of their partition."""
    consumer = Consumer(
        {
            **kafka.librdkafka(),
            "group.id": "bench-check",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 5,
        }
    )
    partitions = set(consumer.list_topics(topic).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    while partitions:
        for message in consumer.consume(10_000, 1.0):
            if message.error() is None:
                yield message.key(), message.value()
            elif message.error().code() == KafkaError._PARTITION_EOF:
                partitions.discard(message.partition())
    consumer.close()
