"""Topics of a test with numbers in them, and what a group has committed."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from streamapp.broker import KafkaAdmin, KafkaSettings, TopicSpec
from streamapp.broker.consumer import committed_metadata
from streamapp.broker.requests import committed
from streamapp.consumer.done_offsets import decode_done
from streamapp.records import TopicPartition

from ..topic_reader import read_topic

__all__ = ["Feed"]


@dataclass
class Feed:
    """One topic, and one group that reads it."""

    bootstrap: str
    group: str = field(default_factory=lambda: f"g-{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        self.topic, self.dead, self.out = (f"{self.group}-{name}" for name in ("in", "dead", "out"))
        self.partitions = 0

    def create(self, partitions: int = 3) -> str:
        self.partitions = partitions
        admin = KafkaAdmin(KafkaSettings(bootstrap_servers=self.bootstrap))
        admin.ensure_topics(
            [
                TopicSpec(self.topic, partitions, {}),
                TopicSpec(self.dead, 1, {}),
                TopicSpec(self.out, partitions, {}),
            ]
        )
        return self.topic

    def send(self, rows: Iterable[tuple[str | None, str | bytes]], partition: int | None = None) -> None:
        """Key and value of each record."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "linger.ms": 5,
            }
        )
        for key, value in rows:
            producer.produce(self.topic, value, key, -1 if partition is None else partition)
            producer.poll(0)
        assert producer.flush(60) == 0

    def transact(self, rows: Iterable[tuple[str, str]], *, commit: bool = True) -> None:
        """Sends the records in one transaction, which leaves a marker at the end of each of their partitions."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "partitioner": "murmur2_random",
                "transactional.id": f"{self.group}-source",
            }
        )
        producer.init_transactions(60)
        producer.begin_transaction()
        for key, value in rows:
            producer.produce(self.topic, value, key)
        if commit:
            producer.commit_transaction(60)
        else:
            producer.flush(60)
            producer.abort_transaction(60)

    def lags(self) -> dict[int, int]:
        """Partition -> lag of the group, as Kafka's tools show it: from the commit to the end of the log."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        ends = admin.list_offsets(
            {KafkaPartition(self.topic, number): OffsetSpec.latest() for number in range(self.partitions)}
        )
        committed = self.committed()
        at = {partition.partition: end.result(30).offset for partition, end in ends.items()}
        return {number: end - committed.get(number, (0, []))[0] for number, end in at.items()}

    def committed(self) -> dict[int, tuple[int, list[int]]]:
        """Position, and the offsets behind it that are done, by partition."""
        return {at: (offset, decode_done(offset, text)) for at, (offset, text) in self.commits().items()}

    def commits(self) -> dict[int, tuple[int, str]]:
        """Position and metadata by partition."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group})
        asked = [TopicPartition(self.topic, number) for number in range(self.partitions)]
        found = committed(consumer, asked, seconds=30)
        consumer.close()
        return {each.partition: (each.offset, committed_metadata(each)) for each in found if each.offset >= 0}

    def written(self, topic: str | None = None) -> list[tuple[str, int]]:
        """Key and number of each committed record of the outputs, up to the end of each partition."""
        records = read_topic(self.bootstrap, topic or self.out)
        return [(message.key().decode(), int(message.value())) for message in records]

    def position(self) -> int:
        """The sum of all positions."""
        return sum(position for position, _ in self.committed().values())
