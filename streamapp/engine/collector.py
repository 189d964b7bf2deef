"""The port through which records leave a task."""

from __future__ import annotations

from typing import Protocol

from streamapp.errors import BrokerError, StreamsError
from streamapp.records import Headers

__all__ = ["Collector", "NoWayOut", "ResultRefused"]


class ResultRefused(BrokerError):
    """Brokers do not take a result, however often the result is sent.

    ``remedy`` says what may help. ``final``: no exception handler can go on without the result.
    """

    def __init__(self, reason: str, remedy: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.remedy: str = remedy
        self.final: bool = final


class Collector(Protocol):
    """The way out of a task. The task calls ``send`` while it works, so ``send`` must not block for long."""

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int | None,
        headers: Headers,
        partition: int | None,
    ) -> None:
        """Takes one record. ``partition`` None means Kafka's default partitioner.

        Raises `ResultRefused` if brokers have refused this record since the last commit.
        """

    def partition_count(self, topic: str) -> int:
        """The number of partitions of a topic."""


class NoWayOut:
    """The `Collector` of tasks that have nothing to send. Each call raises `StreamsError`, which names ``who``."""

    def __init__(self, who: str) -> None:
        self._who = who

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int | None,
        headers: Headers,
        partition: int | None,
    ) -> None:
        raise self._refusal(topic)

    def partition_count(self, topic: str) -> int:
        raise self._refusal(topic)

    def _refusal(self, topic: str) -> StreamsError:
        return StreamsError(f"{self._who} cannot write to topic {topic}")
