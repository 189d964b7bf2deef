"""Deletes processed records of repartition topics, so that these topics do not grow for ever.

The records can be deleted, because only this application reads its repartition topics, and never reads a record below
its commits again. Kafka Streams does the same, every ``repartition.purge.interval.ms``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as RdTopicPartition

from streamapp.broker.requests import NO_TIMEOUT, LastingAdmin
from streamapp.records import TopicPartition

__all__ = ["RepartitionPurge"]

logger: logging.Logger = logging.getLogger(__name__)

_ANSWER_SECONDS = 60.0
"""The longest time that the next request waits for the answer to the last one."""


class RepartitionPurge:
    """Asks the brokers, at the first commit after each ``interval_ms``, to delete records below the commits.

    The caller never waits for an answer.
    """

    def __init__(self, admin: LastingAdmin, interval_ms: int) -> None:
        self._admin = admin
        self._interval = interval_ms / 1000
        self._last = time.monotonic()
        self._committed: dict[TopicPartition, int] = {}
        self._purged: dict[TopicPartition, int] = {}
        self._asked: Mapping[Any, Future[Any]] = {}

    def committed(self, positions: Mapping[TopicPartition, int]) -> None:
        """Notes the committed positions of repartition topics. Purges if the interval is over."""
        self._committed.update(positions)
        waited = time.monotonic() - self._last
        answered = all(future.done() for future in self._asked.values())
        if waited < self._interval or (not answered and waited < _ANSWER_SECONDS):
            return
        self._last = time.monotonic()
        self._note_answers()
        due = {tp: offset for tp, offset in self._committed.items() if offset > self._purged.get(tp, 0)}
        self._committed.clear()
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
                # The next purge deletes these records.
                logger.warning(
                    "consumed records of %s-%d could not be deleted: %s",
                    tp.topic,
                    tp.partition,
                    exc.args[0].str(),
                )
        self._asked = {}
