"""An application with an agent, for tests that ask the agent and count its answers."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from confluent_kafka import Consumer, Producer, TopicPartition

from ..processes import Worker, until
from .conftest import PARTITIONS, Cluster

GUARANTEES = ("at_least_once", "exactly_once_v2")


@dataclass
class Answered:
    """An application with an agent, and the questions to the agent."""

    cluster: Cluster
    topology: bool = False
    asked: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.input = self.cluster.sink if self.topology else f"{self.cluster.id}-asked"
        self.output = f"{self.cluster.id}-answers"
        self.cluster.create(self.output, *([] if self.topology else [self.input]))
        self.numbers = itertools.count()

    def start(self, name: str = "a", **env: str) -> Worker:
        topology = {"TOPOLOGY": "yes"} if self.topology else {}
        more = {"AGENT_IN": self.input, "AGENT_OUT": self.output, **topology, **env}
        return self.cluster.start(name, app="agents_app", **more)

    def ask(self, count: int, keys: int = 8, per_transaction: int = 10) -> None:
        """Writes records in many small transactions, whose markers leave gaps between the offsets."""
        if self.topology:
            self.cluster.feed(count, keys)
            return
        producer = self._producer()
        for start in range(0, count, per_transaction):
            producer.begin_transaction()
            for number in range(start, min(start + per_transaction, count)):
                value = b"%d" % next(self.numbers)
                self.asked.append(value)
                producer.produce(self.input, value, b"k%d" % (number % keys))
            producer.commit_transaction()

    def abort(self, count: int) -> None:
        """Writes records in a transaction that is rolled back."""
        producer = self._producer()
        producer.begin_transaction()
        for _ in range(count):
            producer.produce(self.input, b"aborted", b"k1")
        producer.flush()
        producer.abort_transaction()

    def _producer(self) -> Producer:
        settings = {
            "bootstrap.servers": self.cluster.bootstrap,
            "transactional.id": f"{self.cluster.id}-asks",
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
        }
        producer = Producer(settings)
        producer.init_transactions()
        return producer

    def answers(self, kind: bytes = b"sent ") -> list[tuple[bytes | None, bytes]]:
        rows = self.cluster.read(self.output)
        return [(key, value.removeprefix(kind)) for key, value in rows if value and value.startswith(kind)]

    def answered(self, count: int, timeout: float = 60.0) -> None:
        until(lambda: len(self.answers()) >= count, timeout, self.story)

    def story(self) -> str:
        logs = "\n".join(f"--- {worker.log.name}\n{worker.text()[-4000:]}" for worker in self.cluster.workers)
        return f"{len(self.answers())} answers\n{logs}"

    def behind(self) -> int:
        """The number of offsets by which the group is behind the last records that can be read."""
        settings = {
            "bootstrap.servers": self.cluster.bootstrap,
            "group.id": self.cluster.id,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,  # this one only looks
        }
        consumer = Consumer(settings)
        partitions = [TopicPartition(self.input, number) for number in range(PARTITIONS)]
        lag = 0
        for found in consumer.committed(partitions, timeout=10):
            consumer.assign([TopicPartition(self.input, found.partition, max(found.offset, 0))])
            while (message := consumer.poll(10.0)) is not None and message.error() is None:
                lag += 1
        consumer.close()
        return lag
