"""The interfaces (ports) of a runner: everything that code outside the engine provides so that tasks run.

Every runner gives its tasks a `TaskEnvironment`, and a `StateHome`, which opens the state of each task. The runner
opens a `TaskSession` for each task and calls the session's steps in their order. Other ports are optional:

| port | a runner without it |
| --- | --- |
| `Changelogs` | restores no state, or hands over changelog records as they arrive (`TaskSession.restore`) |
| `RecordReader` | hands over input records as they arrive (`Task.enqueue`); with readers, a `Feed` reads as needed |
| `Transaction` | commits nothing outside its own state (`TaskSession.commit_alone`) |

`tests/unit/engine/test_toy_runner.py` is a whole runner in one file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
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
    """The rules in which runners differ, for example because a test driver must behave as Kafka Streams' does.

    The defaults are the rules of workers.
    """

    partition_group: Callable[..., PartitionGroup] = PartitionGroup
    """Makes the object that chooses the next record among several inputs."""
    any_partition: bool = False
    """True: a partitioner may choose a partition that the topic does not have, as in Kafka Streams' test driver."""
    log_each_write: bool = False
    """True (the test driver): every write to a store is a changelog record, as in Kafka Streams without a cache. False
    (workers and Spark): a commit writes the last value of each key, and for versioned stores each version."""
    always_recheck: bool = False
    """True: foreign-key joins always behave as with `StreamsConfig.foreign_key_join_recheck`."""
    retries_at_once: bool = False
    """True: no record waits for a retry, because the attempts of a `Retry` follow each other at once."""
    one_task: bool = False
    """True: one task runs all sub-topologies. A retry topic with many waiting records then does not hold the task
    back."""
    punctuators: bool = True
    """False: no processor may schedule a punctuator, because nobody would call it."""
    punctuators_go_on: bool = False
    """True: when a task opens, each stream-time punctuator goes on with the next call that the last commit noted. This
    rule is for runners that open a task anew for each few records (Spark). The rule holds only for punctuators that
    ``init`` of a processor schedules. False: the first call comes with the first record, as after a restart of Kafka
    Streams."""
    numbered_topics: frozenset[str] = frozenset()
    """Inputs whose offsets only number the records in the runner. No command finds such a record in Kafka again."""
    refuse_wall_clock: Callable[[str], UnsupportedOperation] | None = None
    """For runners without a wall clock: gives the error for a node that schedules a punctuator by the wall clock. None:
    such punctuators are allowed."""


@dataclass(frozen=True)
class TaskEnvironment:
    """Everything that a task gets from its runner, except its state. Tasks of one process may share an environment."""

    plan: Plan
    collector: Collector
    """Takes the records that a task sends."""
    wall_clock_ms: Callable[[], int]
    """The wall clock in ms since the epoch, for processors, punctuators and retries."""
    changelogs: Collector | None = None
    """Takes the changelog records. None: ``collector`` takes them, too."""
    global_stores: Mapping[str, Any] = field(default_factory=dict)
    """The global stores of the process by name (`GlobalState.stores`)."""
    cache: RecordCache | None = None
    """The record cache that the tasks share; None: each task has its own cache."""
    rows: RowMemory | None = None
    """The memory limit for rows that stores keep for later reads. None: each task has its own limit."""
    run_async: RunAsync | None = None
    """Runs the coroutines of asynchronous steps. None: a topology with such steps is refused."""
    rules: TaskRules = TaskRules()
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Kafka's ids of inputs and changelogs, which each commit names in its metadata. Ids may be missing."""
    with_offsets: frozenset[str] = frozenset()
    """The inputs in which the group had committed offsets at the start of the process (`topic_notes`)."""
    edition: int = 0
    """The largest `EDITION` (`store_notes`) in the offsets of the group at the start of the process."""
    with_commits: set[str] = field(default_factory=set)
    """The inputs in which tasks of this process have committed offsets. The tasks of a process share the set."""


class StateHome(Protocol):
    """Opens and deletes the persistent state of tasks, for example in folders of a disk.

    A task whose stores are all in memory does not use a `StateHome`.
    """

    def open(self, task: str, stores: Collection[str]) -> StateBackend:
        """Opens the state of a task, as its last commit left it. ``task`` is the id of the task, for example ``0_3``.

        ``stores`` are the persistent stores of the task.

        Raises `StateDamagedError` if the stored bytes are damaged.
        """

    def wipe(self, task: str) -> None:
        """Deletes the state of a closed task."""

    def place(self, task: str) -> str:
        """The text that says where a task's state is, such as the path of its folder, for messages."""


class InMemory:
    """The `StateHome` of a runner that keeps all state in memory, so that it is lost when the task closes."""

    def open(self, task: str, stores: Collection[str]) -> StateBackend:
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
        """Ends the reading and releases resources. Called once, perhaps before the end of the partition is reached."""


class Changelogs(Protocol):
    """Reads changelogs, for runners that restore the whole state of a task before they do anything else."""

    def spans(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, tuple[int, int]]:
        """The first offset and the end of each log. A partition that is missing in the result is not restored."""

    def open(self, partition: TopicPartition, start: int, end: int) -> RecordReader:
        """Reads a log from ``start`` to before ``end``."""


class Transaction(Protocol):
    """The outer part of a commit of one or several tasks, for example a Kafka transaction.

    `task_session.commit` calls the methods in the order in which they stand here. If a method raises, no task writes
    its state to disk.
    """

    def begin(self) -> None:
        """Begins the commit. The tasks flush next, and their changelog records belong to this commit."""

    def acknowledge(self) -> None:
        """Waits until the brokers have acknowledged every record that the tasks have sent, also during their flush."""

    def changelog_ends(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The end offsets of changelogs, which include the records of this commit.

        The ends are read before the commit, because after the commit other workers may write more records.
        """

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Makes the positions of all inputs and all sent records valid, together or not at all."""
