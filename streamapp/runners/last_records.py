"""The last records of a topic, as bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from streamapp.broker.admin import KafkaAdmin
from streamapp.broker.consumer import no_right_to_group
from streamapp.broker.settings import KafkaSettings
from streamapp.errors import BrokerError
from streamapp.records import Headers

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
    partitions = KafkaAdmin(settings).partition_counts([topic]).get(topic, 0)
    consumer = Consumer(
        {
            **settings.librdkafka(),
            "client.id": "streamapp",
            "group.id": "streamapp-last-records",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    try:
        for partition in range(partitions):
            low, high = _watermarks(consumer, topic, partition)
            consumer.assign([TopicPartition(topic, partition, max(low, high - count))])
            while True:
                message = consumer.poll(_SECONDS)
                error = None if message is None else message.error()
                if error is not None and no_right_to_group(error):
                    continue
                if message is None or (error is not None and error.code() != KafkaError._PARTITION_EOF):
                    raise BrokerError(
                        f"{topic}-{partition} cannot be read: {error.str() if error else 'no answer'}"
                    )
                if error is not None:
                    break
                headers = tuple(message.headers() or ())
                yield RawRecord(partition, message.offset(), message.key(), message.value(), headers)
    finally:
        consumer.close()


def _watermarks(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_SECONDS)
    except KafkaException as error:
        raise BrokerError(f"{topic}-{partition} cannot be read: {error.args[0].str()}") from error
    return low, high
