"""`LiveTasks`: the tasks that a worker runs. The object opens, restores, starts and closes tasks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import ExitStack

from streamapp._base.counted import counted
from streamapp.engine.running_task import TaskMetrics
from streamapp.runners.worker.fetch import Fetcher
from streamapp.runners.worker.global_stores import GlobalStores
from streamapp.runners.worker.livetask import LiveTask
from streamapp.runners.worker.logs import DETAIL
from streamapp.runners.worker.placement import TaskId
from streamapp.runners.worker.restore import Restorer
from streamapp.runners.worker.standby import Standbys

__all__ = ["LiveTasks"]

logger: logging.Logger = logging.getLogger(__name__)


class LiveTasks(dict[TaskId, LiveTask]):
    """The open tasks by their ids, and the counters of all tasks that this worker has run since its start.

    Only the data plane's thread may call the methods. Other threads may read tasks and counters.
    """

    def __init__(
        self,
        open_task: Callable[[TaskId], LiveTask],
        fetcher: Fetcher,
        restorer: Restorer,
        global_stores: GlobalStores,
    ) -> None:
        super().__init__()
        self._open_task = open_task
        self._fetcher = fetcher
        self._restorer = restorer
        self._global_stores = global_stores
        self._metrics: dict[TaskId, TaskMetrics] = {}
        self.running: list[LiveTask] = []
        """The tasks that have been started. Each change makes a new list."""
        self.asynchronous: list[LiveTask] = []
        """The running tasks that have asynchronous steps."""
        self.current: LiveTask | None = None
        """The task whose functions the data plane calls now. None: no task. The data plane sets this field, too."""
        self.left: dict[TaskId, int] = {}
        """Closed task -> the sum of the changelog offsets that its state on disk has reached."""

    def open(self, ids: Iterable[TaskId], standbys: Standbys) -> None:
        """Opens tasks, with the state of a standby if this worker has one, and begins to restore them."""
        opened = []
        for id in ids:
            self[id] = standbys.take(id) or self._open_task(
                id
            )  # one by one: if the next one fails, this one is closed
            opened.append(self[id])
        starts = self._fetcher.committed([tp for live in opened for tp in live.inputs])
        for live in opened:
            live.without_offsets = self._fetcher.without_offset.issuperset(live.inputs)
            live.had_records = any(self._fetcher.ends.get(tp) for tp in live.inputs)
            live.continue_from(
                {tp: starts[tp].metadata for tp in live.inputs}, {tp: starts[tp].offset for tp in live.inputs}
            )
            for tp in self._fetcher.to_commit.intersection(live.inputs):
                live.task.skip_to(tp, starts[tp].offset)
            self._count_on(live)
        self._restorer.add(opened)

    def _count_on(self, live: LiveTask) -> None:
        """Gives a task the counters of dropped records and results of its earlier run on this worker, because these
        counters must never fall."""
        before, metrics = self._metrics.get(live.id), live.task.metrics
        if before is not None:
            metrics.dropped_records, metrics.drops = before.dropped_records, before.drops
            metrics.dropped_results, metrics.lost_records = before.dropped_results, before.lost_records
        self._metrics[live.id] = metrics

    def start_restored(self) -> list[LiveTask]:
        """Starts the tasks whose state is restored, and returns them.

        No task starts while a restore may find rows of a group that has lost its offsets. Otherwise the task could
        commit offsets before the error, and the next start would find no fault.
        """
        if not self._global_stores.ready or len(self.running) == len(self):
            return []
        restoring = self._restorer.restoring
        if any(live.refuses_rows for live in restoring):
            return []
        ready = [live for live in self.values() if not live.running and live not in restoring]
        for live in ready:
            self.current = live
            live.start()
            self.current = None
            restored = self._restorer.finished(live)
            records = f", {counted(restored, 'record')} restored" if restored else ""
            logger.info("task %s is running%s", live.id, records, extra=DETAIL)
        if ready:
            self._note_running()
        if ready and len(self.running) == len(self):
            logger.info("ready: %s here", counted(len(self), "task runs", "tasks run"))
        return ready

    def drop(self, ids: Iterable[TaskId]) -> None:
        """Closes tasks. Their changes since the last commit are dropped."""
        dropped = [self.pop(id) for id in list(ids)]
        self._note_running()
        self._fetcher.forget(dropped)
        with ExitStack() as rest:  # a listener or a processor may raise
            for live in reversed(dropped):
                rest.callback(self._close_as_current, live)
            self._restorer.drop(dropped)

    def _close_as_current(self, live: LiveTask) -> None:
        self.current = live
        self.close(live)
        self.current = None

    def _note_running(self) -> None:
        self.running = [live for live in self.values() if live.running]
        self.asynchronous = [live for live in self.running if live.task.asynchronous]

    def close(self, live: LiveTask) -> None:
        self.left[live.id] = live.close()

    @property
    def dropped_records(self) -> dict[str, int]:
        """The number of dropped records by task, including tasks that have moved to other workers."""
        return {str(id): metrics.dropped_records for id, metrics in list(self._metrics.items())}

    @property
    def lost_records(self) -> dict[str, int]:
        """The number of records by task that `dropped_records` counts, each only once (`TaskMetrics.lost_records`)."""
        return {str(id): metrics.lost_records for id, metrics in list(self._metrics.items())}

    @property
    def drops(self) -> dict[tuple[str, str, str], int]:
        """Dropped records by task, operator (or store) and reason."""
        return {
            (str(id), *where): count
            for id, metrics in list(self._metrics.items())
            for where, count in dict(metrics.drops).items()
        }

    @property
    def dropped_results(self) -> int:
        """Results that brokers refused, and that the production exception handler dropped."""
        return sum(metrics.dropped_results for metrics in list(self._metrics.values()))
