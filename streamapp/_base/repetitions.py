"""Keeps a log readable when the same message comes many times a second."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from functools import cache

__all__ = ["LOGGERS_OF_DROPS", "Repetitions", "quieten_drops"]

_SECONDS = 30.0
_MOST = 1_000
_NUMBERS = re.compile(r"\d+")
LOGGERS_OF_DROPS = (
    "streamapp.engine.failures",
    "streamapp.consumer.verdicts",
    "streamapp.runners.worker.agents.failures",
)
"""The loggers of records that an exception handler drops."""


class Repetitions(logging.Filter):
    """A log filter that shows the same warning or error only once in ``seconds``. The next line with this message says
    how many were left out.

    Messages are the same if they have the same ``extra={"kind": ...}``. Messages without ``kind`` are the same if they
    differ only in numbers (ports, milliseconds, the number of a client).
    """

    def __init__(self, seconds: float = _SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._seconds = seconds
        self._clock = clock
        self._said: dict[str, tuple[float, int]] = {}
        """Message -> (the time of its last line in the log, how often the message is left out after that line)."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        now = self._clock()
        kind = getattr(record, "kind", None) or _NUMBERS.sub("#", record.getMessage())
        when, left_out = self._said.get(kind, (now - self._seconds, 0))
        if now - when < self._seconds:
            self._said[kind] = when, left_out + 1
            return False
        if len(self._said) >= _MOST:
            self._said.clear()
        self._said[kind] = now, 0
        if left_out:
            record.msg, record.args = f"{record.getMessage()} ({left_out} more like this since the last)", ()
        return True


@cache
def quieten_drops() -> None:
    """Adds one `Repetitions` to the loggers of dropped records, because a fault may drop every record."""
    repetitions = Repetitions()
    for name in LOGGERS_OF_DROPS:
        logging.getLogger(name).addFilter(repetitions)
