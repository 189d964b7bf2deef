"""Equality of values by the rules of Java's ``equals``, which Kafka Streams uses.

Python's ``==`` has other rules: ``1 == True == 1.0`` and ``0.0 == -0.0`` are true, and NaN is not equal to itself.
"""

from __future__ import annotations

from math import copysign
from typing import Any

__all__ = ["same"]

_PLAIN = frozenset((str, int, bytes, bool))


def same(one: Any, other: Any) -> bool:
    """True if two values have the same type and are equal. Elements of lists and tuples, and values of dicts, are
    compared by the same rule.

    0.0 and -0.0 are different, and two NaNs are equal.

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
