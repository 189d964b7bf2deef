"""Consumers in assign mode: records arrive as columns, one batch of each partition.

There are two of them. `ColumnConsumer` fills the columns in C, straight from librdkafka's messages (``native/consumer.c``); it is there
where that file could be compiled when streamapp was installed. `MessageConsumer` takes the message objects of
confluent-kafka apart, which costs about five times the CPU for each record and differs in nothing else. `open_consumer` chooses,
and has it outlast brokers that were gone (`LastingConsumer`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as RdTopicPartition

from streamapp.broker.batches import split
from streamapp.broker.certificates import CertificateFiles
from streamapp.broker.librdkafka import COMPILED, opening, pass_on_log, plain_settings
from streamapp.records import RecordBatch, TopicPartition

if COMPILED:
    from streamapp.broker import _native

__all__ = ["ConsumerEvent", "RecordConsumer", "Records", "committed_metadata", "open_consumer"]

_logger = logging.getLogger(__name__)

REOPEN_SECONDS = 5.0
"""So long librdkafka may try by itself to reach a broker again."""

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

    def wake(self) -> None:
        """Other threads call this: a `poll` that waits, or else the next `poll`, does not wait for a first record.

        confluent-kafka's consumer cannot be woken: a poll of `MessageConsumer` waits to its end.
        """

    def committed(
        self, partitions: Collection[TopicPartition], timeout: float
    ) -> dict[TopicPartition, tuple[int, str]]:
        """Offset (negative: there is none) and metadata that the group has committed."""

    def end(self, partition: TopicPartition) -> int:
        """The end of the log as of the last fetch; negative: not known yet."""

    def close(self) -> None: ...


class Client(RecordConsumer, Protocol):
    """A consumer that knows when it has lost sight of all brokers."""

    def take_lost(self) -> bool:
        """Whether no broker could be reached at some time since the last call."""


def open_consumer(settings: Mapping[str, Any]) -> RecordConsumer:
    """A consumer with librdkafka's settings; ``logger`` gets what librdkafka logs."""
    plain = plain_settings(settings) if COMPILED else None
    logger = settings.get("logger") or _logger

    def open_client() -> Client:
        if plain is None:
            return MessageConsumer(settings, logger)  # which takes callbacks in Python, too
        return ColumnConsumer(plain, logger)

    with opening(settings):
        return LastingConsumer(open_client, CertificateFiles(settings))


class LastingConsumer:
    """A consumer whose client is opened anew some seconds after all brokers were out of reach, or when the certificates in
    its files have changed, and goes on where it was.

    A broker that has stood still answers at first that there are no brokers. From then on librdkafka (2.10 to 2.16 at least)
    may know none, and never look for one again (librdkafka#5301).
    """

    def __init__(self, open_client: Callable[[], Client], files: CertificateFiles | None = None) -> None:
        self._open = open_client
        self._files = CertificateFiles({}) if files is None else files
        self._client = open_client()
        self._next: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._reopen_at: float | None = None

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self._next = dict(positions)
        self._paused.clear()
        self._client.assign(positions)

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        self._next.update(positions)
        self._client.add(positions)

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self._next.pop(partition, None)
        self._paused.difference_update(partitions)
        self._client.remove(partitions)

    def pause(self, partition: TopicPartition) -> None:
        self._paused.add(partition)
        self._client.pause(partition)

    def resume(self, partition: TopicPartition) -> None:
        self._paused.discard(partition)
        self._client.resume(partition)

    def poll(self, most: int, timeout: float) -> tuple[Records, list[ConsumerEvent]]:
        found, events = self._client.poll(most, timeout)
        for partition, batch in found:
            if partition in self._next:
                self._next[partition] = batch.offsets[-1] + 1
        for event in events:
            if event.error.code() == KafkaError._PARTITION_EOF and event.partition in self._next:
                # It may be older than the records that came with it.
                self._next[event.partition] = max(self._next[event.partition], event.offset)
        if self._client.take_lost() and self._reopen_at is None:
            self._reopen_at = time.monotonic() + REOPEN_SECONDS
        if self._reopen_at is not None and time.monotonic() >= self._reopen_at:
            _logger.info("all brokers were out of reach: a consumer is opened anew")
            self._reopen()
        elif self._files.changed():
            self._reopen()
        return found, events

    def wake(self) -> None:
        self._client.wake()

    def _reopen(self) -> None:
        # confluent-kafka's takes a whole session (45 s) for it when it knows no broker.
        threading.Thread(target=self._client.close, daemon=True).start()
        self._client = self._open()
        self._client.assign(self._next)
        for partition in self._paused:
            self._client.pause(partition)
        self._reopen_at = None

    def committed(
        self, partitions: Collection[TopicPartition], timeout: float
    ) -> dict[TopicPartition, tuple[int, str]]:
        return self._client.committed(partitions, timeout)

    def end(self, partition: TopicPartition) -> int:
        return self._client.end(partition)

    def close(self) -> None:
        self._client.close()


class ColumnConsumer:
    """A `Client` whose columns are filled in C."""

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

    def wake(self) -> None:
        self._client.wake()

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

    def take_lost(self) -> bool:
        return self._client.take_lost()

    def close(self) -> None:
        self._client.close()


class MessageConsumer:
    """A `Client` on top of confluent-kafka's."""

    def __init__(self, settings: Mapping[str, Any], logger: logging.Logger = _logger) -> None:
        self._lost = False
        theirs = settings.get("error_cb")

        def on_error(error: KafkaError) -> None:
            self._lost |= error.code() == KafkaError._ALL_BROKERS_DOWN
            if theirs is None:
                logger.warning("%s", error.str())
            else:
                theirs(error)

        self._client = Consumer({**settings, "error_cb": on_error})

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

    def wake(self) -> None: ...

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

    def take_lost(self) -> bool:
        lost, self._lost = self._lost, False
        return lost

    def close(self) -> None:
        self._client.close()


def committed_metadata(committed: RdTopicPartition) -> str:
    """The metadata of a committed offset, and perhaps a few characters behind its end (see `decode_metadata`)."""
    try:
        return committed.metadata or ""
    except UnicodeDecodeError as exc:  # librdkafka gives it without an end, so bytes of something else follow
        return exc.object[: exc.start].decode()
