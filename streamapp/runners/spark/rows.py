"""The rows that Spark brings to one task, as batches of records in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from streamapp.errors import StreamsError
from streamapp.records import RecordBatch, TopicPartition
from streamapp.runners.spark.packing import Merge, record_headers

__all__ = ["Rows"]

Batches = list[tuple[TopicPartition, RecordBatch]]


class Rows:
    """Reads the rows of one task; ``totals`` has the number of records of each topic partition."""

    def __init__(
        self,
        topics: Sequence[str],
        packed: frozenset[str],
        totals: Mapping[TopicPartition, int],
        partition: int,
        batches: Iterator[pa.RecordBatch],
    ) -> None:
        self._batches = batches
        self._topics = [TopicPartition(topic, partition) for topic in topics]
        self._merges = {tp: Merge() for tp in self._topics if tp.topic in packed}
        self._partition = partition
        self._offsets = dict.fromkeys(self._topics, 0)
        self.left: dict[TopicPartition, int] = {tp: totals[tp] for tp in self._topics if totals.get(tp)}
        """The number of records that are still to come."""

    def ended(self) -> set[TopicPartition]:
        return {tp for tp in self._topics if tp not in self.left}

    def read(self) -> Batches:
        """The next records of some topics; the list may be empty before the end.

        Raises `StreamsError` if there are fewer records than ``totals`` says.
        """
        batch = next(self._batches, None)
        if batch is None:
            return self._last()
        if batch.num_rows == 0:
            return []
        strays = pc.any(pc.not_equal(batch.column("task"), self._partition)).as_py()
        assert not strays, "Spark brought rows of another partition"
        if len(self._topics) == 1:
            return self._take(self._topics[0], batch, batch)
        index = batch.column("input")
        return [
            found
            for number, tp in enumerate(self._topics)
            for found in self._take(tp, batch.filter(pc.equal(index, number)), batch)
        ]

    def finish(self) -> None:
        """Reads the rest of the stream, because Spark discards a Python worker that leaves rows unread.

        Raises `StreamsError` if there are rows left after the records that ``totals`` counts.
        """
        if sum(batch.num_rows for batch in self._batches) and self._topics:
            raise StreamsError(
                f"partition {self._partition} has more rows than were counted before. The input changed while "
                "it was read"
            )

    def _take(self, tp: TopicPartition, rows: pa.RecordBatch, batch: pa.RecordBatch) -> Batches:
        merge = self._merges.get(tp)
        if merge is None:
            return self._given(tp, self._records(rows)) if rows.num_rows else []
        for source, data in zip(rows.column("src").to_pylist(), rows.column("value"), strict=True):
            merge.add(source, data.as_buffer())
        # Rows come in the order of mx: no row of the next batch is below the last row of this batch.
        return self._given(tp, merge.before(batch.column("mx")[-1].as_py()))

    def _last(self) -> Batches:
        found = [each for tp, merge in self._merges.items() for each in self._given(tp, merge.before(None))]
        if not found:
            raise StreamsError(
                f"partition {self._partition} ended with rows missing: {self.left}. The input changed while "
                "it was read"
            )
        return found

    def _records(self, rows: pa.RecordBatch) -> RecordBatch:
        return RecordBatch(
            rows.column("key").to_pylist(),
            rows.column("value").to_pylist(),
            rows.column("timestamp").to_pylist(),
            range(rows.num_rows),
            record_headers(rows.column("headers")),
        )

    def _given(self, tp: TopicPartition, records: RecordBatch | None) -> Batches:
        """Gives records offsets: the number of each record in its topic."""
        if records is None:
            return []
        first, size = self._offsets[tp], len(records.offsets)
        self._offsets[tp] += size
        self.left[tp] -= size
        if not self.left[tp]:
            del self.left[tp]
        return [(tp, records._replace(offsets=range(first, first + size)))]
