"""The port between a task and its parts: the chain of operators, sinks, timestamp extractors, exception handlers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from streamapp.engine.collector import Collector
from streamapp.engine.operator import TaskContext
from streamapp.engine.processor import Processor, ProcessorContext
from streamapp.engine.queues import RecordQueue
from streamapp.records import RecordBatch
from streamapp.topology.plan import Plan

__all__ = ["RunningTask"]


class RunningTask(TaskContext, Protocol):
    """A task as its parts see it; operators and stores see less of it (`TaskContext`)."""

    plan: Plan
    collector: Collector
    global_stores: Mapping[str, Any]
    batch: RecordBatch | None
    """The batch that has the bytes of the current record."""

    def store(self, name: str) -> Any:
        """A store of this task, or a global store. Raises `InvalidStoreError`."""

    def pass_over(self, queue: RecordQueue) -> None:
        """Notes that the record at the head of a queue is done with."""

    def add_processor(self, name: str, processor: Processor, context: ProcessorContext) -> None:
        """Registers a user's processor, to be initialized with the task and closed with it."""
