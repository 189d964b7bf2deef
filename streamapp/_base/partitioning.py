"""Kafka's default partitioner: the partition of a key.

Producers, readers of tables and backfills must compute the same partition for a key, otherwise one key has rows in two
partitions. For most records that workers write, librdkafka computes the partition in C
(``partitioner=murmur2_random``).
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct

__all__ = ["murmur2", "partition_for"]

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995
_SEED = 0x9747B28C


@lru_cache(maxsize=64)
def _words(count: int) -> Struct:
    return Struct(f"<{count}I")


def murmur2(data: bytes) -> int:
    """The 32-bit Murmur2 hash with Kafka's seed, as an unsigned number.

    >>> murmur2(b"21"), murmur2(b"foobar")
    (3321034988, 3504634814)
    """
    length = len(data)
    h = _SEED ^ length
    count = length >> 2
    for k in _words(count).unpack_from(data):
        k = (k * _M) & _MASK
        k ^= k >> 24
        h = ((h * _M) & _MASK) ^ ((k * _M) & _MASK)
    if length & 3:
        h ^= int.from_bytes(data[count << 2 :], "little")
        h = (h * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    return h ^ (h >> 15)


@lru_cache(maxsize=65_536)
def partition_for(key: bytes, partitions: int) -> int:
    """The partition that Kafka's producers choose for a key, out of ``partitions``.

    ``key`` must not be None, because producers spread records without a key over all partitions.

    >>> partition_for(b"UA", 4)
    2
    """
    if partitions < 1:
        raise ValueError(f"a topic has at least one partition, not {partitions}")
    return (murmur2(key) & 0x7FFFFFFF) % partitions
