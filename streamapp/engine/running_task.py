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
    """The counts of a task since its creation. A runner may go on with the drops of the task before."""

    processed: int = 0
    dropped_records: int = 0
    drops: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Dropped records by operator (or store) and reason: those of ``dropped_records``, and null keys in front of a repartition
    topic, which Kafka Streams does not count."""
    dropped_results: int = 0
    """Results that brokers refused and an exception handler went on without."""


class RunningTask(TaskContext, Protocol):
    """A task as its parts see it; operators and stores see less of it (`TaskContext`)."""

    plan: Plan
    collector: Collector
    global_stores: Mapping[str, Any]
    metrics: TaskMetrics
    commit_needed: bool
    """Something was processed since the last commit."""
    batch: RecordBatch | None
    """The batch that has the bytes of the current record."""

    any_partition: bool
    """`TaskRules.any_partition` of the runner."""

    def store(self, name: str) -> Any:
        """A store of this task, or a global store. Raises `InvalidStoreError`."""

    def pass_over(self, queue: RecordQueue) -> None:
        """Notes that the record at the head of a queue is done with."""

    def add_processor(self, name: str, processor: Processor, context: ProcessorContext) -> None:
        """Registers a user's processor, to be initialized with the task and closed with it."""
