"""Processes the records of global topics once in Spark's driver, to count drops and make dead letters.

Every Python worker of the executors also processes these records, to fill its global stores. If these workers wrote
dead letters, each letter would be there many times.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from streamapp.engine.global_state import GlobalState
from streamapp.records import OutputRecord, RecordBatch, TopicPartition
from streamapp.runners.spark.frames import HEADERS
from streamapp.runners.spark.partitioning import placed
from streamapp.topology import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["GlobalResult", "apply_globals"]

_LETTERS = (
    "topic string, partition int, mx bigint, src int, seq bigint, key binary, value binary, timestamp bigint, "
    f"headers {HEADERS}"
)


@dataclass
class GlobalResult:
    """The outcome of the global records of a batch."""

    dropped: int = 0
    letters: list[OutputRecord] = field(default_factory=list)

    @property
    def topics(self) -> list[str]:
        """The topics of the letters."""
        return list(dict.fromkeys(letter.topic for letter in self.letters))

    def frame(self, spark: SparkSession, topic: str, now_ms: int, partitions: int) -> DataFrame:
        """The dead letters of a topic with ``partitions`` partitions, before those of tasks.

        ``now_ms`` is the time of letters without a timestamp.
        """
        letters = [letter for letter in self.letters if letter.topic == topic]
        chosen = [letter.partition for letter in letters]
        places = placed(chosen, pa.array([letter.key for letter in letters], pa.binary()), partitions)
        rows = [
            (
                topic,
                partition,
                0,
                -1,
                number,
                letter.key,
                letter.value,
                now_ms if letter.timestamp is None else letter.timestamp,
                list(letter.headers),
            )
            for number, (partition, letter) in enumerate(zip(places.tolist(), letters, strict=True))
        ]
        return spark.createDataFrame(rows, _LETTERS)


def apply_globals(
    plan: Plan, records: Iterable[tuple[TopicPartition, RecordBatch]], now_ms: int
) -> GlobalResult:
    """Processes the records of global topics. Raises `StreamsError` if a record fails and the handler says "fail"."""
    found = GlobalResult()
    state = GlobalState(
        plan,
        wall_clock_ms=lambda: now_ms,
        letters=lambda source, offset, letter: found.letters.append(letter),
    )
    with closing(state):
        for partition, batch in records:
            state.process(partition, batch)
        found.dropped = state.dropped_records
    return found
