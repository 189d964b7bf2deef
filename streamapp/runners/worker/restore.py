"""Restores the stores of new tasks from their changelogs, while other tasks already run."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any, ClassVar

from confluent_kafka import KafkaError

from streamapp._base import failpoints
from streamapp._base.counted import counted
from streamapp.broker.bounded_reads import TO_THE_END
from streamapp.broker.consumer import lost_at_end
from streamapp.broker.lasting_consumer import LastingConsumer, open_consumer
from streamapp.broker.log_ends import LogEnds
from streamapp.broker.requests import LastingAdmin
from streamapp.config import StreamsConfig
from streamapp.errors import BrokerError
from streamapp.records import RecordBatch, TopicPartition
from streamapp.runners.worker.clients import PATIENCE_SECONDS, consumer_settings, list_offsets, pass_over
from streamapp.runners.worker.listener_calls import ListenerCalls
from streamapp.runners.worker.livetask import LiveTask
from streamapp.runners.worker.placement import TaskId

__all__ = ["ChangelogReader", "RestoreProgress", "Restorer", "Spans", "waits_for_leaders"]

logger: logging.Logger = logging.getLogger(__name__)

BATCH, BATCH_BESIDE_OTHERS = 20_000, 4_000
"""The most records that are applied at once, without and with running tasks. Running tasks wait meanwhile."""
_AT_A_TIME = 3
"""The most changelogs that are restored at a time. Tasks are then ready one after another, not all at the end."""
_LOG_SECONDS = 10.0
_LEADER_SECONDS = 1.0
"""The shortest time between two looks for the leaders of changelogs that have none."""
_LOOKS_APART = 10
"""A look asks for the metadata of all topics, so the pause is this many times as long as the last look."""
Spans = Mapping[TopicPartition, tuple[int, int]]
"""The first offset and the end of each changelog partition."""


@dataclass(frozen=True, slots=True)
class _Leaderless:
    """The changelog partitions of a task that have no leader."""

    partitions: tuple[TopicPartition, ...]
    since: float

    def __str__(self) -> str:
        return ", ".join(map(str, self.partitions))


@dataclass(slots=True)
class RestoreProgress:
    """The restore of one store of a task, from offset ``start`` to ``end`` (exclusive) of its changelog partition."""

    task: LiveTask
    store: str
    partition: TopicPartition
    start: int
    end: int
    position: int
    records: int = 0
    started: float | None = None
    """None: the restore waits for other stores."""

    @property
    def done(self) -> bool:
        return self.position >= self.end

    @property
    def remaining(self) -> int:
        """The number of offsets that are left. A compacted changelog has fewer records than offsets."""
        return max(0, self.end - self.position)

    @property
    def rate(self) -> float:
        """Records per second since the restore began."""
        return self.records / self._seconds

    @property
    def speed(self) -> float:
        """Offsets per second since the restore began."""
        return (self.position - self.start) / self._seconds

    @property
    def _seconds(self) -> float:
        return inf if self.started is None else max(1e-3, time.monotonic() - self.started)


class ChangelogReader:
    """Applies changelogs to stores, each from its own position, with one consumer.

    A changelog was read to its end if the consumer's position is there. The last record does not tell this, because
    transaction markers, aborted records or offsets without a record may follow it.
    """

    _role = "restore"
    """A part of the consumer's name."""
    _gives_up = True
    """Raise an error for a changelog that has no leader for long."""
    _settings: ClassVar[Mapping[str, Any]] = {}
    """The consumer's settings in addition to `consumer_settings`."""

    def __init__(self, config: StreamsConfig, admin: LastingAdmin, listeners: ListenerCalls) -> None:
        self._config = config
        self._admin = admin
        self._listeners = listeners
        self._open: dict[TopicPartition, RestoreProgress] = {}
        self._leaderless: dict[LiveTask, _Leaderless] = {}
        """The tasks that wait, because brokers know no leader of a changelog."""
        self._looked_at = 0.0
        self._look_again_at = 0.0

    @cached_property
    def _consumer(self) -> LastingConsumer:
        settings = {**consumer_settings(self._config, self._role), **self._settings}
        return open_consumer(settings, LogEnds(self._admin).look)

    @property
    def progress(self) -> list[RestoreProgress]:
        return list(self._open.values())

    @property
    def active(self) -> bool:
        return bool(self._open)

    @property
    def leaderless(self) -> str | None:
        """The tasks that wait for leaders of their changelogs. None: no task waits. Any thread may ask."""
        return waits_for_leaders({live.id: lack.partitions for live, lack in list(self._leaderless.items())})

    def _spans(self, tasks: Iterable[LiveTask]) -> dict[LiveTask, Spans]:
        """The spans of the changelogs of each task. A task with a changelog that has no leader waits, and has none.

        As in Kafka Streams, other tasks go on meanwhile. Raises `BrokerError` for a running task that has waited for
        five minutes.
        """
        tasks = list(tasks)
        partitions = [tp for task in tasks for tp in task.changelogs]
        began = time.monotonic()
        first = list_offsets(self._admin, partitions, latest=False, leaderless=set())
        end = list_offsets(self._admin, first, latest=True, leaderless=set())
        self._looked_at = time.monotonic()
        pause = max(_LEADER_SECONDS, _LOOKS_APART * (self._looked_at - began))
        self._look_again_at = self._looked_at + pause
        found: dict[LiveTask, Spans] = {}
        for task in tasks:
            if lacking := tuple(tp for tp in task.changelogs if tp not in end):
                self._wait_for_leader(task, lacking)
                continue
            if self._leaderless.pop(task, None) is not None:
                logger.info("the changelogs of task %s have leaders again", task.id)
            found[task] = {tp: (first[tp], end[tp]) for tp in task.changelogs}
        return found

    def _wait_for_leader(self, task: LiveTask, partitions: tuple[TopicPartition, ...]) -> None:
        known = self._leaderless.get(task)
        lack = _Leaderless(partitions, self._looked_at if known is None else known.since)
        self._leaderless[task] = lack
        if known is None:
            logger.warning("task %s waits for a leader of %s. Other tasks go on", task.id, lack)
        seconds = self._looked_at - lack.since
        if self._gives_up and seconds > PATIENCE_SECONDS:
            raise BrokerError(
                f"the changelogs of task {task.id} cannot be read: {lack} has had no leader for {seconds:.0f} s. Start "
                "the brokers that have its replicas"
            )

    def _led_again(self) -> dict[LiveTask, Spans]:
        """The tasks that have waited for leaders, as soon as there are leaders."""
        if not self._leaderless or time.monotonic() < self._look_again_at:
            return {}
        return self._spans(list(self._leaderless))

    def close(self) -> None:
        self._open.clear()
        self._leaderless.clear()
        if "_consumer" in vars(self):
            self._consumer.close()

    def _begin(self, opened: Iterable[RestoreProgress]) -> None:
        opened = list(opened)
        for progress in opened:
            progress.started = time.monotonic()
        self._open.update((each.partition, each) for each in opened)
        if opened:
            self._consumer.add({p.partition: p.position for p in opened})
        for progress in opened:
            self._tell_start(progress)

    def _end(self, partitions: list[TopicPartition]) -> None:
        if partitions:
            self._consumer.remove(partitions)
            for tp in partitions:
                del self._open[tp]

    def _read(self, timeout: float, most: int) -> int:
        """Applies records that have arrived, up to the limit of each changelog. Returns the number of records."""
        batches, events = self._consumer.poll(most, timeout)
        applied = 0
        for tp, batch in batches:
            progress = self._open.get(tp)
            if progress is None:
                continue
            limit = self._limit(progress)
            if batch.offsets[-1] < limit:
                progress.position = batch.offsets[-1] + 1
            else:
                batch = _before(limit, batch)
                progress.position = max(progress.position, limit)
            if batch.offsets:
                progress.task.restore(progress.store, batch)
                progress.records += len(batch.offsets)
                applied += len(batch.offsets)
                self._tell_batch(progress, batch)
                failpoints.hit("restore-batch")
        for tp, offset, error in events:
            if error.code() == KafkaError._PARTITION_EOF:
                if tp in self._open:
                    progress = self._open[tp]
                    progress.position = max(progress.position, min(offset, self._limit(progress)))
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                if tp in self._open:
                    self._go_on_where_there_are_records(self._open[tp], lost_at_end(error))
            else:
                pass_over(error, tp, "the changelog")
        return applied

    def _go_on_where_there_are_records(self, progress: RestoreProgress, lost: range | None) -> None:
        """Moves a position that the changelog does not have any more, because retention has removed expired windows.

        Raises `TaskCorruptedError` if the changelog is only compacted, and so must keep the last record of each key.
        The same error comes if the changelog has ``lost`` records at its end, which the state has.
        """
        tp = progress.partition
        first = list_offsets(self._admin, [tp], latest=False, leaderless=set())
        end = list_offsets(self._admin, first, latest=True, leaderless=set())
        if tp in end:  # the next leader refuses the position again
            kept = end[tp] if lost is None else lost.start
            progress.position = progress.task.restore_start(tp, progress.position, first[tp], kept)
        self._consumer.remove([tp])
        self._consumer.add({tp: progress.position})

    def _limit(self, progress: RestoreProgress) -> int:
        """The offset up to which (exclusive) a changelog may be applied."""
        return progress.end

    def _tell_start(self, progress: RestoreProgress) -> None:
        self._listeners.tell(
            self._listeners.restores.on_restore_start,
            progress.partition,
            progress.store,
            progress.start,
            progress.end,
        )

    def _tell_batch(self, progress: RestoreProgress, batch: RecordBatch) -> None:
        self._listeners.tell(
            self._listeners.restores.on_batch_restored,
            progress.partition,
            progress.store,
            batch.offsets[-1],
            len(batch.offsets),
        )


