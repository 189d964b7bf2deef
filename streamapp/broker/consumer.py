"""Consumers without a group, for partitions that the caller names. Records arrive as columns, in batches of a
partition.

`ColumnConsumer` fills the columns in C, from librdkafka's messages. The C code (``native/consumer.c``) has to be
compiled when streamapp is installed, and no setting may be a callback in Python. Otherwise `MessageConsumer` fills the
columns from confluent-kafka's message objects, which takes about five times the CPU time for each record. Besides, a
`poll` of `MessageConsumer` cannot be woken.

`open_consumer` (`lasting_consumer.py`) chooses one of the two.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as RdTopicPartition

from streamapp._base.counted import counted
from streamapp.broker.batches import split
from streamapp.broker.leader_epochs import FetchedBatch
from streamapp.broker.librdkafka import COMPILED, pass_on_log
from streamapp.broker.requests import NO_ANSWER
from streamapp.errors import ConfigError
from streamapp.records import RecordBatch, TopicPartition

if COMPILED:
    from streamapp.broker import _native

__all__ = [
    "READ_RIGHTS",
    "Client",
    "ColumnConsumer",
    "ConsumerEvent",
    "MessageConsumer",
    "RecordConsumer",
    "Records",
    "check_size",
    "committed_metadata",
    "goes_away",
    "lost_at_end",
    "no_right_to_group",
    "passes",
]

_logger = logging.getLogger(__name__)
_TOO_LARGE = re.compile(r"Invalid response size (\d+) \(0\.\.(\d+)\): .* in state UP\)")
_LOST = re.compile(
    r"(?:at|to) offset (\d+) .*broker end offset is (-?\d+).*Partition log truncation detected"
)
_PASSING = (
    KafkaError.UNKNOWN,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    *NO_ANSWER,
)
"""The errors after which librdkafka reads on. `KafkaError.retriable` is False for every error of a consumer."""

READ_RIGHTS = {
    KafkaError.GROUP_AUTHORIZATION_FAILED: "Grant this client READ on the group",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Grant this client READ on the topic",
}
"""The rights of the members of a group, by the error that brokers give without the right."""

Records = list[tuple[TopicPartition, RecordBatch]]
"""Batches with records, at most one of each partition, each in the order of offsets."""


class ConsumerEvent(NamedTuple):
    """An event in place of a record: an error, or the end of a partition (``_PARTITION_EOF``)."""

    partition: TopicPartition
    offset: int
    error: KafkaError


class RecordConsumer(Protocol):
    """Reads the partitions that the caller names, and never joins a group. Methods raise `KafkaException`."""

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        """Stops reading these partitions."""

    def pause(self, partition: TopicPartition) -> None:
        """Fetches no records of a partition until `resume`."""

    def resume(self, partition: TopicPartition) -> None: ...

    def poll(self, most: int, timeout: float) -> tuple[Records, list[ConsumerEvent]]:
        """Returns at most ``most`` records that have arrived; waits up to ``timeout`` seconds for the first record."""

    def wake(self) -> None:
        """Ends the wait of the running `poll`, or of the next `poll`; other threads call this method.

        Without the C code, this method has no effect: confluent-kafka's consumer cannot be woken.
        """

    def committed(
        self, partitions: Collection[TopicPartition], timeout: float
    ) -> dict[TopicPartition, tuple[int, str]]:
        """The offset (negative: no commit) and the metadata that the group has committed for each partition."""

    def end(self, partition: TopicPartition) -> int:
        """The offset of the end of the log at the time of the last fetch. Negative: not known yet."""

    def close(self) -> None: ...


class Client(RecordConsumer, Protocol):
    """A consumer that reports lost connections to all brokers, and reads chosen partitions after the others."""

    def assign(self, positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]) -> None:
        """Reads exactly these partitions, each from an offset.

        ``epochs`` has the leader epoch of the record before the offset, if known. If the leader's log has lost this
        record, an event with the error `lost_at_end` comes, and no record.
        """

    def add(self, positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]) -> None:
        """Reads these partitions too."""

    def take_lost(self) -> bool:
        """True if no broker could be reached at some time since the last call of this method."""

    def defer(self, partitions: Collection[TopicPartition], most: int) -> None:
        """From this call on, `poll` gives the records of these (deferred) partitions after the records of all other
        partitions.

        A poll gives at most ``most`` records of deferred partitions. If other partitions have enough records to fill
        the poll, a tenth of ``most`` is still kept for deferred partitions.

        The caller repeats `defer` for some seconds after each assignment. librdkafka may forget the deferral of a
        partition that was given up and assigned again; records of the partition then wait for the next `defer`.
        confluent-kafka's consumer cannot defer partitions: `MessageConsumer` gives records in
        the order of their arrival.
        """


class ColumnConsumer:
    """A `Client` whose columns are filled in C."""

    def __init__(self, settings: Mapping[str, str], logger: logging.Logger) -> None:
        self._client = _native.Consumer(dict(settings))
        self._logger = logger

    def assign(self, positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]) -> None:
        self._client.assign([(*tp, offset, epochs.get(tp, -1)) for tp, offset in positions.items()])

    def add(self, positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]) -> None:
        self._client.incremental_assign(
            [(*tp, offset, epochs.get(tp, -1)) for tp, offset in positions.items()]
        )

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        self._client.incremental_unassign([(*tp, 0) for tp in partitions])

    def pause(self, partition: TopicPartition) -> None:
        self._client.pause([(*partition, 0)])

    def resume(self, partition: TopicPartition) -> None:
        self._client.resume([(*partition, 0)])

    def poll(self, most: int, timeout: float) -> tuple[Records, list[ConsumerEvent]]:
        batches, events = self._client.poll(most, timeout)
        lines = self._client.take_log()
        pass_on_log(lines, self._logger)
        for _, line in lines:
            check_size(line)
        return (
            [
                (TopicPartition(topic, number), FetchedBatch.of(epochs, *columns))
                for topic, number, *columns, epochs in batches
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

    def defer(self, partitions: Collection[TopicPartition], most: int) -> None:
        self._client.defer([(*tp, 0) for tp in partitions], most)

    def close(self) -> None:
        self._client.close()


class MessageConsumer:
    """A `Client` on top of confluent-kafka's consumer."""

    def __init__(self, settings: Mapping[str, Any], logger: logging.Logger = _logger) -> None:
        self._lost = False
        self._said = ""
        theirs = settings.get("error_cb")

        def on_error(error: KafkaError) -> None:
            self._lost |= error.code() == KafkaError._ALL_BROKERS_DOWN
            if error.code() == KafkaError._BAD_MSG:
                self._said = error.str()
            if theirs is None:
                logger.warning("%s", error.str())
            else:
                theirs(error)

        self._client = Consumer({**settings, "error_cb": on_error})

    def assign(self, positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]) -> None:
        self._client.assign(_starts(positions, epochs))

    def add(self, positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]) -> None:
        self._client.incremental_assign(_starts(positions, epochs))

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        self._client.incremental_unassign([RdTopicPartition(*tp) for tp in partitions])

    def pause(self, partition: TopicPartition) -> None:
        self._client.pause([RdTopicPartition(*partition)])

    def resume(self, partition: TopicPartition) -> None:
        self._client.resume([RdTopicPartition(*partition)])

    def poll(self, most: int, timeout: float) -> tuple[Records, list[ConsumerEvent]]:
        first = self._client.poll(timeout)
        check_size(self._said)
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

    def defer(self, partitions: Collection[TopicPartition], most: int) -> None: ...

    def close(self) -> None:
        self._client.close()


