"""The Kafka transaction of a streaming task: its results, its changelog records and the group's offsets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from streamapp._base import failpoints
from streamapp._base.counted import counted
from streamapp.broker.admin import KafkaAdmin
from streamapp.broker.refused import is_refusal
from streamapp.config import StreamsConfig
from streamapp.engine.global_letters import GlobalLetters
from streamapp.engine.runner_ports import Position
from streamapp.errors import BrokerError
from streamapp.records import Headers, TopicPartition, create_time
from streamapp.runners.connection import client_of
from streamapp.runners.refusals import Failure, Refusals, refusal
from streamapp.runners.spark.produce import TIMEOUT_SECONDS, produce

__all__ = ["Deliveries", "StreamTransaction", "output_client"]

_MOST_REFUSALS = 30
"""A task repeats its work at most so often in one micro-batch. Ten repetitions find a refused record in a batch of
librdkafka, because the batches become four times smaller with each."""


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


class Deliveries:
    """The records that brokers refuse, over all attempts of a task in one micro-batch.

    A refused result fails its transaction. So the task repeats its work, and the exception handler judges the result
    when the operator sends it again (`Refusals`). ``stores`` maps each changelog to its store, and ``letters`` is the
    topic of dead letters.
    """

    def __init__(self, stores: Mapping[str, str], letters: str | None) -> None:
        self.refusals: Refusals = Refusals(letters)
        self._stores = stores
        self._fault: BrokerError | None = None
        self._count = 0

    def report(self, timestamp: int, error: KafkaError | None, message: Message) -> None:
        """Takes librdkafka's report about a record with this timestamp."""
        if error is None:
            return
        topic, partition = message.topic() or "", message.partition()
        failed = Failure(
            error, topic, -1 if partition is None else partition, message.key(), message.value(), timestamp
        )
        if error.code() == KafkaError._INVALID_DIFFERENT_RECORD:
            self.refusals.spare(failed)
        elif is_refusal(error):
            self._refused(failed)

    def not_taken(self, failed: Failure) -> BrokerError:
        """The error for a record that librdkafka refuses before it sends the record."""
        error, topic, _, key, value, timestamp = failed
        if not is_refusal(error):
            return BrokerError(f"a record could not be sent to {topic}: {error.str()}")
        if topic in self._stores:
            return self._fault_of(failed)
        return refusal(error, topic, key, value, timestamp)

    def refused(self) -> bool:
        """True if results were refused, so that the task repeats its work.

        Raises `BrokerError` for a refused change of a store, and for a dead letter that is refused for another reason
        than its timestamp. No handler may skip these records. Raises `BrokerError`, too, if 30 repetitions do not help,
        as for a result that differs each time.
        """
        if (lost := self.refusals.lost_letter()) is not None:
            raise self._fault_of(lost)
        if self._fault is not None:
            raise self._fault
        story = self.refusals.take()
        if story is None:
            return False
        self.refusals.rolled_back()
        self._count += 1
        if self._count > _MOST_REFUSALS:
            raise BrokerError(
                f"{story}, after {_MOST_REFUSALS} repetitions of the micro-batch. A result is recognized by topic, "
                "key, value and timestamp. Let no result have a random value or the time of the clock"
            )
        return True

    def _refused(self, failed: Failure) -> None:
        if failed.topic in self._stores:
            self._fault = self._fault_of(failed)
        else:
            self.refusals.add(failed)

    def _fault_of(self, failed: Failure) -> BrokerError:
        error, topic, _, key, value, timestamp = failed
        refused = refusal(error, topic, key, value, timestamp)
        what = f"a change of the store {self._stores[topic]}" if topic in self._stores else "a dead letter"
        return BrokerError(f"{what} could not be written to {topic}: {refused}. {refused.remedy}")


class StreamTransaction:
    """The engine's `Transaction`: the open transaction of the task's own producer."""

    def __init__(
        self,
        producer: Producer,
        member: bytes,
        partitions: Mapping[str, int],
        admin: KafkaAdmin,
        deliveries: Deliveries,
    ) -> None:
        self._producer = producer
        self.results: _Output = _Output(producer, partitions, deliveries)
        self.changelogs: _ChangelogOutput = _ChangelogOutput(producer, partitions, deliveries)
        self._member = member
        self._admin = admin
        self._global_positions: dict[TopicPartition, Position] = {}

    def begin(self) -> None:
        """Does nothing: the transaction is open since before the first record, because it also has the results."""

    def write(self, letters: GlobalLetters) -> None:
        """Sends dead letters of global records; their positions become valid with the commit."""
        letters.send(self.results.send, int(time.time() * 1000))
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

    def __init__(self, producer: Producer, partitions: Mapping[str, int], deliveries: Deliveries) -> None:
        self._producer, self._deliveries = producer, deliveries
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
        where, at = -1 if partition is None else partition, create_time(timestamp)
        refusals = self._deliveries.refusals
        if refusals and (refused := refusals.find(topic, key, value, at)) is not None:
            raise refused
        # librdkafka forgets the timestamp of a record that was refused.
        report = partial(self._deliveries.report, at)
        try:
            produce(self._producer, topic, key, value, where, timestamp, headers, report)
        except KafkaException as exc:
            raise self._deliveries.not_taken(Failure(exc.args[0], topic, where, key, value, at)) from exc

    def partition_count(self, topic: str) -> int:
        if topic not in self._partitions:
            found = self._producer.list_topics(topic, TIMEOUT_SECONDS).topics[topic].partitions
            if not found:
                raise BrokerError(f"the topic {topic} does not exist; create it first")
            self._partitions[topic] = len(found)
        return self._partitions[topic]


class _ChangelogOutput(_Output):
    """An `_Output` that also notes which changelogs get records."""

    def __init__(self, producer: Producer, partitions: Mapping[str, int], deliveries: Deliveries) -> None:
        super().__init__(producer, partitions, deliveries)
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
