"""The leader epochs of the records that a reader has read (KIP-320).

A partition gets a new leader epoch with each new leader. After an unclean leader election, another record may get the
offset of a record, but with another epoch. So offset and epoch together name one record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from streamapp.records import RecordBatch, TopicPartition

__all__ = ["FetchedBatch", "LeaderEpochs", "ReadEnd"]

_MOST_SPANS = 32


class FetchedBatch(RecordBatch):
    """Records as a broker has given them, with their leader epochs."""

    epochs: Sequence[tuple[int, int]]
    """The number of the first record in the batch, and of each record at which the epoch changes, with the epoch.
    Negative: the epoch is not known."""

    @classmethod
    def of(cls, epochs: Sequence[tuple[int, int]], *columns: Any) -> FetchedBatch:
        batch = cls(*columns)
        batch.epochs = epochs
        return batch


class ReadEnd(NamedTuple):
    """The offset behind a record, and the leader epoch of this record."""

    offset: int
    epoch: int


class _Span(NamedTuple):
    """Records with one epoch that were read: the offset of the first one, and the offset behind the last one."""

    first: int
    end: int
    epoch: int


class LeaderEpochs:
    """The epochs of the last records of each partition, so that a commit can name the epoch before its offset.

    One thread notes records. Any thread may ask.

    >>> tp, epochs = TopicPartition("flights", 0), LeaderEpochs()
    >>> epochs.read(tp, FetchedBatch.of([(0, 3), (2, 5)], [b"a"] * 3, [b""] * 3, [0] * 3, [7, 8, 12]))
    >>> epochs.before(tp, 8), epochs.before(tp, 10), epochs.before(tp, 20), epochs.before(tp, 7)
    (ReadEnd(offset=8, epoch=3), ReadEnd(offset=9, epoch=3), ReadEnd(offset=13, epoch=5), None)
    """

    def __init__(self) -> None:
        self._spans: dict[TopicPartition, list[_Span]] = {}

    def begin(self, tp: TopicPartition, end: ReadEnd) -> None:
        """Notes the last record before the position at which reading begins."""
        self._spans[tp] = [_Span(end.offset - 1, *end)]

    def read(self, tp: TopicPartition, batch: RecordBatch) -> None:
        """Notes the records of a batch, if it tells their epochs."""
        changes, offsets = batch.epochs if isinstance(batch, FetchedBatch) else (), batch.offsets
        ends = [*(number for number, _ in changes[1:]), len(offsets)]
        for (number, epoch), end in zip(changes, ends, strict=False):
            self.note(tp, offsets[number], offsets[end - 1] + 1, epoch)

    def note(self, tp: TopicPartition, first: int, end: int, epoch: int) -> None:
        """Notes that the records from ``first`` to the one before ``end`` have this epoch. Negative: unknown."""
        earlier = [
            span for span in self._spans.get(tp, ()) if span.first < first
        ]  # the reader may have been set back
        if earlier and earlier[-1].epoch == epoch:
            first = earlier.pop().first
        self._spans[tp] = [*earlier[1 - _MOST_SPANS :], _Span(first, end, epoch)]

    def before(self, tp: TopicPartition, position: int) -> ReadEnd | None:
        """The end of the last record before a position, with its epoch. None: not known.

        Behind this record, up to the position, are only offsets without a record, such as those of markers.
        """
        for first, end, epoch in reversed(self._spans.get(tp, ())):
            if first < position:
                return ReadEnd(min(end, position), epoch) if epoch >= 0 else None
        return None

    def forget(self, tp: TopicPartition) -> None:
        self._spans.pop(tp, None)
