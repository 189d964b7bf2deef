"""`LiveTask`: a task of a worker, which reads one partition number and has its persistent stores on the worker's
disk."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from streamapp.config import MemoryShares
from streamapp.engine.asynchronous import RunAsync
from streamapp.engine.collector import Collector
from streamapp.engine.runner_ports import StateHome, TaskEnvironment
from streamapp.engine.task_session import TaskSession
from streamapp.records import RecordBatch, TopicPartition
from streamapp.runners.lost_offsets import rows_without_offsets
from streamapp.runners.worker.placement import TaskId
from streamapp.runners.worker.topics import Topics
from streamapp.state.backend import StateBackend
from streamapp.state.cache import RecordCache
from streamapp.state.directory import StateDirectory
from streamapp.state.rocks import RocksBackend, RocksMemory
from streamapp.state.row_memory import RowMemory
from streamapp.topology.plan import Plan, Subtopology

__all__ = ["LiveTask", "TaskOpener", "now_ms", "steady_ms"]


_AWAY_MS = 1_000
"""The longest time between two calls of `LiveTask.punctuate` in which the task can have read its inputs. A turn of the
data plane takes less, unless the process stands still, a function is slow, or brokers do not answer."""


def now_ms() -> int:
    return int(time.time() * 1000)


def steady_ms() -> int:
    """A clock that nobody can set. Only differences have a meaning."""
    return int(time.monotonic() * 1000)


class LiveTask(TaskSession):
    """The session of a task that this worker runs or keeps a copy of."""

    def __init__(
        self,
        environment: TaskEnvironment,
        subtopology: Subtopology,
        id: TaskId,
        home: StateHome,
        inputs: Iterable[TopicPartition],
    ) -> None:
        super().__init__(environment, subtopology, id.partition, home, inputs)
        self.id = id
        self._with_offsets = environment.with_offsets
        self._wall = self._steady = 0
        """Both clocks at the start of the task, or at the last `punctuate`, in ms."""
        self.without_offsets: bool = False
        """True: the group has no committed offset in any input of this task."""
        self.had_records: bool = True
        """False: the logs of all inputs of this task are those of partitions that never had a record."""
        repartition_topics = {topic.name for topic in subtopology.repartition_topics}
        self.repartitioned: tuple[TopicPartition, ...] = tuple(
            tp for tp in self.inputs if tp.topic in repartition_topics
        )
        """The inputs that are partitions of repartition topics, which no other task reads."""

    def continue_from(
        self, metadata: Mapping[TopicPartition, str], starts: Mapping[TopicPartition, int] | None = None
    ) -> None:
        super().continue_from(metadata, starts)
        for store, offset in self.task.changelog_offsets.items():
            if offset:
                self._check_offsets(store)

    def restore(self, store: str, batch: RecordBatch) -> None:
        if batch.offsets:
            self._check_offsets(store)
        super().restore(store, batch)

    def _check_offsets(self, store: str) -> None:
        """Raises `TopologyError` if a store has rows, but the group has no offsets in the inputs of this task.

        Rows and offsets are committed together. So a task with rows has an offset.
        """
        if self.refuses_rows and store in self._own_changelogs:
            lost = [f"{tp.topic}:{tp.partition}" for tp in self.inputs] if self._with_offsets else []
            raise rows_without_offsets(self.task.plan.application_id, self.id, store, lost)

    def start(self) -> None:
        super().start()
        self._wall, self._steady = now_ms(), steady_ms()

    def punctuate(self, wall: int, steady: int) -> bool:
        """Calls the wall-clock punctuators that are due. Returns True if a punctuator was called.

        The arguments are the present times of both clocks, in ms (`now_ms`, `steady_ms`). If the wall clock has gone
        back, or further than the task has worked since the last call, the task follows the jump.
        """
        went, worked = wall - self._wall, min(steady - self._steady, _AWAY_MS)
        self._wall, self._steady = wall, steady
        if went < 0 or went - worked > _AWAY_MS:
            self.task.clock_jumped(went - worked)
        return self.task.punctuate_wall_clock(wall)

    @property
    def refuses_rows(self) -> bool:
        """True if the restore of this task raises an error for a row, because the group has lost its offsets.

        The task may read topics that are new in this version. But a topic is not new if the group has offsets in other
        partitions of the topic, or no offsets at all. Topics that only patterns name come and go (`lost_offsets`). If
        the inputs of the task never had a record, but other partitions have offsets, punctuators have written the rows.
        """
        topics = {tp.topic for tp in self.inputs if self.task.plan.pattern_of(tp.topic) is None}
        known = not self._with_offsets or (self.had_records and bool(topics & self._with_offsets))
        return self.without_offsets and known and bool(self._own_changelogs)

    @property
    def _own_changelogs(self) -> set[str]:
        """The stores whose changelog has only rows of this application, and is no source topic."""
        changelogs = self.subtopology.changelog_topics.items()
        return {store for store, topic in changelogs if topic.name not in self.subtopology.source_topics}

    @property
    def at(self) -> str:
        """The present work of the task, for an error."""
        return self.task.at if self.running else "the start or the close of its processors"


class WorkerDisk:
    """The `StateHome` of tasks in the application's state folder."""

    def __init__(self, directory: StateDirectory, memory: MemoryShares) -> None:
        self._directory = directory
        self._memory = RocksMemory(memory.block_cache, memory.write_buffers, memory.row_cache)

    def open(self, task: str, stores: Collection[str]) -> StateBackend:
        return RocksBackend(self._directory.task_path(task), self._memory, stores)

    def wipe(self, task: str) -> None:
        self._directory.wipe(task)

    def place(self, task: str) -> str:
        return str(self._directory.task_path(task))


class TaskOpener:
    """Makes the tasks of a plan, each with its own folder in the application's state folder."""

    def __init__(
        self,
        plan: Plan,
        topics: Topics,
        outputs: Collector,
        changelogs: Collector,
        global_stores: Mapping[str, Any],
        directory: StateDirectory,
        rows: RowMemory,
        run_async: RunAsync,
        topic_ids: Mapping[str, str],
    ) -> None:
        self.topics = topics
        """The topics of the next tasks that are opened."""
        self._environment = TaskEnvironment(
            plan,
            outputs,
            now_ms,
            changelogs=changelogs,
            global_stores=global_stores,
            cache=RecordCache(plan.config.statestore_cache_max_bytes),
            rows=rows,
            run_async=run_async,
            topic_ids=topic_ids,
        )
        self._home = WorkerDisk(directory, plan.config.memory)
        self._subtopologies = {sub.id: sub for sub in plan.subtopologies}

    def __call__(self, id: TaskId) -> LiveTask:
        sub = self._subtopologies[id.subtopology]
        inputs = [
            TopicPartition(topic, id.partition)
            for topic in self.topics.sources[sub.id]
            if id.partition < self.topics.partitions[topic]
        ]
        environment = replace(
            self._environment, with_offsets=self.topics.with_offsets, edition=self.topics.edition
        )
        return LiveTask(environment, sub, id, self._home, inputs)
