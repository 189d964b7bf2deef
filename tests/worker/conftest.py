"""Workers as real processes, and the topics that they read and write."""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from confluent_kafka.cimpl import NewTopic

from streamapp.broker import LocalKafka

from ..brokers import create_topics
from ..processes import Worker, free_port, start_worker, until
from ..topic_reader import TopicReader

PARTITIONS = 4
ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1)}
"""The settings of a topic whose records may be far ahead of the clock."""


@dataclass
class Cluster:
    """One application of a test: its topics, its input so far, its workers."""

    bootstrap: str
    folder: Path
    id: str = field(default_factory=lambda: f"app-{uuid.uuid4().hex[:8]}")
    workers: list[Worker] = field(default_factory=list)
    produced: int = 0

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})
        self.producer = Producer(
            {"bootstrap.servers": self.bootstrap, "partitioner": "murmur2_random", "enable.idempotence": True}
        )
        self._reader = TopicReader(self.bootstrap)
        self.source, self.sink = f"{self.id}-in", f"{self.id}-out"
        self.create(self.source, self.sink)
        self._counts: dict[bytes | None, int] = {}

    def create(
        self, *topics: str, partitions: int = PARTITIONS, config: Mapping[str, str] | None = None
    ) -> None:
        new = [NewTopic(topic, partitions, 1, config=dict(config or {})) for topic in topics]
        create_topics(self.admin, new)

    def topic_id(self, topic: str) -> str:
        """Kafka's id of a topic."""
        ((_, described),) = self.admin.describe_topics(TopicCollection([topic])).items()
        return str(described.result().topic_id)

    def recreate(self, topic: str, partitions: int = PARTITIONS) -> None:
        """Deletes a topic and creates another one with the same name."""
        for future in self.admin.delete_topics([topic]).values():
            future.result()

        def created() -> bool:
            (future,) = self.admin.create_topics([NewTopic(topic, partitions, 1)]).values()
            return future.exception() is None

        until(created, 30, lambda: f"{topic} cannot be created anew")

    def start(
        self,
        name: str = "a",
        command: tuple[str, ...] = ("worker", "-l", "info"),
        app: str = "counting_app",
        **env: str,
    ) -> Worker:
        log = self.folder / f"{name}-{len(self.workers)}.log"
        worker = start_worker(
            f"tests.worker.{app}",
            log,
            {
                "APP_ID": self.id,
                "BOOTSTRAP": self.bootstrap,
                "SOURCE": self.source,
                "SINK": self.sink,
                "DATADIR": str(self.folder / f"data-{name}"),
                "WEB_PORT": str(free_port()),
                **env,
            },
            command=command,
        )
        self.workers.append(worker)
        return worker

    def feed(self, count: int, keys: int = 50, topic: str | None = None) -> None:
        for number in range(count):
            self.producer.produce(
                topic or self.source, b"v", f"k{number % keys}", timestamp=1_700_000_000_000 + number
            )
        self.producer.flush()
        self.produced += count if topic is None else 0

    def read(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        """All committed records of a topic, by partition in order."""
        return [(message.key(), message.value()) for message in self._reader.read(topic)]

    def totals(self, topic: str | None = None) -> tuple[int, int]:
        """(records, sum of the last count of each key) of a topic with counts."""
        rows = self.read(topic or self.sink)
        last = {key: value for key, value in rows if value is not None}
        return len(rows), sum(struct.unpack(">q", value)[0] for value in last.values())

    def counted(self, timeout: float = 60.0) -> None:
        """Waits until the worker has counted all records that were fed, or more.

        The method reads on from call to call. To read the whole topic again and again would take more CPU than the worker.
        """
        deadline = time.monotonic() + timeout
        while sum(self._counts.values()) < self.produced:
            assert time.monotonic() < deadline, self.story()
            for message in self._counter.consume(500, 0.1):
                if message.error() is None and message.value() is not None:
                    self._counts[message.key()] = struct.unpack(">q", message.value())[0]

    def story(self) -> str:
        logs = "\n".join(f"--- {worker.log.name}\n{worker.text()[-3000:]}" for worker in self.workers)
        return f"{self.totals()} of {self.produced}\n{logs}"

    def committed(self, topic: str | None = None, partitions: int = PARTITIONS) -> int:
        """The sum of the group's offsets in a topic (default: the source)."""
        asked = [TopicPartition(topic or self.source, p) for p in range(partitions)]
        return sum(max(tp.offset, 0) for tp in self._group.committed(asked, timeout=10))

    def first_offsets(self, topic: str) -> list[int]:
        """Where each partition of a topic begins."""
        asked = {TopicPartition(topic, p): OffsetSpec.earliest() for p in self._reader.partitions(topic)}
        return [found.result().offset for found in self.admin.list_offsets(asked).values()]

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        self._reader.close()
        for name in ("_group", "_counter"):
            if name in vars(self):
                vars(self)[name].close()

    @cached_property
    def _group(self) -> Consumer:
        """Knows the coordinator of the group, and is no member."""
        return Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.id})

    @cached_property
    def _counter(self) -> Consumer:
        """Has read the counts in ``_counts``. A request waits for records, so that the client asks seldom."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "counter",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 5_000,
            }
        )
        found = self._reader.partitions(self.sink)
        consumer.assign([TopicPartition(self.sink, p, OFFSET_BEGINNING) for p in found])
        return consumer


@pytest.fixture
def cluster(kafka: LocalKafka, tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(kafka.bootstrap_servers, tmp_path)
    yield cluster
    cluster.close()


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    for item in items:
        if "cluster" in getattr(item, "fixturenames", ()) or "kafka" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.broker)
