"""The port through which records leave a task."""

from __future__ import annotations

from typing import Protocol

from streamapp.records import Headers

__all__ = ["Collector"]


class Collector(Protocol):
    """The way out of a task. ``send`` is called synchronously while the task works; it must not block for long."""

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int | None,
        headers: Headers,
        partition: int | None,
    ) -> None:
        """Takes one record; ``partition`` None means Kafka's default partitioner."""

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has."""
