"""Packs: thousands of records of a repartition topic in one row of Spark.

Between two stages, each row goes from Python to Java, through a shuffle and a sort, and back. For a single record, this
costs more than the engine's work. So a task packs thousands of records for one partition into one row. Spark moves the
packs, and the reading task puts the records in order again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamapp.records import NO_HEADERS, Headers, RecordBatch

__all__ = ["ARROW_HEADERS", "Merge", "Pack", "arrow_headers", "packs", "pieces", "record_headers", "unpack"]

ARROW_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("mx", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
        ("headers", ARROW_HEADERS),
    ]
)


PACK_BYTES = 1 << 20
"""The approximate limit of a pack in bytes.

Spark has 32 packs of each task in memory, and 64 while its buffer grows.
"""


class Pack(NamedTuple):
    """Records from one task to one partition, in the order of sending.

    ``mx`` and ``seq`` belong to the first record. ``mx`` is the task's stream time, which never falls. ``seq`` is the
    number of the record among all records that the task has sent to the topic.
    """

    partition: int
    mx: int
    seq: int
    size: int
    data: bytes


def packs(columns: Sequence[pa.Array], partitions: npt.NDArray[np.int32], first_seq: int) -> Iterator[Pack]:
    """Distributes records, given as the columns of `SCHEMA`, over their partitions."""
    batch = pa.RecordBatch.from_arrays(list(columns), schema=SCHEMA)
    order = np.argsort(partitions, kind="stable")
    found, starts = np.unique(partitions[order], return_index=True)
    ends = [*starts[1:].tolist(), len(order)]
    taken = batch.take(pa.array(order))
    for partition, start, end in zip(found.tolist(), starts.tolist(), ends, strict=True):
        at = start
        for part in pieces(taken.slice(start, end - start), PACK_BYTES):
            data = part.serialize().to_pybytes()
            yield Pack(partition, part.column(0)[0].as_py(), first_seq + int(order[at]), len(part), data)
            at += len(part)


def pieces(batch: pa.RecordBatch, limit_bytes: int) -> Iterator[pa.RecordBatch]:
    """The rows of a batch, cut into batches of about ``limit_bytes`` each."""
    count = min(-(-batch.nbytes // limit_bytes), len(batch))
    if count <= 1:
        yield batch
        return
    rows = -(-len(batch) // count)
    for first in range(0, len(batch), rows):
        yield batch.slice(first, rows)


def unpack(data: pa.Buffer) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(data, SCHEMA)


class Merge:
    """Merges the packs of all writing tasks for one reading task: by ``mx``, then writing task, then ``seq``."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[pa.RecordBatch]] = {}

    def add(self, source: int, data: pa.Buffer) -> None:
        """Adds a pack; the packs of each writing task come in their order."""
        self._waiting.setdefault(source, []).append(unpack(data))

    def before(self, bound: int | None) -> RecordBatch | None:
        """Takes out the records whose ``mx``, the stream time of the writing task, is below ``bound`` (None: all
        records).

        The records come in the order of the merge. The caller must know that later packs have no records below
        ``bound``; otherwise the order would be wrong.
        """
        parts: list[pa.RecordBatch] = []
        for source in sorted(self._waiting):
            left = self._waiting.pop(source)
            while left:
                part = left[0]
                end = len(part) if bound is None else int(np.searchsorted(_numbers(part, 0), bound))
                if end:
                    parts.append(part.slice(0, end))
                if end < len(part):
                    left[0] = part.slice(end)
                    self._waiting[source] = left
                    break
                left.pop(0)
        if not parts:
            return None
        if len(parts) == 1:
            return _records(parts[0])
        table = pa.concat_batches(parts)
        return _records(table.take(pa.array(np.argsort(_numbers(table, 0), kind="stable"))))


def _numbers(batch: pa.RecordBatch, column: int) -> npt.NDArray[np.int64]:
    return batch.column(column).to_numpy()  # type: ignore[no-any-return]


def _records(batch: pa.RecordBatch) -> RecordBatch:
    _, keys, values, timestamps, headers = batch.columns
    return RecordBatch(
        keys.to_pylist(),
        values.to_pylist(),
        timestamps.to_pylist(),
        range(len(batch)),
        record_headers(headers),
    )


def arrow_headers(headers: Sequence[Headers | None]) -> pa.Array:
    if not any(headers):
        return pa.nulls(len(headers), ARROW_HEADERS)
    items = [None if not h else [{"key": key, "value": value} for key, value in h] for h in headers]
    return pa.array(items, ARROW_HEADERS)


def record_headers(column: pa.Array) -> list[Headers] | None:
    """The headers for a `RecordBatch`; None if no record has headers."""
    if column.null_count == len(column):
        return None
    return [_headers(items) for items in column.to_pylist()]


def _headers(items: list[dict[str, Any]] | None) -> Headers:
    return tuple((item["key"], item["value"]) for item in items) if items else NO_HEADERS
