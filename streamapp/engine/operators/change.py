"""The bytes of a table's changes in the repartition topic of ``KTable.group_by``."""

from __future__ import annotations

from typing import Any

from streamapp.engine.operator import Change
from streamapp.errors import SerializationError
from streamapp.serdes.base import Serde
from streamapp.serdes.types import excerpt

__all__ = ["ChangeSerde"]

_OLD, _NEW, _BOTH = 0, 1, 2
_WITH_LATEST_FLAG = 3
"""Kafka Streams reserves the flags 3 to 5 for later versions. With them, this number is added to the flag, and
``is_latest`` is a byte before the flag. `ChangeSerde` reads these flags, and never writes them."""


class ChangeSerde(Serde[Change]):
    """Kafka Streams' bytes of a table's change, with a flag as the last byte that says which values there are.

    Flag 0: only the old value. Flag 1: only the new value. Flag 2: the length of the new value (a signed varint, which
    is 6 for the length 3), the new value, the old value. ``is_latest`` is not written, and reads as True.

    >>> from streamapp.serdes import StringSerde
    >>> ChangeSerde(StringSerde()).serialize(("new", "old", True))
    b'\\x06newold\\x02'
    """

    persistent_name = "ChangeSerde"

    def __init__(self, inner: Serde[Any]) -> None:
        self.inner = inner
        self.immutable: bool = inner.immutable

    def serialize(self, value: Change) -> bytes:
        new, old, _ = value
        encode = self.inner.serialize
        if old is None:
            if new is None:
                raise SerializationError("a change needs a new or an old value; both are None")
            return encode(new) + b"\x01"
        if new is None:
            return encode(old) + b"\x00"
        data = encode(new)
        return _varint(len(data)) + data + encode(old) + b"\x02"

    def deserialize(self, data: bytes) -> Change:
        decode = self.inner.deserialize
        if len(data) < 1 + (data[-1:] >= bytes((_WITH_LATEST_FLAG,))):
            raise SerializationError(f"expected a table's change and its flag, got {excerpt(data)}")
        flag, end, latest = data[-1], len(data) - 1, True
        if flag >= _WITH_LATEST_FLAG:
            end -= 1
            flag, latest = flag - _WITH_LATEST_FLAG, data[end] == 1
        if flag == _NEW:
            return decode(data[:end]), None, latest
        if flag == _OLD:
            return None, decode(data[:end]), latest
        if flag == _BOTH:
            length, start = _read_varint(data)
            if start + length > end:
                raise SerializationError(f"a table's change is cut off: {excerpt(data)}")
            return decode(data[start : start + length]), decode(data[start + length : end]), latest
        raise SerializationError(f"unknown flag {data[-1]} at the end of a table's change: {excerpt(data)}")

    def bind(self, topic: str, is_key: bool) -> ChangeSerde:
        inner = self.inner.bind(topic, is_key)
        return self if inner is self.inner else ChangeSerde(inner)


def _varint(number: int) -> bytes:
    """Kafka's zig-zag varint of a number that is not negative: 7 bits in each byte, the lowest first."""
    rest = number << 1
    data = bytearray()
    while rest > 0x7F:
        data.append(rest & 0x7F | 0x80)
        rest >>= 7
    data.append(rest)
    return bytes(data)


def _read_varint(data: bytes) -> tuple[int, int]:
    """The number at the start of the data, and the position behind the number."""
    number = 0
    for position, byte in enumerate(data[:5]):
        number |= (byte & 0x7F) << 7 * position
        if byte < 0x80:
            return number >> 1, position + 1
    raise SerializationError(f"expected a length of at most 5 bytes in a table's change: {excerpt(data)}")
