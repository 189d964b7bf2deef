"""Deletes the state of tasks that moved away: it only grows old (Kafka Streams: ``state.cleanup.delay.ms``)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

from streamapp.runners.worker.placement import TaskId
from streamapp.state.directory import StateDirectory

__all__ = ["StateCleaner"]

logger: logging.Logger = logging.getLogger(__name__)


class StateCleaner:
    """Deletes folders of tasks that were not held for ``delay_ms``; until then a task that comes back finds its state."""

    def __init__(
        self, directory: StateDirectory, delay_ms: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._directory, self._delay, self._clock = directory, delay_ms / 1000, clock
        self._unused: dict[TaskId, float] = {}

    def clean(self, held: Collection[TaskId]) -> list[TaskId]:
        """Looks at the folder, given the tasks whose state is open; returns those whose state was deleted."""
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
