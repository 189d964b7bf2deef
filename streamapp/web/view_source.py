"""What the views ask of the worker they run in: a port, so that they can be tested without one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from streamapp.consumer.account import ConsumerStatus
from streamapp.engine.operator import ParkedStatus
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
    """A store cannot be read at the moment; becomes a 503 that says why. ``retry_after`` is in seconds."""

    def __init__(self, reason: str, *, retry_after: int = 1) -> None:
        super().__init__(reason)
        self.reason: str = reason
        self.retry_after: int = retry_after


@dataclass(frozen=True, slots=True)
class InputStatus:
    """One source partition of a task. ``position``: next offset to process, ``end``: the end of the log."""

    topic: str
    partition: int
    position: int | None
    end: int | None
    buffered: int = 0

    @property
    def lag(self) -> int | None:
        """Records between what was processed and the end of the log; None while the end is unknown."""
        if self.position is None or self.end is None:
            return None
        return max(0, self.end - self.position)


@dataclass(frozen=True, slots=True)
class RestoreStatus:
    """How far a store has been read back from its changelog; offsets, ``end`` exclusive."""

    store: str
    topic: str
    partition: int
    start: int
    position: int
    end: int
    queued: bool = False
    """It has not begun: others are restored first."""

    @property
    def remaining(self) -> int:
        return max(0, self.end - self.position)

    @property
    def percent(self) -> float:
        total = self.end - self.start
        return 100.0 if total <= 0 else round(100.0 * min(1.0, (self.position - self.start) / total), 1)


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """One sub-topology on one partition, as this worker runs it."""

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
    """A copy of a task's state that another worker's task keeps warm here: how far each store is.

    ``warmup``: the task moves here once the copy has caught up.
    """

    id: str
    partition: int
    warmup: bool
    stores: Sequence[RestoreStatus] = ()

    @property
    def lag(self) -> int:
        """Changelog records that are not in the copy yet."""
        return sum(each.remaining for each in self.stores)


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """One consistent look at a worker. ``url`` is the address at which other workers reach it."""

    state: WorkerState
    reason: str | None
    url: str
    tasks: Sequence[TaskStatus] = ()
    standbys: Sequence[StandbyStatus] = ()
    paused: bool = False
    workers: Sequence[str] = ()
    """The addresses of all workers of the application, as of the last assignment."""
    dropped_records: Mapping[str, int] = field(default_factory=dict)
    """Records dropped since the worker started, by task, those included that are elsewhere now."""
    dropped_results: int = 0
    """Results that brokers refused and the production exception handler went on without."""

    drops: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    """``dropped_records`` by task, operator (or store) and reason."""
    consumers: Sequence[ConsumerStatus] = ()
    """The application's consumers (`App.consume`)."""

    @property
    def dropped(self) -> int:
        """All that was dropped since the worker started."""
        return sum(self.dropped_records.values()) + self.dropped_results


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A state store, as the views see it.

    ``owners`` has the address of the worker that holds each partition (None: nobody, at the moment),
    ``standbys`` those of the workers with a warm copy of it, ``local`` the partitions this worker holds. A
    global table is whole in every worker: one partition, always local.
    ``subtopology`` is the one whose tasks feed it; task ``<subtopology>_<partition>`` tells how fresh it is.
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
    standbys: Mapping[int, Sequence[str]] = field(default_factory=dict)


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
    """What a worker offers to its views. All but ``read`` return at once, in every state of the worker."""

    application_id: str

    def status(self) -> WorkerStatus: ...

    def topology(self) -> TopologyGraph: ...

    def tables(self) -> Mapping[str, TableInfo]: ...

    def partition_for(self, table: str, key: bytes) -> int:
        """The partition that holds a key, by the partitioner that wrote it."""
        ...

    async def read(self, table: str, partition: int, fn: Callable[[Any], R], *, stale: bool = False) -> R:
        """``fn(store)`` for a local partition, between two batches; raises `NotAvailable`.

        ``fn`` runs on the data plane: it must be quick, and must not keep the store or an iterator of it.
        ``stale``: a standby, or a store that is being restored, will do (KIP-535).
        """
        ...

    def pause(self) -> None:
        """No more records are processed until `resume`; the worker stays in the group (KIP-834)."""
        ...

    def resume(self) -> None: ...