def _starts(
    positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]
) -> list[RdTopicPartition]:
    return [
        RdTopicPartition(*tp, offset, leader_epoch=epochs[tp])
        if tp in epochs
        else RdTopicPartition(*tp, offset)
        for tp, offset in positions.items()
    ]


def check_size(said: str) -> None:
    """Raises `ConfigError` if librdkafka says that an answer of brokers is larger than ``receive.message.max.bytes``.

    librdkafka closes the connection then, and asks again without end. A limit below the size of a record is the cause.
    Nothing is raised for a connection before the state UP. Its cause is another one: brokers that speak TLS, for
    example.

    >>> check_size("Receive failed: Disconnected (after 4ms in state UP)")
    """
    found = _TOO_LARGE.search(said)
    if found is not None:
        raise ConfigError(
            f"a record cannot be read: brokers answer with {counted(int(found[1]), 'byte')}, and "
            f"receive.message.max.bytes in client_properties is {found[2]}. Raise receive.message.max.bytes above "
            "max.message.bytes of all topics, by 1,000 or more"
        )


def no_right_to_group(error: KafkaError) -> bool:
    """True if the client has no right to its group. A consumer that never joins its group reads on after this error.

    librdkafka needs a ``group.id`` for every consumer, and asks brokers for the group's coordinator.
    """
    return bool(error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED)


def goes_away(error: KafkaError) -> bool:
    """True for an error that passes by itself, for example because a broker is away. A consumer may read on, and loses
    no record."""
    return error.code() in _PASSING and not error.fatal()


def lost_at_end(error: KafkaError) -> range | None:
    """The offsets of the records that a log has lost at its end, although they were read.

    After an unclean leader election, later records get these offsets once more. librdkafka compares leader epochs, and
    notices the loss even if the log is as long as before. A log without any epoch up to that of the reader has lost all
    records. None: the error tells of no such loss.

    >>> text = "Partition log truncation detected at offset 420 (leader epoch 0): broker end offset is 300 (offset "
    >>> text += "leader epoch 0). Reset to INVALID.: Local: Partition log truncation detected (broker 3)"
    >>> lost_at_end(KafkaError(KafkaError._AUTO_OFFSET_RESET, text))
    range(300, 420)
    >>> text = "No epoch found less or equal to offset 50 (leader epoch 9): broker end offset is -1 (offset leader "
    >>> text += "epoch -1). Reset using configured policy.: Local: Partition log truncation detected (broker 2)"
    >>> lost_at_end(KafkaError(KafkaError._AUTO_OFFSET_RESET, text))
    range(0, 50)
    >>> lost_at_end(KafkaError(KafkaError._AUTO_OFFSET_RESET, "fetch failed: Broker: Offset out of range"))
    """
    found = _LOST.search(error.str())
    return None if found is None else range(max(0, int(found[2])), int(found[1]))


def passes(error: KafkaError) -> bool:
    """As `goes_away`, for a consumer that never joins its group. Such a consumer needs no right to the group,
    either."""
    return no_right_to_group(error) or goes_away(error)


def committed_metadata(committed: RdTopicPartition) -> str:
    """The metadata of a committed offset. confluent-kafka may read a few characters too many (see
    `decode_metadata`)."""
    try:
        return committed.metadata or ""
    except UnicodeDecodeError as exc:  # librdkafka's metadata has no end, so bytes of other data follow
        return exc.object[: exc.start].decode()
