"""Whole cases of each kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .chance import TOPICS, Chance
from .graph import Graph
from .processors import LowLevel
from .records import queries, steps

__all__ = ["CASE_KINDS"]


def _dsl(seed: str) -> dict[str, Any]:
    chance = Chance(seed)
    graph = Graph(chance)
    graph.build()
    return _case(chance, graph, "random graph of DSL operators")


def _low_level(seed: str) -> dict[str, Any]:
    chance = Chance(seed)
    graph = LowLevel(chance)
    graph.build()
    return {**_case(chance, graph, "random topology of the Processor API"), "api": "processor"}


def _case(chance: Chance, graph: Graph | LowLevel, about: str) -> dict[str, Any]:
    types = {**TOPICS, "g": "string"}
    inputs = {topic: types[topic] for topic in sorted(graph.topics)}
    case: dict[str, Any] = {
        "about": about,
        "features": ["random", "wide"],
        "topics": {
            topic: {"key": "string", "value": value} for topic, value in {**inputs, **graph.read_back}.items()
        },
        "topology": graph.nodes,
        "input": steps(chance, inputs, graph.punctuated) + queries(chance, chance.stores),
    }
    return {**case, "config": chance.config} if chance.config else case


CASE_KINDS: dict[str, Callable[[str], dict[str, Any]]] = {"dsl": _dsl, "processor": _low_level}
"""Kind of case -> what makes one of a seed."""
