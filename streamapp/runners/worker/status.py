"""The status of a worker as plain data, for views and tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from streamapp.engine.operator import ParkedStatus
from streamapp.records import TopicPartition
from streamapp.state.spec import StoreSpec

__all__ = [
    "SPARE",
    "SPARE_REASON",
    "SPARE_REMEDY",
    "InputInfo",
    "RestoreInfo",
    "StandbyInfo",
    "TableInfo",
    "TaskInfo",
    "WorkerState",
]

WorkerState = Literal["starting", "rebalancing", "restoring", "running", "stuck", "stopping", "failed"]

SPARE = "The worker has no task, and no standby."
SPARE_REASON = "There are more workers than tasks. Workers without a task do not make the application faster."
SPARE_REMEDY = "Run fewer workers, or add partitions to the inputs (with `streamapp reset`)."


@dataclass(frozen=True, slots=True)
class InputInfo:
    """One input of a task. ``position`` is the next offset to process, ``end`` the end of the log (None: not known).

    ``buffered`` is the number of fetched records that wait to be processed. ``behind_others`` is True if no record
    arrives because the consumer has to hand out records of other inputs first.
    """

    partition: TopicPartition
    position: int | None
    end: int | None
    buffered: int
    behind_others: bool = False

    @property
    def lag(self) -> int | None:
        """The offsets between the position and the end of the log. None: not known."""
        return None if self.position is None or self.end is None else max(0, self.end - self.position)


@dataclass(frozen=True, slots=True)
class RestoreInfo:
    """The progress of a store's restore.

    ``start``, ``position`` and ``end`` (exclusive) are offsets of its changelog partition. ``rate`` is in records per
    second.
    """

    store: str
    partition: TopicPartition
    start: int
    position: int
    end: int
    rate: float
    queued: bool = False
    """True: the restore has not begun, because other stores come first."""

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
    """False while the task or the global tables are restored."""
    processed: int
    """Records since the task was opened."""
    inputs: tuple[InputInfo, ...]
    restoring: tuple[RestoreInfo, ...]
    parked: tuple[ParkedStatus, ...] = ()
    """Records that wait for a retry, by operator."""

    @property
    def lag(self) -> int | None:
        """The sum over all inputs whose lag is known. None: no lag is known."""
        lags = [each.lag for each in self.inputs if each.lag is not None]
        return sum(lags) if lags else None


@dataclass(frozen=True, slots=True)
class StandbyInfo:
    """A copy of a task's state that is kept warm here for another worker."""

    id: str
    subtopology: int
    partition: int
    warmup: bool
    """True: the task moves to this worker once all warm-ups of the worker have caught up."""
    stores: tuple[RestoreInfo, ...]
    """The progress of each store. ``end`` is the end of its changelog at the last look."""

    @property
    def lag(self) -> int:
        """The number of changelog offsets that the copy does not have yet."""
        return sum(max(0, each.end - each.position) for each in self.stores)


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A state store. ``owners`` has, by partition, the URL of the worker that has it (None: no worker, for now)."""

    spec: StoreSpec
    topic: str | None
    """The changelog of the store, or the topic of a global store. None: the store has no changelog."""
    source_topics: tuple[str, ...]
    partitions: int
    local: frozenset[int]
    owners: Mapping[int, str | None]
    standbys: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """The URLs of the workers with a copy, by partition."""
    is_global: bool = False

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def kind(self) -> str:
        return self.spec.kind.persistent_name
