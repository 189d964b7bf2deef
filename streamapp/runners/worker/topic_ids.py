"""The ids of topics, from requests that run while the worker does other work."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaException, TopicCollection

from streamapp.broker.requests import NO_TIMEOUT, LastingAdmin

__all__ = ["TopicIds"]

_ASK_SECONDS = 30.0


class TopicIds:
    """Notices that a topic was deleted and created anew: the new topic has another id (KIP-516).

    A consumer does not notice. With a log that is long enough, the consumer goes on at its offset in the new topic.
    """

    def __init__(self, admin: LastingAdmin, topics: Sequence[str]) -> None:
        self._admin, self._topics = admin, list(topics)
        self._ids: dict[str, str] = {}
        self._asked: Mapping[str, Future[Any]] = {}
        self._asked_at = 0.0

    def changed(self) -> str | None:
        """A topic whose id is not the first known one. The method never waits for an answer."""
        found = None
        if self._asked and all(future.done() for future in self._asked.values()):
            asked, self._asked = self._asked, {}
            for topic, future in asked.items():
                try:
                    id = str(future.result(0).topic_id)
                except KafkaException:  # no answer now, or the topic is not there
                    continue
                if self._ids.setdefault(topic, id) != id:
                    found = topic
        if self._topics and not self._asked and time.monotonic() - self._asked_at >= _ASK_SECONDS:
            self._asked_at = time.monotonic()
            self._asked = self._admin.describe_topics(
                TopicCollection(self._topics), request_timeout=NO_TIMEOUT
            )
        return found
