"""Stateless operators: each handles one record at a time and remembers nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from streamapp.engine.operator import NodeContext, Operator, ProcessFn
from streamapp.records import Headers

__all__ = [
    "Branch",
    "DropNullKeys",
    "Filter",
    "FlatMap",
    "FlatMapValues",
    "ForEach",
    "Map",
    "MapValues",
    "PassThrough",
    "Peek",
    "SelectKey",
    "ToStream",
]


def _pair(given: Any, operator: str) -> tuple[Any, Any]:
    """Two elements of a list or a named tuple as (key, value).

    Raises `TypeError` for other results, also for text of two letters, which Python could unpack.
    """
    if isinstance(given, (tuple, list)) and len(given) == 2:
        return given[0], given[1]
    raise TypeError(f"the function of {operator} has to give (key, value), not {given!r:.60}")


@dataclass(frozen=True)
class Filter(Operator):
    """Hands on the records for which the predicate is true, or with ``negate`` the records for which it is false."""

    persistent_name = "Filter"

    predicate: Callable[[Any, Any], bool]
    negate: bool = False

    def bind(self, ctx: NodeContext) -> ProcessFn:
        predicate, forward = self.predicate, ctx.forward

        def matching(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if predicate(key, value):
                forward(key, value, timestamp, headers)

        def others(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if not predicate(key, value):
                forward(key, value, timestamp, headers)

        return others if self.negate else matching


@dataclass(frozen=True)
class DropNullKeys(Operator):
    """Drops records without a key before a repartition topic, if the operators behind the topic need a key."""

    persistent_name = "DropNullKeys"
    drops: ClassVar[tuple[str, ...]] = ("null_key",)
    calls_functions = False

    def bind(self, ctx: NodeContext) -> ProcessFn:
        forward, drop = ctx.forward, ctx.drop

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is not None:
                forward(key, value, timestamp, headers)
            else:
                drop("null_key", in_total=False)  # a filter in Kafka Streams

        return process


@dataclass(frozen=True)
class MapValues(Operator):
    """Replaces each value by the mapper's result. The mapper gets the value, or with ``with_key`` key and value."""

    persistent_name = "MapValues"

    mapper: Callable[..., Any]
    with_key: bool = False

    def bind(self, ctx: NodeContext) -> ProcessFn:
        mapper, forward = self.mapper, ctx.forward

        def by_value(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            forward(key, mapper(value), timestamp, headers)

        def by_key_and_value(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            forward(key, mapper(key, value), timestamp, headers)

        return by_key_and_value if self.with_key else by_value


@dataclass(frozen=True)
class Map(Operator):
    """Replaces each record by the (key, value) pair that the mapper returns."""

    persistent_name = "Map"

    mapper: Callable[[Any, Any], tuple[Any, Any]]

    def bind(self, ctx: NodeContext) -> ProcessFn:
        mapper, forward = self.mapper, ctx.forward

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            pair = mapper(key, value)
            if pair.__class__ is not tuple or len(pair) != 2:
                pair = _pair(pair, "map()")
            forward(pair[0], pair[1], timestamp, headers)

        return process


@dataclass(frozen=True)
class SelectKey(Operator):
    """Replaces the key of each record by the mapper's result."""

    persistent_name = "SelectKey"

    mapper: Callable[[Any, Any], Any]

    def bind(self, ctx: NodeContext) -> ProcessFn:
        mapper, forward = self.mapper, ctx.forward

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            forward(mapper(key, value), value, timestamp, headers)

        return process


@dataclass(frozen=True)
class FlatMap(Operator):
    """Replaces each record by the (key, value) pairs that the mapper returns, in their order."""

    persistent_name = "FlatMap"

    mapper: Callable[[Any, Any], Any]

    def bind(self, ctx: NodeContext) -> ProcessFn:
        mapper, forward = self.mapper, ctx.forward

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            for pair in mapper(key, value):
                if pair.__class__ is not tuple or len(pair) != 2:
                    pair = _pair(pair, "flat_map()")
                forward(pair[0], pair[1], timestamp, headers)

        return process


@dataclass(frozen=True)
class FlatMapValues(Operator):
    """Replaces each record by one record for each value that the mapper returns.

    The mapper gets the value, or with ``with_key`` key and value.
    """

    persistent_name = "FlatMapValues"

    mapper: Callable[..., Any]
    with_key: bool = False

    def bind(self, ctx: NodeContext) -> ProcessFn:
        mapper, forward = self.mapper, ctx.forward

        def by_value(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            for new_value in mapper(value):
                forward(key, new_value, timestamp, headers)

        def by_key_and_value(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            for new_value in mapper(key, value):
                forward(key, new_value, timestamp, headers)

        return by_key_and_value if self.with_key else by_value


@dataclass(frozen=True)
class Peek(Operator):
    """Calls a function with key and value of each record, then hands the record on."""

    persistent_name = "Peek"

    action: Callable[[Any, Any], object]

    def bind(self, ctx: NodeContext) -> ProcessFn:
        action, forward = self.action, ctx.forward

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            action(key, value)
            forward(key, value, timestamp, headers)

        return process


@dataclass(frozen=True)
class ForEach(Operator):
    """Calls a function with key and value of each record. No operator follows."""

    persistent_name = "ForEach"

    action: Callable[[Any, Any], object]

    def bind(self, ctx: NodeContext) -> ProcessFn:
        action = self.action

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            action(key, value)

        return process


@dataclass(frozen=True)
class PassThrough(Operator):
    """Hands records on unchanged: a node for merges and for the ends of branches."""

    persistent_name = "PassThrough"
    calls_functions = False

    def bind(self, ctx: NodeContext) -> ProcessFn:
        return ctx.forward


@dataclass(frozen=True)
class Branch(Operator):
    """Hands each record to the child of the first predicate that is true. One more child, if any, gets all other
    records."""

    persistent_name = "Branch"

    predicates: tuple[Callable[[Any, Any], bool], ...]
    children: tuple[str, ...]

    def bind(self, ctx: NodeContext) -> ProcessFn:
        branches = tuple((p, ctx.forward_to(c)) for p, c in zip(self.predicates, self.children, strict=False))
        has_default = len(self.children) > len(self.predicates)
        rest = ctx.forward_to(self.children[len(self.predicates)]) if has_default else None

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            for predicate, forward in branches:
                if predicate(key, value):
                    forward(key, value, timestamp, headers)
                    return
            if rest is not None:
                rest(key, value, timestamp, headers)

        return process


@dataclass(frozen=True)
class ToStream(Operator):
    """Turns each change of a table into a record with the new value."""

    persistent_name = "ToStream"
    calls_functions = False

    def bind(self, ctx: NodeContext) -> ProcessFn:
        forward = ctx.forward

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            forward(key, value[0], timestamp, headers)

        return process
