"""All tasks of a topology in one process, with nothing done in step: which task goes on, how many records it takes and when
it commits is up to chance."""

from __future__ import annotations

import random
import zlib
from collections import defaultdict
from typing import Any

from streamapp import StreamsConfig, TopicPartition, Topology
from streamapp.engine.runner_ports import TaskEnvironment, TaskRules
from streamapp.engine.task import Task
from streamapp.records import Headers, RecordBatch
from streamapp.state.backend import MemoryBackend
from streamapp.state.cache import RecordCache

PARTITIONS = 2
RULES = TaskRules()


class SeveralTasks:
    """Runs a topology as its workers do: `send`, `step`, `settle`; `latest` is the last value by key of a topic."""

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        chance: random.Random,
        rules: TaskRules = RULES,
    ) -> None:
        self._chance = chance
        self._offsets: defaultdict[TopicPartition, int] = defaultdict(int)
        self.latest: defaultdict[str, dict[bytes, tuple[bytes | None, int]]] = defaultdict(dict)
        plan = topology.plan(config)
        self._readers: defaultdict[TopicPartition, list[Task]] = defaultdict(list)
        self.tasks = []
        environment = TaskEnvironment(
            plan,
            self,
            wall_clock_ms=lambda: 0,
            cache=RecordCache(config.statestore_cache_max_bytes),
            rules=rules,
        )
        for subtopology in plan.subtopologies:
            for partition in range(PARTITIONS):
                one = Task(environment, subtopology, partition, MemoryBackend(), inputs=())
                one.init()
                self.tasks.append(one)
                for topic in subtopology.source_topics:
                    self._readers[TopicPartition(topic, partition)].append(one)

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int | None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        if partition is None:
            partition = zlib.crc32(key or b"") % PARTITIONS
        place = TopicPartition(topic, partition)
        offset = self._offsets[place]
        self._offsets[place] += 1
        assert timestamp is not None
        if key is not None:
            self.latest[topic][key] = value, timestamp
        for task in self._readers[place]:
            task.enqueue(place, RecordBatch([key], [value], [timestamp], [offset], [headers]))

    def partition_count(self, topic: str) -> int:
        return PARTITIONS

    def step(self, commit_one_of: int) -> None:
        """One task takes some records, and commits perhaps."""
        task = self._chance.choice(self.tasks)
        task.process(self._chance.randint(1, 4))
        if not self._chance.randrange(commit_one_of):
            self.commit(task)

    def commit(self, task: Task) -> None:
        task.flush()
        task.persist({})

    def settle(self) -> None:
        """Everything is processed and committed, until nothing more comes."""
        while any(sum(task.buffered.values()) or task.commit_needed for task in self.tasks):
            for task in self.tasks:
                task.process()
                self.commit(task)

    def table(self, topic: str) -> dict[str, Any]:
        return {
            key.decode(): value.decode()
            for key, (value, _) in self.latest[topic].items()
            if value is not None
        }
