"""The port between a task and its parts: the chain of operators, sinks, timestamp extractors, exception handlers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
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
    """The counts of a task since its creation. A runner may carry over the drops of an earlier task."""

    processed: int = 0
    dropped_records: int = 0
    drops: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Dropped records by (operator or store, reason): the records of ``dropped_records``, and null keys before a
    repartition topic. Kafka Streams does not count these null keys."""
    dropped_results: int = 0
    """Results that brokers have refused and an exception handler has dropped."""


class RunningTask(TaskContext, Protocol):
    """A task as its parts see it. Operators and stores see less of the task (`TaskContext`)."""

    plan: Plan
    collector: Collector
    global_stores: Mapping[str, Any]
    metrics: TaskMetrics
    commit_needed: bool
    """True: the task has processed something since the last commit."""
    batch: RecordBatch | None
    """The batch that has the bytes of the current record."""

    any_partition: bool
    """`TaskRules.any_partition` of the runner."""

    def store(self, name: str) -> Any:
        """A store of this task, or a global store. Raises `InvalidStoreError`."""

    def pass_over(self, queue: RecordQueue) -> None:
        """Takes the record at the head of a queue off the queue, and moves the input's position behind the record."""

    def add_processor(self, name: str, processor: Processor, context: ProcessorContext) -> None:
        """Registers a user's processor, which is initialized and closed with the task."""
