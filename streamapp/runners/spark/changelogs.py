"""Changelogs in Kafka, as executors read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from streamapp.records import TopicPartition
from streamapp.runners.spark.batch_source import KafkaReader, Ranges

__all__ = ["KafkaChangelogs"]


@dataclass(frozen=True)
class KafkaChangelogs:
    """The engine's `Changelogs`: the ranges of Kafka that hold state. ``client`` are librdkafka's settings."""

    client: Mapping[str, Any]
    ranges: Ranges

    def spans(self, partitions: Iterable[TopicPartition]) -> Ranges:
        return {tp: self.ranges[tp] for tp in partitions if tp in self.ranges}

    def open(self, partition: TopicPartition, start: int, end: int) -> KafkaReader:
        return KafkaReader(self.client, partition, start, end)
