"""Values as JSON, for people and for the web page of a worker."""

from __future__ import annotations

import base64
import dataclasses
import math
from collections.abc import Iterable, Mapping, Set
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec

from streamapp.serdes.models import plain_of
from streamapp.serdes.types import excerpt

__all__ = ["Unreadable", "to_json"]

MAX_DEPTH = 100
"""The most levels of a value in an answer."""
_PRINTED_BITS = 14_000
"""An integer of fewer bits is printed as a number. By default, Python prints at most 4,300 digits."""


@dataclasses.dataclass(frozen=True)
class Unreadable:
    """A key or value whose bytes the serde cannot decode. ``why`` is the text of the serde's error."""

    data: bytes
    why: str


def to_json(value: Any) -> Any:
    """Any value as an object for ``json.dumps``. This function never raises.

    Mappings, structs, dataclasses and named tuples become objects; other tuples and sets become lists. Keys of objects,
    dates, times, decimals and UUIDs become text, and an enum its value. Values without a form in JSON, at any level,
    are marked:

    - bytes: ``{"$base64": ...}``
    - NaN and the infinities: ``{"$float": "nan"}``
    - integers of 14,000 bits or more: ``{"$int": "0x..."}``
    - objects with two keys of the same text, such as 1 and "1": ``{"$items": [[key, value], ...]}``
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
            return _items([(_to_json(key, depth), _to_json(item, depth)) for key, item in value.items()])
        case tuple() if hasattr(value, "_asdict"):
            return {name: _to_json(item, depth) for name, item in value._asdict().items()}
        case list() | tuple() | Set():
            return [_to_json(item, depth) for item in value]
    if dataclasses.is_dataclass(value):
        return _attributes(value, (each.name for each in dataclasses.fields(value)), depth)
    plain = plain_of(value)
    return {"$repr": excerpt(value, size=10_000)} if plain is value else _to_json(plain, depth)


def _items(items: list[tuple[Any, Any]]) -> Any:
    """The items of a mapping as an object. Two keys may have the same text, such as 1 and "1"; then as pairs."""
    found = {key if isinstance(key, str) else str(key): item for key, item in items}
    return found if len(found) == len(items) else {"$items": [list(item) for item in items]}
