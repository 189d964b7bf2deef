"""Consumers in assign mode: records arrive as columns, one batch of each partition.

There are two of them. `ColumnConsumer` fills the columns in C, straight from librdkafka's messages (``native/consumer.c``); it is there
where that file could be compiled when streamapp was installed. `MessageConsumer` takes the message objects of
confluent-kafka apart, which costs about five times the CPU for each record and differs in nothing else. `open_consumer` chooses.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as RdTopicPartition

from streamapp.broker.batches import split
from streamapp.broker.librdkafka import COMPILED, pass_on_log, plain_settings
from streamapp.records import RecordBatch, TopicPartition

if COMPILED:
    from streamapp.broker import _native

__all__ = ["ConsumerEvent", "RecordConsumer", "Records", "committed_metadata", "open_consumer"]

Records = list[tuple[TopicPartition, RecordBatch]]
"""Batches that are not empty, each in offset order and of another partition."""


class ConsumerEvent(NamedTuple):
    """What came in place of a record: an error, or the end of a partition (``_PARTITION_EOF``)."""

    partition: TopicPartition
    offset: int
    error: KafkaError


class RecordConsumer(Protocol):
    """Reads the partitions that it is told to. It never joins a group; methods raise `KafkaException`."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Reads exactly these partitions, each from an offset."""

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        """Reads these partitions too."""

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        """Reads these partitions no more."""

    def pause(self, partition: TopicPartition) -> None:
        """Gives no records of a partition until `resume`."""

    def resume(self, partition: TopicPartition) -> None: ...

    def poll(self, most: int, timeout: float) -> tuple[Records, list[ConsumerEvent]]:
        """What has arrived, at most so many records; waits up to ``timeout`` seconds for the first."""

    def committed(
        self, partitions: Collection[TopicPartition], timeout: float
    ) -> dict[TopicPartition, tuple[int, str]]:
        """Offset (negative: there is none) and metadata that the group has committed."""

    def end(self, partition: TopicPartition) -> int:
        """The end of the log as of the last fetch; negative: not known yet."""

    def close(self) -> None: ...


def open_consumer(settings: Mapping[str, Any]) -> RecordConsumer:
    """A consumer with librdkafka's settings; ``logger`` gets what librdkafka logs."""
    plain = plain_settings(settings) if COMPILED else None
    if plain is None:
        return MessageConsumer(settings)  # which takes callbacks in Python, too
    return ColumnConsumer(plain, settings.get("logger") or logging.getLogger(__name__))


class ColumnConsumer:
    """A `RecordConsumer` whose columns are filled in C."""

    def __init__(self, settings: Mapping[str, str], logger: logging.Logger) -> None:
        self._client = _native.Consumer(dict(settings))
        self._logger = logger

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self._client.assign([(*tp, offset) for tp, offset in positions.items()])

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        self._client.incremental_assign([(*tp, offset) for tp, offset in positions.items()])

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        self._client.incremental_unassign([(*tp, 0) for tp in partitions])

    def pause(self, partition: TopicPartition) -> None:
        self._client.pause([(*partition, 0)])

    def resume(self, partition: TopicPartition) -> None:
        self._client.resume([(*partition, 0)])

    def poll(self, most: int, timeout: float) -> tuple[Records, list[ConsumerEvent]]:
        batches, events = self._client.poll(most, timeout)
        pass_on_log(self._client.take_log(), self._logger)
        return (
            [
                (TopicPartition(topic, number), RecordBatch(keys, values, timestamps, offsets, headers))
                for topic, number, keys, values, timestamps, offsets, headers in batches
            ],
            [
                ConsumerEvent(TopicPartition(topic, number), offset, error)
                for topic, number, offset, error in events
            ],
        )

    def committed(
        self, partitions: Collection[TopicPartition], timeout: float
    ) -> dict[TopicPartition, tuple[int, str]]:
        found = self._client.committed([(*tp, 0) for tp in partitions], timeout)
        return {
            TopicPartition(topic, number): (offset, metadata.decode(errors="replace"))
            for topic, number, offset, metadata in found
        }

    def end(self, partition: TopicPartition) -> int:
        return self._client.high_watermark(*partition)

    def close(self) -> None:
        self._client.close()


class MessageConsumer:
    """A `RecordConsumer` on top of confluent-kafka's."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._client = Consumer(dict(settings))

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self._client.assign([RdTopicPartition(*tp, offset) for tp, offset in positions.items()])

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        self._client.incremental_assign([RdTopicPartition(*tp, offset) for tp, offset in positions.items()])

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        self._client.incremental_unassign([RdTopicPartition(*tp) for tp in partitions])

    def pause(self, partition: TopicPartition) -> None:
        self._client.pause([RdTopicPartition(*partition)])

    def resume(self, partition: TopicPartition) -> None:
        self._client.resume([RdTopicPartition(*partition)])

    def poll(self, most: int, timeout: float) -> tuple[Records, list[ConsumerEvent]]:
        first = self._client.poll(timeout)
        if first is None:
            return [], []
        batches, events = split([first, *(self._client.consume(most - 1, 0) if most > 1 else ())])
        return batches, [
            ConsumerEvent(
                TopicPartition(event.topic() or "", event.partition()), event.offset(), event.error()
            )
            for event in events
        ]

    def committed(
        self, partitions: Collection[TopicPartition], timeout: float
    ) -> dict[TopicPartition, tuple[int, str]]:
        found = self._client.committed([RdTopicPartition(*tp) for tp in partitions], timeout=timeout)
        for tp in found:
            if tp.error is not None:
                raise KafkaException(tp.error)
        return {TopicPartition(tp.topic, tp.partition): (tp.offset, committed_metadata(tp)) for tp in found}

    def end(self, partition: TopicPartition) -> int:
        _, high = self._client.get_watermark_offsets(RdTopicPartition(*partition), cached=True)
        return int(high)

    def close(self) -> None:
        self._client.close()


def committed_metadata(committed: RdTopicPartition) -> str:
    """The metadata of a committed offset, and perhaps a few characters behind its end (see `decode_metadata`)."""
    try:
        return committed.metadata or ""
    except UnicodeDecodeError as exc:  # librdkafka gives it without an end, so bytes of something else follow
        return exc.object[: exc.start].decode()
