"""Kafka Streams' byte formats of changelogs, and the form in which stores keep keys and values in memory.

| store | key in the changelog |
| --- | --- |
| windows | key, start (8 bytes), sequence number (4 bytes) |
| sessions | key, end (8 bytes), start (8 bytes) |
| outer join | timestamp (8 bytes), is-left (1 byte), key |

Numbers are big endian, so the bytes of two times sort as the times do.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple
from uuid import UUID

from streamapp._base.counted import counted
from streamapp.errors import SerializationError
from streamapp.records import MAX_LONG, NO_HEADERS, Headers, RecordContext
from streamapp.serdes import (
    BooleanSerde,
    BytesSerde,
    IntegerSerde,
    LongSerde,
    ShortSerde,
    StringSerde,
    UUIDSerde,
)
from streamapp.serdes.base import Serde

__all__ = [
    "LONG",
    "MAX_LONG",
    "BufferedChange",
    "Codec",
    "LeftOrRightSerde",
    "as_it_is",
    "pack_headers",
    "pack_list",
    "prefix_end",
    "unpack_headers",
    "unpack_list",
]

LONG = struct.Struct(">q")
_INT = struct.Struct(">i")
_NULL = b"\xff\xff\xff\xff"
"""The length -1, which stands for no data."""

# Serdes whose values wait in memory as objects, with the class of these values. The class is exact and immutable, and
# two values are equal if and only if their bytes are equal. So floats are excluded, because 0.0 == -0.0. All other
# values wait as bytes. So a reader may change its copy, and a value that cannot be serialized fails at the put and not
# at the commit. The function is true if a value of the class can surely be serialized. For example, a str that is not
# ASCII may have lone surrogates, which have no UTF-8.
_KEPT_CLASSES: dict[type, tuple[type, Callable[[Any], bool]]] = {
    StringSerde: (str, str.isascii),
    LongSerde: (int, lambda value: -(2**63) <= value < 2**63),
    IntegerSerde: (int, lambda value: -(2**31) <= value < 2**31),
    ShortSerde: (int, lambda value: -(2**15) <= value < 2**15),
    BooleanSerde: (bool, lambda value: True),
    UUIDSerde: (UUID, lambda value: True),
    BytesSerde: (bytes, lambda value: True),
}


def as_it_is(value: Any) -> Any:
    """Returns its argument. A codec that keeps bytes has this function, so that callers can leave the call out."""
    return value


class Codec:
    """Converts the keys or the values of a store between three forms: value, kept form, and bytes.

    The *kept form* is the form in memory. Simple serdes, for example of text and integers, keep the value itself. All
    others keep the serialized bytes. ``keep`` makes the kept form of a value, and ``show`` the value of a kept form.
    ``to_bytes`` and ``from_bytes`` convert between kept form and bytes. ``kept_class`` is the class of the values that
    a simple serde keeps. ``sound(value)`` is true if an object of this class can surely be serialized. For all other
    serdes, ``kept_class`` and ``sound`` are None. ``encode`` is the ``serialize`` of the serde itself. If ``encode``
    raises a `SerializationError`, or gives no bytes, the caller calls ``keep`` for the error that names the store.
    """

    __slots__ = (
        "encode",
        "exact",
        "from_bytes",
        "immutable",
        "keep",
        "kept_class",
        "serialize",
        "show",
        "sound",
        "to_bytes",
    )

    def __init__(self, serde: Serde[Any] | None, store: str, side: str) -> None:
        if serde is None:
            raise SerializationError(f"store {store!r} has no {side} serde: set {side}_serde")
        kept_class, sound = _KEPT_CLASSES.get(type(serde), (None, None))
        self.kept_class: type | None = kept_class
        self.sound: Any = sound
        self.immutable: bool = serde.immutable
        self.exact: type | None = serde.exact
        serialize, deserialize = serde.serialize, serde.deserialize

        def to_bytes(value: Any) -> bytes:
            if value is None:
                raise SerializationError(f"store {store!r}: a {side} cannot be None")
            try:
                data = serialize(value)
            except SerializationError as error:
                raise SerializationError(f"store {store!r}, {side}: {error}") from error
            if not isinstance(data, bytes):
                raise SerializationError(
                    f"store {store!r}: serialize of the {side} serde {type(serde).__name__} gave "
                    f"{type(data).__name__}, not bytes"
                )
            return data

        self.encode: Callable[[Any], Any] = serialize
        self.serialize: Callable[[Any], bytes] = to_bytes
        self.keep: Callable[[Any], Any]
        self.show: Callable[[Any], Any]
        self.to_bytes: Callable[[Any], bytes]
        self.from_bytes: Callable[[bytes], Any]
        if self.kept_class is None:
            self.keep, self.show = to_bytes, deserialize
            self.to_bytes = self.from_bytes = as_it_is
        else:
            self.keep, self.show = lambda value: deserialize(to_bytes(value)), as_it_is
            self.to_bytes, self.from_bytes = serialize, deserialize


def prefix_end(prefix: bytes) -> bytes | None:
    """The end of the range of all keys with this prefix: the first key after them, or None if there is none.

    >>> prefix_end(b"ab"), prefix_end(b"a\\xff"), prefix_end(b"\\xff")
    (b'ac', b'b', None)
    """
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else None


class LeftOrRightSerde(Serde["tuple[bool, Any]"]):
    """The serde of ``(is_left, value)``, a value of one of the two sides of a join.

    The first byte is 1 for the left side and 0 for the right side. The bytes of the value follow. The right serde is
    bound to a name of its own. So a schema registry does not take the schemas of the two sides for versions of one.
    """

    persistent_name = "LeftOrRightSerde"

    def __init__(self, left: Serde[Any], right: Serde[Any]) -> None:
        self.left: Serde[Any] = left
        self.right: Serde[Any] = right

    def serialize(self, value: tuple[bool, Any]) -> bytes:
        is_left, side_value = value
        return (
            b"\x01" + self.left.serialize(side_value) if is_left else b"\0" + self.right.serialize(side_value)
        )

    def deserialize(self, data: bytes) -> tuple[bool, Any]:
        if not data:
            raise SerializationError("expected a value of one side of a join, got no bytes")
        if data[0]:
            return True, self.left.deserialize(data[1:])
        return False, self.right.deserialize(data[1:])

    def bind(self, topic: str, is_key: bool) -> LeftOrRightSerde:
        return LeftOrRightSerde(self.left.bind(topic, is_key), self.right.bind(f"{topic}-right", is_key))


def pack_list(entries: Iterable[bytes]) -> bytes:
    """The bytes of a list in Kafka's format.

    The first byte is 1, which means that sizes vary. Then come the count (4 bytes), and length and bytes of each entry.

    >>> pack_list([b"x"])
    b'\\x01\\x00\\x00\\x00\\x01\\x00\\x00\\x00\\x01x'
    """
    parts = [sized(entry) for entry in entries]
    return b"\x01" + _INT.pack(len(parts)) + b"".join(parts)


def unpack_list(data: bytes) -> list[bytes]:
    """The inverse of `pack_list`."""
    reader = _Reader(data, 1)
    return [reader.sized() or b"" for _ in range(reader.count())]


def sized(data: bytes | None) -> bytes:
    """The length of the data (4 bytes; -1 for None), followed by the data."""
    return _NULL if data is None else _INT.pack(len(data)) + data


def pack_headers(headers: Headers) -> bytes:
    """The bytes of headers: their count (4 bytes), then name and value of each header, each after its length.

    >>> unpack_headers(pack_headers((("h", None),)) + b"value")
    ((('h', None),), b'value')
    """
    parts = [_INT.pack(len(headers))]
    for name, value in headers:
        parts += (sized(name.encode()), sized(value))
    return b"".join(parts)


def unpack_headers(data: bytes) -> tuple[Headers, bytes]:
    """The inverse of `pack_headers`: the headers at the start of the data, and the rest of the data."""
    reader = _Reader(data, 0)
    return reader.headers(), reader.rest()


def _context_size(context: RecordContext) -> int:
    """The size in bytes of a record's context, as Kafka Streams counts it for the limit of a buffer."""
    size = 20 + len(context.topic or "")
    for name, value in context.headers:
        size += len(name) + len(value or b"")
    return size


