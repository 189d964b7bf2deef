"""`Progress`: counts rollbacks without a commit between them, notes their reason, and raises an error after some
minutes."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Container, Iterable

from streamapp._base.counted import counted
from streamapp.errors import StreamsError
from streamapp.runners.worker.clients import PATIENCE_SECONDS
from streamapp.runners.worker.placement import TaskId

__all__ = ["NoProgressError", "Progress"]

_IN_A_ROW = 2
"""After so many rollbacks without a commit between them, the worker counts as stuck."""


class NoProgressError(StreamsError):
    """All attempts to commit were rolled back, for longer than a worker waits for brokers that do not answer."""


class Progress:
    """Counts rollbacks in a row. A commit ends the row if it contains all tasks whose work the last rollback dropped.

    Without this rule, a worker with one task that cannot commit would never be stuck. Commits of its other tasks
    succeed between the rollbacks. One thread uses an object; any thread may read `stuck`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = self._last = 0.0
        self._rollbacks = 0
        self._reason = ""
        self._left: frozenset[TaskId] = frozenset()
        """The tasks whose work the last rollback dropped, without those that have committed since."""

    def rolled_back(self, reason: BaseException, tasks: Iterable[TaskId] = ()) -> None:
        """Notes a rollback that drops the work of ``tasks``.

        Raises `NoProgressError` when the first rollback in a row was too long ago.
        """
        now = self._clock()
        if not self._rollbacks:
            self._since = now
        self._last = now
        self._reason = f"{type(reason).__name__}: {reason}"
        self._left = frozenset(tasks)
        self._rollbacks += 1
        if self._rollbacks >= _IN_A_ROW and now - self._since > PATIENCE_SECONDS:
            raise NoProgressError(
                f"{self._subject()} could be committed for {now - self._since:.0f} s: "
                f"{counted(self._rollbacks, 'attempt')} in a row were rolled back, "
                f"the last for this reason: {self._reason}"
            ) from reason

    def committed(
        self, tasks: Collection[TaskId], here: Container[TaskId], running: Container[TaskId]
    ) -> None:
        """Notes a commit of ``tasks``. The tasks that have left the worker are no longer waited for: ``here`` are the
        others.

        A task of ``running`` without a part in the commit has nothing to commit now, and perhaps never again. For
        example, its work came from a punctuator, or another worker has committed its records. So five minutes after the
        last rollback, such a task is no longer waited for.
        """
        over = running if self._clock() - self._last > PATIENCE_SECONDS else ()
        self._left = frozenset(id for id in self._left if id in here and id not in tasks and id not in over)
        if not self._left:
            self.made()

    def made(self) -> None:
        """Notes that nothing is left to commit."""
        self._rollbacks = 0

    @property
    def stuck(self) -> str | None:
        """The reason why the worker makes no progress. None: the worker makes progress."""
        count, reason, seconds = self._rollbacks, self._reason, self._clock() - self._since
        if count < _IN_A_ROW:
            return None
        return (
            f"{counted(count, 'attempt')} in a row were rolled back, and {self._subject()} was committed for "
            f"{seconds:.0f} s; the last for this reason: {reason}"
        )

    def _subject(self) -> str:
        left = ", ".join(str(id) for id in sorted(self._left))
        return f"nothing of tasks {left}" if left else "nothing"
