"""Topics as a reader from outside sees them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, Message

from streamapp.broker.bounded_reads import TO_THE_END, read_to_end
from streamapp.records import TopicPartition
from streamapp.runners.spark.batch_source import KafkaRange

__all__ = ["TopicReader", "read_settled", "read_topic"]

_SECONDS = 30


class TopicReader:
    """Reads whole topics of one cluster.

    All reads share one client, because a test may read a topic many times while it waits for a result.
    """

    def __init__(self, bootstrap: str, isolation: str = "read_committed", **settings: Any) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "isolation.level": isolation,
                "auto.offset.reset": "earliest",  # the first records may be deleted
                **TO_THE_END,
                **settings,
            }
        )

    def read(self, *topics: str) -> Iterator[Message]:
        """The records from the first one up to the present ends. The records of a partition keep their order."""
        starts = {TopicPartition(topic, number): 0 for topic in topics for number in self.partitions(topic)}
        return read_to_end(self._consumer, starts, _SECONDS)

    def topics(self) -> list[str]:
        """The names of all topics."""
        return sorted(self._consumer.list_topics(timeout=_SECONDS).topics)

    def partitions(self, topic: str) -> list[int]:
        """The numbers of a topic's partitions."""
        return sorted(self._consumer.list_topics(topic, timeout=_SECONDS).topics[topic].partitions)

    def close(self) -> None:
        self._consumer.close()


def read_topic(bootstrap: str, topic: str, **settings: Any) -> list[Message]:
    """All committed records of a topic, partition by partition in order."""
    with closing(TopicReader(bootstrap, **settings)) as reader:
        return sorted(reader.read(topic), key=lambda message: message.partition() or 0)


def read_settled(bootstrap: str, topic: str) -> list[Message]:
    """As `read_topic`, after the end of all transactions. A commit returns before all partitions know of it."""
    with closing(TopicReader(bootstrap)) as reader:
        partitions = [TopicPartition(topic, number) for number in reader.partitions(topic)]
    assert not KafkaRange({"bootstrap.servers": bootstrap}).settle(partitions, _SECONDS)
    return read_topic(bootstrap, topic)
