"""`Turns`: takes the partitions in turn, and decides the size of the next batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress

from streamapp.consumer.batching import AdaptiveSize, Batch
from streamapp.consumer.lanes import PartitionLanes, Unit
from streamapp.records import TopicPartition

__all__ = ["Turns"]


class Turns:
    """The partitions of a consumer, which get their calls of the handler in turn.

    The dispatcher holds its lock while it calls a method of this class. Times are in seconds of the dispatcher's clock.
    """

    def __init__(self, batch: Batch, partitions: Mapping[TopicPartition, PartitionLanes]) -> None:
        self._batch, self._partitions = batch, partitions
        self._sizes: dict[TopicPartition, AdaptiveSize] = {}
        self._since: dict[TopicPartition, float] = {}
        """The time since which the first record of the next batch waits."""
        self._order: deque[TopicPartition] = deque()

    def add(self, source: TopicPartition) -> None:
        self._sizes[source] = AdaptiveSize(self._batch)
        self._order.append(source)

    def remove(self, source: TopicPartition) -> None:
        self._sizes.pop(source, None)
        self._since.pop(source, None)
        with suppress(ValueError):
            self._order.remove(source)

    def came(self, source: TopicPartition, now: float) -> None:
        """Notes the arrival of records for a partition that had none. Its batch waits ``linger_ms`` from now on."""
        self._since[source] = now

    def took(self, source: TopicPartition, records: int, seconds: float) -> None:
        """Notes the duration of a batch, which decides the size of the partition's next batch."""
        self._sizes[source].took(records, seconds * 1000)

    def next(self, now: float, *, probe: bool) -> Unit | None:
        """The next unit, or None. With ``probe``, the unit has only one record, because the service may still fail."""
        for _ in range(len(self._order)):
            source = self._order[0]
            self._order.rotate(-1)
            partition = self._partitions[source]
            size = 1 if probe else self._sizes[source].records
            if self._lingers(partition, size, now):
                continue
            unit = partition.take(size, self._batch.bytes, now)
            if unit is not None:
                unit.probe = probe
                self._since[source] = now
                return unit
        return None

    def _lingers(self, partition: PartitionLanes, size: int, now: float) -> bool:
        until = self._since.get(partition.source, now) + self._batch.linger_ms / 1000
        full = partition.waiting >= size or partition.waiting_bytes >= self._batch.bytes
        return not full and now < until and not partition.delayed

    def times(self) -> Iterator[float]:
        """The times at which batches that are not full stop waiting for more records."""
        if self._batch.linger_ms:
            for source, since in self._since.items():
                if self._partitions[source].has_ready:
                    yield since + self._batch.linger_ms / 1000
