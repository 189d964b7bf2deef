"""Deletes records of internal topics that no task reads again, so that these topics do not grow for ever.

- In a repartition topic, these are the records below the committed offsets. Kafka Streams deletes these, too, every
  ``repartition.purge.interval.ms``.
- In the changelog of windows or sessions, these are the first records, if all their rows have expired
  (`Store.needless_below`). Kafka Streams leaves this to the retention of the topic, by the brokers' clock.

Other readers than the application itself would miss these records.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as RdTopicPartition

from streamapp.broker.requests import NO_TIMEOUT, LastingAdmin, advice
from streamapp.records import TopicPartition

__all__ = ["Purge"]

logger: logging.Logger = logging.getLogger(__name__)

_ANSWER_SECONDS = 60.0
"""The longest time that the next request waits for the answer to the last one."""
_RIGHT = {KafkaError.TOPIC_AUTHORIZATION_FAILED: "Grant this client DELETE on the topic"}


class Purge:
    """Asks the brokers, once in each ``interval_ms``, to delete records that no task reads again.

    The caller never waits for an answer.
    """

    def __init__(self, admin: LastingAdmin, interval_ms: int) -> None:
        self._admin = admin
        self._interval = interval_ms / 1000
        self._last = time.monotonic()
        self._needless: dict[TopicPartition, int] = {}
        self._purged: dict[TopicPartition, int] = {}
        self._asked: Mapping[Any, Future[Any]] = {}
        self._told: dict[str, str] = {}
        """Topic -> the reason, from the last warning, why its records could not be deleted."""

    def note(self, needless: Mapping[TopicPartition, int]) -> None:
        """Notes the offsets below which no task reads a record again."""
        self._needless.update(needless)

    def forget(self) -> None:
        """Forgets the noted offsets, because a command may have moved the group back, or deleted its topics."""
        self._needless.clear()

    def ask_if_due(self) -> None:
        """Asks the brokers to delete the noted records if the interval is over. Call this method often, also while
        nothing is committed: otherwise the records of the last commits stay as long as no input arrives."""
        waited = time.monotonic() - self._last
        if waited < self._interval:
            return
        if waited < _ANSWER_SECONDS and not all(future.done() for future in self._asked.values()):
            return
        self._last = time.monotonic()
        self._note_answers()
        due = {tp: offset for tp, offset in self._needless.items() if offset > self._purged.get(tp, 0)}
        if due:
            below = [RdTopicPartition(*tp, at) for tp, at in due.items()]
            self._asked = self._admin.delete_records(below, request_timeout=NO_TIMEOUT)

    def _note_answers(self) -> None:
        for tp, future in self._asked.items():
            if not future.done():
                continue  # the broker is gone; the next purge deletes these records
            try:
                self._purged[TopicPartition(tp.topic, tp.partition)] = future.result().low_watermark
            except KafkaException as exc:
                error = exc.args[0]
                self._tell(tp.topic, error.str() + advice(error, _RIGHT))  # the next purge tries again
        self._asked = {}

    def _tell(self, topic: str, why: str) -> None:
        if self._told.get(topic) != why:
            self._told[topic] = why
            logger.warning("records of %s that are not needed any more could not be deleted: %s", topic, why)
