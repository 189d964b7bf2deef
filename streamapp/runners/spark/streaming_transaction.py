"""The Kafka transaction of a streaming task: its results, its changelog records and the group's offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition

from streamapp._base import failpoints
from streamapp._base.counted import counted
from streamapp.broker.admin import KafkaAdmin
from streamapp.config import StreamsConfig
from streamapp.engine.global_letters import GlobalLetters
from streamapp.engine.runner_ports import Position
from streamapp.errors import BrokerError
from streamapp.records import Headers, TopicPartition
from streamapp.runners.connection import client_of
from streamapp.runners.spark.produce import TIMEOUT_SECONDS, produce

__all__ = ["StreamTransaction", "output_client"]


def output_client(config: StreamsConfig, subtopology: int, partition: int) -> dict[str, Any]:
    """The settings of a task's producer; its transactional id is the same in every attempt and every run."""
    return {
        **client_of(config),
        "transactional.id": f"{config.application_id}-spark-{subtopology}_{partition}",
        "transaction.timeout.ms": int(TIMEOUT_SECONDS * 1000),
        "partitioner": "murmur2_random",
        "linger.ms": 20,
        "batch.num.messages": 10_000,
        "queue.buffering.max.messages": 200_000,
        "delivery.report.only.error": True,
    }


class StreamTransaction:
    """The engine's `Transaction`: the open transaction of the task's own producer."""

    def __init__(
        self, producer: Producer, member: bytes, partitions: Mapping[str, int], admin: KafkaAdmin
    ) -> None:
        self._producer = producer
        self.results: _Output = _Output(producer, partitions)
        self.changelogs: _ChangelogOutput = _ChangelogOutput(producer, partitions)
        self._member = member
        self._admin = admin
        self._global_positions: dict[TopicPartition, Position] = {}

    def begin(self) -> None:
        """Does nothing: the transaction is open since before the first record, because it also has the results."""

    def write(self, letters: GlobalLetters) -> None:
        """Sends dead letters of global records; their positions become valid with the commit."""
        for letter in letters.waiting:
            self.results.send(*letter)
        self._global_positions = {tp: Position(offset) for tp, offset in letters.positions.items()}

    def acknowledge(self) -> None:
        failpoints.hit("stream-state-flushed")
        if left := self._producer.flush(TIMEOUT_SECONDS):
            raise BrokerError(
                f"Kafka has not acknowledged {counted(left, 'record')} within {TIMEOUT_SECONDS:g} s"
            )

    def changelog_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends of changelogs after the commit: Kafka adds a marker to each partition that has new records."""
        ends = self._admin.log_end_offsets(partitions)
        return {tp: end + (tp.topic in self.changelogs.written) for tp, end in ends.items()}

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        every = {**positions, **self._global_positions}
        entries = [KafkaPartition(*tp, at.offset, metadata=at.metadata) for tp, at in every.items()]
        self._producer.send_offsets_to_transaction(entries, self._member, TIMEOUT_SECONDS)
        failpoints.hit("stream-offsets-sent")
        self._producer.commit_transaction(TIMEOUT_SECONDS)
        failpoints.hit("stream-committed")


class _Output:
    """The engine's `Collector`, which sends records in the transaction."""

    def __init__(self, producer: Producer, partitions: Mapping[str, int]) -> None:
        self._producer = producer
        self._partitions = dict(partitions)

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int | None,
        headers: Headers,
        partition: int | None,
    ) -> None:
        where = -1 if partition is None else partition
        produce(self._producer, topic, key, value, where, timestamp, headers)

    def partition_count(self, topic: str) -> int:
        if topic not in self._partitions:
            self._partitions[topic] = len(
                self._producer.list_topics(topic, TIMEOUT_SECONDS).topics[topic].partitions
            )
        return self._partitions[topic]


class _ChangelogOutput(_Output):
    """An `_Output` that also notes which changelogs get records."""

    def __init__(self, producer: Producer, partitions: Mapping[str, int]) -> None:
        super().__init__(producer, partitions)
        self.written: set[str] = set()

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int | None,
        headers: Headers,
        partition: int | None,
    ) -> None:
        self.written.add(topic)
        super().send(topic, key, value, timestamp, headers, partition)
