"""Topics of a test, and their records as a reader of committed records sees them."""

from __future__ import annotations

import uuid
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from streamapp.broker import KafkaAdmin, KafkaSettings, TopicSpec

from ..topic_reader import TopicReader

__all__ = ["Topics"]

PARTITIONS = 3


@dataclass
class Topics:
    """Creates and reads topics of one cluster."""

    bootstrap: str

    def create(self, partitions: int = PARTITIONS, **config: str) -> str:
        name = f"t-{uuid.uuid4().hex[:8]}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        KafkaAdmin(KafkaSettings(bootstrap_servers=self.bootstrap)).ensure_topics(
            [TopicSpec(name, partitions, settings)]
        )
        return name

    def alter(self, topic: str, **config: str) -> None:
        """Sets settings of a topic, in Kafka's names with underscores."""
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in config.items()
        ]
        resource = ConfigResource("topic", topic, incremental_configs=entries)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.incremental_alter_configs([resource])[resource].result(30)

    def read(
        self, topic: str, isolation: str = "read_committed"
    ) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
        """Key and value of every record, by partition in order."""
        with closing(TopicReader(self.bootstrap, isolation)) as reader:
            rows: dict[int, list[tuple[bytes | None, bytes | None]]] = {
                number: [] for number in reader.partitions(topic)
            }
            for message in reader.read(topic):
                rows[message.partition() or 0].append((message.key(), message.value()))
            return rows

    def values(self, topic: str) -> list[bytes | None]:
        """Values of all partitions, one partition after the other."""
        return [value for rows in self.read(topic).values() for _, value in rows]
