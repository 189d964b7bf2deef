"""What is in Kafka, read from outside."""

from __future__ import annotations

from ...topic_reader import read_settled

__all__ = ["read"]

Bytes = tuple[bytes | None, bytes | None, int]


def read(servers: str, topic: str) -> list[Bytes]:
    """Key, value and timestamp of all committed records of a topic, partition by partition in order."""
    records = read_settled(servers, topic)
    return [(message.key(), message.value(), message.timestamp()[1]) for message in records]
