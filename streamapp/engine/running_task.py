"""The interface through which the parts of a task, such as its record loop and its sinks, see the task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from streamapp.engine.collector import Collector
from streamapp.engine.operator import TaskContext
from streamapp.engine.processor import Processor, ProcessorContext
from streamapp.engine.queues import RecordQueue
from streamapp.records import RecordBatch
from streamapp.topology.plan import Plan

__all__ = ["RunningTask", "TaskMetrics"]


@dataclass
class TaskMetrics:
    """The counters of a task since its creation. A runner may carry over the drops of an earlier task."""

    processed: int = 0
    dropped_records: int = 0
    drops: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Dropped records by (operator or store, reason). Unlike ``dropped_records``, which counts as Kafka Streams does,
    these numbers include null keys before a repartition topic."""
    lost_records: int = 0
    """The records of which ``dropped_records`` counts at least one drop, except answers that are ``superseded``. A
    record that two operators drop, or that is late for several windows, counts once."""
    last_lost: tuple[str | None, int, int] = (None, -1, -1)
    """Topic, partition and offset of the record that ``lost_records`` has counted last."""
    dropped_results: int = 0
    """Results that brokers have refused, and that the production exception handler has dropped."""


class RunningTask(TaskContext, Protocol):
    """A task as its own parts see it. Operators and stores see only a `TaskContext`."""

    plan: Plan
    collector: Collector
    global_stores: Mapping[str, Any]
    metrics: TaskMetrics
    commit_needed: bool
    """True: the task has processed a record, called a punctuator or moved a position since the last commit."""
    batch: RecordBatch | None
    """The batch that has the bytes of the current record."""

    any_partition: bool
    """True: a partitioner may choose a partition that the topic does not have (`TaskRules.any_partition`)."""

    numbered_topics: Collection[str]
    """Inputs whose offsets are not those of Kafka (`TaskRules.numbered_topics`)."""

    @property
    def at(self) -> str:
        """The present place in the input, for errors: the record, or a punctuation."""

    def store(self, name: str) -> Any:
        """A store of this task, or a global store. Raises `InvalidStoreError`."""

    def pass_over(self, queue: RecordQueue) -> None:
        """Removes the record at the head of a queue, and moves the position of the input behind this record."""

    def add_processor(self, name: str, processor: Processor, context: ProcessorContext) -> None:
        """Registers a user's processor, which is initialized and closed with the task."""
