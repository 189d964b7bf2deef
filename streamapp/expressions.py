"""Expressions: functions of a record's key and value that keep their formula, so that Spark can translate the formula.

Workers, and the engine on Spark, call an expression like any other function. For a table from a `ColumnSource`, Spark
can compute the formula with column operations, which are faster than a Python call for each record.

Nulls are as in SQL: a result computed from a null is null. If the condition is null for a record, ``filter`` drops the
record, but ``filter_not`` keeps it. If the whole value is null, a call that reads a field raises `AttributeError`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

__all__ = ["Aggregates", "Expression", "avg", "count", "key", "max_of", "min_of", "sum_of", "value"]


class Expression:
    """A function ``(key, value) -> result``, made of `key`, `value`, constants and operators.

    The operators are ``< <= == != >= >`` to compare, ``+ - *`` to compute, and ``& | ~`` to combine conditions. The
    words ``and``, ``or`` and ``not`` raise `TypeError`. Comparisons need brackets beside ``&``, ``|`` and ``~``. A
    comparison or computation with None gives None, as in SQL.

    >>> late = (value.dep_delay > 15) & (value.origin == "JFK")
    >>> late("N14228", {"dep_delay": 20, "origin": "JFK"}), late("N14228", {"dep_delay": None, "origin": "JFK"})
    (True, None)
    """

    __slots__ = ()
    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __call__(self, key: Any, value: Any) -> Any:
        raise NotImplementedError

    def is_null(self) -> Expression:
        """True for records for which this expression is null."""
        return IsNull(self)

    def __bool__(self) -> bool:
        raise TypeError(
            "an expression is neither true nor false without a record: combine conditions with &, | and ~ instead of "
            "and, or and not, and put comparisons in brackets"
        )

    def __lt__(self, other: Any) -> Expression:
        return Binary("<", self, _expression(other))

    def __le__(self, other: Any) -> Expression:
        return Binary("<=", self, _expression(other))

    def __gt__(self, other: Any) -> Expression:
        return Binary(">", self, _expression(other))

    def __ge__(self, other: Any) -> Expression:
        return Binary(">=", self, _expression(other))

    def __eq__(self, other: Any) -> Expression:  # type: ignore[override]
        return Binary("==", self, _expression(other))

    def __ne__(self, other: Any) -> Expression:  # type: ignore[override]
        return Binary("!=", self, _expression(other))

    def __add__(self, other: Any) -> Expression:
        return Binary("+", self, _expression(other))

    def __sub__(self, other: Any) -> Expression:
        return Binary("-", self, _expression(other))

    def __mul__(self, other: Any) -> Expression:
        return Binary("*", self, _expression(other))

    def __radd__(self, other: Any) -> Expression:
        return Binary("+", _expression(other), self)

    def __rsub__(self, other: Any) -> Expression:
        return Binary("-", _expression(other), self)

    def __rmul__(self, other: Any) -> Expression:
        return Binary("*", _expression(other), self)

    def __and__(self, other: Any) -> Expression:
        return Both(self, _expression(other))

    def __or__(self, other: Any) -> Expression:
        return ~(~self & ~_expression(other))

    def __invert__(self) -> Expression:
        return Not(self)


@dataclass(frozen=True, eq=False, slots=True)
class Key(Expression):
    def __call__(self, key: Any, value: Any) -> Any:
        return key


@dataclass(frozen=True, eq=False, slots=True)
class Field(Expression):
    """A field of the value: an item of a dict, else an attribute."""

    name: str

    def __call__(self, key: Any, value: Any) -> Any:
        return value.get(self.name) if isinstance(value, dict) else getattr(value, self.name)


@dataclass(frozen=True, eq=False, slots=True)
class Constant(Expression):
    constant: Any

    def __call__(self, key: Any, value: Any) -> Any:
        return self.constant


@dataclass(frozen=True, eq=False, slots=True)
class Binary(Expression):
    symbol: str
    left: Expression
    right: Expression

    def __call__(self, key: Any, value: Any) -> Any:
        left, right = self.left(key, value), self.right(key, value)
        return None if left is None or right is None else OPERATORS[self.symbol](left, right)


@dataclass(frozen=True, eq=False, slots=True)
class Both(Expression):
    left: Expression
    right: Expression

    def __call__(self, key: Any, value: Any) -> Any:
        left = self.left(key, value)
        if left is not None and not left:  # comparisons of NumPy's numbers give no False of Python
            return False
        right = self.right(key, value)
        if right is not None and not right:
            return False
        return None if left is None or right is None else True


@dataclass(frozen=True, eq=False, slots=True)
class Not(Expression):
    inner: Expression

    def __call__(self, key: Any, value: Any) -> Any:
        found = self.inner(key, value)
        return None if found is None else not found


@dataclass(frozen=True, eq=False, slots=True)
class IsNull(Expression):
    inner: Expression

    def __call__(self, key: Any, value: Any) -> Any:
        return self.inner(key, value) is None


OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


def _expression(given: Any) -> Expression:
    return given if isinstance(given, Expression) else Constant(given)


class _Value:
    """``value.name`` and ``value["name"]`` are fields of the value."""

    def __getattr__(self, name: str) -> Expression:
        if name.startswith("__"):
            raise AttributeError(name)
        return Field(name)

    def __getitem__(self, name: str) -> Expression:
        return Field(name)


key: Expression = Key()
"""The key of a record."""

value: _Value = _Value()
"""The value of a record: ``value.dep_delay`` is its field."""


@dataclass(frozen=True, eq=False)
class Aggregate:
    """One value computed from all records of a key, such as their count or the sum of a field.

    ``of`` is the expression to aggregate. Records for which ``of`` is null are left out. If ``of`` is None, no record
    is left out.
    """

    kind: Literal["count", "sum", "min", "max", "avg"]
    of: Expression | None = None


def count(of: Expression | None = None) -> Aggregate:
    """The number of records; with ``of``, the number of records for which this expression is not null."""
    return Aggregate("count", of)


def sum_of(of: Expression) -> Aggregate:
    """The sum of ``of`` over all records for which ``of`` is not null; null if there is no such record."""
    return Aggregate("sum", of)


def min_of(of: Expression) -> Aggregate:
    """The smallest value of ``of``, without nulls; null if there is no value."""
    return Aggregate("min", of)


def max_of(of: Expression) -> Aggregate:
    """The largest value of ``of``, without nulls; null if there is no value."""
    return Aggregate("max", of)


def avg(of: Expression) -> Aggregate:
    """The mean of ``of``, as a float; null if there is no value.

    The mean of integers is exact up to the last rounding. The mean of floats depends slightly on the order of the
    records, because floats are added one after the other. The dict of `Aggregates` also has ``<name>_sum`` and
    ``<name>_count``, because the next mean follows from the sum and the count.
    """
    return Aggregate("avg", of)


@dataclass(frozen=True)
class Aggregates:
    """Several aggregates at once, as a dict by name, for ``aggregate()`` of a grouped stream.

    The keyword arguments are the aggregates with their names. An object of this class is an aggregator, and its method
    `initializer` is the initializer. For example, use ``totals`` below as ``aggregate(totals.initializer, totals)``.
    Raises `TypeError` without arguments, if an argument is no aggregate, and for the names that `avg` adds.

    >>> totals = Aggregates(flights=count(), minutes=sum_of(value.dep_delay), worst=max_of(value.dep_delay))
    >>> first = totals("JFK", {"dep_delay": 10}, totals.initializer())
    >>> totals("JFK", {"dep_delay": None}, first)
    {'flights': 2, 'minutes': 10, 'worst': 10}
    """

    parts: Mapping[str, Aggregate] = field(default_factory=dict)

    def __init__(self, **parts: Aggregate) -> None:
        wrong = [name for name, part in parts.items() if not isinstance(part, Aggregate)]
        if wrong or not parts:
            raise TypeError(
                f"Aggregates needs name=count(), name=sum_of(value.x) ...; {wrong or 'there are none'}"
            )
        own = {
            f"{name}_{part}"
            for name, each in parts.items()
            if each.kind == "avg"
            for part in ("sum", "count")
        }
        if taken := sorted(own & parts.keys()):
            raise TypeError(
                f"Aggregates cannot have the names {taken}, because avg() needs NAME_sum and NAME_count for itself: "
                "give them other names"
            )
        flat: dict[str, Aggregate] = {}
        for name, part in parts.items():
            if part.kind == "avg":
                flat |= {
                    f"{name}_sum": Aggregate("sum", part.of),
                    f"{name}_count": Aggregate("count", part.of),
                }
            flat[name] = part
        object.__setattr__(self, "parts", flat)

    def initializer(self) -> dict[str, Any]:
        """The aggregates before the first record: counts are 0, all others None."""
        return {name: 0 if part.kind == "count" else None for name, part in self.parts.items()}

    def __call__(self, key: Any, value: Any, so_far: Mapping[str, Any]) -> dict[str, Any]:
        result = dict(so_far)
        for name, part in self.parts.items():
            if part.kind == "avg":
                number = result[f"{name}_count"]
                result[name] = result[f"{name}_sum"] / number if number else None
                continue
            found = 1 if part.of is None else part.of(key, value)
            if found is None:
                continue
            old = result[name]
            if part.kind == "count":
                result[name] = old + 1
            elif old is None:
                result[name] = found
            else:
                result[name] = old + found if part.kind == "sum" else _BEST[part.kind](old, found)
        return result


_BEST: Mapping[str, Callable[[Any, Any], Any]] = {"min": min, "max": max}
