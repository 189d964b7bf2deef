"""The functions behind count and reduce."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = [
    "Reducing",
    "ReducingMerger",
    "add_one",
    "nothing",
    "subtract_one",
    "sum_of_both",
    "zero",
]


def zero() -> int:
    """Where counts start."""
    return 0


def add_one(key: Any, value: Any, count: int) -> int:
    """Counts one more."""
    return count + 1


def subtract_one(key: Any, value: Any, count: int) -> int:
    """Counts one less: a row left the group."""
    return count - 1


def sum_of_both(key: Any, first: int, second: int) -> int:
    """The count of two sessions that became one."""
    return first + second


def nothing() -> None:
    """Where reductions start: the first value is the first result."""


class Reducing:
    """A reducer as an aggregator: the first value is the aggregate."""

    def __init__(self, reducer: Callable[[Any, Any], Any]) -> None:
        self._reducer = reducer

    def __call__(self, key: Any, value: Any, aggregate: Any) -> Any:
        return value if aggregate is None else self._reducer(aggregate, value)


class ReducingMerger:
    """A reducer as a merger of sessions."""

    def __init__(self, reducer: Callable[[Any, Any], Any]) -> None:
        self._reducer = reducer

    def __call__(self, key: Any, first: Any, second: Any) -> Any:
        return second if first is None else self._reducer(first, second)
