"""Standbys: copies of the state of tasks that other workers run, kept warm from their changelogs (KIP-441).

If the worker of a task fails, a standby becomes the running task without a long restore. Until then, a standby can
answer reads for which rows may be out of date.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from functools import cached_property

from streamapp.broker.lasting_consumer import LastingConsumer, open_consumer
from streamapp.broker.requests import LastingAdmin
from streamapp.config import StreamsConfig
from streamapp.records import RecordBatch, TopicPartition
from streamapp.restore_listeners import SuspendReason
from streamapp.runners.worker.clients import PATIENCE_SECONDS, consumer_settings
from streamapp.runners.worker.listener_calls import ListenerCalls
from streamapp.runners.worker.livetask import LiveTask
from streamapp.runners.worker.offsets import committed_offsets
from streamapp.runners.worker.placement import TaskId
from streamapp.runners.worker.restore import BATCH_BESIDE_OTHERS, ChangelogReader, RestoreProgress, Spans

__all__ = ["Standbys"]

logger: logging.Logger = logging.getLogger(__name__)

_IDLE_SECONDS = 0.1
"""The pause in seconds after a look that has found no new records, so that standbys do not slow running tasks down."""
_REFRESH_SECONDS = 1.0


class Standbys(ChangelogReader):
    """The standbys of this worker. Only the data plane's thread may call the methods, except `warm`.

    ``open_task`` makes a `LiveTask` for an id, and ``close_task`` closes a `LiveTask`. After an `assign` with warm-ups,
    `poll` calls ``caught_up`` once, as soon as all warm-ups are at most ``acceptable_recovery_lag`` offsets behind.
    """

    _role = "standby"
    _gives_up = False

    def __init__(
        self,
        config: StreamsConfig,
        admin: LastingAdmin,
        listeners: ListenerCalls,
        open_task: Callable[[TaskId], LiveTask],
        close_task: Callable[[LiveTask], None],
        caught_up: Callable[[], None],
    ) -> None:
        super().__init__(config, admin, listeners)
        self._open_task = open_task
        self._close_task = close_task
        self._caught_up = caught_up
        self._last_read = self._last_refresh = 0.0
        self.tasks: dict[TaskId, LiveTask] = {}
        self.warmups: frozenset[TaskId] = frozenset()

    def assign(self, wanted: Mapping[TaskId, bool]) -> None:
        """Keeps copies of exactly the ``wanted`` tasks from now on. True: the task is a warm-up, and moves here once
        all warm-ups of this worker have caught up."""
        self._drop([id for id in self.tasks if id not in wanted])
        self.warmups = frozenset(id for id, warmup in wanted.items() if warmup)
        new = [id for id in wanted if id not in self.tasks]
        for id in new:
            self.tasks[id] = self._open_task(id)
        opened = [self.tasks[id] for id in new]
        self._follow(self._spans(opened))
        if opened:
            logger.info("keeping copies of tasks %s", ", ".join(map(str, sorted(self.tasks))))
        self._refresh(self._bounded(opened))

    def _follow(self, found: Mapping[LiveTask, Spans]) -> None:
        for live, spans in found.items():
            local = live.task.changelog_offsets
            for tp, store in live.changelogs.items():
                first, end = spans[tp]
                start = live.restore_start(tp, local.get(store, 0), first, end)
                self._begin([RestoreProgress(live, store, tp, start, end, start)])

    def reopen(self) -> None:
        """Closes all copies, and opens them again."""
        wanted = {id: id in self.warmups for id in self.tasks}
        self.assign({})
        self.assign(wanted)

    def take(self, id: TaskId) -> LiveTask | None:
        """Gives a standby away, with its state open, to become the running task. None: there is no such standby."""
        if id not in self.tasks:
            return None
        for progress in self._of(self.tasks[id]):
            self._tell_suspended(progress, "promoted")
        return self._remove(id)

    def warm(self) -> set[TaskId]:
        """The copies that were at most ``acceptable_recovery_lag`` offsets behind at the last look at the changelogs.

        Any thread may ask. A copy counts only when the ends of all its changelogs are known.
        """
        unknown = {id: len(live.changelogs) for id, live in list(self.tasks.items())}
        lags = dict.fromkeys(unknown, 0)
        for each in self.progress:
            if each.task.id in unknown:
                unknown[each.task.id] -= 1
                lags[each.task.id] += each.remaining
        most = self._config.acceptable_recovery_lag
        return {id for id, count in unknown.items() if not count and lags[id] <= most}

    def poll(self) -> None:
        """Applies records that have arrived, if the pause is over."""
        now = time.monotonic()
        if not self.tasks or now - self._last_read < _IDLE_SECONDS:
            return
        applied = self._read(0, BATCH_BESIDE_OTHERS)
        if not applied:
            self._last_read = now
        if now - self._last_refresh >= _REFRESH_SECONDS:
            self._last_refresh = now
            self._follow(self._led_again())
            self._refresh(self._bounded(self.tasks.values()))
            if self.warmups and self.warmups <= self.warm():
                logger.info(
                    "tasks %s are warm and can be run here", ", ".join(map(str, sorted(self.warmups)))
                )
                self.warmups = frozenset()
                self._caught_up()

    def close(self) -> None:
        try:
            self._drop(list(self.tasks))
        finally:
            if "_group" in vars(self):
                self._group.close()
            super().close()

    @cached_property
    def _group(self) -> LastingConsumer:
        """Asks for committed offsets, also while a transaction with newer offsets is open."""
        settings = consumer_settings(self._config, self._role)
        return open_consumer({**settings, "isolation.level": "read_uncommitted"})

    def _remove(self, id: TaskId) -> LiveTask:
        live = self.tasks.pop(id)
        self._leaderless.pop(live, None)
        self._end([progress.partition for progress in self._of(live)])
        return live

    def _of(self, live: LiveTask) -> list[RestoreProgress]:
        return [progress for progress in self._open.values() if progress.task is live]

    def _drop(self, ids: Collection[TaskId]) -> None:
        dropped = [progress for id in ids for progress in self._of(self.tasks[id])]
        for live in [self._remove(id) for id in ids]:
            self._close_task(live)
        for progress in dropped:
            self._tell_suspended(progress, "migrated")

    def _tell_start(self, progress: RestoreProgress) -> None:
        self._listeners.tell(
            self._listeners.standbys.on_update_start, progress.partition, progress.store, progress.start
        )

    def _tell_batch(self, progress: RestoreProgress, batch: RecordBatch) -> None:
        self._listeners.tell(
            self._listeners.standbys.on_batch_loaded,
            progress.partition,
            progress.store,
            str(progress.task.id),
            batch.offsets[-1],
            len(batch.offsets),
            max(progress.end, progress.position),
        )

    def _tell_suspended(self, progress: RestoreProgress, reason: SuspendReason) -> None:
        self._listeners.tell(
            self._listeners.standbys.on_update_suspended,
            progress.partition,
            progress.store,
            progress.position - 1,
            max(progress.end, progress.position),
            reason,
        )

    def _bounded(self, tasks: Collection[LiveTask]) -> list[TopicPartition]:
        """The changelogs that are source topics at the same time."""
        return [tp for live in tasks for tp in live.changelogs if tp in live.inputs]

    def _refresh(self, bounded: list[TopicPartition]) -> None:
        """Notes the ends of the changelogs, from which the lags of the standbys are computed.

        If a changelog is a source topic, too, its end is the committed offset of its task. The standby copies up to
        this end only (`_limit`), because a table with later rows would be ahead of the other inputs of the task.
        Standbys of other changelogs copy all records that arrive.
        """
        committed = self._committed(bounded) if bounded else {}
        for tp, progress in self._open.items():
            if tp in committed:
                if progress.done and committed[tp] > progress.position:
                    # `_read` has dropped the records beyond the earlier end, so the consumer fetches them again.
                    self._consumer.remove([tp])
                    self._consumer.add({tp: progress.position})
                progress.end = committed[tp]
            else:
                progress.end = max(progress.end, self._consumer.end(tp))

    def _committed(self, bounded: list[TopicPartition]) -> dict[TopicPartition, int]:
        # No records arrive. The poll opens the client anew after an outage of all brokers, and for new certificates.
        self._group.poll(1, 0)
        return committed_offsets(self._config, bounded, PATIENCE_SECONDS, self._group)

    def _limit(self, progress: RestoreProgress) -> int:
        return progress.end if progress.partition in progress.task.inputs else 2**63
