"""`LiveTasks`: the tasks that a worker runs. The object opens, restores, starts and closes tasks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import ExitStack

from streamapp._base.counted import counted
from streamapp.engine.running_task import TaskMetrics
from streamapp.records import TopicPartition
from streamapp.runners.worker.fetch import Fetcher
from streamapp.runners.worker.global_stores import GlobalStores
from streamapp.runners.worker.livetask import LiveTask
from streamapp.runners.worker.logs import DETAIL
from streamapp.runners.worker.placement import TaskId
from streamapp.runners.worker.restore import Restorer, waits_for_leaders
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
        self._unbegun: dict[LiveTask, frozenset[TopicPartition]] = {}
        """The tasks that wait until the begin of each input is known, and the inputs whose begin is not known."""
        self._told: dict[TaskId, tuple[TopicPartition, ...]] = {}
        """The tasks with inputs that had no leader at the last look, of which the log has told."""
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
        """Opens tasks, with the state of a standby if this worker has one, and begins to restore them.

        A task waits as long as the begin of one of its inputs is not known (`Fetcher.committed`).
        """
        opened = []
        for id in ids:
            self[id] = standbys.take(id) or self._open_task(
                id
            )  # one by one: if the next one fails, this one is closed
            opened.append(self[id])
        self._begin(opened)

    def _begin(self, opened: Iterable[LiveTask]) -> None:
        starts = self._fetcher.committed([tp for live in opened for tp in live.inputs])
        begun = []
        for live in opened:
            if not starts.keys() >= set(live.inputs):
                self._unbegun[live] = frozenset(live.inputs) - starts.keys()
                continue
            self._unbegun.pop(live, None)
            begun.append(live)
            live.without_offsets = self._fetcher.without_offset.issuperset(live.inputs)
            live.had_records = any(self._fetcher.ends.get(tp) for tp in live.inputs)
            live.continue_from(
                {tp: starts[tp].metadata for tp in live.inputs}, {tp: starts[tp].offset for tp in live.inputs}
            )
            for tp in self._fetcher.to_commit.intersection(live.inputs):
                live.task.skip_to(tp, starts[tp].offset)
            self._count_on(live)
        self._restorer.add(begun)

    def look_for_leaders(self) -> None:
        """Begins the tasks of which each input has a leader again. The log names tasks with inputs that have none.

        As in Kafka Streams, other tasks go on, and the worker waits without an end. Raises the errors of
        `Fetcher.committed` and `Restorer.add`.
        """
        if led := [
            live for live, lacking in self._unbegun.items() if all(map(self._fetcher.placeable, lacking))
        ]:
            self._begin(led)
        told, self._told = self._told, self._leaderless()
        for id, lacking in self._told.items():
            if told.get(id) != lacking:
                logger.warning(
                    "task %s waits for a leader of %s. Other partitions go on",
                    id,
                    ", ".join(map(str, lacking)),
                )
        for id in self.keys() & told.keys() - self._told.keys():
            logger.info("the inputs of task %s have leaders again", id)

    @property
    def leaderless(self) -> str | None:
        """The tasks that wait for leaders of their inputs. None: no task waits. Any thread may ask."""
        return waits_for_leaders(self._leaderless())

    def _leaderless(self) -> dict[TaskId, tuple[TopicPartition, ...]]:
        unled, waiting = self._fetcher.leaderless, dict(self._unbegun)
        if not unled and not waiting:
            return {}
        lacks = {
            id: tuple(tp for tp in live.inputs if tp in unled or tp in waiting.get(live, ()))
            for id, live in list(self.items())
        }
        return {id: lacking for id, lacking in sorted(lacks.items()) if lacking}

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
        waiting = restoring | self._unbegun.keys()
        ready = [live for live in self.values() if not live.running and live not in waiting]
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
        for live in dropped:
            self._unbegun.pop(live, None)
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
