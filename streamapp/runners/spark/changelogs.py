"""Changelogs in Kafka, as executors read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from streamapp.records import TopicPartition
from streamapp.runners.spark.batch_source import KafkaRange, KafkaReader, Ranges

__all__ = ["KafkaChangelogs"]


@dataclass(frozen=True)
class KafkaChangelogs:
    """The engine's `Changelogs`: the ranges of Kafka that hold state. ``client`` are librdkafka's settings."""

    client: Mapping[str, Any]
    ranges: Ranges
    shortened: bool = False
    """True if workers may delete the first records meanwhile, because their rows have expired."""

    def spans(self, partitions: Iterable[TopicPartition]) -> Ranges:
        return {tp: self.ranges[tp] for tp in partitions if tp in self.ranges}

    def open(self, partition: TopicPartition, start: int, end: int) -> KafkaReader:
        first_left = partial(self._first_left, partition) if self.shortened else None
        return KafkaReader(self.client, partition, start, end, first_left)

    def _first_left(self, partition: TopicPartition, offset: int) -> int:
        first, _ = KafkaRange(self.client).committed([partition])[partition]
        return max(first, offset)
