"""Kafka's choice of a record's partition, and a shuffle that brings the record to Spark's partition of this number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["PartitionCounts", "exact_partitions", "key_partitions", "murmur2", "placed"]


@dataclass(frozen=True)
class PartitionCounts:
    """The partition counts of the topics that get dead letters: those in Kafka, and the count of all other topics."""

    known: Mapping[str, int]
    other: int

    def of(self, topic: str) -> int:
        return self.known.get(topic, self.other)


SEED = np.uint32(0x9747B28C)
MULTIPLIER = np.uint32(0x5BD1E995)


def murmur2(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """Kafka's murmur2 of each key of a binary array, computed on whole columns; null counts as empty.

    >>> murmur2(pa.array([b"21", b"foobar"], pa.binary())).astype("int32").tolist()
    [-973932308, -790332482]
    """
    if len(keys) == 0:
        return np.empty(0, np.uint32)
    keys = keys.cast(pa.binary())
    _, offsets_buffer, data_buffer = keys.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(
        np.int64
    )
    lengths = np.diff(offsets)
    if keys.null_count:
        lengths = np.where(np.asarray(keys.is_null()), 0, lengths)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.empty(0, np.uint8)

    # The longest keys come first: the keys that have a word left are then always a prefix of the arrays.
    order = np.argsort(-lengths, kind="stable")
    starts, sizes = offsets[:-1][order], lengths[order]
    hashes = SEED ^ sizes.astype(np.uint32)
    words = sizes // 4
    for word in range(int(words[0])):
        live = int(np.searchsorted(-words, -word, side="left"))
        at = starts[:live] + 4 * word
        k = (
            data[at].astype(np.uint32)
            | data[at + 1].astype(np.uint32) << np.uint32(8)
            | data[at + 2].astype(np.uint32) << np.uint32(16)
            | data[at + 3].astype(np.uint32) << np.uint32(24)
        ) * MULTIPLIER
        k ^= k >> np.uint32(24)
        hashes[:live] = hashes[:live] * MULTIPLIER ^ k * MULTIPLIER
    rest = sizes % 4
    for byte in (2, 1, 0):
        some = np.flatnonzero(rest > byte)
        hashes[some] ^= data[starts[some] + 4 * words[some] + byte].astype(np.uint32) << np.uint32(8 * byte)
    some = np.flatnonzero(rest > 0)
    hashes[some] *= MULTIPLIER
    hashes ^= hashes >> np.uint32(13)
    hashes *= MULTIPLIER
    hashes ^= hashes >> np.uint32(15)
    result = np.empty_like(hashes)
    result[order] = hashes
    return result


def key_partitions(
    keys: pa.Array, partitions: int | npt.NDArray[np.uint32], null_key: int = 0
) -> npt.NDArray[np.int32]:
    """The partition of each key in Kafka's default partitioner; a null key goes to ``null_key % partitions``.

    An array of ``partitions`` has the partition count for each key. Kafka leaves the partition of a null key to chance.
    Here, the partition is the same in every run of a job.
    """
    counts = np.broadcast_to(np.asarray(partitions, np.uint32), (len(keys),))
    placed = ((murmur2(keys) & np.uint32(0x7FFFFFFF)) % counts).astype(np.int32)
    if keys.null_count:
        null = np.asarray(pc.is_null(keys))
        placed[null] = null_key % counts[null]
    return placed


def placed(
    chosen: Sequence[int | None],
    keys: pa.Array,
    partitions: int | npt.NDArray[np.uint32],
    null_key: int = 0,
) -> npt.NDArray[np.int32]:
    """The partition of each record: the chosen one, or that of `key_partitions` where none is chosen.

    >>> placed([None, 5], pa.array([b"21", b"21"], pa.binary()), 3).tolist()
    [0, 5]
    """
    by_key = chosen.count(None)
    if not by_key:
        return np.array(chosen, np.int32)
    places = key_partitions(keys, partitions, null_key)
    if by_key < len(chosen):
        for index, partition in enumerate(chosen):
            if partition is not None:
                places[index] = partition
    return places


@lru_cache
def _numbers_that_hash_to(spark: SparkSession, partitions: int) -> tuple[int, ...]:
    rows = (
        spark.range(partitions * 32)
        .selectExpr("cast(id as int) number", f"pmod(hash(cast(id as int)), {partitions}) partition")
        .groupBy("partition")
        .min("number")
        .collect()
    )
    found = dict(tuple(row) for row in rows)
    return tuple(found[partition] for partition in range(partitions))


def exact_partitions(frame: DataFrame, partitions: int, column: Column) -> DataFrame:
    """Shuffles the rows: Spark's partition p gets exactly the rows with value p in an integer ``column``.

    Spark's ``repartition(n, column)`` cannot do this, because it hashes the column: some values share a partition, and
    some partitions stay empty. So this function replaces each value by a number whose hash leads to the right
    partition.
    """
    from pyspark.sql import functions as F

    if partitions == 1:
        return frame.repartition(1)
    numbers = F.array(*[F.lit(number) for number in _numbers_that_hash_to(frame.sparkSession, partitions)])
    return frame.repartition(partitions, numbers[column])