def _pack_context(context: RecordContext) -> bytes:
    """The bytes of a record's context: timestamp, offset, topic, partition and headers. Key and value of the source
    record are left out."""
    topic = (context.topic or "").encode()
    parts = (
        LONG.pack(context.timestamp),
        LONG.pack(context.offset),
        sized(topic),
        _INT.pack(context.partition),
    )
    return b"".join(parts) + pack_headers(context.headers)


class BufferedChange(NamedTuple):
    """The latest update of a row in the buffer of a suppression: from the value ``old`` to ``new``, as bytes.

    ``prior`` is the row's value before the first buffered update, which readers of the suppressed table still see.
    ``context`` has timestamp and headers of the update, and topic, partition and offset of its source record.
    """

    prior: bytes | None
    old: bytes | None
    new: bytes | None
    context: RecordContext

    @property
    def size(self) -> int:
        """The size of the update in bytes, as Kafka Streams counts it for the limit of a buffer."""
        old = 0 if self.old == self.prior else len(self.old or b"")
        return len(self.prior or b"") + old + len(self.new or b"") + _context_size(self.context)

    def pack(self, time: int) -> bytes:
        """The bytes of the update in the changelog: ``context``, ``prior``, ``old``, ``new``, then ``time``.

        ``prior`` is the value before the first buffered update, and ``old`` the value before the latest. If both are
        the same and not None, the length of ``old`` is written as -2 and its bytes are left out. ``time``, in ms, is
        the time by which the buffer of the suppression orders its rows.
        """
        same = self.old is not None and self.old == self.prior
        old = b"\xff\xff\xff\xfe" if same else sized(self.old)
        return _pack_context(self.context) + sized(self.prior) + old + sized(self.new) + LONG.pack(time)

    @classmethod
    def unpack(cls, data: bytes) -> tuple[BufferedChange, int]:
        """The inverse of `pack`: the change and the buffer time."""
        reader = _Reader(data, 0)
        context, prior, old_length = reader.context(), reader.sized(), reader.integer()
        old = prior if old_length == -2 else reader.take(old_length)
        return cls(prior, old, reader.sized(), context), reader.long()

    @classmethod
    def unpack_logged(
        cls, data: bytes, timestamp: int, headers: Headers, before: BufferedChange | None
    ) -> tuple[BufferedChange, int]:
        """The update and the buffer time in a changelog record of any version of Kafka Streams.

        ``before`` is the update of the same key that the buffer has already. Raises `SerializationError` for bytes of
        another format. Source: ``InMemoryTimeOrderedKeyValueChangeBuffer.restoreBatch``.
        """
        version = next((value for name, value in reversed(headers) if name == "v"), None)
        match version:
            case b"\x03":
                return cls.unpack(data)
            case b"\x02":
                return cls._unpack_version_2(data)
            case b"\x01" | None:
                reader = _Reader(data, 0)
                time = reader.long()
                if version is None:  # the record does not name its source
                    context = RecordContext(None, -1, -1, timestamp, headers)
                else:
                    context, reader = reader.context(), _Reader(reader.sized() or b"", 0)
                old, new = reader.sized(), reader.sized()
                prior = old if before is None or before.prior is None else before.prior
                return cls(prior, old, new, context), time
        raise SerializationError(
            f"the header v is {version!r}, and no known version of Kafka Streams writes this"
        )

    @classmethod
    def _unpack_version_2(cls, data: bytes) -> tuple[BufferedChange, int]:
        # Kafka Streams 2.4.0, 2.4.1 and 2.5.0 write the format of version 3 under the number 2.
        try:
            reader = _Reader(data, 0)
            context, change = reader.context(), _Reader(reader.sized() or b"", 0)
            old, new = change.sized(), change.sized()
            prior, time = reader.sized(), reader.long()
            if not reader.rest() and not change.rest():
                return cls(prior, old, new, context), time
        except SerializationError:
            pass
        try:
            return cls.unpack(data)
        except SerializationError as error:
            raise SerializationError(
                f"an update has neither the format of version 2 nor of version 3: {error}"
            ) from error


