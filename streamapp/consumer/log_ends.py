"""`LogEnds`: the ends of the logs that a consumer reads, for its lag."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import OffsetSpec

from streamapp.broker.requests import LastingAdmin, list_offsets
from streamapp.errors import BrokerError
from streamapp.records import TopicPartition

__all__ = ["LogEnds"]

_EVERY_SECONDS = 5.0
_FIRST_SECONDS = 0.5
"""The time until the next look at the partitions while the consumer has none."""
_ANSWER_SECONDS = 10.0


class LogEnds:
    """The ends of the logs of a consumer's partitions. A thread asks brokers for them every 5 s.

    The consumer's own client only learns the end of a log when it fetches records. This client does not fetch from a
    partition that is paused, whose lag matters most.
    """

    def __init__(
        self, name: str, admin: LastingAdmin, sources: Callable[[], Collection[TopicPartition]]
    ) -> None:
        self._admin, self._sources = admin, sources
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{name}-log-ends", daemon=True)
        self.known: Mapping[TopicPartition, int] = {}
        """The last known ends of the partitions that the consumer has. Brokers that are away change nothing."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, without waiting for an answer of brokers."""
        self._stopping.set()
        self.known = {}

    def _run(self) -> None:
        wait = _FIRST_SECONDS
        while not self._stopping.wait(wait):
            sources = self._sources()
            found: Mapping[TopicPartition, int] = {}
            wait = _EVERY_SECONDS if sources else _FIRST_SECONDS
            if sources:
                try:
                    found = list_offsets(self._admin, sources, OffsetSpec.latest(), seconds=_ANSWER_SECONDS)
                except (BrokerError, KafkaException):  # also of a client that cannot be opened anew
                    found = {source: end for source, end in self.known.items() if source in sources}
            if not self._stopping.is_set():
                self.known = found
