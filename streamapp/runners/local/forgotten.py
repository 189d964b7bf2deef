"""Finds functions with a forgotten ``return``. Their result None deletes rows or drops records, without an error."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from types import FunctionType
from typing import Any

from streamapp._base.counted import counted
from streamapp.topology.nodes import Node, ProcessorNode

__all__ = ["Watch", "watched"]

_FUNCTIONS = {"predicate": "drops each record", "aggregator": "deletes each row", "adder": "deletes each row"}
"""The functions of operators whose result None is rarely meant, and what None does."""


class Watch:
    """A function of an operator that notes whether it has ever given a result."""

    def __init__(self, function: FunctionType, node: str, effect: str) -> None:
        self._function, self._node, self._effect = function, node, effect
        self._calls, self._gave = 0, False

    def __call__(self, *arguments: Any) -> Any:
        result = self._function(*arguments)
        self._calls += 1
        if result is not None:
            self._gave = True
        return result

    def warn(self) -> None:
        """Warns once if there were calls, and each gave None."""
        if self._calls and not self._gave:
            code = self._function.__code__
            warnings.warn(
                f"{self._node}: {self._function.__name__} ({code.co_filename}:{code.co_firstlineno}) gave "
                f"None for each of {counted(self._calls, 'record')}, which {self._effect}; is a return missing?",
                stacklevel=3,
            )


def watched(nodes: Sequence[Node]) -> tuple[tuple[Node, ...], list[Watch]]:
    """The nodes, with each predicate, aggregator and adder that is a Python function replaced by a `Watch`, and the
    watches."""
    watches: list[Watch] = []

    def node_of(node: Node) -> Node:
        operator = getattr(node, "operator", None)
        if not isinstance(node, ProcessorNode) or not is_dataclass(operator):
            return node
        changes: dict[str, Any] = {}
        for part in fields(operator):
            function = getattr(operator, part.name)
            if part.name in _FUNCTIONS and isinstance(function, FunctionType):
                kept = part.name == "predicate" and getattr(operator, "negate", False)
                effect = "keeps each record" if kept else _FUNCTIONS[part.name]
                changes[part.name] = Watch(function, node.name, effect)
        watches.extend(changes.values())
        return replace(node, operator=replace(operator, **changes)) if changes else node  # type: ignore[type-var]

    return tuple(node_of(node) for node in nodes), watches
