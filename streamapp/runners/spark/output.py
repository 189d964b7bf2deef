"""The records that a task sends, as Arrow batches for Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamapp.engine.task import Task
from streamapp.records import Headers, RecordBatch, TopicPartition
from streamapp.runners.spark.frames import CHANGE, COUNTS, PACK, POSITION, RECORD, SENT, output_batch
from streamapp.runners.spark.packing import SCHEMA, arrow_headers, packs
from streamapp.runners.spark.partitioning import placed
from streamapp.runners.spark.table_rows import table_batches

__all__ = ["Output"]

OUTPUT_ROWS = 20_000
"""A topic with so many waiting records gives them to Spark."""


class Sent(NamedTuple):
    """Records of a topic as columns, because lists are twice as fast as a tuple for each record."""

    partitions: list[int | None]
    """The chosen partition; None: the key decides."""
    times: list[int]
    """The stream time of the task when each record was sent."""
    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int | None]
    headers: list[Headers]

    def part(self, first: int, end: int | None = None) -> Sent:
        return Sent(*[column[first:end] for column in self])  # type: ignore[arg-type]

    def clear(self) -> None:
        for column in self:
            column.clear()


def _nothing() -> Sent:
    return Sent([], [], [], [], [], [])


class Output:
    """The engine's `Collector`: keeps sent records, topic by topic, and makes Arrow batches of them.

    - ``packed``: topics whose records travel in packs.
    - ``changelogs``: topics whose records are rows of the kind `CHANGE`.
    - ``dropped``: topics whose records nobody needs.
    - ``cycle``: topics whose records go back into the same task.
    - ``homes``: store -> the number of its partitions, for the task of a cycle.
    - ``partitions``: partition counts of topics; ``tasks`` is the count for all other topics.
    """

    def __init__(
        self,
        partition: int,
        partitions: Mapping[str, int],
        tasks: int,
        *,
        packed: frozenset[str],
        changelogs: frozenset[str],
        dropped: frozenset[str],
        cycle: frozenset[str],
        homes: Mapping[str, int],
    ) -> None:
        self.task: Task
        self._partition, self._partitions, self._tasks = partition, partitions, tasks
        self._packed, self._changelogs = packed, changelogs
        self._sent = {topic: _nothing() for topic in packed}
        self._numbers: dict[str, int] = {}
        self._sizes = Counter[TopicPartition]()
        self._dropped = dropped
        self._cycle, self._homes = cycle, homes
        self._cycled: dict[str, int] = {}  # by topic, how many of the waiting records are back in the task
        self._given: dict[str, int] = {}  # by topic, how many records went back into the task in all

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int | None,
        headers: Headers,
        partition: int | None,
    ) -> None:
        waiting = self._sent.get(topic)
        if waiting is None:
            if topic in self._dropped:
                return
            waiting = self._sent[topic] = _nothing()
        partitions, times, keys, values, timestamps, all_headers = waiting
        partitions.append(partition)
        times.append(self.task.stream_time)
        keys.append(key)
        values.append(value)
        timestamps.append(timestamp)
        all_headers.append(headers)

    def partition_count(self, topic: str) -> int:
        return self._partitions.get(topic, self._tasks)

    def circulate(self, task: Task) -> bool:
        """Feeds the task with the records that it has sent to topics it reads itself; False if there are none."""
        found = False
        for topic in self._cycle:
            waiting = self._sent.setdefault(topic, _nothing())
            new = waiting.part(self._cycled.get(topic, 0))
            if topic in self._packed:
                waiting.clear()
            else:
                self._cycled[topic] = len(waiting.keys)
            if new.keys:
                first = self._given.get(topic, 0)
                end = self._given[topic] = first + len(new.keys)
                times = [time or 0 for time in new.timestamps]
                batch = RecordBatch(new.keys, new.values, times, range(first, end), new.headers)
                task.enqueue(TopicPartition(topic, 0), batch)
                found = True
        return found

    def batches(self, at_least: int) -> Iterator[pa.RecordBatch]:
        """The records of the topics with ``at_least`` or more waiting records."""
        for topic, waiting in self._sent.items():
            size = len(waiting.keys)
            if size and size >= at_least:
                self._sent[topic] = _nothing()
                self._cycled[topic] = 0
                for first in range(0, size, 2 * OUTPUT_ROWS):
                    yield self._batch(topic, waiting.part(first, first + 2 * OUTPUT_ROWS))

    def counts(self) -> Iterator[pa.RecordBatch]:
        """A few rows with the numbers of processed, dropped and sent records: the driver need not count all rows."""
        metrics = self.task.metrics
        names, numbers = ["processed", "dropped"], [metrics.processed, metrics.dropped_records]
        yield output_batch(COUNTS, self._partition, 2, name=names, task=[self._partition] * 2, seq=numbers)
        yield output_batch(
            SENT,
            self._partition,
            len(self._sizes),
            name=[tp.topic for tp in self._sizes],
            task=[tp.partition for tp in self._sizes],
            seq=[*self._sizes.values()],
        )

    def positions(self) -> Iterator[pa.RecordBatch]:
        """The metadata to commit beside the offsets of the inputs."""
        found = self.task.commit_metadata
        yield output_batch(
            POSITION,
            self._partition,
            len(found),
            name=[tp.topic for tp in found],
            task=[tp.partition for tp in found],
            value=[text.encode() for text in found.values()],
        )

    def tables(self) -> Iterator[pa.RecordBatch]:
        """The rows of all tables; the task of a cycle has the rows of all partitions."""
        homes = self._homes if self._cycle else {}
        return table_batches(self.task.own_stores, self._partition, homes)

    def _batch(self, topic: str, sent: Sent) -> pa.RecordBatch:
        chosen, times, keys, values, timestamps, headers = sent
        first, size = self._numbers.get(topic, 0), len(keys)
        self._numbers[topic] = first + size
        key_array = pa.array(keys, pa.binary())
        places = self._places(topic, chosen, key_array)
        if topic not in self._changelogs:
            counts = zip(*(each.tolist() for each in np.unique(places, return_counts=True)), strict=True)
            self._sizes.update({TopicPartition(topic, partition): sent for partition, sent in counts})
        if topic not in self._packed:
            return output_batch(
                CHANGE if topic in self._changelogs else RECORD,
                self._partition,
                size,
                name=pa.repeat(topic, size),
                task=places,
                mx=times,
                seq=np.arange(first, first + size),
                key=key_array,
                value=values,
                timestamp=timestamps,
                headers=arrow_headers(headers),
            )
        columns = (times, key_array, values, timestamps, arrow_headers(headers))
        arrays = [
            each if isinstance(each, pa.Array) else pa.array(each, field.type)
            for each, field in zip(columns, SCHEMA, strict=True)
        ]
        found = list(packs(arrays, places, first))
        return output_batch(
            PACK,
            self._partition,
            len(found),
            name=[topic] * len(found),
            task=[pack.partition for pack in found],
            mx=[pack.mx for pack in found],
            seq=[pack.seq for pack in found],
            value=[pack.data for pack in found],
            timestamp=[pack.size for pack in found],
        )

    def _places(self, topic: str, chosen: list[int | None], keys: pa.Array) -> npt.NDArray[np.int32]:
        """The partition of each record: the chosen one, or Kafka's for the key.

        A record with a null key goes to the partition with the task's number, modulo the partition count.
        """
        return placed(chosen, keys, self.partition_count(topic), self._partition)
