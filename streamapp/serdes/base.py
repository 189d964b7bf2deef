"""The port of serdes, which turn values into bytes and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from streamapp.errors import ConfigError

__all__ = ["Serde", "check_serde"]

T = TypeVar("T")


class Serde(Generic[T]):
    """A pair of functions: values to bytes, and bytes to values.

    ``serialize`` and ``deserialize`` are never called with None, because a null key or value has no bytes. Both raise
    `SerializationError` for an argument that they cannot convert. Each may be a plain function that is set on the
    instance. A C function is fastest: the engine calls both once a record.

    ``immutable`` means: a deserialized value cannot change in place and is hashable. The engine keeps such values as
    objects between commits. All other values are kept as bytes, so that an aggregator may change its argument.

    ``exact`` is a class whose objects are equal after they were written and read back, to the type of each field. None
    means that no such class is known. An aggregation uses an ``exact`` result directly, and does not read it back.

    State folders remember a serde by the name of its class. A state folder refuses a serde with another name. A
    renamed class keeps its state with ``persistent_name = "OldName"`` in its body.

    ``framed`` means: the bytes begin with the id of their schema. A record may have the id in a header instead
    (Confluent's ``__key_schema_id``, ``__value_schema_id``). The reader of the record puts the id before the bytes.
    ``header_bytes`` is the number of leading bytes that go into such a header when a record is written.

    A serde has to survive pickling, because Spark sends topologies to its executors.
    """

    immutable: bool = False
    exact: type | None = None
    framed: bool = False
    header_bytes: int = 0
    serialize: Callable[[T], bytes]
    deserialize: Callable[[bytes], T]

    def decoder(self) -> Callable[[bytes], T]:
        """``deserialize``, or a function in C that returns the same values.

        The function may raise any exception. The caller then calls ``deserialize``, which raises the error for users.
        """
        return self.deserialize

    def bind(self, topic: str, is_key: bool) -> Serde[T]:
        """This serde for one topic. A serde with a schema registry returns a copy with the topic's subject."""
        return self


def check_serde(serde: Any, what: str) -> None:
    """Raises `ConfigError` if ``serde`` is no serde, for example a class without brackets.

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
