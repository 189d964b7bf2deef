"""Reads keys and timestamps of the last records of partitions."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as KafkaPartition

from streamapp.broker.bounded_reads import TO_THE_END
from streamapp.operations.offsets.positions import Position
from streamapp.records import TopicPartition

__all__ = ["RECORDS", "Sample", "sample"]

RECORDS = 1_000
"""The most records of a partition in a sample."""
_REFUSED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)
_SECONDS = 20.0
"""The time limit in seconds for all partitions together. Records that arrive later are not in the sample."""


class Sample(NamedTuple):
    """Keys and timestamps (milliseconds since 1970) of some records."""

    keys: list[bytes | None]
    timestamps: list[int]


def sample(
    client: Mapping[str, Any], positions: Sequence[Position], *, first: bool = False
) -> tuple[dict[TopicPartition, Sample], list[str]]:
    """The last records of each partition, and the partitions that could not be read to their end, with the reasons.

    If ``first``, only the first committed record of each partition is read.

    The reader joins no group and commits nothing.
    """
    found = {each.partition: Sample([], []) for each in positions}
    waiting = {each.partition for each in positions if each.end > each.start}
    if not waiting:
        return found, []
    problems: dict[str, str] = {}
    consumer = Consumer(
        {
            **client,
            "group.id": "streamapp-doctor",
            **TO_THE_END,
            "isolation.level": "read_committed" if first else "read_uncommitted",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    deadline = time.monotonic() + _SECONDS
    try:
        consumer.assign(
            [
                KafkaPartition(*each.partition, each.start if first else max(each.start, each.end - RECORDS))
                for each in positions
                if each.partition in waiting
            ]
        )
        while waiting and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is None:
                continue
            tp, error = TopicPartition(message.topic(), message.partition()), message.error()
            done: Collection[TopicPartition] = ()
            if error is None and tp in waiting:
                found[tp].keys.append(message.key())
                found[tp].timestamps.append(message.timestamp()[1])
                done = [tp] if first or len(found[tp].keys) >= RECORDS else ()
            elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                done = [tp]
            elif error is not None and error.code() in _REFUSED:
                problems[tp.topic] = error.str()
                done = [each for each in waiting if each.topic == tp.topic]
            if done := waiting.intersection(done):
                waiting -= done
                # Else brokers would be asked for further records of these partitions.
                consumer.incremental_unassign([KafkaPartition(*each) for each in done])
    finally:
        consumer.close()
    problems |= {str(tp): f"not all were read within {_SECONDS:g} s" for tp in waiting}
    records = "the first records of" if first else "the last records of"
    return found, [f"{records} {name}: {problem}" for name, problem in sorted(problems.items())]
