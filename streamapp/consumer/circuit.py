"""`Circuit`: the circuit breaker of a consumer, for a service that fails."""

from __future__ import annotations

import logging
import time

from streamapp.engine.judging import short
from streamapp.on_error import Backoff

__all__ = ["Circuit"]

logger: logging.Logger = logging.getLogger(__name__)


class Circuit:
    """A circuit breaker: while a service fails, only one record at a time goes to the handler, and tries the service.
    All other records wait.

    The dispatcher holds its lock around every call. ``now`` is in seconds of the dispatcher's clock.
    """

    def __init__(self, name: str) -> None:
        self._name, self._attempts = name, 0
        self.error: str | None = None
        """The service's last error; None: the circuit breaker is closed."""
        self.since: int | None = None
        """The time at which the service began to fail, in ms since 1970."""
        self.due: float = 0.0
        """The time at which the next record may try the service, in seconds of the dispatcher's clock."""

    def opened(self, error: Exception, backoff: Backoff, now: float, *, probe: bool) -> None:
        """Notes that the service has failed, for the first time or again, and sets the time of the next attempt.

        ``probe`` is true for the call that tries the service again. Other calls that fail now have begun before the
        first failure, so they are no further attempts.
        """
        if self.error is not None and not probe:
            return
        if self.error is None:
            self.since = time.time_ns() // 1_000_000
            logger.warning(
                "%s: a service fails (%s); no further record is handed out until it answers",
                self._name,
                short(error),
            )
        self.error = short(error)
        self._attempts += 1
        self.due = now + backoff.delay_ms(self._attempts) / 1000

    def closed(self) -> None:
        """Notes that the service answers again: records go to the handler as before."""
        if self.since is not None:
            seconds = time.time() - self.since / 1000
            logger.info("%s: the service answers after %.1f s", self._name, seconds)
        self.error, self.since, self._attempts = None, None, 0
