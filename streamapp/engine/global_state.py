"""Global stores: filled by every process from all partitions of their topics, read by all its tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from streamapp.config import StreamsConfig
from streamapp.engine.collector import NoWayOut
from streamapp.engine.task import Task
from streamapp.records import RecordBatch, TopicPartition
from streamapp.state.backend import StateBackend
from streamapp.state.row_memory import RowMemory
from streamapp.topology.plan import Plan, Subtopology

__all__ = ["GlobalState"]


class GlobalState:
    """All global stores of one process.

    Feed it with `process` until the end of each topic is reached, then go on feeding it; `stores` goes to the tasks.
    """

    def __init__(
        self,
        plan: Plan,
        open_backend: Callable[[str], StateBackend],
        *,
        wall_clock_ms: Callable[[], int],
        rows: RowMemory | None = None,
    ) -> None:
        self._tasks: dict[str, Task] = {}
        # Each process reads them all, and again at each start: so often would a dead letter come.
        rows = rows or RowMemory(plan.config.memory.rows)
        plan = replace(plan, config=_without_letters(plan.config))
        for store in plan.global_stores:
            sub = Subtopology(-1, (store.source, store.processor), (store.spec,), (), {})
            task = Task(
                plan,
                sub,
                -1,
                NoWayOut("a global store's processor"),
                open_backend(store.name),
                wall_clock_ms=wall_clock_ms,
                inputs=(),
                rows=rows,
            )
            task.init()
            self._tasks[store.topic] = task

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(self._tasks)

    @property
    def stores(self) -> dict[str, Any]:
        """The stores by name, for tasks and queries."""
        return {name: store for task in self._tasks.values() for name, store in task.own_stores.items()}

    def process(self, partition: TopicPartition, batch: RecordBatch) -> None:
        """Applies records of one partition of a global topic."""
        task = self._tasks[partition.topic]
        task.partition = partition.partition
        task.enqueue(partition, batch)
        task.process()
        task.flush()
        task.persist({})

    def positions(self) -> dict[TopicPartition, int]:
        """Next offset to read, of what was applied."""
        return {p: o for task in self._tasks.values() for p, o in task.positions.items()}

    @property
    def dropped_records(self) -> int:
        return sum(task.metrics.dropped_records for task in self._tasks.values())

    @property
    def drops(self) -> Counter[tuple[str, str]]:
        """Dropped records by operator and reason."""
        return sum((task.metrics.drops for task in self._tasks.values()), Counter())

    def close(self) -> None:
        for task in self._tasks.values():
            task.close()


def _without_letters(config: StreamsConfig) -> StreamsConfig:
    handlers = (f"{kind}_exception_handler" for kind in ("deserialization", "processing", "production"))
    skips = {name: "skip" for name in handlers if getattr(config, name) == "dead_letter"}
    return config.replace(dead_letter_queue_topic=None, dead_letter_drops=(), **skips)
