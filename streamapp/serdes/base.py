"""The port that turns values into bytes and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Serde"]

T = TypeVar("T")


class Serde(Generic[T]):
    """Bytes from values and values from bytes.

    ``serialize`` and ``deserialize`` are never called with None: a null key or value has no bytes. Either may
    be a plain function set on the instance (a C function is fastest: the engine calls them once a record).
    Both raise `SerializationError` for what they cannot convert.

    ``immutable`` says that a deserialized value cannot change in place and is hashable. The engine keeps such
    values as objects between commits; all others it keeps as bytes, so that an aggregator may change its
    argument.

    A serde has to survive pickling: Spark ships topologies to its executors.
    """

    immutable: bool = False
    serialize: Callable[[T], bytes]
    deserialize: Callable[[bytes], T]

    def bind(self, topic: str, is_key: bool) -> Serde[T]:
        """This serde for one topic; a serde that asks a schema registry returns one with its subject set."""
        return self