class _Reader:
    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at

    def long(self) -> int:
        return int.from_bytes(self._next(8), "big", signed=True)

    def integer(self) -> int:
        return int.from_bytes(self._next(4), "big", signed=True)

    def count(self) -> int:
        """The number of entries that follow. Raises `SerializationError` if the rest has less than 4 bytes for each."""
        count = self.integer()
        if count < 0 or 4 * count > len(self._data) - self._at:
            raise SerializationError(
                f"expected {counted(count, 'entry', 'entries')} in {counted(len(self._data) - self._at, 'byte')}"
            )
        return count

    def sized(self) -> bytes | None:
        return self.take(self.integer())

    def headers(self) -> Headers:
        return tuple(((self.sized() or b"").decode(), self.sized()) for _ in range(self.count()))

    def context(self) -> RecordContext:
        """The inverse of `_pack_context`. Early versions of Kafka Streams write the count -1 for no headers."""
        timestamp, offset = self.long(), self.long()
        topic, partition = (self.sized() or b"").decode(), self.integer()
        if self._data[self._at : self._at + 4] == _NULL:
            self._next(4)
            headers = NO_HEADERS
        else:
            headers = self.headers()
        return RecordContext(topic or None, partition, offset, timestamp, headers)

    def rest(self) -> bytes:
        return self._data[self._at :]

    def take(self, length: int) -> bytes | None:
        if length < -1:
            raise SerializationError(f"{length} is no length")
        return None if length == -1 else self._next(length)

    def _next(self, length: int) -> bytes:
        start = self._at
        self._at = end = start + length
        if end > len(self._data):
            raise SerializationError(
                f"expected {counted(length, 'byte')} from {start}, got {len(self._data)} in all"
            )
        return self._data[start:end]
