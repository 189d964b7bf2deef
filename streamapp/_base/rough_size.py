"""`rough_size`: the size of a value that is not serialized yet, for bounds of memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import is_dataclass
from enum import Enum
from itertools import chain
from typing import Any

__all__ = ["rough_size"]

_NUMBER = 8
_MOST_DEPTH = 32
_MOST_ITEMS = 100_000
"""Depth and number of items at which the count ends. A value that contains itself has no end."""


def rough_size(value: Any) -> int:
    """The bytes of the texts and bytes in a value, and 8 bytes for each other item.

    The function looks into containers, Structs, dataclasses, pydantic models, Faust Records and Protobuf messages.

    >>> rough_size({"id": "o1", "lines": [b"abc", 7]})
    20
    """
    total, items = _parts(value)
    levels = [iter(items)]
    for _ in range(_MOST_ITEMS):
        try:
            size, items = _parts(next(levels[-1]))
        except StopIteration:
            levels.pop()
            if not levels:
                break
            continue
        total += size
        if len(levels) < _MOST_DEPTH:
            levels.append(iter(items))
    return total


def _parts(value: Any) -> tuple[int, Iterable[Any]]:
    """The size of a value without its items, and the items."""
    if isinstance(value, (str, bytes, bytearray)):
        return len(value), ()
    if isinstance(value, memoryview):
        return value.nbytes, ()
    if isinstance(value, Mapping):
        return 0, chain.from_iterable(value.items())
    if isinstance(value, (list, tuple, Set)):
        return 0, value
    # A member of an enum knows its class, and a class knows all functions of its module.
    if isinstance(value, (type, Enum)):
        return _NUMBER, ()
    if hasattr(value, "ByteSize"):
        return int(value.ByteSize()), ()
    fields = getattr(value, "__struct_fields__", None)
    if fields is None and is_dataclass(value):
        fields = value.__dataclass_fields__
    if fields is None:
        return _NUMBER, getattr(value, "__dict__", {}).values()
    return _NUMBER, (getattr(value, name, None) for name in fields)
