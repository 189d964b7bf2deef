"""The last records of a topic, as bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from confluent_kafka import Consumer

from streamapp.broker.admin import KafkaAdmin
from streamapp.broker.bounded_reads import TO_THE_END, read_to_end
from streamapp.broker.settings import KafkaSettings
from streamapp.records import Headers, TopicPartition

__all__ = ["RawRecord", "last_records"]

_SECONDS = 30.0


class RawRecord(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def last_records(settings: KafkaSettings, topic: str, count: int) -> Iterator[RawRecord]:
    """The committed records among the last ``count`` offsets of each partition; none if there is no such topic.

    Raises `BrokerError` when brokers do not answer.
    """
    admin = KafkaAdmin(settings)
    partitions = [TopicPartition(topic, n) for n in range(admin.partition_counts([topic]).get(topic, 0))]
    starts, ends = admin.log_start_offsets(partitions), admin.log_end_offsets(partitions)
    consumer = Consumer(
        {
            **settings.librdkafka(),
            "client.id": "streamapp",
            "group.id": "streamapp-last-records",
            **TO_THE_END,
            "isolation.level": "read_committed",
        }
    )
    try:
        for tp in partitions:
            for message in read_to_end(consumer, {tp: max(starts[tp], ends[tp] - count)}, _SECONDS, ends):
                headers = tuple(message.headers() or ())
                yield RawRecord(tp.partition, message.offset(), message.key(), message.value(), headers)
    finally:
        consumer.close()
