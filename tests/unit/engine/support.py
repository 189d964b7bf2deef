"""A task in a test: its collector keeps what it sends, its clock stands still."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from streamapp import Backoff, StreamsBuilder, StreamsConfig, StringSerde, TopicPartition, Topology
from streamapp.engine.runner_ports import TaskEnvironment, TaskRules
from streamapp.engine.task import Task
from streamapp.records import NO_HEADERS, Headers, OutputRecord, RecordBatch
from streamapp.state.backend import MemoryBackend, StateBackend

TEXT = StringSerde()
TEXTS: dict[str, Any] = {"key_serde": TEXT, "value_serde": TEXT}
CONFIG = StreamsConfig("app", statestore_cache_max_bytes=0, dead_letter_queue_topic="dead")
QUICK = Backoff(100, limit=100, jitter=0)


class Sent:
    """A collector that remembers."""

    def __init__(self, partitions: int = 4) -> None:
        self.records: list[OutputRecord] = []
        self._partitions = partitions

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int | None,
        headers: Headers,
        partition: int | None,
    ) -> None:
        self.records.append(OutputRecord(topic, key, value, timestamp, headers, partition))

    def partition_count(self, topic: str) -> int:
        return self._partitions

    def to(self, topic: str) -> list[tuple[Any, ...]]:
        """(key, value, timestamp) of what went to a topic, as text."""
        return [
            (r.key and r.key.decode(), r.value and r.value.decode(), r.timestamp)
            for r in self.records
            if r.topic == topic
        ]


def task_of(
    topology: Topology | StreamsBuilder,
    *,
    config: StreamsConfig | None = None,
    backend: StateBackend | None = None,
    collector: Sent | None = None,
    now: Sequence[int] = (0,),
    init: bool = True,
    rules: TaskRules | None = None,
    log_each_write: bool = False,
) -> tuple[Task, Sent]:
    """The first sub-topology's task 0, ready to process."""
    if isinstance(topology, StreamsBuilder):
        topology = topology.build()
    plan = topology.plan(config or StreamsConfig("app", statestore_cache_max_bytes=0))
    sent = collector or Sent()
    rules = rules or TaskRules(log_each_write=log_each_write)
    environment = TaskEnvironment(plan, sent, wall_clock_ms=lambda: now[-1], rules=rules)
    task = Task(environment, plan.subtopologies[0], 0, backend or MemoryBackend())
    if init:
        task.init()
    return task, sent


def feed(
    task: Task,
    topic: str,
    records: Iterable[tuple[str | None, str | bytes | None, int]],
    *,
    offset: int = 0,
    headers: Headers = NO_HEADERS,
) -> None:
    """Enqueues (key, value, timestamp) records of partition 0."""
    rows = list(records)
    task.enqueue(
        TopicPartition(topic, 0),
        RecordBatch(
            [None if k is None else k.encode() for k, _, _ in rows],
            [v.encode() if isinstance(v, str) else v for _, v, _ in rows],
            [t for _, _, t in rows],
            list(range(offset, offset + len(rows))),
            [headers] * len(rows) if headers else None,
        ),
    )


def commit(task: Task, changelog_offsets: dict[TopicPartition, int] | None = None) -> None:
    """What a runner does once everything is acknowledged."""
    task.flush()
    task.persist(changelog_offsets or {})
