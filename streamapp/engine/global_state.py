"""Global stores: every process reads all partitions of their topics, and all its tasks can read the stores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from streamapp.engine.global_letters import LetterCollector, TakeLetter
from streamapp.engine.runner_ports import InMemory, TaskEnvironment, TaskRules
from streamapp.engine.task_session import TaskSession
from streamapp.engine.timestamps import fail_on_invalid_timestamp
from streamapp.records import OutputRecord, RecordBatch, TopicPartition
from streamapp.state.row_memory import RowMemory
from streamapp.topology.plan import Plan, Subtopology

__all__ = ["GlobalState"]


class GlobalState:
    """All global stores of one process, in memory.

    The runner passes all records of the global topics to `process`. Before tasks start, the end of each topic must be
    reached; new records follow later. Tasks get `stores`. ``letters`` takes the dead letters of records that fail.
    None: letters are dropped, because another process writes the same letters.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        wall_clock_ms: Callable[[], int],
        rows: RowMemory | None = None,
        letters: TakeLetter | None = None,
    ) -> None:
        self._sessions: dict[str, TaskSession] = {}
        self._current: TaskSession | None = None
        rows = rows or RowMemory(plan.config.memory.rows)
        for store in plan.global_stores:
            collector = LetterCollector(letters or _written_elsewhere)
            environment = TaskEnvironment(
                plan, collector, wall_clock_ms=wall_clock_ms, rows=rows, rules=TaskRules(punctuators=False)
            )
            # As in Kafka Streams, the default extractor is only for topics that tasks read.
            extractor = store.source.timestamp_extractor or fail_on_invalid_timestamp
            source = replace(store.source, timestamp_extractor=extractor)
            sub = Subtopology(-1, (source, store.processor), (store.spec,), (), {})
            session = TaskSession(environment, sub, -1, InMemory(), inputs=())
            collector.record = session.task
            session.start()
            self._sessions[store.topic] = session

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(self._sessions)

    @property
    def stores(self) -> dict[str, Any]:
        """The stores by name, for tasks and queries."""
        return {
            name: store
            for session in self._sessions.values()
            for name, store in session.task.own_stores.items()
        }

    @property
    def at(self) -> str | None:
        """The record that `process` works on, for an error. None: no record."""
        current = self._current
        return None if current is None else current.task.at

    def process(self, partition: TopicPartition, batch: RecordBatch) -> None:
        """Applies records of one partition of a global topic."""
        session = self._current = self._sessions[partition.topic]
        session.task.partition = partition.partition
        session.task.enqueue(partition, batch)
        try:
            session.task.process()
            session.commit_alone()
        finally:
            self._current = None

    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to read, by partition."""
        return {p: o for session in self._sessions.values() for p, o in session.task.positions.items()}

    @property
    def dropped_records(self) -> int:
        return sum(session.task.metrics.dropped_records for session in self._sessions.values())

    @property
    def lost_records(self) -> int:
        return sum(session.task.metrics.lost_records for session in self._sessions.values())

    @property
    def drops(self) -> Counter[tuple[str, str]]:
        """Dropped records by operator and reason."""
        return sum((session.task.metrics.drops for session in self._sessions.values()), Counter())

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()


def _written_elsewhere(source: TopicPartition, offset: int, letter: OutputRecord) -> None:
    """Drops a letter, because another process writes the same letter."""
