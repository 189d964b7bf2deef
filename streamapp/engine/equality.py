"""Equality of values as Kafka Streams has it, with Java's ``equals``.

Python's ``==`` differs: ``1 == True == 1.0`` and ``0.0 == -0.0`` are true there, and NaN is not equal to itself.
"""

from __future__ import annotations

from math import copysign
from typing import Any

__all__ = ["same"]

_PLAIN = frozenset((str, int, bytes, bool))


def same(one: Any, other: Any) -> bool:
    """True if two values are equal and of one type, also inside lists, tuples and dicts.

    Floats are compared by their bits, but all NaNs are equal.

    >>> same({"x": 1}, {"x": 1}), same(1, True), same(0.0, -0.0), same(float("nan"), float("nan"))
    (True, False, False, True)
    """
    kind = one.__class__
    if kind is not other.__class__:
        return False
    if kind in _PLAIN:
        return bool(one == other)
    if kind is float:
        if one != one:
            return bool(other != other)
        return bool(one == other) and copysign(1, one) == copysign(1, other)
    if kind is dict:
        return len(one) == len(other) and all(
            key in other and same(value, other[key]) for key, value in one.items()
        )
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)
