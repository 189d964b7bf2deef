"""Turns confluent-kafka's messages into the engine's columns, for `MessageConsumer`.

For speed, this is the only step that loops over single messages in Python before the engine gets the records.
"""

from __future__ import annotations

from bisect import bisect_right

from confluent_kafka import Message

from streamapp.broker.leader_epochs import FetchedBatch
from streamapp.records import RecordBatch, TopicPartition

__all__ = ["split"]


def _origin(message: Message) -> tuple[str, int]:
    return message.topic(), message.partition()


def _epochs(run: list[Message]) -> list[tuple[int, int]]:
    """The changes of the leader epoch (`FetchedBatch`)."""
    epochs = [-1 if epoch is None else epoch for epoch in map(Message.leader_epoch, run)]
    return [(i, epoch) for i, epoch in enumerate(epochs) if i == 0 or epoch != epochs[i - 1]]


def split(messages: list[Message]) -> tuple[list[tuple[TopicPartition, RecordBatch]], list[Message]]:
    """The records of each partition as columns, in the order of offsets, and the messages that are no records.

    Messages that are no records are errors, and ends of partitions.
    """
    if not messages:
        return [], []
    events: list[Message] = []
    if any(map(Message.error, messages)):
        events = [m for m in messages if m.error() is not None]
        messages = [m for m in messages if m.error() is None]
    # The messages come in runs of one partition, so sorting is quick. Sorting keeps the order within a partition.
    messages.sort(key=Message.partition)
    if len(set(map(Message.topic, messages))) > 1:
        messages.sort(key=Message.topic)
    batches: list[tuple[TopicPartition, RecordBatch]] = []
    start = 0
    while start < len(messages):
        origin = _origin(messages[start])
        end = bisect_right(messages, origin, start, key=_origin)
        run = messages if end - start == len(messages) else messages[start:end]
        batches.append(
            (
                TopicPartition(*origin),
                FetchedBatch.of(
                    _epochs(run),
                    list(map(Message.key, run)),
                    list(map(Message.value, run)),
                    [time for _, time in map(Message.timestamp, run)],
                    list(map(Message.offset, run)),
                    [tuple(m.headers() or ()) for m in run] if any(map(Message.headers, run)) else None,
                ),
            )
        )
        start = end
    return batches, events
