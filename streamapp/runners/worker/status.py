"""What a worker says about itself: plain data, for the views and for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from streamapp.engine.operator import ParkedStatus
from streamapp.records import TopicPartition
from streamapp.state.spec import StoreSpec

__all__ = ["InputInfo", "RestoreInfo", "StandbyInfo", "TableInfo", "TaskInfo", "WorkerState"]

WorkerState = Literal["starting", "rebalancing", "restoring", "running", "stuck", "stopping", "failed"]


@dataclass(frozen=True, slots=True)
class InputInfo:
    """One input of a task. ``position`` is the next offset to process, ``end`` the end of the log (None: not known)."""

    partition: TopicPartition
    position: int | None
    end: int | None
    buffered: int

    @property
    def lag(self) -> int | None:
        """Records between what was processed and the end of the log."""
        return None if self.position is None or self.end is None else max(0, self.end - self.position)


@dataclass(frozen=True, slots=True)
class RestoreInfo:
    """How far a store has been restored: offsets of its changelog partition, ``end`` exclusive; records per second."""

    store: str
    partition: TopicPartition
    start: int
    position: int
    end: int
    rate: float
    queued: bool = False
    """It has not begun: others are restored first."""

    @property
    def percent(self) -> float:
        total = self.end - self.start
        return 100.0 if total <= 0 else 100.0 * min(1.0, (self.position - self.start) / total)


@dataclass(frozen=True, slots=True)
class TaskInfo:
    id: str
    subtopology: int
    partition: int
    running: bool
    """False while it is restored."""
    processed: int
    """Records since the task was opened."""
    inputs: tuple[InputInfo, ...]
    restoring: tuple[RestoreInfo, ...]
    parked: tuple[ParkedStatus, ...] = ()
    """Records that wait for a retry, by operator."""

    @property
    def lag(self) -> int | None:
        """Of all inputs together."""
        lags = [each.lag for each in self.inputs if each.lag is not None]
        return sum(lags) if lags else None


@dataclass(frozen=True, slots=True)
class StandbyInfo:
    """A copy of a task's state that is kept warm here for another worker."""

    id: str
    subtopology: int
    partition: int
    warmup: bool
    """The task moves here once the copy has caught up."""
    stores: tuple[RestoreInfo, ...]
    """How far each store is; ``end`` is the end of its changelog when it was last seen."""

    @property
    def lag(self) -> int:
        """Changelog records that the copy does not have yet."""
        return sum(max(0, each.end - each.position) for each in self.stores)


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A state store. ``owners`` has the URL of the worker that holds each partition (None: nobody, at the moment)."""

    spec: StoreSpec
    topic: str | None
    """Its changelog, or the topic that a global store is filled from."""
    source_topics: tuple[str, ...]
    partitions: int
    local: frozenset[int]
    owners: Mapping[int, str | None]
    standbys: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """URLs of the workers with a copy of each partition."""
    is_global: bool = False

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def kind(self) -> str:
        return self.spec.kind.persistent_name
