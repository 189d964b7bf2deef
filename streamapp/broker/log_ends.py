"""The ends of logs, from requests that run while the worker does other work."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as RdTopicPartition
from confluent_kafka.admin import OffsetSpec

from streamapp.broker.requests import NO_TIMEOUT, LastingAdmin
from streamapp.records import TopicPartition

__all__ = ["LogEnds"]

_ASK_SECONDS = 5.0
_SOON_SECONDS = 1.0
"""The pause before the next request, if a partition has no leader."""
_UNLED = (KafkaError.LEADER_NOT_AVAILABLE, KafkaError._NOENT)
"""The errors of a partition without a leader: beside partitions with leaders, and if all of a request lack them."""
_ANSWER_SECONDS = 60.0
"""If brokers have not answered a request after this time, the next request is sent without waiting further."""


class LogEnds:
    """Asks brokers every few seconds for the ends of committed records, and never waits for an answer.

    A consumer knows the end of a log only from its last fetch. After a fault, or while its buffer is full, a consumer
    fetches nothing. A lag that is computed with this old end would be too small, so `LogEnds` asks the brokers. Several
    threads may use one object.
    """

    def __init__(self, admin: LastingAdmin) -> None:
        self._admin = admin
        self._last = time.monotonic()
        self._asked: Mapping[Any, Future[Any]] = {}
        self._lock = threading.Lock()
        self._refresh = threading.Thread()
        """The thread that waits for metadata."""
        self._unled: frozenset[TopicPartition] = frozenset()
        """The partitions without a leader in the last answers."""
        self.leaderless: frozenset[TopicPartition] = frozenset()
        """The partitions that had no leader in the last two answers. A move of a leader takes less time. Any thread may
        read the set."""

    def look(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends that brokers have answered since the last look. The dict is empty most of the time."""
        with self._lock:
            return self._look(partitions)

    def _look(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        if self.leaderless:
            self.leaderless = self.leaderless.intersection(partitions)
        waited = time.monotonic() - self._last
        if (
            self._asked
            and not all(future.done() for future in self._asked.values())
            and waited < _ANSWER_SECONDS
        ):
            return {}
        found = self._answers()
        if partitions and waited >= (_SOON_SECONDS if self._unled else _ASK_SECONDS):
            self._last = time.monotonic()
            if self._unled and not self._refresh.is_alive():
                topics = {tp.topic for tp in self._unled}
                self._refresh = threading.Thread(target=self._look_for_leaders, args=[topics], daemon=True)
                self._refresh.start()
            self._asked = self._admin.list_offsets(
                {RdTopicPartition(*tp): OffsetSpec.latest() for tp in partitions},
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=NO_TIMEOUT,
            )
        return found

    def _look_for_leaders(self, topics: Collection[str]) -> None:
        """Renews librdkafka's metadata of topics.

        librdkafka does not look for leaders if all partitions of a request lack them.
        """
        for topic in topics:
            with suppress(KafkaException):
                self._admin.list_topics(topic, _ASK_SECONDS, keep=True)

    def _answers(self) -> dict[TopicPartition, int]:
        asked, self._asked = self._asked, {}
        found: dict[TopicPartition, int] = {}
        unled = set()
        for rd, future in asked.items():
            tp = TopicPartition(rd.topic, rd.partition)
            try:
                offset = future.result(0).offset
            except TimeoutError:
                continue
            except KafkaException as exc:
                if exc.args[0].code() in _UNLED:
                    unled.add(tp)
                continue  # the next request finds the leader, if the leader is moving to another broker
            if offset >= 0:
                found[tp] = offset
            else:  # the leader has gone
                unled.add(tp)
        if asked:
            self.leaderless, self._unled = self._unled & unled, frozenset(unled)
        return found
