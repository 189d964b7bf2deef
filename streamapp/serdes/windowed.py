"""Serdes for the keys of windowed tables, in the formats of Kafka's windowed serializers."""

from __future__ import annotations

import struct
from typing import TypeVar

from streamapp._base.durations import Duration, to_ms
from streamapp.errors import ConfigError, SerializationError
from streamapp.records import MAX_LONG, Windowed
from streamapp.serdes.base import Serde, check_serde
from streamapp.serdes.types import excerpt

__all__ = ["SESSION_BYTES", "TIME_BYTES", "SessionWindowedSerde", "TimeWindowedSerde"]

K = TypeVar("K")

_TIME = struct.Struct(">q")
_END_START = struct.Struct(">qq")
TIME_BYTES, SESSION_BYTES = _TIME.size, _END_START.size
"""The bytes of the window after the inner key."""


class TimeWindowedSerde(Serde[Windowed]):
    """A key and the window of its aggregation: the inner serde's bytes, then the start of the window in 8 bytes.

    The bytes do not have the end of the window. A reader computes the end from the start and ``window_size_ms``. An end
    after 2**63 - 1 ms becomes 2**63 - 1.

    >>> from streamapp.serdes import StringSerde
    >>> serde = TimeWindowedSerde(StringSerde(), window_size_ms=1000)
    >>> serde.serialize(Windowed("JFK", 256, 1256))
    b'JFK\\x00\\x00\\x00\\x00\\x00\\x00\\x01\\x00'
    >>> serde.deserialize(_)
    Windowed(key='JFK', start=256, end=1256)
    """

    persistent_name = "TimeWindowedSerde"

    def __init__(self, inner: Serde[K], window_size_ms: Duration) -> None:
        check_serde(inner, "the inner serde of a TimeWindowedSerde")
        self.inner = inner
        self.window_size_ms: int = to_ms(window_size_ms, "window_size_ms")
        if self.window_size_ms < 0:
            raise ConfigError(f"window_size_ms must not be negative, got {window_size_ms!r}")
        self.immutable: bool = inner.immutable

    def serialize(self, value: Windowed) -> bytes:
        try:
            return self.inner.serialize(value.key) + _TIME.pack(value.start)
        except (AttributeError, struct.error) as error:
            raise _not_windowed(value) from error

    def deserialize(self, data: bytes) -> Windowed:
        try:
            (start,) = _TIME.unpack(data[-TIME_BYTES:])
        except (TypeError, struct.error) as error:
            raise _too_short("a key and 8 bytes of window start", data) from error
        return Windowed(
            self.inner.deserialize(data[:-TIME_BYTES]), start, min(start + self.window_size_ms, MAX_LONG)
        )

    def bind(self, topic: str, is_key: bool) -> TimeWindowedSerde:
        inner = self.inner.bind(topic, is_key)
        return self if inner is self.inner else TimeWindowedSerde(inner, self.window_size_ms)


class SessionWindowedSerde(Serde[Windowed]):
    """A key and its session: the inner serde's bytes, then the end and the start in 8 bytes each.

    >>> from streamapp.serdes import StringSerde
    >>> serde = SessionWindowedSerde(StringSerde())
    >>> serde.deserialize(serde.serialize(Windowed("N14228", 10, 70)))
    Windowed(key='N14228', start=10, end=70)
    """

    persistent_name = "SessionWindowedSerde"

    def __init__(self, inner: Serde[K]) -> None:
        check_serde(inner, "the inner serde of a SessionWindowedSerde")
        self.inner = inner
        self.immutable: bool = inner.immutable

    def serialize(self, value: Windowed) -> bytes:
        try:
            return self.inner.serialize(value.key) + _END_START.pack(value.end, value.start)
        except (AttributeError, struct.error) as error:
            raise _not_windowed(value) from error

    def deserialize(self, data: bytes) -> Windowed:
        try:
            end, start = _END_START.unpack(data[-SESSION_BYTES:])
        except (TypeError, struct.error) as error:
            raise _too_short("a key and 16 bytes of session end and start", data) from error
        return Windowed(self.inner.deserialize(data[:-SESSION_BYTES]), start, end)

    def bind(self, topic: str, is_key: bool) -> SessionWindowedSerde:
        inner = self.inner.bind(topic, is_key)
        return self if inner is self.inner else SessionWindowedSerde(inner)


def _not_windowed(value: object) -> SerializationError:
    return SerializationError(
        f"expected Windowed(key, start, end), times in ms, got {excerpt(value)} ({type(value).__name__})"
    )


def _too_short(expected: str, data: bytes) -> SerializationError:
    return SerializationError(f"expected {expected}, got {excerpt(data)}")
