"""Writes keys and values as JSON, and reads keys from URLs in the same form."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Set
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec

from streamapp.records import Windowed
from streamapp.serdes import (
    BytesSerde,
    DoubleSerde,
    FloatSerde,
    IntegerSerde,
    ListSerde,
    LongSerde,
    Serde,
    SessionWindowedSerde,
    ShortSerde,
    StringSerde,
    TimeWindowedSerde,
    UUIDSerde,
)
from streamapp.serdes.models import plain_of
from streamapp.serdes.types import excerpt
from streamapp.state.lenient import Unreadable
from streamapp.web.problem import BadParameter

__all__ = ["key_format", "key_to_json", "parse_key", "serde_name", "to_json"]

MAX_DEPTH = 100
"""The most levels of a value in an answer."""
_PRINTED_BITS = 14_000
"""An integer of fewer bits is printed as a number. By default, Python prints at most 4,300 digits."""
_EXAMPLES = {"string": "JFK", "integer": "42", "double": "0.5", "hex": "00ff1a", "uuid": str(UUID(int=1))}


def to_json(value: Any) -> Any:
    """Any value as an object for ``json.dumps``. This function never raises.

    Structs, dataclasses and named tuples become objects. Values without a form in JSON, at any level, are marked:

    - bytes: ``{"$base64": ...}``
    - NaN and the infinities: ``{"$float": "nan"}``
    - integers of 14,000 bits or more: ``{"$int": "0x..."}``
    - a list or object inside 100 others: ``{"$deep": the beginning of its repr}``
    - stored bytes that their serde cannot read: ``{"$unreadable": why, "$base64": ...}``
    - a part whose class raises an exception when it is read, for example by ``items()``: ``{"$unreadable": why}``
    - other objects: ``{"$repr": the beginning of its repr}``, or the exception that the repr raises

    >>> to_json({"delay": 12, "raw": b"ab"})
    {'delay': 12, 'raw': {'$base64': 'YWI='}}
    >>> to_json(float("inf"))
    {'$float': 'inf'}
    """
    return _to_json(value, MAX_DEPTH)


def _to_json(value: Any, depth: int) -> Any:
    try:
        return _converted(value, depth)
    except Exception as error:  # a class of the application may raise anything
        return _unreadable(error)


def _unreadable(error: Exception) -> Any:
    return {"$unreadable": f"{type(error).__name__}: {excerpt(error, size=200)}"}


def _attributes(value: Any, names: Iterable[str], depth: int) -> Any:
    found = {}
    for name in names:
        try:
            part = getattr(value, name)
        except Exception as error:  # the other attributes are shown
            found[name] = _unreadable(error)
        else:
            found[name] = _to_json(part, depth)
    return found


def _converted(value: Any, depth: int) -> Any:
    match value:
        case None | bool() | str():
            return value
        case Enum():
            return _to_json(value.value, depth)
        case int():
            return int(value) if value.bit_length() < _PRINTED_BITS else {"$int": hex(value)}
        case float():
            return float(value) if math.isfinite(value) else {"$float": str(float(value))}
        case bytes() | bytearray() | memoryview():
            return {"$base64": base64.b64encode(value).decode()}
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal() | UUID():
            return str(value)
        case Unreadable():
            return {"$unreadable": value.why, "$base64": base64.b64encode(value.data).decode()}
    if depth == 0:
        return {"$deep": excerpt(value)}
    depth -= 1
    match value:
        case msgspec.Struct():
            return _attributes(value, value.__struct_fields__, depth)
        case Mapping():
            return {_text(_to_json(key, depth)): _to_json(item, depth) for key, item in value.items()}
        case tuple() if hasattr(value, "_asdict"):
            return {name: _to_json(item, depth) for name, item in value._asdict().items()}
        case list() | tuple() | Set():
            return [_to_json(item, depth) for item in value]
    if dataclasses.is_dataclass(value):
        return _attributes(value, (each.name for each in dataclasses.fields(value)), depth)
    plain = plain_of(value)
    return {"$repr": excerpt(value, size=10_000)} if plain is value else _to_json(plain, depth)


def _text(key: Any) -> str:
    return key if isinstance(key, str) else str(key)


def key_format(serde: Serde[Any] | None) -> str:
    """The form of a key in a URL: ``string``, ``integer``, ``double``, ``uuid``, ``hex`` or ``json``.

    >>> key_format(LongSerde())
    'integer'
    """
    match serde:
        case StringSerde():
            return "string"
        case LongSerde() | IntegerSerde() | ShortSerde():
            return "integer"
        case DoubleSerde() | FloatSerde():
            return "double"
        case UUIDSerde():
            return "uuid"
        case BytesSerde() | None:
            return "hex"
    return "json"


def key_to_json(serde: Serde[Any] | None, key: Any) -> Any:
    """A key in the form that `parse_key` reads: bytes as hex, other keys as by `to_json`."""
    if isinstance(key, Windowed) and isinstance(serde, TimeWindowedSerde | SessionWindowedSerde):
        return {"key": key_to_json(serde.inner, key.key), "start": key.start, "end": key.end}
    if isinstance(key, list) and isinstance(serde, ListSerde):
        return [key_to_json(serde.inner, item) for item in key]
    return key.hex() if isinstance(key, bytes) else to_json(key)


def parse_key(serde: Serde[Any] | None, text: str, parameter: str) -> tuple[Any, bytes]:
    """The key of a URL, and its bytes. Raises `BadParameter`.

    >>> parse_key(LongSerde(), "258", "key")
    (258, b'\\x00\\x00\\x00\\x00\\x00\\x00\\x01\\x02')
    """
    kind = key_format(serde)
    example = _EXAMPLES.get(kind) or _json_example(serde)
    try:
        key = _key_from_json(serde, json.loads(text)) if kind == "json" else _plain_key(kind, text)
        data = key if serde is None else serde.serialize(key)
    except Exception as error:  # a serde of the application may raise anything
        expected = f"expected a key of this table ({serde_name(serde)}), written as {kind}"
        raise BadParameter(
            parameter, f"{parameter}={text!r:.80}: {expected}: {error}", example=example
        ) from error
    return key, data


def serde_name(serde: Serde[Any] | None) -> str:
    """The short name of a serde, such as ``string``, ``json`` or ``time_windowed(string)``."""
    if serde is None:
        return "bytes"
    if isinstance(serde, TimeWindowedSerde | SessionWindowedSerde):
        kind = "time_windowed" if isinstance(serde, TimeWindowedSerde) else "session_windowed"
        return f"{kind}({serde_name(serde.inner)})"
    if isinstance(serde, ListSerde):
        return f"list({serde_name(serde.inner)})"
    return type(serde).__name__.removesuffix("Serde").lower()


def _plain_key(kind: str, text: str) -> Any:
    match kind:
        case "integer":
            return int(text)
        case "double":
            return float(text)
        case "uuid":
            return UUID(text)
        case "hex":
            return bytes.fromhex(text)
    return text


def _key_from_json(serde: Serde[Any] | None, document: Any) -> Any:
    """The key object of JSON: a typed JSON serde gets an object of its type, a windowed serde gets a `Windowed`."""
    if isinstance(serde, TimeWindowedSerde | SessionWindowedSerde):
        if not isinstance(document, dict) or not {"key", "start"} <= document.keys():
            raise ValueError('give a JSON object with "key", "start" and "end"')
        start = int(document["start"])
        if isinstance(serde, TimeWindowedSerde):
            end = int(document.get("end", start + serde.window_size_ms))
        else:
            end = int(document["end"])
        return Windowed(_inner_from_json(serde.inner, document["key"]), start, end)
    if isinstance(serde, ListSerde):
        return [None if item is None else _inner_from_json(serde.inner, item) for item in document]
    wanted = getattr(serde, "type", None)
    return document if wanted is None else msgspec.convert(document, wanted)


def _inner_from_json(serde: Serde[Any], document: Any) -> Any:
    match key_format(serde):
        case "hex":
            return bytes.fromhex(document)
        case "uuid":
            return UUID(document)
        case "json":
            return _key_from_json(serde, document)
    return document


def _json_example(serde: Serde[Any] | None) -> str:
    if isinstance(serde, TimeWindowedSerde | SessionWindowedSerde):
        return '{"key": "JFK", "start": 0, "end": 3600000}'
    if isinstance(serde, ListSerde):
        return "[]"
    return '{"id": 1}'
