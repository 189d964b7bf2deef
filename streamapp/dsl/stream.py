"""What streams and tables of the DSL have in common."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from streamapp.callables import accepts
from streamapp.dsl.context import Context
from streamapp.dsl.graph import Node
from streamapp.errors import TopologyError
from streamapp.serdes.base import Serde

__all__ = ["Described", "require_function", "with_key_joiner"]

K = TypeVar("K")
V = TypeVar("V")


class Described(Generic[K, V]):
    """A node of the graph with the types of its records: what streams, tables and groupings are."""

    def __init__(
        self,
        context: Context,
        name: str,
        node: Node,
        sources: frozenset[str],
        key_serde: Serde[Any] | None,
        value_serde: Serde[Any] | None,
    ) -> None:
        self._context, self._node, self._sources = context, node, sources
        self.name = name
        self.key_serde = key_serde
        self.value_serde = value_serde

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def _same_builder(self, other: Described[Any, Any]) -> None:
        if other._context is not self._context:
            raise TopologyError(
                f"{self.name} and {other.name} come from different builders; describe one topology with one StreamsBuilder"
            )

    def _copartition(self, *others: Described[Any, Any]) -> frozenset[str]:
        """Records that all these have to be partitioned alike; returns their sources."""
        for other in others:
            self._same_builder(other)
        sources = self._sources.union(*(other._sources for other in others))
        self._context.graph.copartitions.append(sources)
        return sources


def require_function(
    function: Any, operator: str, what: str, takes: int | None = None, *, coroutine: bool = False
) -> None:
    """Raises `TopologyError` for what cannot be called, or not with so many arguments.

    >>> require_function(lambda value: value, "filter() of flights", "a predicate of key and value", 2)
    Traceback (most recent call last):
    ...
    streamapp.errors.TopologyError: filter() of flights needs a predicate of key and value: it is called with 2 arguments, but <lambda> takes (value)
    """
    if not callable(function):
        raise TopologyError(f"{operator} needs {what}, got {function!r}")
    if inspect.iscoroutinefunction(function) and not coroutine:
        raise TopologyError(
            f"{operator} needs {what}, and {function.__name__} is a coroutine function, whose result it would not wait for: await in "
            "map_async() or map_values_async(), and use a plain function here"
        )
    if takes is not None and not accepts(function, takes):
        name = getattr(function, "__name__", type(function).__name__)
        called = f"{takes} argument{'s' if takes > 1 else ''}" if takes else "no arguments"
        raise TopologyError(
            f"{operator} needs {what}: it is called with {called}, but {name} takes {inspect.signature(function)}"
        )


def with_key_joiner(joiner: Callable[..., Any], with_key: bool) -> Callable[[Any, Any, Any], Any]:
    """The joiner as a function of key, left and right value."""
    if with_key:
        return joiner
    return lambda key, left, right: joiner(left, right)
