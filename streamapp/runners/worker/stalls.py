"""`Progress`: counts rollbacks without a commit between them, notes their reason, and raises an error after some
minutes."""

from __future__ import annotations

import time
from collections.abc import Callable

from streamapp._base.counted import counted
from streamapp.errors import StreamsError
from streamapp.runners.worker.clients import PATIENCE_SECONDS

__all__ = ["NoProgressError", "Progress"]

_IN_A_ROW = 2
"""After so many rollbacks without a commit between them, the worker counts as stuck."""


class NoProgressError(StreamsError):
    """All attempts to commit were rolled back, for longer than a worker waits for brokers that do not answer."""


class Progress:
    """Counts the rollbacks since the last commit. One thread uses an object; any thread may read `stuck`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = 0.0
        self._rollbacks = 0
        self._reason = ""

    def rolled_back(self, reason: BaseException) -> None:
        """Notes a rollback. Raises `NoProgressError` when the first rollback in a row was too long ago."""
        now = self._clock()
        if not self._rollbacks:
            self._since = now
        self._reason = f"{type(reason).__name__}: {reason}"
        self._rollbacks += 1
        if self._rollbacks >= _IN_A_ROW and now - self._since > PATIENCE_SECONDS:
            raise NoProgressError(
                f"nothing could be committed for {now - self._since:.0f} s: "
                f"{counted(self._rollbacks, 'attempt')} in a row were rolled back, "
                f"the last for this reason: {self._reason}"
            ) from reason

    def made(self) -> None:
        """Notes a commit, or that there is nothing to commit."""
        self._rollbacks = 0

    @property
    def stuck(self) -> str | None:
        """The reason why the worker makes no progress. None: the worker makes progress."""
        count, reason, seconds = self._rollbacks, self._reason, self._clock() - self._since
        if count < _IN_A_ROW:
            return None
        return (
            f"{counted(count, 'attempt')} in a row were rolled back, and nothing was committed for {seconds:.0f} s; "
            f"the last for this reason: {reason}"
        )
