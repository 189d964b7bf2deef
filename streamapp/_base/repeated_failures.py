"""`RepeatedFailures`: the log lines of a work that is tried again until it succeeds."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from streamapp._base.counted import counted

__all__ = ["RepeatedFailures"]

_FIRST_SECONDS, _LONGEST_SECONDS = 10.0, 600.0
"""The time from the first line to the second one, and the longest time between two lines. Each time is twice the time
before."""
_MOST_REASONS = 5
"""The number of reasons that get a line at once. A reason may have a number that changes with each failure."""


class RepeatedFailures:
    """Logs the first failure, each of the first five reasons, then a failure at growing intervals, and the end of the
    failures.

    >>> import logging
    >>> failures = RepeatedFailures(logging.getLogger("example"), "relay orders")
    >>> failures.failed("the database does not answer")
    >>> failures.over()
    """

    def __init__(
        self, logger: logging.Logger, name: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._logger, self._name, self._clock = logger, name, clock
        self._count = 0
        self._told: set[str] = set()
        self._next = 0.0
        self._interval = _FIRST_SECONDS

    def failed(self, reason: str, unforeseen: Exception | None = None) -> None:
        """Notes a failure. The line has the traceback of ``unforeseen``."""
        self._count += 1
        now, new = self._clock(), reason not in self._told and len(self._told) < _MOST_REASONS
        if not new and now < self._next:
            return
        if not new:
            self._interval = min(2 * self._interval, _LONGEST_SECONDS)
        self._told.add(reason)
        self._next = now + self._interval
        so_far = "" if self._count == 1 else f" ({counted(self._count, 'failure')} so far)"
        self._logger.warning("%s: %s; it tries again%s", self._name, reason, so_far, exc_info=unforeseen)

    def over(self) -> None:
        """Notes that the work has succeeded."""
        if self._count:
            self._logger.warning("%s works again, after %s", self._name, counted(self._count, "failure"))
            self._count, self._interval = 0, _FIRST_SECONDS
            self._told.clear()
