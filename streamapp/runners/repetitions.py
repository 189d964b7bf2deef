"""Keeps a log readable in which the same is said many times a second."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from functools import cache

__all__ = ["Repetitions", "quieten_drops"]

_SECONDS = 30.0
_MOST = 1_000
_NUMBERS = re.compile(r"\d+")
_DROPS = ("streamapp.engine.failures", "streamapp.runners.worker.producer")
"""Who logs records that an exception handler said to go on without."""


class Repetitions(logging.Filter):
    """Lets a warning or error through once in ``seconds``, and says with the next one how many were left out.

    Messages that differ only in their numbers (ports, milliseconds, the number of a client) are the same one, and so are
    those that say of themselves that they are: with the same ``extra={"kind": ...}``.
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
    """Has the dropped records of this process pass through one `Repetitions`: there may be as many as records."""
    repetitions = Repetitions()
    for name in _DROPS:
        logging.getLogger(name).addFilter(repetitions)
