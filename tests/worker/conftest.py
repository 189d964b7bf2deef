"""Workers as real processes, and the topics that they read and write."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from streamapp.broker import LocalKafka

PARTITIONS = 4


@dataclass
class Worker:
    process: subprocess.Popen[bytes]
    log: Path

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, text: str, timeout: float = 40.0) -> None:
        """Until the worker has logged this."""
        until(lambda: text in self.text() or self.process.poll() is not None, timeout, lambda: self.text())
        assert text in self.text(), self.text()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, timeout: float = 40.0) -> int:
        return self.process.wait(timeout)

    def terminate(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()


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
        self.producer = Producer({"bootstrap.servers": self.bootstrap, "partitioner": "murmur2_random"})
        self.source, self.sink = f"{self.id}-in", f"{self.id}-out"
        self.create(self.source, self.sink)

    def create(self, *topics: str, partitions: int = PARTITIONS) -> None:
        for future in self.admin.create_topics([NewTopic(t, partitions, 1) for t in topics]).values():
            future.result()

    def start(
        self,
        name: str = "a",
        command: tuple[str, ...] = ("worker", "-l", "info"),
        app: str = "counting_app",
        **env: str,
    ) -> Worker:
        log = self.folder / f"{name}-{len(self.workers)}.log"
        environment = {
            **os.environ,
            "APP_ID": self.id,
            "BOOTSTRAP": self.bootstrap,
            "SOURCE": self.source,
            "SINK": self.sink,
            "DATADIR": str(self.folder / f"data-{name}"),
            "WEB_PORT": str(free_port()),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
            **env,
        }
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "faust", "-A", app, *command],
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment,
            )
        worker = Worker(process, log)
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
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        open_partitions = set(consumer.list_topics(topic).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, p, 0) for p in open_partitions])
        rows = []
        while open_partitions:
            for message in consumer.consume(10_000, 1.0):
                if message.error() is None:
                    rows.append((message.key(), message.value()))
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    open_partitions.discard(message.partition())
        consumer.close()
        return rows

    def totals(self, topic: str | None = None) -> tuple[int, int]:
        """(records, sum of the last count of each key) of a topic with counts."""
        rows = self.read(topic or self.sink)
        last = {key: value for key, value in rows if value is not None}
        return len(rows), sum(struct.unpack(">q", value)[0] for value in last.values())

    def counted(self, timeout: float = 60.0) -> None:
        """Until everything that was fed is counted, if not more."""
        until(lambda: self.totals()[1] >= self.produced, timeout, self.story)

    def story(self) -> str:
        logs = "\n".join(f"--- {worker.log.name}\n{worker.text()[-3000:]}" for worker in self.workers)
        return f"{self.totals()} of {self.produced}\n{logs}"

    def committed(self) -> int:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.id})
        found = consumer.committed([TopicPartition(self.source, p) for p in range(PARTITIONS)], timeout=10)
        consumer.close()
        return sum(max(tp.offset, 0) for tp in found)

    def close(self) -> None:
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.process.send_signal(signal.SIGCONT)
                worker.process.kill()
                worker.process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(condition: Callable[[], bool], timeout: float, what: Callable[[], object]) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


@pytest.fixture
def cluster(kafka: LocalKafka, tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(kafka.bootstrap_servers, tmp_path)
    yield cluster
    cluster.close()


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    for item in items:
        if "cluster" in getattr(item, "fixturenames", ()) or "kafka" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.broker)
