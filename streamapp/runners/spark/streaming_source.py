"""What is new in the source topics, as a source of Structured Streaming.

Its rows are ranges of offsets, one a partition: Spark decides when a micro-batch is due and writes down which
offsets it has before it runs; the records themselves go from Kafka to the tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

from streamapp.records import TopicPartition
from streamapp.runners.spark.source import KafkaRange, KafkaSource

__all__ = ["COLUMNS", "range_source"]

COLUMNS = "topic string, partition int, until bigint"
Offsets = dict[str, int]
"""``topic:partition`` -> offset, as Spark's checkpoint has it."""


def range_source(
    name: str,
    client: Mapping[str, Any],
    partitions: Sequence[TopicPartition],
    starts: Mapping[TopicPartition, int],
    most: int,
) -> type[DataSource]:
    """A data source for ``spark.readStream.format(name)``. ``most``: offsets of a partition in one micro-batch."""

    class Ranges(DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> str:
            return COLUMNS

        def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:
            return RangeReader(client, partitions, starts, most)

    return Ranges


class RangeReader(SimpleDataSourceStreamReader):  # type: ignore[misc]
    """Runs beside the driver."""

    def __init__(
        self,
        client: Mapping[str, Any],
        partitions: Sequence[TopicPartition],
        starts: Mapping[TopicPartition, int],
        most: int,
    ) -> None:
        self._client, self._partitions = dict(client), list(partitions)
        self._starts, self._most = dict(starts), most

    def initialOffset(self) -> Offsets:
        return {_name(tp): offset for tp, offset in self._starts.items()}

    def read(self, start: Offsets) -> tuple[Iterator[tuple[str, int, int]], Offsets]:
        end = dict(start)
        for tp, (first, last) in KafkaRange(self._client).resolve(KafkaSource(), self._partitions).items():
            begin = max(start.get(_name(tp), 0), first)
            end[_name(tp)] = max(begin, min(last, begin + self._most))
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start: Offsets, end: Offsets) -> Iterator[tuple[str, int, int]]:
        return iter([(tp.topic, tp.partition, end[_name(tp)]) for tp in self._partitions if _name(tp) in end])


def _name(tp: TopicPartition) -> str:
    return f"{tp.topic}:{tp.partition}"
