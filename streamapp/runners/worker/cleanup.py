"""Deletes the state of tasks that moved away, after a delay (Kafka Streams: ``state.cleanup.delay.ms``)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

from streamapp.runners.worker.placement import TaskId
from streamapp.state.directory import StateDirectory

__all__ = ["StateCleaner"]

logger: logging.Logger = logging.getLogger(__name__)


class StateCleaner:
    """Deletes the folder of a task that this worker has not held for ``delay_ms``.

    A task that comes back earlier finds its state.
    """

    def __init__(
        self, directory: StateDirectory, delay_ms: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._directory, self._delay, self._clock = directory, delay_ms / 1000, clock
        self._unused: dict[TaskId, float] = {}

    def clean(self, held: Collection[TaskId]) -> list[TaskId]:
        """Deletes old state of tasks that are not ``held``, that is, open. Returns the tasks of the deleted state."""
        now = self._clock()
        on_disk = {TaskId.parse(name) for name in self._directory.task_ids()}
        self._unused = {id: self._unused.get(id, now) for id in on_disk.difference(held)}
        old = sorted(id for id, since in self._unused.items() if now - since >= self._delay)
        for id in old:
            self._directory.wipe(str(id))
            del self._unused[id]
        if old:
            logger.info("deleted the state of tasks %s, which moved away", ", ".join(map(str, old)))
        return old