class Restorer(ChangelogReader):
    """Brings newly opened tasks to the ends that their changelogs have when the restore begins.

    If a changelog is a source topic, too, its restore ends at the committed offset of the task.
    """

    # A changelog that is added waits for the end of the running fetch, so fetches must be short.
    _settings: ClassVar = TO_THE_END

    def __init__(self, config: StreamsConfig, admin: LastingAdmin, listeners: ListenerCalls) -> None:
        super().__init__(config, admin, listeners)
        self._queued: list[RestoreProgress] = []
        self._restored: dict[LiveTask, int] = {}
        self._last_log = 0.0
        self.asks: bool = False
        """True while `add` waits for brokers."""

    @property
    def progress(self) -> list[RestoreProgress]:
        return [*self._open.values(), *self._queued]

    def add(self, tasks: Iterable[LiveTask]) -> None:
        """Begins to restore newly opened tasks.

        Raises `TaskCorruptedError` in two cases. The offset of the local state is larger than the end offset of the
        changelog. Or the changelog, with ``cleanup.policy=compact``, begins after this offset, so that records are lost
        which the local state lacks.
        """
        self._queue(lambda: self._spans(tasks))

    def look_for_leaders(self) -> None:
        """Begins to restore the tasks whose changelogs have leaders again. Raises the errors of `add`."""
        if self._leaderless:
            self._queue(self._led_again)

    def _queue(self, look: Callable[[], dict[LiveTask, Spans]]) -> None:
        self.asks = True
        try:
            found = look()
        finally:
            self.asks = False
        if not found:
            return
        for task, spans in found.items():
            self._queued += (
                RestoreProgress(task, store, tp, start, until, start)
                for tp, store, start, until in task.restorations(spans)
            )
        self._queued.sort(key=lambda each: (each.remaining, each.task.id))
        if self._queued:
            offsets = sum(each.remaining for each in self._queued)
            stores = counted(len(self._queued), "store")
            logger.info("restoring %s from %s", stores, counted(offsets, "changelog offset"))
        self._begin_next()
        self._last_log = time.monotonic()

    def drop(self, tasks: Iterable[LiveTask]) -> None:
        """Forgets tasks that were taken away. Their restore may have ended, or not."""
        gone = set(tasks)
        for task in gone:
            self._restored.pop(task, None)
            self._leaderless.pop(task, None)
        self._queued = [progress for progress in self._queued if progress.task not in gone]
        suspended = [progress for progress in self._open.values() if progress.task in gone]
        self._end([progress.partition for progress in suspended])
        for progress in suspended:
            self._tell_end(self._listeners.restores.on_restore_suspended, progress)
        self._begin_next()

    @property
    def restoring(self) -> set[LiveTask]:
        """The tasks whose restore has not ended."""
        return {each.task for each in self.progress} | self._leaderless.keys()

    def finished(self, task: LiveTask) -> int:
        """The number of records that were restored for a task, over all its stores. A second call gives 0."""
        return self._restored.pop(task, 0)

    def poll(self, timeout: float) -> None:
        """Applies records that have arrived. Afterwards, tasks that are not `restoring` are up to date."""
        self._read(timeout, BATCH if timeout else BATCH_BESIDE_OTHERS)
        if time.monotonic() - self._last_log >= _LOG_SECONDS:
            self._last_log = time.monotonic()
            logger.info("restoring: %s", _summary(self.progress))
        done = [progress for progress in self._open.values() if progress.done]
        for progress in done:
            self._restored[progress.task] = self._restored.get(progress.task, 0) + progress.records
        self._end([progress.partition for progress in done])
        for progress in done:
            self._tell_end(self._listeners.restores.on_restore_end, progress)
        self._begin_next()

    def _tell_end(
        self, method: Callable[[TopicPartition, str, int], None], progress: RestoreProgress
    ) -> None:
        self._listeners.tell(method, progress.partition, progress.store, progress.records)

    def _begin_next(self) -> None:
        room = _AT_A_TIME - len(self._open)
        if room > 0 and self._queued:
            self._begin(self._queued[:room])
            del self._queued[:room]


