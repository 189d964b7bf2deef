"""`Collector`: the interface through which the records of a task leave it, on their way to Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from streamapp.errors import BrokerError, StreamsError
from streamapp.records import Headers

__all__ = ["Collector", "NoWayOut", "ResultRefused", "RowCollector"]


class ResultRefused(BrokerError):
    """Brokers refuse a result for good, for example because it is too large. Another attempt would not help.

    ``remedy`` says what may help. With ``final``, for example without the right to write to the topic, the task stops
    and no exception handler is asked, as in Kafka Streams.
    """

    def __init__(self, reason: str, remedy: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.remedy: str = remedy
        self.final: bool = final


class Collector(Protocol):
    """Takes the results and changelog records of a task. A runner implements this interface.

    The task calls ``send`` while it processes a record, so ``send`` must not block for long.
    """

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

        Brokers may refuse a record after ``send`` has returned. The runner then rolls back, and the task processes its
        input again. When the task sends the refused record again, ``send`` raises `ResultRefused`.
        """

    def partition_count(self, topic: str) -> int:
        """The number of partitions of a topic."""


@runtime_checkable
class RowCollector(Collector, Protocol):
    """A `Collector` that takes many changelog records in one call, which costs less for each record."""

    def send_rows(
        self,
        topic: str,
        partition: int,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
    ) -> None:
        """Takes records without headers, in their order, as so many calls of ``send`` would."""


class NoWayOut:
    """The `Collector` of tasks that must not send. Each call raises `StreamsError`, in which ``who`` is the sender."""

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
