"""A task as the worker holds it: the engine's task, what it reads, and where its state is."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamapp.engine.asynchronous import RunAsync
from streamapp.engine.collector import Collector
from streamapp.engine.task import Task
from streamapp.records import TopicPartition
from streamapp.runners.worker.membership import Position
from streamapp.runners.worker.placement import TaskId
from streamapp.runners.worker.topics import Topics
from streamapp.state.backend import MemoryBackend, StateBackend
from streamapp.state.cache import RecordCache
from streamapp.state.directory import StateDamagedError, StateDirectory
from streamapp.state.rocks import RocksBackend, RocksMemory
from streamapp.state.row_memory import RowMemory
from streamapp.topology.plan import Plan, Subtopology

__all__ = ["LiveTask", "TaskOpener", "now_ms"]

logger = logging.getLogger(__name__)


def now_ms() -> int:
    return int(time.time() * 1000)


@dataclass(eq=False, slots=True)
class LiveTask:
    id: TaskId
    subtopology: Subtopology
    task: Task
    inputs: tuple[TopicPartition, ...]
    changelogs: Mapping[TopicPartition, str]
    """Changelog partition -> store, of the stores that are logged."""
    folder: str
    """Where its state is on disk, for messages."""
    repartitioned: tuple[TopicPartition, ...] = ()
    """Those of its inputs that are repartition topics: nobody else reads them."""
    running: bool = False
    """Restored and initialised."""
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    """Where reading began, by input: the committed offset or where the reset policy led."""

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to process, by input."""
        return {**self.starts, **self.task.positions}

    @property
    def state_offset(self) -> int:
        """How far its state is: the changelog offsets of its stores together."""
        return sum(self._state_offsets().values())

    @property
    def restorable(self) -> bool:
        """Whether there is a changelog of everything that it has on disk."""
        return _restorable(self.subtopology)

    def pass_over_gaps(self, read_up_to: Callable[[TopicPartition], int]) -> None:
        """Has the next commit cover markers and gaps of the inputs: Kafka's own tools count markers and gaps as lag."""
        waiting = self.task.buffered
        for tp, position in self.positions.items():
            if not waiting.get(tp) and (reached := read_up_to(tp)) > position:
                self.task.skip_to(tp, reached)

    def close(self) -> int:
        """Closes the task; returns how far the state is that stays on disk."""
        persistent = {spec.name for spec in self.subtopology.stores if spec.persistent}
        stays = sum(offset for store, offset in self._state_offsets().items() if store in persistent)
        self.task.close()
        return stays

    def _state_offsets(self) -> dict[str, int]:
        logged = set(self.changelogs.values())
        return {store: offset for store, offset in self.task.changelog_offsets.items() if store in logged}

    def commit_positions(self) -> dict[TopicPartition, Position]:
        """What a commit has to say about the inputs."""
        metadata = self.task.commit_metadata
        return {tp: Position(offset, metadata.get(tp, "")) for tp, offset in self.task.positions.items()}


class TaskOpener:
    """Makes the tasks of a plan, each with its own state in the application's state folder."""

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
    ) -> None:
        self._plan = plan
        self._topics = topics
        self._outputs = outputs
        self._changelogs = changelogs
        self._global_stores = global_stores
        self._directory = directory
        self._run_async = run_async
        self._cache = RecordCache(plan.config.statestore_cache_max_bytes)
        self._rows = rows
        shares = plan.config.memory
        self._memory = RocksMemory(shares.block_cache, shares.write_buffers)
        self._subtopologies = {sub.id: sub for sub in plan.subtopologies}

    def __call__(self, id: TaskId) -> LiveTask:
        sub = self._subtopologies[id.subtopology]
        inputs = tuple(
            TopicPartition(topic, id.partition)
            for topic in self._topics.sources[sub.id]
            if id.partition < self._topics.partitions[topic]
        )
        folder = ""
        backend: StateBackend = MemoryBackend()
        if any(spec.persistent for spec in sub.stores):
            folder, backend = str(self._directory.task_path(str(id))), self._open_state(id, sub)
        task = Task(
            self._plan,
            sub,
            id.partition,
            self._outputs,
            backend,
            changelogs=self._changelogs,
            global_stores=self._global_stores,
            wall_clock_ms=now_ms,
            inputs=inputs,
            cache=self._cache,
            rows=self._rows,
            run_async=self._run_async,
        )
        changelogs = {
            TopicPartition(topic.name, id.partition): name for name, topic in sub.changelog_topics.items()
        }
        repartition_topics = {topic.name for topic in sub.repartition_topics}
        repartitioned = tuple(tp for tp in inputs if tp.topic in repartition_topics)
        return LiveTask(id, sub, task, inputs, changelogs, folder, repartitioned)

    def _open_state(self, id: TaskId, sub: Subtopology) -> RocksBackend:
        """The state on disk; what is damaged is deleted, to be restored, if there is a changelog of all of it."""
        path = self._directory.task_path(str(id))
        try:
            return RocksBackend(path, self._memory)
        except StateDamagedError as error:
            if not _restorable(sub):
                raise
            logger.warning("task %s: its local state is damaged and is restored anew. %s", id, error)
            self._directory.wipe(str(id))
            return RocksBackend(self._directory.task_path(str(id)), self._memory)

    def wipe(self, live: LiveTask) -> None:
        """Deletes the local state of a task that was closed."""
        self._directory.wipe(str(live.id))


def _restorable(sub: Subtopology) -> bool:
    """Whether there is a changelog of everything that is on disk."""
    return all(spec.name in sub.changelog_topics for spec in sub.stores if spec.persistent)