def waits_for_leaders(waiting: Mapping[TaskId, Collection[TopicPartition]]) -> str | None:
    """The tasks that wait for leaders of these partitions, in words. None: no task waits."""
    return (
        "; ".join(
            f"task {id} waits for a leader of {', '.join(map(str, lack))}"
            for id, lack in sorted(waiting.items())
        )
        or None
    )


def _before(limit: int, batch: RecordBatch) -> RecordBatch:
    keep = sum(offset < limit for offset in batch.offsets)
    return RecordBatch(
        batch.keys[:keep],
        batch.values[:keep],
        batch.timestamps[:keep],
        batch.offsets[:keep],
        batch.headers and batch.headers[:keep],
    )


def _summary(progress: list[RestoreProgress]) -> str:
    """The number of stores, with the share and the rate of the restored records and the time left if they are known.

    >>> _summary([])
    '0 stores'
    """
    total = sum(each.end - each.start for each in progress)
    remaining, speed = sum(each.remaining for each in progress), sum(each.speed for each in progress)
    text = counted(len(progress), "store")
    if total:
        text += f", {100 * (total - remaining) / total:.1f} %"
        text += f", {sum(each.rate for each in progress):,.0f} records/s"
    return text + (f", about {remaining / speed:,.0f} s left" if speed else "")
