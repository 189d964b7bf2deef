"""The port that turns values into bytes and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from streamapp.errors import ConfigError

__all__ = ["Serde", "check_serde"]

T = TypeVar("T")


class Serde(Generic[T]):
    """Bytes from values and values from bytes.

    ``serialize`` and ``deserialize`` are never called with None: a null key or value has no bytes. Either may
    be a plain function set on the instance (a C function is fastest: the engine calls them once a record).
    Both raise `SerializationError` for what they cannot convert.

    ``immutable`` says that a deserialized value cannot change in place and is hashable. The engine keeps such
    values as objects between commits; all others it keeps as bytes, so that an aggregator may change its argument.

    ``exact`` is a class whose instances equal what their bytes are read back as, to the type of each field (None: there is none, or it is not
    known). An aggregation goes on with such a result itself instead of reading it back.

    State folders remember a serde by the name of its class; a serde with another name is refused for state that is there. A class that is
    renamed keeps its state with ``persistent_name = "OldName"`` in its body.

    ``framed`` says that the bytes begin with the id of their schema. Records may then have the id in a header instead
    (Confluent's ``__key_schema_id``, ``__value_schema_id``): whoever reads the record puts the id in front of the bytes.
    ``header_bytes`` is the number of bytes in front that go into such a header when a record is written.

    A serde has to survive pickling: Spark ships topologies to its executors.
    """

    immutable: bool = False
    exact: type | None = None
    framed: bool = False
    header_bytes: int = 0
    serialize: Callable[[T], bytes]
    deserialize: Callable[[bytes], T]

    def decoder(self) -> Callable[[bytes], T]:
        """``deserialize``, or a function in C that gives the same for all bytes that can be read, and raises anything for others: who gets
        an error from it asks ``deserialize`` for the one to show."""
        return self.deserialize

    def bind(self, topic: str, is_key: bool) -> Serde[T]:
        """This serde for one topic; a serde that asks a schema registry returns one with its subject set."""
        return self


def check_serde(serde: Any, what: str) -> None:
    """Raises `ConfigError` for what is not a serde; a forgotten pair of brackets is what it is mostly.

    >>> from streamapp import StringSerde
    >>> check_serde(StringSerde, "key_serde of table flights")
    Traceback (most recent call last):
    ...
    streamapp.errors.ConfigError: key_serde of table flights is the class StringSerde; give an instance: StringSerde()
    """
    if isinstance(serde, type) and issubclass(serde, Serde):
        raise ConfigError(f"{what} is the class {serde.__name__}; give an instance: {serde.__name__}()")
    if not isinstance(serde, Serde):
        raise ConfigError(
            f"{what} is {serde!r}, which is no Serde; take one of streamapp's or derive your own from Serde"
        )
