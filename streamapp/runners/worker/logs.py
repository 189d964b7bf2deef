"""Keeps the log of an outage readable: Kafka's clients say many times a second that a broker is not there."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

__all__ = ["CLIENT_LOGGER", "Repetitions", "quieten_clients"]

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
_SECONDS = 30.0
_MOST = 1_000
_NUMBERS = re.compile(r"\d+")


class Repetitions(logging.Filter):
    """Lets a warning or error through once in ``seconds``, and says with the next one how many were left out.

    Messages that differ only in their numbers (ports, milliseconds, the number of a client) are the same one.
    """

    def __init__(self, seconds: float = _SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._seconds = seconds
        self._clock = clock
        self._said: dict[str, tuple[float, int]] = {}
        """Message -> (when it was said, how often it was left out since)."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        message, now = record.getMessage(), self._clock()
        kind = _NUMBERS.sub("#", message)
        when, left_out = self._said.get(kind, (now - self._seconds, 0))
        if now - when < self._seconds:
            self._said[kind] = when, left_out + 1
            return False
        if len(self._said) >= _MOST:
            self._said.clear()
        self._said[kind] = now, 0
        if left_out:
            record.msg, record.args = f"{message} ({left_out} more like this since the last)", ()
        return True


def quieten_clients() -> None:
    """Has every Kafka client of this process pass through one `Repetitions`; once is enough."""
    repetitions = Repetitions()
    for name in _CHATTY:
        logging.getLogger(name).addFilter(repetitions)
