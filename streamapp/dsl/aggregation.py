"""The aggregations of streams (count, reduce, aggregate), which groupings by key and by window share.

This module also has the checks of the users' functions, for co-grouped streams and grouped tables, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from streamapp._base.callables import require_function
from streamapp.engine.operator import Operator
from streamapp.engine.operators.aggregate import StreamAggregate, StreamReduce
from streamapp.serdes import LongSerde
from streamapp.serdes.base import Serde

__all__ = [
    "COUNT",
    "Aggregation",
    "add_one",
    "check_adder",
    "check_initializer",
    "check_merger",
    "folding",
    "reducing",
    "subtract_one",
    "zero",
]

Initializer = Callable[[], Any]
Aggregator = Callable[[Any, Any, Any], Any]
"""A function of key, value and aggregate, which returns the new aggregate."""
Merger = Callable[[Any, Any, Any], Any]
"""A function of key and the aggregates of two sessions, which returns the aggregate of the merged session."""


@dataclass(frozen=True)
class Aggregation:
    """The functions of an aggregation. A grouping by key or window makes its operator from these functions."""

    prefix: str
    """The beginning of the generated names of operator and store."""
    initializer: Initializer
    aggregator: Aggregator
    merger: Merger | None
    """None if the user gave none. Sessions need a merger (`over_sessions`)."""
    value_serde: Serde[Any] | None
    """The serde of the results; None if it is not known."""
    reducer: Callable[[Any, Any], Any] | None = None

    def over_sessions(self, merger: Merger, grouping: str) -> Aggregation:
        """The same aggregation with a merger. Raises `TopologyError` if the merger does not take three arguments."""
        check_merger(merger, f"aggregate() of {grouping}")
        return replace(self, merger=merger)

    def by_key(self, store: str, send_old: bool) -> Operator:
        """The operator of this aggregation without windows."""
        if self.reducer is not None:
            return StreamReduce(store=store, reducer=self.reducer, send_old=send_old)
        return StreamAggregate(
            store=store, initializer=self.initializer, aggregator=self.aggregator, send_old=send_old
        )


def reducing(
    reducer: Callable[[Any, Any], Any], grouping: str, value_serde: Serde[Any] | None
) -> Aggregation:
    """The aggregation of ``reduce()``. Raises `TopologyError` if the reducer does not take two values."""
    require_function(reducer, f"reduce() of {grouping}", "a reducer of aggregate and value", 2)
    aggregator, merger = Reducing(reducer), ReducingMerger(reducer)
    return Aggregation("KSTREAM-REDUCE-", nothing, aggregator, merger, value_serde, reducer)


def folding(initializer: Initializer, aggregator: Aggregator, grouping: str) -> Aggregation:
    """The aggregation of ``aggregate()``. Raises `TopologyError` if a function does not take the right arguments."""
    operator = f"aggregate() of {grouping}"
    check_initializer(initializer, operator)
    check_adder(aggregator, operator, "an aggregator")
    return Aggregation("KSTREAM-AGGREGATE-", initializer, aggregator, None, None)


def check_initializer(initializer: Any, operator: str) -> None:
    """Raises `TopologyError` unless the function takes no arguments."""
    require_function(initializer, operator, "an initializer without arguments", 0)


def check_adder(adder: Any, operator: str, what: str) -> None:
    """Raises `TopologyError` unless the function takes key, value and aggregate.

    ``what`` names the function in the error, for example "an adder".
    """
    require_function(adder, operator, f"{what} of key, value and aggregate", 3)


def check_merger(merger: Any, operator: str) -> None:
    """Raises `TopologyError` unless the function takes key and two aggregates."""
    require_function(merger, operator, "a merger of key and two aggregates", 3)


def zero() -> int:
    """The first count: 0."""
    return 0


def add_one(key: Any, value: Any, count: int) -> int:
    """The count after a record or row was added."""
    return count + 1


def subtract_one(key: Any, value: Any, count: int) -> int:
    """The count after a row has left the group."""
    return count - 1


def sum_of_both(key: Any, first: int, second: int) -> int:
    """The count of a session that two sessions have become."""
    return first + second


def nothing() -> None:
    """The initializer of a reduction, which returns None because the first value is the first result."""


class Reducing:
    """A reducer in the form of an aggregator. The first value is the first aggregate."""

    def __init__(self, reducer: Callable[[Any, Any], Any]) -> None:
        self._reducer = reducer

    def __call__(self, key: Any, value: Any, aggregate: Any) -> Any:
        return value if aggregate is None else self._reducer(aggregate, value)


class ReducingMerger:
    """A reducer in the form of a merger of sessions."""

    def __init__(self, reducer: Callable[[Any, Any], Any]) -> None:
        self._reducer = reducer

    def __call__(self, key: Any, first: Any, second: Any) -> Any:
        return second if first is None else self._reducer(first, second)


COUNT = Aggregation("KSTREAM-AGGREGATE-", zero, add_one, sum_of_both, LongSerde())
