"""Java's hash codes, and the order of Java's hash tables, because results of Kafka Streams depend on this order."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

__all__ = ["bucket", "bytes_hash", "hash_order", "partition_hash", "text_hash"]

_T = TypeVar("_T", bound=Hashable)


def text_hash(text: str) -> int:
    """``String.hashCode()``, as an unsigned number.

    >>> text_hash("in2"), text_hash("t1")
    (104365, 3645)
    """
    code = 0
    encoded = text.encode("utf-16-be")
    for i in range(0, len(encoded), 2):
        code = (31 * code + (encoded[i] << 8 | encoded[i + 1])) & 0xFFFFFFFF
    return code


def bytes_hash(data: bytes) -> int:
    """``Arrays.hashCode(byte[])``, as an unsigned number."""
    code = 1
    for byte in data:
        code = (31 * code + (byte - 256 if byte > 127 else byte)) & 0xFFFFFFFF
    return code


def partition_hash(partition: tuple[str, int]) -> int:
    """``TopicPartition.hashCode()`` of Kafka's clients, as an unsigned number. ``partition`` is (topic, number)."""
    return (31 * (31 + partition[1]) + text_hash(partition[0])) & 0xFFFFFFFF


def bucket(code: int, capacity: int) -> int:
    """The bucket of a hash code in a hash table with ``capacity`` buckets."""
    return (code ^ code >> 16) & (capacity - 1)


def hash_order(things: Iterable[_T], code_of: Callable[[_T], int]) -> list[_T]:
    """The order in which a ``java.util.HashSet`` gives things that are added in the order of ``things``.

    >>> hash_order(["t1", "in2", "in"], text_hash)
    ['in', 'in2', 't1']
    """
    unique = list(dict.fromkeys(things))
    capacity = 16
    while len(unique) > capacity * 0.75:
        capacity *= 2
    return sorted(unique, key=lambda thing: bucket(code_of(thing), capacity))
