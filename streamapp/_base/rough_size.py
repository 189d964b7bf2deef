"""`rough_size`: the size of a value that is not serialized yet, for bounds of memory."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import is_dataclass
from typing import Any

__all__ = ["rough_size"]

_NUMBER = 8
_MOST_DEPTH = 32
"""The depth at which the count ends. A value that contains itself has no end."""


def rough_size(value: Any, depth: int = 0) -> int:
    """The bytes of the texts and bytes in a value, and 8 bytes for each other item.

    The function looks into containers, Structs, dataclasses, pydantic models, Faust Records and Protobuf messages.

    >>> rough_size({"id": "o1", "lines": [b"abc", 7]})
    20
    """
    if isinstance(value, (str, bytes, bytearray)):
        return len(value)
    if isinstance(value, memoryview):
        return value.nbytes
    if depth == _MOST_DEPTH:
        return _NUMBER
    if isinstance(value, Mapping):
        return sum(rough_size(key, depth + 1) + rough_size(item, depth + 1) for key, item in value.items())
    if isinstance(value, (list, tuple, Set)):
        return sum(rough_size(item, depth + 1) for item in value)
    if hasattr(value, "ByteSize"):
        return int(value.ByteSize())
    fields = getattr(value, "__struct_fields__", None)
    if fields is None and is_dataclass(value):
        fields = value.__dataclass_fields__
    items = (
        getattr(value, "__dict__", {}).values()
        if fields is None
        else (getattr(value, name) for name in fields)
    )
    return sum((rough_size(item, depth + 1) for item in items), _NUMBER)
