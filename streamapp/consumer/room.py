"""`Room`: the partitions that are paused because too many of their records wait, so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Mapping

from streamapp.consumer.consume_options import ConsumeOptions
from streamapp.consumer.lanes import PartitionLanes
from streamapp.records import TopicPartition

__all__ = ["Room"]


class Room:
    """Gives each partition an equal share of the buffer. A partition whose share is full is paused until half of the
    share is free.

    Records that wait behind a failed record do not count, because ``max_records`` and ``max_bytes`` of `Retry` limit
    them. At these limits, a `Retry` with ``when_full="wait"`` pauses the partition, too.
    """

    def __init__(self, options: ConsumeOptions, partitions: Mapping[TopicPartition, PartitionLanes]) -> None:
        self._options, self._partitions = options, partitions
        self.paused: set[TopicPartition] = set()

    def parking_is_full(self, partition: PartitionLanes) -> bool:
        """True if no further record may wait behind a failed record."""
        retry = self._options.retry
        return retry is not None and (
            partition.parked >= retry.max_records or partition.parked_bytes >= retry.max_bytes
        )

    def turns_away(self, partition: PartitionLanes) -> bool:
        """True if a further record may not wait behind a failed record. Such a record gets the answer ``when_full`` of
        `Retry`."""
        retry = self._options.retry
        return retry is not None and retry.when_full != "wait" and self.parking_is_full(partition)

    def change(self) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """The partitions to pause, and the partitions to resume. From this call on, the object counts the partitions as
        paused and resumed, so the caller must do both."""
        each = max(1, len(self._partitions))
        most = max(1, self._options.buffer_records // each)
        most_bytes = max(1, self._options.buffer_bytes // each)
        retry = self._options.retry
        pause, resume = [], []
        for source, partition in self._partitions.items():
            records = partition.waiting - partition.parked
            size = partition.waiting_bytes - partition.parked_bytes
            full = retry is not None and retry.when_full == "wait" and self.parking_is_full(partition)
            if source not in self.paused:
                if full or records >= most or size >= most_bytes:
                    pause.append(source)
            elif not full and records <= most // 2 and size <= most_bytes // 2:
                resume.append(source)
        self.paused.update(pause)
        self.paused.difference_update(resume)
        return pause, resume
