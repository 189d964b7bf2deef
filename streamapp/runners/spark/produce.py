"""How a record of a Spark task goes to its producer."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Producer

from streamapp.records import create_time

__all__ = ["produce"]


def produce(
    producer: Producer,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    partition: int,
    timestamp: int | None,
    headers: Sequence[tuple[str, bytes | None]] | None,
) -> None:
    """Hands a record over as soon as the producer has room for it. ``partition`` -1 leaves it to the partitioner."""
    at = create_time(timestamp)
    while True:
        try:
            producer.produce(topic, value, key, partition, None, None, at, list(headers or ()))
            return
        except BufferError:
            producer.poll(0.05)
