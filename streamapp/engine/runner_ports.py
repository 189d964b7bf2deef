"""The ports of a runner: everything that code outside the engine provides so that tasks run.

A runner gives its tasks a `TaskEnvironment`, and each task a place for its state, a `StateHome`. The runner opens a
`TaskSession` for each task and calls the session's steps in their order. The other ports depend on the runner:

| port | a runner without it |
| --- | --- |
| `Changelogs` | restores no state, or hands over changelog records as they arrive (`TaskSession.restore`) |
| `RecordReader` | hands over input records as they arrive (`Task.enqueue`); with readers, a `Feed` reads as needed |
| `Transaction` | commits nothing outside its own state (`TaskSession.commit_alone`) |

`tests/unit/engine/test_toy_runner.py` is a whole runner in one file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from streamapp.engine.asynchronous import RunAsync
from streamapp.engine.collector import Collector
from streamapp.engine.partition_group import PartitionGroup
from streamapp.errors import UnsupportedOperation
from streamapp.records import RecordBatch, TopicPartition
from streamapp.state.backend import MemoryBackend, StateBackend
from streamapp.state.cache import RecordCache
from streamapp.state.row_memory import RowMemory
from streamapp.topology.plan import Plan

__all__ = [
    "Changelogs",
    "InMemory",
    "Position",
    "RecordReader",
    "StateHome",
    "TaskEnvironment",
    "TaskRules",
    "Transaction",
]


class Position(NamedTuple):
    """The position that a commit writes for one input: the next offset to process, and the task's metadata."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True)
class TaskRules:
    """The semantics in which runners differ. The defaults are the rules of workers."""

    partition_group: type[PartitionGroup] = PartitionGroup
    """Chooses the next record of several inputs."""
    any_partition: bool = False
    """True: a partitioner may choose a partition that the topic does not have, as in Kafka Streams' test driver."""
    log_each_write: bool = False
    """True: every write to a store is a changelog record, as in Kafka Streams without a cache. False: a commit writes
    the last value of each key."""
    always_recheck: bool = False
    """True: foreign-key joins ask again, also if `StreamsConfig.foreign_key_join_recheck` is False."""
    retries_at_once: bool = False
    """True: no record waits for a retry. The attempts of `Retry` follow each other at once."""
    refuse_wall_clock: Callable[[str], UnsupportedOperation] | None = None
    """Gives the error for a node that schedules a wall-clock punctuator; None: wall-clock punctuators are called."""


@dataclass(frozen=True)
class TaskEnvironment:
    """Everything that a task gets from its runner, except its state. Tasks of one process may share an environment."""

    plan: Plan
    collector: Collector
    """Takes the records that a task sends."""
    wall_clock_ms: Callable[[], int]
    """The wall clock in ms since the epoch, for processors, punctuators and retries."""
    changelogs: Collector | None = None
    """Takes the changelog records; None: ``collector`` takes them, too."""
    global_stores: Mapping[str, Any] = field(default_factory=dict)
    """`GlobalState.stores` of the process."""
    cache: RecordCache | None = None
    """The record cache that the tasks share; None: each task has its own cache."""
    rows: RowMemory | None = None
    """The memory limit of the rows that all stores keep to read them again; None: each task has its own limit."""
    run_async: RunAsync | None = None
    """Runs the coroutines of asynchronous steps; None: such steps are refused."""
    rules: TaskRules = TaskRules()


class StateHome(Protocol):
    """The place of the state of tasks. Tasks without persistent stores do not ask for a home."""

    def open(self, task: str) -> StateBackend:
        """The state of a task as of its last commit. ``task`` is the task's id, for example ``0_3``.

        Raises `StateDamagedError` if the bytes differ from the bytes that were written.
        """

    def wipe(self, task: str) -> None:
        """Deletes the state of a closed task."""

    def place(self, task: str) -> str:
        """Names the place of a task's state, for messages."""


class InMemory:
    """The `StateHome` of tasks whose state ends with the task."""

    def open(self, task: str) -> StateBackend:
        return MemoryBackend()

    def wipe(self, task: str) -> None:
        pass

    def place(self, task: str) -> str:
        return "the memory of the process"


class RecordReader(Protocol):
    """Reads one partition of a topic, from an offset to an end."""

    def read(self) -> RecordBatch | None:
        """The next records; None at the end; an empty batch if no records have come yet."""

    def close(self) -> None:
        """Ends reading. Called once, perhaps before the end."""


class Changelogs(Protocol):
    """The source of changelog records, for runners that wait for a restore."""

    def spans(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, tuple[int, int]]:
        """The first offset and the end of each log. A partition that is left out is not restored."""

    def open(self, partition: TopicPartition, start: int, end: int) -> RecordReader:
        """Reads a log from ``start`` to before ``end``."""


class Transaction(Protocol):
    """One commit of one or several tasks, outside the engine.

    `task_session.commit` calls the methods in the order of this class. A method that raises ends the commit, and no
    task persists anything.
    """

    def begin(self) -> None:
        """Begins the commit. Later changelog records belong to this commit. The tasks flush next."""

    def acknowledge(self) -> None:
        """Waits until every record that the tasks have sent is safe. The tasks have flushed before."""

    def changelog_ends(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The ends of changelogs, behind the records of this commit. After the commit other workers may write more."""

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Makes the positions of all inputs and all sent records valid, together or not at all."""
