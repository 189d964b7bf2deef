"""The partition counts of topics, for applications that choose the partitions of their records."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException

from streamapp._base.names import check_topic_name
from streamapp.broker.requests import LastingAdmin
from streamapp.errors import BrokerError

__all__ = ["PartitionCounts"]

_MAX_AGE_SECONDS = 300  # Java's metadata.max.age.ms
_TIMEOUT_SECONDS = 30


class PartitionCounts:
    """Asks brokers for partition counts, and remembers each count. Several threads may use one object.

    ``client`` has librdkafka's settings for the cluster and its login.
    """

    def __init__(self, client: Mapping[str, Any]) -> None:
        self._client = client
        self._admin: LastingAdmin | None = None
        self._known: dict[str, tuple[int, float]] = {}

    def of(self, topic: str) -> int:
        """The partition count of a topic. Raises `BrokerError` if the count cannot be known."""
        check_topic_name(topic, "the topic")
        count, asked = self._known.get(topic, (0, 0.0))
        if not count or time.monotonic() - asked > _MAX_AGE_SECONDS:
            count = self._ask(topic) or count
            if not count:
                raise BrokerError(
                    f"the partitions of {topic} are not known, because brokers do not answer. Check the addresses and "
                    "the login, or wait until brokers are back"
                )
            self._known[topic] = count, time.monotonic()
        return count

    def _ask(self, topic: str) -> int | None:
        """The count; None if brokers do not answer."""
        if self._admin is None:
            self._admin = LastingAdmin({**self._client, "log_level": 0})
        try:
            # The request names no topic, because brokers might create a topic that a request names.
            topics = self._admin.list_topics(timeout=_TIMEOUT_SECONDS).topics
        except KafkaException:
            return None
        if topic not in topics:
            raise BrokerError(
                f"topic {topic} does not exist: create it, for example with `streamapp topic create {topic}`"
            )
        return len(topics[topic].partitions)
