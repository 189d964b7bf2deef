"""A serde for JSON, of plain values or of typed objects."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable
from typing import Any, TypeVar, overload

import msgspec
from msgspec import inspect as mi

from streamapp.errors import ConfigError, SerializationError
from streamapp.serdes.base import Serde
from streamapp.serdes.json_types import doubtful, fits, has_other_keys, unmade
from streamapp.serdes.types import check_defaults, excerpt, is_exact, is_immutable, record_fields

__all__ = ["JsonSerde", "encoder_of"]

T = TypeVar("T")

_POSITION = re.compile(r"\(byte (\d+)\)")
_ENCODER = msgspec.json.Encoder(order="deterministic")


def _encode_keys(value: Any) -> bytes:
    """JSON of a value whose dicts may have other keys than text, such as numbers, which the encoder cannot sort.

    Raises ValueError if a dict has two keys with the same text, such as 2 and "2".
    """
    data = msgspec.json.encode(msgspec.to_builtins(value, str_keys=True, order="deterministic"))
    if data.count(b'":') != msgspec.json.encode(value).count(b'":'):  # each key ends with this mark
        raise ValueError("two keys of a dict have the same text")
    return data


def encoder_of(type_: Any) -> Callable[[Any], bytes]:
    """The function that writes values of a type as JSON; ``None`` stands for values without a type."""
    return _encode_keys if type_ is not None and has_other_keys(type_) else _ENCODER.encode


class JsonSerde(Serde[T]):
    """JSON in UTF-8, without spaces and with non-ASCII characters as they are.

    Without ``type`` values are dicts, lists, strings, numbers, booleans and None. With ``type`` the reader checks the
    JSON and makes an object of the type. The type is a ``msgspec.Struct``, dataclass, TypedDict, NamedTuple, or a
    builtin such as ``dict[str, int]``.

    With ``type`` the writer checks the class of a value, and of all items, keys and values inside lists, tuples, sets
    and dicts. The writer does not check the classes of the fields of Structs, dataclasses and NamedTuples. If the type
    has limits of ``msgspec.Meta``, such as ``ge=0``, the writer checks the whole value, because it reads its own bytes.

    Values can be keys, because the bytes do not depend on the order in which a dict was filled. The keys of dicts are
    sorted. The fields of types are in the order of their definition. JSON has no NaN and no infinity: both become null,
    or raise `SerializationError` if the type has no null there.

    >>> serde = JsonSerde()
    >>> serde.serialize({"dest": "ZÜR", "delay": [2, 0.5]}).decode()
    '{"delay":[2,0.5],"dest":"ZÜR"}'
    >>> JsonSerde(tuple[str, int]).deserialize(b'["JFK",4]')
    ('JFK', 4)
    """

    persistent_name = "JsonSerde"

    @overload
    def __init__(self: JsonSerde[Any], type: None = None) -> None: ...
    @overload
    def __init__(self, type: builtins.type[T]) -> None: ...
    @overload
    def __init__(self: JsonSerde[Any], type: Any) -> None: ...
    def __init__(self, type: Any = None) -> None:
        self.type = type
        try:
            self._decode = msgspec.json.Decoder(Any if type is None else type).decode
            self.immutable: bool = type is not None and is_immutable(type)
            self.exact: builtins.type | None = type if type is not None and is_exact(type) else None
        except TypeError as error:
            raise ConfigError(f"JSON cannot be read into {type!r}: {error}") from error
        if type is not None:
            check_defaults(mi.type_info(type))
        if type is not None and (cls := unmade(type)) is not None:
            inside = "" if cls is type else f", because of {cls!r} inside it"
            raise ConfigError(
                f"JSON cannot be read into {type!r}{inside}: give a dataclass or a Struct with its fields"
            )
        self._class = type if record_fields(type) is not None else object
        self._fits = fits(type) if type is not None and self._class is object else None
        self._encode = encoder_of(type)
        self._doubtful = None if type is None else doubtful(type)
        named = isinstance(type, builtins.type)
        self._name: str = "JSON" if type is None else type.__name__ if named else str(type)

    def serialize(self, value: T) -> bytes:
        try:
            if isinstance(value, self._class):
                if self._fits is not None and not self._fits(value):
                    msgspec.convert(value, self.type, from_attributes=True)
                data = self._encode(value)
                if self._doubtful is not None and self._doubtful in data:
                    self._decode(data)  # nobody could read the value, not even this application
                return data
        except msgspec.ValidationError as error:
            if "got `null`" in str(error):
                error = msgspec.ValidationError(f"{error}; NaN and infinity become null in JSON")
            raise SerializationError(f"expected {self._name}, got {excerpt(value)}: {error}") from error
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise SerializationError(f"cannot write {excerpt(value)} as JSON: {error}") from error
        raise SerializationError(f"expected {self._name}, got {excerpt(value)} ({value.__class__.__name__})")

    def deserialize(self, data: bytes) -> T:
        try:
            return self._decode(data)  # type: ignore[no-any-return]
        except Exception as error:  # a type of the application may raise any exception
            raise self._unreadable(data, error) from error

    def decoder(self) -> Callable[[bytes], T]:
        # A subclass or an instance may have a deserialize of its own.
        own = getattr(self.deserialize, "__func__", None) is JsonSerde.deserialize
        return self._decode if own else self.deserialize

    def __reduce__(self) -> tuple[Any, ...]:
        return JsonSerde, (self.type,)

    def _unreadable(self, data: bytes, error: Exception) -> SerializationError:
        if not data:
            return SerializationError(
                f"expected {self._name}, got no bytes (b''); a null value would be None"
            )
        if isinstance(error, UnicodeDecodeError):
            position = error.start
        else:
            found = _POSITION.search(str(error))
            position = int(found[1]) if found else 0
        if "truncated" in str(error):
            position = len(data)
            error = ValueError(f"the text ends too early (byte {position})")
        return SerializationError(f"expected {self._name}, got {excerpt(data, position)}: {error}")
