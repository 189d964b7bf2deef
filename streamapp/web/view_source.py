"""`ViewSource` is the interface between the views and their worker. Tests run the views without a worker."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from streamapp.broker.removed_records import RemovedRange
from streamapp.consumer.account import ConsumerStatus
from streamapp.engine.operator import ParkedStatus
from streamapp.records import TopicPartition
from streamapp.serdes import Serde
from streamapp.state.store_kind import StoreKind

__all__ = [
    "InputStatus",
    "NodeKind",
    "NotAvailable",
    "RestoreStatus",
    "StandbyStatus",
    "SubtopologyGraph",
    "TableInfo",
    "TaskStatus",
    "TopologyGraph",
    "TopologyNode",
    "ViewSource",
    "WorkerState",
    "WorkerStatus",
]

R = TypeVar("R")

WorkerState = Literal["starting", "rebalancing", "restoring", "running", "stuck", "stopping", "failed"]
NodeKind = Literal["source", "processor", "sink"]


class NotAvailable(Exception):
    """A store cannot be read now. The client gets status 503 with ``reason``. ``retry_after`` is in seconds."""

    def __init__(self, reason: str, *, retry_after: int = 1) -> None:
        super().__init__(reason)
        self.reason: str = reason
        self.retry_after: int = retry_after


@dataclass(frozen=True, slots=True)
class InputStatus:
    """One source partition of a task, one partition of a global topic, or one partition that agents read.

    ``position`` is the next offset to process, and ``end`` the end of the log; None while unknown. ``buffered`` records
    have arrived but are not processed. ``behind_others`` is True if no record arrives because the worker takes records
    of other inputs first.
    """

    topic: str
    partition: int
    position: int | None
    end: int | None
    buffered: int = 0
    behind_others: bool = False

    @property
    def lag(self) -> int | None:
        """The offsets between the position and the end of the log; None while the position or the end is not known."""
        if self.position is None or self.end is None:
            return None
        return max(0, self.end - self.position)


@dataclass(frozen=True, slots=True)
class RestoreStatus:
    """The restore of a store from one partition of its changelog.

    ``start``, ``position`` and ``end`` are offsets; ``end`` is exclusive.
    """

    store: str
    topic: str
    partition: int
    start: int
    position: int
    end: int
    queued: bool = False
    """True before the restore begins, while other stores are restored."""

    @property
    def remaining(self) -> int:
        return max(0, self.end - self.position)

    @property
    def percent(self) -> float:
        total = self.end - self.start
        return 100.0 if total <= 0 else round(100.0 * min(1.0, (self.position - self.start) / total), 1)


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """A task of this worker: one sub-topology on one partition number."""

    id: str
    partition: int
    state: Literal["restoring", "running"]
    processed: int
    inputs: Sequence[InputStatus] = ()
    restoring: Sequence[RestoreStatus] = ()
    parked: Sequence[ParkedStatus] = ()
    """Records that wait for a retry, by operator."""


@dataclass(frozen=True, slots=True)
class StandbyStatus:
    """A copy on this worker of the stores of a task that runs on another worker.

    ``warmup`` is True if the task will move to this worker as soon as the copy is nearly complete.
    """

    id: str
    partition: int
    warmup: bool
    stores: Sequence[RestoreStatus] = ()

    @property
    def lag(self) -> int:
        """The number of changelog offsets that are not in the copy yet."""
        return sum(each.remaining for each in self.stores)


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """The state of a worker at one moment. ``url`` is the address that other workers use."""

    state: WorkerState
    reason: str | None
    url: str
    tasks: Sequence[TaskStatus] = ()
    standbys: Sequence[StandbyStatus] = ()
    paused: bool = False
    workers: Sequence[str] = ()
    """The addresses of all workers of the application at the last assignment."""
    dropped_records: Mapping[str, int] = field(default_factory=dict)
    """Records dropped since the worker started, by task, including tasks that have moved away."""
    dropped_results: int = 0
    """Results that brokers refused, and that the production exception handler let the application skip."""

    drops: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    """``dropped_records`` by task, operator (or store) and reason."""
    consumers: Sequence[ConsumerStatus] = ()
    """The application's consumers (`App.consume`)."""
    global_inputs: Sequence[InputStatus] = ()
    """The partitions of global topics, which belong to no task."""
    agent_inputs: Sequence[InputStatus] = ()
    """The partitions that agents of Faust read. ``buffered`` records went to agents, and are not finished."""
    agent_failed_records: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The records of agents that the exception handlers have given up, by topic: those that were dropped, and those
    that became dead letters."""
    agents_wait_for: str | None = None
    """The address of the leader, while the leader's agents need other topics and the agents here wait. None: they do
    not wait."""
    missing_topics: Sequence[str] = ()
    """The topics that this worker reads, and that brokers have not told."""
    unread: Collection[str] = ()
    """The topics that tasks of the group's leader read, and this worker does not: the leader runs another version."""
    has_tasks: bool = True
    """False for an application with agents, consumers or global tables only, which never has tasks."""
    lost_records: Mapping[str, int] = field(default_factory=dict)
    """The records of ``dropped_records`` by task, each counted once, although several operators may drop it."""
    processed: int = 0
    """Records processed since the worker started, including those of tasks that have moved away."""
    work: str | None = None
    """The present work of the thread that processes records, on which reads of tables wait."""

    removed_records: Mapping[TopicPartition, RemovedRange] = field(default_factory=dict)
    """Records of tasks and agents that brokers had removed before the worker could read them."""

    @property
    def dropped(self) -> int:
        """The number of records and results dropped since the worker started."""
        return sum(self.dropped_records.values()) + self.dropped_results


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A state store, as the views see it.

    ``owners`` has the address of the worker of each partition, or None while a partition has no worker.
    ``standbys`` has the addresses of the workers with a standby of each partition. ``local`` are the partitions of
    this worker. Each worker has the whole of a global table, which has one partition.

    ``subtopology`` is the sub-topology that writes the store. Task ``<subtopology>_<partition>`` has the lag.
    ``is_internal`` is true for a store that an operator has for itself (`StoreSpec.internal`).
    """

    name: str
    kind: StoreKind
    topic: str | None
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None
    owners: Mapping[int, str | None]
    local: frozenset[int]
    subtopology: int | None = None
    is_global: bool = False
    is_internal: bool = False
    standbys: Mapping[int, Sequence[str]] = field(default_factory=dict)
    inputs: Sequence[str] = ()
    """The topics that the tasks of the store read."""


@dataclass(frozen=True, slots=True)
class TopologyNode:
    name: str
    kind: NodeKind
    topics: Sequence[str] = ()
    stores: Sequence[str] = ()
    successors: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class SubtopologyGraph:
    id: int
    nodes: Sequence[TopologyNode]
    is_global: bool = False


@dataclass(frozen=True, slots=True)
class TopologyGraph:
    """The topology as text (Kafka Streams' ``describe()``), as a Mermaid diagram, and as a graph."""

    text: str
    mermaid: str
    subtopologies: Sequence[SubtopologyGraph] = field(default=())


class ViewSource(Protocol):
    """The interface through which views see a worker. All methods except ``read`` return at once, in every state."""

    application_id: str

    def status(self) -> WorkerStatus: ...

    def topology(self) -> TopologyGraph: ...

    def tables(self) -> Mapping[str, TableInfo]: ...

    def partition_for(self, table: str, key: bytes) -> int:
        """The partition of a key's bytes, by Kafka's default partitioner (murmur2) of their `placing_bytes`.

        Raises `NotAvailable`.
        """
        ...

    async def read(
        self,
        table: str,
        partition: int,
        fn: Callable[[Any], R],
        *,
        stale: bool = False,
        at_least: Mapping[TopicPartition, int] | None = None,
    ) -> R:
        """Calls ``fn(store)`` for a local partition, between two batches. Raises `NotAvailable`.

        ``fn`` runs on the thread that processes records, so it must be quick, and must not keep the store or an
        iterator. With ``stale``, the store may be a standby, or a store that is being restored (KIP-535). ``at_least``
        has the positions that inputs must have reached.
        """
        ...

    def pause(self) -> None:
        """Stops the processing of records until `resume`. The worker stays in the group (KIP-834)."""
        ...

    def resume(self) -> None: ...
