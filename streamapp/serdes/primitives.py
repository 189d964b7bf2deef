"""Serdes for strings, numbers, bytes and other single values, in the formats of Kafka's own serializers.

``serialize`` and ``deserialize`` are plain functions, attributes of their class. The engine looks both up once, and
calls them for each record.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NoReturn
from uuid import UUID

from streamapp._base.counted import counted
from streamapp.errors import SerializationError
from streamapp.serdes.base import Serde
from streamapp.serdes.types import excerpt

__all__ = [
    "BooleanSerde",
    "BytesSerde",
    "DoubleSerde",
    "FloatSerde",
    "IntegerSerde",
    "LongSerde",
    "ShortSerde",
    "StringSerde",
    "UUIDSerde",
    "VoidSerde",
]

_UUID_GROUPS = [8, 4, 4, 4, 12]

_encode = str.encode


def _cannot_serialize(expected: str, value: Any) -> SerializationError:
    return SerializationError(f"expected {expected}, got {excerpt(value)} ({type(value).__name__})")


def _cannot_deserialize(expected: str, data: Any) -> SerializationError:
    size = counted(len(data), "byte") if isinstance(data, bytes) else type(data).__name__
    return SerializationError(f"expected {expected}, got {size}: {excerpt(data)}")


def _packed(format: str, value: str, data: str) -> tuple[Any, Any]:
    """The functions ``serialize`` and ``deserialize`` for numbers of one format of ``struct``. ``value`` and ``data``
    name the expected value and bytes in errors."""
    packed = struct.Struct(format)
    pack, unpack = packed.pack, packed.unpack

    def serialize(number: Any) -> bytes:
        try:
            return pack(number)
        except (struct.error, OverflowError) as error:
            raise _cannot_serialize(value, number) from error

    def deserialize(given: bytes) -> Any:
        try:
            return unpack(given)[0]
        except (struct.error, TypeError) as error:
            raise _cannot_deserialize(data, given) from error

    return staticmethod(serialize), staticmethod(deserialize)


class StringSerde(Serde[str]):
    """UTF-8, as Kafka's ``StringSerializer``.

    Bytes that are not UTF-8 raise `SerializationError`; Java would replace them silently.

    >>> StringSerde().serialize("Zürich")
    b'Z\\xc3\\xbcrich'
    """

    persistent_name = "StringSerde"

    immutable = True

    @staticmethod
    def serialize(value: str) -> bytes:
        try:
            return _encode(value)
        except (TypeError, UnicodeEncodeError) as error:
            raise _cannot_serialize("a str that UTF-8 can encode", value) from error

    @staticmethod
    def deserialize(data: bytes) -> str:
        try:
            return data.decode()
        except (AttributeError, UnicodeDecodeError) as error:
            raise _cannot_deserialize("UTF-8 text", data) from error

    def decoder(self) -> Callable[[bytes], str]:
        return bytes.decode if self.deserialize is StringSerde.deserialize else self.deserialize


class ShortSerde(Serde[int]):
    """A signed 16-bit integer in 2 bytes, big endian, as Kafka's ``ShortSerializer``.

    >>> ShortSerde().serialize(258)
    b'\\x01\\x02'
    """

    persistent_name = "ShortSerde"

    immutable = True
    serialize: Callable[[int], bytes]
    deserialize: Callable[[bytes], int]
    serialize, deserialize = _packed(">h", "an int of at most 16 bits, signed", "2 bytes (a short)")


class IntegerSerde(Serde[int]):
    """A signed 32-bit integer in 4 bytes, big endian, as Kafka's ``IntegerSerializer``.

    >>> IntegerSerde().serialize(-2)
    b'\\xff\\xff\\xff\\xfe'
    """

    persistent_name = "IntegerSerde"

    immutable = True
    serialize: Callable[[int], bytes]
    deserialize: Callable[[bytes], int]
    serialize, deserialize = _packed(">i", "an int of at most 32 bits, signed", "4 bytes (an integer)")


class LongSerde(Serde[int]):
    """A signed 64-bit integer in 8 bytes, big endian, as Kafka's ``LongSerializer``.

    >>> LongSerde().serialize(258)
    b'\\x00\\x00\\x00\\x00\\x00\\x00\\x01\\x02'
    """

    persistent_name = "LongSerde"

    immutable = True
    serialize: Callable[[int], bytes]
    deserialize: Callable[[bytes], int]
    serialize, deserialize = _packed(">q", "an int of at most 64 bits, signed", "8 bytes (a long)")


class FloatSerde(Serde[float]):
    """An IEEE 754 single in 4 bytes, big endian, as Kafka's ``FloatSerializer``.

    A float of Python has 64 bits, so the serde rounds a value to the nearest single. A float beyond the range of
    singles raises `SerializationError`.

    >>> FloatSerde().deserialize(FloatSerde().serialize(0.1))
    0.10000000149011612
    """

    persistent_name = "FloatSerde"

    immutable = True
    serialize: Callable[[float], bytes]
    deserialize: Callable[[bytes], float]
    serialize, deserialize = _packed(">f", "a float in the range of a single", "4 bytes (a float)")


class DoubleSerde(Serde[float]):
    """An IEEE 754 double in 8 bytes, big endian, as Kafka's ``DoubleSerializer``.

    >>> DoubleSerde().serialize(1.0)
    b'?\\xf0\\x00\\x00\\x00\\x00\\x00\\x00'
    """

    persistent_name = "DoubleSerde"

    immutable = True
    serialize: Callable[[float], bytes]
    deserialize: Callable[[bytes], float]
    serialize, deserialize = _packed(">d", "a float", "8 bytes (a double)")


class BooleanSerde(Serde[bool]):
    """One byte, 1 or 0, as Kafka's ``BooleanSerializer``.

    >>> BooleanSerde().serialize(True)
    b'\\x01'
    """

    persistent_name = "BooleanSerde"

    immutable = True

    @staticmethod
    def serialize(value: bool) -> bytes:
        if value is True:
            return b"\1"
        if value is False:
            return b"\0"
        raise _cannot_serialize("a bool", value)

    @staticmethod
    def deserialize(data: bytes) -> bool:
        if data == b"\1":
            return True
        if data == b"\0":
            return False
        raise _cannot_deserialize("1 byte, 1 or 0 (a boolean)", data)


class UUIDSerde(Serde[UUID]):
    """The text of a UUID, 36 bytes, as Kafka's ``UUIDSerializer``.

    >>> UUIDSerde().serialize(UUID(int=1))
    b'00000000-0000-0000-0000-000000000001'
    """

    persistent_name = "UUIDSerde"

    immutable = True

    @staticmethod
    def serialize(value: UUID) -> bytes:
        if not isinstance(value, UUID):
            raise _cannot_serialize("a uuid.UUID", value)
        return str(value).encode()

    @staticmethod
    def deserialize(data: bytes) -> UUID:
        try:
            groups = data.decode("ascii").split("-")
            if [len(group) for group in groups] != _UUID_GROUPS:
                raise ValueError
            return UUID(bytes=bytes.fromhex("".join(groups)))
        except (AttributeError, ValueError) as error:
            raise _cannot_deserialize("the text of a UUID", data) from error


class VoidSerde(Serde[None]):
    """The serde of a key or value that is always null, as Kafka's ``VoidSerializer``; any other value is an error.

    >>> VoidSerde().serialize("something")
    Traceback (most recent call last):
    ...
    streamapp.errors.SerializationError: expected None, got 'something' (str)
    """

    persistent_name = "VoidSerde"

    immutable = True

    @staticmethod
    def serialize(value: Any) -> NoReturn:
        raise _cannot_serialize("None", value)

    @staticmethod
    def deserialize(data: bytes) -> NoReturn:
        raise _cannot_deserialize("null", data)


class BytesSerde(Serde[bytes]):
    """Bytes as they are, as Kafka's ``ByteArraySerializer``.

    >>> BytesSerde().serialize(b"raw")
    b'raw'
    """

    persistent_name = "BytesSerde"

    immutable = True

    @staticmethod
    def serialize(value: bytes) -> bytes:
        if value.__class__ is not bytes:
            raise _cannot_serialize("bytes", value)
        return value

    @staticmethod
    def deserialize(data: bytes) -> bytes:
        return data
