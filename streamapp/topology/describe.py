"""The text of ``Topology.describe()``, which is the text of Kafka Streams for the same topology.

So a description can be compared with that of the same application in Java. There is one difference: a function that
chooses topics has another name. Kafka Streams sorts nodes by the number of nodes downstream, and has some nodes in the
order of Java's hash tables. This module reproduces both orders.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cmp_to_key

from streamapp._base.java_hash import hash_order, text_hash
from streamapp.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode
from streamapp.topology.tree_set import TreeSet

__all__ = ["describe_global_store", "describe_subtopology"]


def _order(names: Iterable[str]) -> list[str]:
    return hash_order(names, text_hash)


class _Described:
    """A node with its neighbours. ``size`` is the number of nodes from this node downstream. Each child that is added
    makes ``size`` larger."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.name = node.name
        self.size = 1
        self.predecessors: TreeSet[_Described] = TreeSet(_compare)
        self.successors: TreeSet[_Described] = TreeSet(_compare)

    def grow(self, delta: int) -> None:
        self.size += delta
        for predecessor in self.predecessors:
            predecessor.grow(delta)


def _compare(a: _Described, b: _Described) -> int:
    if a is b:
        return 0
    if a.size != b.size:
        return b.size - a.size
    return -1 if a.name < b.name else 1


def _names(nodes: Iterable[_Described]) -> str:
    return ", ".join(n.name for n in nodes) or "none"


def _text(described: _Described) -> str:
    node = described.node
    if isinstance(node, SourceNode):
        topics = node.pattern.pattern if node.pattern else f"[{', '.join(_order(node.topics))}]"
        return f"Source: {node.name} (topics: {topics})\n      --> {_names(described.successors)}"
    if isinstance(node, ProcessorNode):
        stores = ", ".join(_order(node.stores))
        return (
            f"Processor: {node.name} (stores: [{stores}])\n      --> {_names(described.successors)}\n"
            f"      <-- {_names(described.predecessors)}"
        )
    assert isinstance(node, SinkNode)
    target = (
        f"topic: {node.topic}"
        if isinstance(node.topic, str)
        else f"extractor class: {_function_name(node.topic)}"
    )
    return f"Sink: {node.name} ({target})\n      <-- {_names(described.predecessors)}"


def _function_name(function: object) -> str:
    return str(getattr(function, "__name__", function))


def describe_subtopology(number: int, nodes: list[Node]) -> str:
    """The part of the description for one sub-topology. ``nodes`` have the order in which they were added."""
    by_name = {n.name: _Described(n) for n in nodes}
    order = _order(_order(by_name))
    for name in order:
        described = by_name[name]
        for parent in described.node.parents:
            predecessor = by_name[parent]
            described.predecessors.add(predecessor)
            predecessor.successors.add(described)
            predecessor.grow(described.size)
    body = sorted(by_name.values(), key=cmp_to_key(_compare))
    return f"Sub-topology: {number}\n" + "".join(f"    {_text(d)}\n" for d in body) + "\n"


def describe_global_store(number: int, source: SourceNode, processor: ProcessorNode) -> str:
    """The part of the description for one global store."""
    return (
        f"Sub-topology: {number} for global store (will not generate tasks)\n"
        f"    Source: {source.name} (topics: [{source.topics[0]}])\n      --> {processor.name}\n"
        f"    Processor: {processor.name} (stores: [{processor.stores[0]}])\n      --> none\n      <-- {source.name}\n"
    )
