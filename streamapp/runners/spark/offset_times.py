"""Offsets by time, in topics with transactions.

A broker that is asked for the first offset with at least some time may answer with the marker of a transaction. Markers
have the time of the broker's clock, which is later than any time in history. So `TimeSearch` reads the record at this
offset, and searches further if the record is too early.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from streamapp.broker.bounded_reads import next_message
from streamapp.records import TopicPartition

__all__ = ["TimeSearch"]

TIMEOUT_SECONDS = 30.0


class TimeSearch:
    """Finds records by time with a binary search, which reads one record for each step.

    The search expects records in the order of time. In a partition without this order, the search may find a later
    record than the first record with the wanted time.
    """

    def __init__(self, client: Mapping[str, Any]) -> None:
        self._consumer = Consumer(
            {
                **client,
                "group.id": "streamapp-times",  # required, never joined
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "fetch.message.max.bytes": 65_536,
                # A fetch behind the end of a log waits for records (default: half a second), and delays the next fetch.
                "fetch.wait.max.ms": 1,
            }
        )

    def first(self, partition: TopicPartition, start: int, end: int, at_least: int) -> int:
        """The offset of the first record from ``start`` on whose timestamp is at least ``at_least`` (ms).

        Returns ``end`` if no record before ``end`` is late enough. Raises `BrokerError` if Kafka does not answer.
        """
        found = self._record(partition, start, end)
        if found is None or found[1] >= at_least:
            return end if found is None else found[0]
        low, high, best = found[0] + 1, end, end
        while low < high:
            middle = (low + high) // 2
            found = self._record(partition, middle, end)
            if found is None or found[1] >= at_least:
                high, best = middle, end if found is None else found[0]
            else:
                low = found[0] + 1
        return best

    def close(self) -> None:
        self._consumer.close()

    def _record(self, partition: TopicPartition, offset: int, end: int) -> tuple[int, int] | None:
        """The offset and timestamp of the first record at ``offset`` or behind; None if ``end`` comes first."""
        self._consumer.assign([KafkaPartition(*partition, offset)])
        while True:
            message = next_message(self._consumer, f"{partition} at offset {offset}", TIMEOUT_SECONDS)
            at = message.offset()
            if message.error() is None:
                return (at, message.timestamp()[1]) if at < end else None
            if at >= end:
                return None
