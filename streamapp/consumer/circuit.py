"""`Circuit`: the circuit breaker of a consumer, for a service that fails."""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass

from streamapp._base.whole_numbers import check_whole
from streamapp.engine.judging import short
from streamapp.errors import ConfigError
from streamapp.on_error import Backoff

__all__ = ["Circuit", "CircuitBreaker"]

logger: logging.Logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class CircuitBreaker:
    """The limits at which a consumer with a `Retry` takes no further record, because a service fails.

    The circuit breaker opens if at least ``failure_rate`` percent of the last ``window`` calls of the handler have
    failed. Only failures of a service count (``failures`` of the `Retry`). Fewer than ``minimum_calls`` calls do not
    open it. While the circuit breaker is open, no call begins. After the wait of the back-off, the circuit breaker is
    half-open: ``half_open_calls`` calls try the service, each with one record. If fewer than ``failure_rate`` percent
    of these calls fail, the circuit breaker closes, and counts anew. Otherwise it is open again, for a longer wait.

    Raises `ConfigError` for numbers out of range. The terms are those of resilience4j.

    >>> CircuitBreaker(failure_rate=80, minimum_calls=10).window
    20
    """

    failure_rate: float = 50.0
    window: int = 20
    minimum_calls: int = 5
    half_open_calls: int = 1

    def __post_init__(self) -> None:
        for name in ("window", "minimum_calls", "half_open_calls"):
            check_whole(getattr(self, name), f"{name} of CircuitBreaker")
        rate = self.failure_rate
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 100:
            raise ConfigError(
                f"failure_rate of CircuitBreaker is above 0 and at most 100 percent, not {rate!r}"
            )
        if self.minimum_calls > self.window:
            raise ConfigError(
                f"minimum_calls={self.minimum_calls} of CircuitBreaker is more than its window={self.window}, so the "
                "circuit breaker could never open"
            )


class Circuit:
    """A circuit breaker: closed (calls go through), open (no calls), or half-open (a few trial calls).

    The dispatcher holds its lock around every call. ``now`` is in seconds of the dispatcher's clock.
    """

    def __init__(self, name: str, breaker: CircuitBreaker) -> None:
        self._name, self._breaker = name, breaker
        self._waits = 0
        """The number of times that the circuit breaker has opened since it was closed."""
        self._calls: deque[bool] = deque(maxlen=breaker.window)
        """The last calls while the circuit breaker is closed. True: the service failed."""
        self._trials: list[bool] = []
        """The finished trial calls since the circuit breaker has opened."""
        self._last_error = ""
        self.error: str | None = None
        """The service's last error; None: the circuit breaker is closed."""
        self.since: int | None = None
        """The time at which the circuit breaker opened, in ms since 1970."""
        self.due: float = 0.0
        """The time at which the trial calls may begin, in seconds of the dispatcher's clock."""

    def allows_trial(self, now: float, running: int) -> bool:
        """True if a trial call may begin, while ``running`` trial calls have not returned."""
        return now >= self.due and running + len(self._trials) < self._breaker.half_open_calls

    def called(self, failure: Exception | None, backoff: Backoff, now: float, *, trial: bool) -> None:
        """Notes the outcome of a call. ``failure`` is the error of the service, if the service failed.

        While the circuit breaker is not closed, the method notes only trial calls. All other calls have begun before
        the circuit breaker opened.
        """
        failed = failure is not None
        if failure is not None:
            self._last_error = short(failure)
        if self.error is None:
            self._calls.append(failed)
            enough = len(self._calls) >= self._breaker.minimum_calls
            if enough and self._is_over(sum(self._calls), len(self._calls)):
                self._open(backoff, now)
        elif trial and now >= self.due:
            self._trials.append(failed)
            if self._is_over(sum(self._trials), self._breaker.half_open_calls):
                self._open(backoff, now)
            elif len(self._trials) >= self._breaker.half_open_calls:
                self._close()

    def _is_over(self, failed: int, calls: int) -> bool:
        return failed * 100 >= self._breaker.failure_rate * calls

    def _open(self, backoff: Backoff, now: float) -> None:
        if self.error is None:
            self.since = time.time_ns() // 1_000_000
            logger.warning(
                "%s: a service fails (%s, %d of the last %d calls); no further record is handed out until it answers",
                self._name,
                self._last_error,
                sum(self._calls),
                len(self._calls),
            )
        self.error = self._last_error
        self._calls.clear()
        self._trials.clear()
        self._waits += 1
        self.due = now + backoff.delay_ms(self._waits) / 1000

    def _close(self) -> None:
        if self.since is not None:
            logger.info("%s: the service answers after %.1f s", self._name, time.time() - self.since / 1000)
        self.error, self.since, self._waits = None, None, 0
        self._trials.clear()
