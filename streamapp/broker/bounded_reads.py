"""Readers that end: at the next record, or at the present ends of their partitions. They never join their group."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as RdTopicPartition
from confluent_kafka.admin import OffsetSpec

from streamapp.broker.consumer import passes
from streamapp.broker.librdkafka import opening
from streamapp.broker.requests import LastingAdmin, broker_error, list_offsets
from streamapp.errors import BrokerError
from streamapp.records import TopicPartition

__all__ = ["TO_THE_END", "next_message", "read_to_end", "with_records"]

_POLL_SECONDS = 0.5
"""Between two polls, Ctrl-C can end a command."""

TO_THE_END: Mapping[str, Any] = {
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 10,
}
"""The settings of a client that reads partitions up to their present ends, and then is done.

librdkafka tells the end of a partition after a fetch without records. Brokers answer such a fetch after
``fetch.wait.max.ms``, by default half a second. A client that reads on for a long time needs the default, because it
would otherwise ask a hundred times a second.
"""

_READ = {KafkaError.TOPIC_AUTHORIZATION_FAILED: "Grant this client READ on the topic"}


def next_message(consumer: Consumer, what: str, seconds: float) -> Message:
    """The next record of a consumer that never joins its group, or the end of a partition (``_PARTITION_EOF``).

    Reads on after errors that pass by themselves (`passes`), for example of a broker that is away. Raises `BrokerError`
    for any other error, and if neither a record nor the end comes within ``seconds``. The texts of these errors begin
    with ``what``, the name of the topic or partition.
    """
    deadline = time.monotonic() + seconds
    why = "brokers have not answered"
    while time.monotonic() < deadline:
        message = consumer.poll(_POLL_SECONDS)
        error = None if message is None else message.error()
        if message is not None and (error is None or error.code() == KafkaError._PARTITION_EOF):
            return message
        if error is not None:
            why = error.str()
            if not passes(error):
                raise broker_error(f"{what} cannot be read: {why}", error, _READ)
    raise BrokerError(f"{what} cannot be read: nothing has come for {seconds:g} s ({why})")


def read_to_end(
    consumer: Consumer,
    starts: Mapping[TopicPartition, int],
    seconds: float,
    ends: Mapping[TopicPartition, int] | None = None,
) -> Iterator[Message]:
    """The records of partitions from the offsets ``starts`` to their present ends, in the order of their arrival.

    ``ends`` has an offset for each partition, before which the read of this partition ends. So a read ends although
    others write into the partitions. The consumer has the settings `TO_THE_END`. The function gives the consumer its
    partitions, and takes each partition away at its end, because brokers would be asked for further records. Errors are
    those of `next_message`: each record or end has to come within ``seconds``.
    """
    waiting, what = set(starts), ", ".join(sorted({tp.topic for tp in starts}))
    consumer.assign([RdTopicPartition(*tp, offset) for tp, offset in starts.items()])
    while waiting:
        message = next_message(consumer, what, seconds)
        tp, offset = TopicPartition(message.topic(), message.partition()), message.offset()
        end = math.inf if ends is None else ends[tp]
        at_end = message.error() is not None
        if tp in waiting and (at_end or offset + 1 >= end):
            waiting.discard(tp)
            consumer.incremental_unassign([RdTopicPartition(*tp)])
        if not at_end and offset < end:
            yield message


def with_records(
    settings: Mapping[str, Any],
    admin: LastingAdmin,
    starts: Mapping[TopicPartition, int],
    seconds: float,
) -> Iterator[TopicPartition]:
    """The partitions with a committed record at, or behind, their offset in ``starts``.

    The end of a log may be the marker of a transaction, so the reader reads up to the first record. ``settings`` are
    those of a consumer, with a ``group.id``. Errors are those of `list_offsets` and of `read_to_end`.

        with_rows = next(with_records(settings, admin, {TopicPartition("shop-totals-changelog", 0): 0}, 30), None)
    """
    limits: dict[str, Any] = {"seconds": seconds, "unknown_seconds": seconds, "remedies": _READ}
    first = list_offsets(admin, starts, OffsetSpec.earliest(), **limits)
    ends = list_offsets(admin, starts, OffsetSpec.latest(), **limits)
    behind = {tp: max(offset, first[tp]) for tp, offset in starts.items() if ends[tp] > offset}
    if not behind:
        return
    committed = {**settings, **TO_THE_END, "auto.offset.reset": "error", "isolation.level": "read_committed"}
    with opening(committed) as current, closing(Consumer(current)) as consumer:
        for tp, offset in behind.items():
            if next(read_to_end(consumer, {tp: offset}, seconds), None) is not None:
                yield tp
