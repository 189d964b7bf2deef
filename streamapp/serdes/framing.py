"""Frames: bytes that name the schema of a key or value. A frame is before the key or value, or in a header.

A frame is a byte 0 and the schema's id in 4 bytes, or a byte 1 and the schema's GUID in 16 bytes. With Protobuf, the
indexes of the message follow.

Inside streamapp, a frame is always before its key or value, so that stores, dead letters and parked records need no
headers. Sources move a frame from the header to the front of the key or value. Sinks move the frame into a header if
their serde has ``schema_id_in="header"``. Source: Confluent's "Wire format", and
``confluent_kafka.schema_registry.dual_schema_id_deserializer``.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from streamapp.records import NO_HEADERS, Headers, RecordBatch
from streamapp.serdes.base import Serde

__all__ = [
    "GUID_BYTES",
    "ID_BYTES",
    "KEY_FRAME",
    "VALUE_FRAME",
    "Framing",
    "frame_end",
    "framed_value",
    "guid_frame",
    "id_frame",
    "shown_frame",
]

KEY_FRAME, VALUE_FRAME = "__key_schema_id", "__value_schema_id"
"""The headers that have the frames of key and value, with Confluent's names."""
ID_BYTES, GUID_BYTES = 5, 17
_UNREADABLE = b"\xff"
"""No frame begins with this byte."""


def id_frame(schema_id: int) -> bytes:
    """A byte 0, and the id in 4 bytes big endian.

    >>> id_frame(7)
    b'\\x00\\x00\\x00\\x00\\x07'
    """
    return b"\0" + schema_id.to_bytes(4, "big")


def guid_frame(guid: UUID) -> bytes:
    """A byte 1, and the GUID in 16 bytes."""
    return b"\1" + guid.bytes


def frame_end(data: bytes) -> int:
    """The length in bytes of the frame before the value, without message indexes; 0: there is no frame.

    >>> frame_end(b"\\0\\0\\0\\0\\7rest"), frame_end(b"rest")
    (5, 0)
    """
    size = {0: ID_BYTES, 1: GUID_BYTES}.get(data[0] if data else -1, 0)
    return size if len(data) >= size else 0


def framed_value(value: bytes | None, headers: Headers) -> bytes | None:
    """The value of a record whose serde nobody knows. A frame in a header is moved to the front of the value.

    >>> framed_value(b"{}", ((VALUE_FRAME, id_frame(7)),))
    b'\\x00\\x00\\x00\\x00\\x07{}'
    """
    return _joined(dict(headers).get(VALUE_FRAME), value) if headers else value


def shown_frame(data: bytes) -> str:
    """The frame as text for messages: ``id 7``, or ``GUID 6da336d8-...``."""
    if data[0] == 0:
        return f"id {int.from_bytes(data[1:ID_BYTES], 'big')}"
    return f"GUID {UUID(bytes=data[1:GUID_BYTES])}"


class Framing:
    """Moves the frames of one topic's records between headers and keys or values, if the serdes of the topic need
    this."""

    __slots__ = ("_key_cut", "_names", "_value_cut", "joins", "parts")

    def __init__(self, key_serde: Serde[Any] | None, value_serde: Serde[Any] | None) -> None:
        sides = {KEY_FRAME: key_serde, VALUE_FRAME: value_serde}
        self._names = frozenset(name for name, serde in sides.items() if serde is not None and serde.framed)
        self._key_cut: int = 0 if key_serde is None else key_serde.header_bytes
        self._value_cut: int = 0 if value_serde is None else value_serde.header_bytes
        self.joins: bool = bool(self._names)
        """True if records that are read may have frames in headers."""
        self.parts: bool = self._key_cut > 0 or self._value_cut > 0
        """True if records are written with frames in headers."""

    def join(self, batch: RecordBatch) -> RecordBatch:
        """The batch, with frames moved from the headers to the front of keys and values."""
        names = self._names
        if batch.headers is None or not any(name in names for each in batch.headers for name, _ in each):
            return batch
        joined = [
            self.joined(*record) for record in zip(batch.keys, batch.values, batch.headers, strict=True)
        ]
        keys, values, headers = zip(*joined, strict=True)
        return batch._replace(keys=keys, values=values, headers=headers)

    def joined(
        self, key: bytes | None, value: bytes | None, headers: Headers
    ) -> tuple[bytes | None, bytes | None, Headers]:
        """One record, with frames moved from the headers to the front of key and value.

        If a record has several such headers, the last one counts, as in Java.
        """
        frames = {name: frame for name, frame in headers if name in self._names and frame is not None}
        if not frames:
            return key, value, headers
        rest = tuple(each for each in headers if each[0] not in frames)
        return _joined(frames.get(KEY_FRAME), key), _joined(frames.get(VALUE_FRAME), value), rest

    def parted(
        self, key: bytes | None, value: bytes | None, headers: Headers = NO_HEADERS
    ) -> tuple[bytes | None, bytes | None, Headers]:
        """One record. Frames are moved from key and value into headers, if the serdes have
        ``schema_id_in="header"``."""
        if self._key_cut and key is not None:
            headers, key = (*headers, (KEY_FRAME, key[: self._key_cut])), key[self._key_cut :]
        if self._value_cut and value is not None:
            headers, value = (*headers, (VALUE_FRAME, value[: self._value_cut])), value[self._value_cut :]
        return key, value, headers


def _joined(frame: bytes | None, data: bytes | None) -> bytes | None:
    if frame is None or data is None:
        return data
    return frame + data if frame_end(frame) else _UNREADABLE + frame + data
