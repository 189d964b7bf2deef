"""`Serde`: the base class of all serdes, which turn values into bytes and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from streamapp.errors import ConfigError

__all__ = ["Serde", "check_given_serdes", "check_serde"]

T = TypeVar("T")


class Serde(Generic[T]):
    """A pair of functions: values to bytes, and bytes to values.

    ``serialize`` and ``deserialize`` are never called with None, because a null key or value has no bytes. Both raise
    `SerializationError` for an argument that they cannot convert. Each may be a plain function that is set on the
    instance. A C function is fastest, because the engine calls both for each record.

    - ``immutable``: set True if deserialized values are hashable and cannot change in place. A source with few
      different keys then decodes each key only once, and a join keeps decoded rows of a table in memory. With False,
      each use decodes the bytes anew, because a function may change its argument.
    - ``exact``: a class whose objects do not change if they are serialized and deserialized, or None. The types of
      their fields must not change, either. An aggregation with a record cache keeps a result of this class as it is,
      for the next record. Any other result is first serialized and deserialized. If ``immutable`` is true, a table with
      a record cache also hands the object that was put to operators downstream and to joins.
    - ``framed``: True if the bytes begin with the id of their schema. If the producer of a record has put the id into a
      header (Confluent's ``__key_schema_id``, ``__value_schema_id``), ``deserialize`` gets the id before the bytes.
    - ``header_bytes``: the number of leading bytes that go into such a header when a record is written.

    State folders remember the class name of a serde, and refuse a serde of another name, because its bytes may differ.
    After renaming a class, write ``persistent_name = "OldName"`` in its body to keep the state.

    Serdes must be picklable, because Spark sends topologies to its executors.
    """

    immutable: bool = False
    exact: type | None = None
    framed: bool = False
    header_bytes: int = 0
    serialize: Callable[[T], bytes]
    deserialize: Callable[[bytes], T]

    def decoder(self) -> Callable[[bytes], T]:
        """``deserialize``, or a faster function in C that returns the same values.

        If the faster function raises an exception, the caller calls ``deserialize`` for its error message.
        """
        return self.deserialize

    def bind(self, topic: str, is_key: bool) -> Serde[T]:
        """The serde for the keys (``is_key``) or values of one topic. By default, this same object.

        A serde with a schema registry returns a copy with the subject of the topic.
        """
        return self


def check_serde(serde: Any, what: str) -> None:
    """Raises `ConfigError` if ``serde`` is no serde, for example a class in place of an instance.

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


def check_given_serdes(what: str, **serdes: Any) -> None:
    """Raises `ConfigError` if one of the arguments is neither None nor a serde. ``what`` has them, for the error.

    >>> check_given_serdes("table flights", key_serde=None, value_serde=5)
    Traceback (most recent call last):
    ...
    streamapp.errors.ConfigError: value_serde of table flights is 5, which is no Serde; take one of streamapp's or \
derive your own from Serde
    """
    for part, serde in serdes.items():
        if serde is not None:
            check_serde(serde, f"{part} of {what}")
