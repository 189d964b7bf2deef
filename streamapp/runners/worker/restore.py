"""Brings the stores of new tasks up to date from their changelogs, beside the tasks that already run."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as RdTopicPartition
from confluent_kafka.admin import AdminClient

from streamapp import failpoints
from streamapp.config import StreamsConfig
from streamapp.errors import BrokerError, TaskCorruptedError
from streamapp.records import TopicPartition
from streamapp.runners.worker.batches import split
from streamapp.runners.worker.clients import consumer_settings, list_offsets
from streamapp.runners.worker.livetask import LiveTask

__all__ = ["RestoreProgress", "Restorer"]

_BATCH = 20_000


@dataclass(slots=True)
class RestoreProgress:
    """One store of one task on its way from ``start`` to ``end`` (exclusive) of its changelog partition."""

    task: LiveTask
    store: str
    partition: TopicPartition
    start: int
    end: int
    position: int
    records: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def done(self) -> bool:
        return self.position >= self.end

    @property
    def rate(self) -> float:
        """Records per second so far."""
        return self.records / max(1e-3, time.monotonic() - self.started)


class Restorer:
    """Reads changelogs with a consumer of its own.

    Where a changelog ends is decided by the position, never by the last record: behind it may be transaction
    markers, aborted records, or nothing at all after compaction.
    """

    def __init__(self, config: StreamsConfig, admin: AdminClient) -> None:
        self._config = config
        self._admin = admin
        self._consumer = Consumer(consumer_settings(config))
        self._open: dict[TopicPartition, RestoreProgress] = {}
        self._restored: dict[LiveTask, int] = {}

    @property
    def progress(self) -> list[RestoreProgress]:
        return list(self._open.values())

    @property
    def active(self) -> bool:
        return bool(self._open)

    def add(self, tasks: Iterable[LiveTask]) -> None:
        """Begins with tasks that were just opened.

        Raises `TaskCorruptedError` when local state is ahead of its changelog.
        """
        tasks = list(tasks)
        partitions = [tp for task in tasks for tp in task.changelogs]
        first = list_offsets(self._admin, partitions, latest=False)
        end = list_offsets(self._admin, partitions, latest=True)
        opened: list[RdTopicPartition] = []
        for task in tasks:
            local = task.task.changelog_offsets
            for tp, store in task.changelogs.items():
                # A source topic that serves as changelog is restored up to what was processed of it, no
                # further.
                until = min(end[tp], task.starts[tp]) if tp in task.inputs else end[tp]
                start = local.get(store, 0)
                if start > end[tp]:
                    raise TaskCorruptedError(
                        f"task {task.id}: the local state of {store} is at offset {start} of {tp}, which ends at {end[tp]}. "
                        f"The changelog was deleted or lost records. Delete {task.folder} to go on with what the changelog "
                        "has, or restore the topic"
                    )
                start = max(start, first[tp])
                if start < until:
                    self._open[tp] = RestoreProgress(task, store, tp, start, until, start)
                    opened.append(RdTopicPartition(*tp, start))
        if opened:
            self._consumer.incremental_assign(opened)

    def drop(self, tasks: Iterable[LiveTask]) -> None:
        """Forgets tasks that were taken away before they were restored."""
        gone = set(tasks)
        for task in gone:
            self._restored.pop(task, None)
        self._close_partitions([tp for tp, progress in self._open.items() if progress.task in gone])

    def pending(self, task: LiveTask) -> bool:
        return any(each.task is task for each in self._open.values())

    def finished(self, task: LiveTask) -> int:
        """How many records were restored for a task, all stores together."""
        return self._restored.pop(task, 0)

    def poll(self, timeout: float) -> None:
        """Applies what has arrived; afterwards tasks that are not `pending` any more are up to date."""
        messages = self._consumer.consume(_BATCH, timeout)
        batches, events = split(messages)
        for tp, batch in batches:
            progress = self._open.get(tp)
            if progress is None or progress.done:
                continue
            if batch.offsets[-1] >= progress.end:
                keep = next(i for i, offset in enumerate(batch.offsets) if offset >= progress.end)
                batch = batch._replace(
                    keys=batch.keys[:keep],
                    values=batch.values[:keep],
                    timestamps=batch.timestamps[:keep],
                    offsets=batch.offsets[:keep],
                    headers=batch.headers and batch.headers[:keep],
                )
                progress.position = progress.end
            else:
                progress.position = batch.offsets[-1] + 1
            if batch.offsets:
                progress.task.task.restore(progress.store, batch)
                progress.records += len(batch.offsets)
                self._restored[progress.task] = self._restored.get(progress.task, 0) + len(batch.offsets)
                failpoints.hit("restore-batch")
        for event in events:
            error = event.error()
            tp = TopicPartition(event.topic(), event.partition())
            if error.code() == KafkaError._PARTITION_EOF:
                if tp in self._open:
                    self._open[tp].position = max(self._open[tp].position, event.offset())
            elif not error.retriable():
                raise BrokerError(f"the changelog {tp} cannot be read: {error.str()}")
        self._close_partitions([tp for tp, progress in self._open.items() if progress.done])

    def close(self) -> None:
        self._open.clear()
        self._consumer.close()

    def _close_partitions(self, partitions: list[TopicPartition]) -> None:
        if partitions:
            self._consumer.incremental_unassign([RdTopicPartition(*tp) for tp in partitions])
            for tp in partitions:
                del self._open[tp]
