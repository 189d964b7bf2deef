"""Keeps the log of an outage readable: Kafka's clients say many times a second that a broker is not there."""

from __future__ import annotations

import logging

from streamapp.runners.repetitions import Repetitions

__all__ = ["CLIENT_LOGGER", "quieten_clients"]

CLIENT_LOGGER = logging.getLogger("streamapp.kafka")
"""Where librdkafka logs to."""
_CHATTY = (
    CLIENT_LOGGER.name,
    "aiokafka",
    "aiokafka.cluster",
    "aiokafka.conn",
    "aiokafka.consumer.fetcher",
    "aiokafka.consumer.group_coordinator",
    "aiokafka.producer.sender",
)


def quieten_clients() -> None:
    """Has every Kafka client of this process pass through one `Repetitions`; once is enough."""
    repetitions = Repetitions()
    for name in _CHATTY:
        logging.getLogger(name).addFilter(repetitions)
