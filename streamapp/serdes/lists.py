"""A serde for lists, in the format of Kafka's own serializer."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, TypeVar

from streamapp._base.counted import counted
from streamapp.errors import SerializationError
from streamapp.serdes.base import Serde, check_serde
from streamapp.serdes.primitives import (
    DoubleSerde,
    FloatSerde,
    IntegerSerde,
    LongSerde,
    ShortSerde,
    UUIDSerde,
)
from streamapp.serdes.types import excerpt

__all__ = ["ListSerde"]

T = TypeVar("T")

_SIZES: dict[type[Serde[Any]], int] = {
    ShortSerde: 2,
    IntegerSerde: 4,
    LongSerde: 8,
    FloatSerde: 4,
    DoubleSerde: 8,
    UUIDSerde: 36,
}
"""The length of an item in bytes, for inner serdes whose items all have the same length. Kafka's format has no length
before such items."""
_CONSTANT, _VARIABLE = 0, 1
_NULL = -1
_INT = struct.Struct(">i")
_NULL_ITEM = _INT.pack(_NULL)


class ListSerde(Serde[list[T | None]]):
    """A list whose items the inner serde writes, as Kafka's ``ListSerializer``. An item may be None.

    The first byte is 0 if the inner serde is that of an integer, a float or a UUID, else 1. After 0 come the number and
    the positions of null items, the number of items, and the items that are not null. After 1 come the number of items,
    and each item behind its length (-1 for null). Lengths, numbers and positions take 4 bytes.

    >>> from streamapp import StringSerde
    >>> ListSerde(StringSerde()).serialize(["JFK", None])
    b'\\x01\\x00\\x00\\x00\\x02\\x00\\x00\\x00\\x03JFK\\xff\\xff\\xff\\xff'
    >>> ListSerde(StringSerde()).deserialize(_)
    ['JFK', None]
    """

    persistent_name = "ListSerde"

    def __init__(self, inner: Serde[T]) -> None:
        check_serde(inner, "the inner serde of a ListSerde")
        self.inner = inner
        self._size = _SIZES.get(type(inner))

    def serialize(self, value: Iterable[T | None]) -> bytes:
        if not isinstance(value, list | tuple):
            raise SerializationError(f"expected a list, got {excerpt(value)} ({type(value).__name__})")
        write = self.inner.serialize
        items = [None if item is None else write(item) for item in value]
        if self._size is None:
            parts = [_NULL_ITEM if item is None else _INT.pack(len(item)) + item for item in items]
            return b"".join((bytes((_VARIABLE,)), _INT.pack(len(items)), *parts))
        nulls = [number for number, item in enumerate(items) if item is None]
        numbers = struct.pack(f">i{len(nulls)}ii", len(nulls), *nulls, len(items))
        return b"".join((bytes((_CONSTANT,)), numbers, *(item for item in items if item is not None)))

    def deserialize(self, data: bytes) -> list[T | None]:
        try:
            return self._read(data)
        except (struct.error, IndexError, TypeError) as error:
            raise SerializationError(f"expected a list as Kafka writes it, got {excerpt(data)}") from error

    def _read(self, data: bytes) -> list[T | None]:
        if data[0] not in (_CONSTANT, _VARIABLE):
            raise SerializationError(f"expected a list, which begins with 0 or 1, got {excerpt(data)}")
        at, nulls = 1, frozenset[int]()
        if data[0] == _CONSTANT:
            if self._size is None:
                raise SerializationError(
                    f"the items of the list have no lengths, so {type(self.inner).__name__} cannot read them; "
                    "give ListSerde the serde of a number or UUIDSerde"
                )
            count = _count(data, at)
            nulls = frozenset(struct.unpack_from(f">{count}i", data, at + 4))
            at += 4 + 4 * count
        count = _count(data, at)
        at += 4
        if any(not 0 <= number < count for number in nulls):
            raise SerializationError(
                f"a list of {counted(count, 'item')} has a null item at a position outside the list: {excerpt(data)}"
            )
        items: list[T | None] = []
        for number in range(count):
            size = self._size if data[0] == _CONSTANT else None
            if size is None:
                (size,) = _INT.unpack_from(data, at)
                at += 4
            if number in nulls or size == _NULL:
                items.append(None)
                continue
            if size < 0 or at + size > len(data):
                raise SerializationError(f"item {number} of a list is cut off: {excerpt(data)}")
            items.append(self.inner.deserialize(data[at : at + size]))
            at += size
        if at != len(data):
            raise SerializationError(
                f"{counted(len(data) - at, 'byte follows', 'bytes follow')} the list: {excerpt(data)}"
            )
        return items

    def bind(self, topic: str, is_key: bool) -> ListSerde[T]:
        inner = self.inner.bind(topic, is_key)
        return self if inner is self.inner else ListSerde(inner)


def _count(data: bytes, at: int) -> int:
    count: int = _INT.unpack_from(data, at)[0]
    if count < 0:
        raise SerializationError(f"a list with a negative number of items ({count}): {excerpt(data)}")
    return count
