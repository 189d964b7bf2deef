"""Does the worker get on? What is rolled back again and again says so, and why, and ends in bounded time."""

from __future__ import annotations

import time
from collections.abc import Callable

from streamapp.errors import StreamsError
from streamapp.runners.worker.clients import PATIENCE_SECONDS

__all__ = ["NoProgressError", "Progress"]

_IN_A_ROW = 2
"""The number of rollbacks without a commit between them: one may be anything, two are no accident."""


class NoProgressError(StreamsError):
    """Everything was rolled back, again and again, for as long as brokers that do not answer would be waited for."""


class Progress:
    """Counts the rollbacks since the last commit. For the data plane, but for `stuck`, which any thread may ask."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = 0.0
        self._rollbacks = 0
        self._reason = ""

    def rolled_back(self, reason: BaseException) -> None:
        """Raises `NoProgressError` when the first of them was too long ago."""
        now = self._clock()
        if not self._rollbacks:
            self._since = now
        self._reason = f"{type(reason).__name__}: {reason}"
        self._rollbacks += 1
        if self._rollbacks >= _IN_A_ROW and now - self._since > PATIENCE_SECONDS:
            raise NoProgressError(
                f"nothing could be committed for {now - self._since:.0f} s: {self._rollbacks} attempts in a row were "
                f"rolled back, the last for this reason: {self._reason}"
            ) from reason

    def made(self) -> None:
        """Something was committed, or there is nothing to commit."""
        self._rollbacks = 0

    @property
    def stuck(self) -> str | None:
        """The reason why the worker makes no progress; None: the worker makes progress."""
        count, reason, seconds = self._rollbacks, self._reason, self._clock() - self._since
        if count < _IN_A_ROW:
            return None
        return (
            f"{count} attempts in a row were rolled back, and nothing was committed for {seconds:.0f} s; "
            f"the last for this reason: {reason}"
        )
