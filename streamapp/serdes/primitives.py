"""Serdes for strings, numbers and bytes, in the formats of Kafka's own serializers.

All of them are plain functions on their class: the engine looks them up once and calls them once a record.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from streamapp.errors import SerializationError
from streamapp.serdes.base import Serde

__all__ = ["BytesSerde", "DoubleSerde", "IntegerSerde", "LongSerde", "StringSerde"]

_LONG = struct.Struct(">q")
_INTEGER = struct.Struct(">i")
_DOUBLE = struct.Struct(">d")

_encode = str.encode
_pack_long, _unpack_long = _LONG.pack, _LONG.unpack
_pack_integer, _unpack_integer = _INTEGER.pack, _INTEGER.unpack
_pack_double, _unpack_double = _DOUBLE.pack, _DOUBLE.unpack


class StringSerde(Serde[str]):
    """UTF-8, as Kafka's ``StringSerializer``.

    Bytes that are not UTF-8 raise `SerializationError`; Java would replace them silently.

    >>> StringSerde().serialize("Zürich")
    b'Z\\xc3\\xbcrich'
    """

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


class LongSerde(Serde[int]):
    """A signed 64-bit integer in 8 bytes, big endian, as Kafka's ``LongSerializer``.

    >>> LongSerde().serialize(258)
    b'\\x00\\x00\\x00\\x00\\x00\\x00\\x01\\x02'
    """

    immutable = True

    @staticmethod
    def serialize(value: int) -> bytes:
        try:
            return _pack_long(value)
        except struct.error as error:
            raise _cannot_serialize("an int of at most 64 bits, signed", value) from error

    @staticmethod
    def deserialize(data: bytes) -> int:
        try:
            return _unpack_long(data)[0]  # type: ignore[no-any-return]
        except (struct.error, TypeError) as error:
            raise _cannot_deserialize("8 bytes (a long)", data) from error


class IntegerSerde(Serde[int]):
    """A signed 32-bit integer in 4 bytes, big endian, as Kafka's ``IntegerSerializer``.

    >>> IntegerSerde().serialize(-2)
    b'\\xff\\xff\\xff\\xfe'
    """

    immutable = True

    @staticmethod
    def serialize(value: int) -> bytes:
        try:
            return _pack_integer(value)
        except struct.error as error:
            raise _cannot_serialize("an int of at most 32 bits, signed", value) from error

    @staticmethod
    def deserialize(data: bytes) -> int:
        try:
            return _unpack_integer(data)[0]  # type: ignore[no-any-return]
        except (struct.error, TypeError) as error:
            raise _cannot_deserialize("4 bytes (an integer)", data) from error


class DoubleSerde(Serde[float]):
    """An IEEE 754 double in 8 bytes, big endian, as Kafka's ``DoubleSerializer``.

    >>> DoubleSerde().serialize(1.0)
    b'?\\xf0\\x00\\x00\\x00\\x00\\x00\\x00'
    """

    immutable = True

    @staticmethod
    def serialize(value: float) -> bytes:
        try:
            return _pack_double(value)
        except (struct.error, OverflowError) as error:
            raise _cannot_serialize("a float", value) from error

    @staticmethod
    def deserialize(data: bytes) -> float:
        try:
            return _unpack_double(data)[0]  # type: ignore[no-any-return]
        except (struct.error, TypeError) as error:
            raise _cannot_deserialize("8 bytes (a double)", data) from error


class BytesSerde(Serde[bytes]):
    """Bytes as they are, as Kafka's ``ByteArraySerializer``.

    >>> BytesSerde().serialize(b"raw")
    b'raw'
    """

    immutable = True

    @staticmethod
    def serialize(value: bytes) -> bytes:
        if value.__class__ is not bytes:
            raise _cannot_serialize("bytes", value)
        return value

    @staticmethod
    def deserialize(data: bytes) -> bytes:
        return data


def _cannot_serialize(expected: str, value: Any) -> SerializationError:
    return SerializationError(f"expected {expected}, got {_shortened(value)} ({type(value).__name__})")


def _cannot_deserialize(expected: str, data: Any) -> SerializationError:
    size = f"{len(data)} bytes" if isinstance(data, bytes) else type(data).__name__
    return SerializationError(f"expected {expected}, got {size}: {_shortened(data)}")


def _shortened(value: Any, limit: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}..."
