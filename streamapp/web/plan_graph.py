"""A plan's nodes as a graph to draw."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import count

from streamapp.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode
from streamapp.topology.plan import Plan
from streamapp.web.view_source import SubtopologyGraph, TopologyNode

__all__ = ["subtopology_graphs"]


def subtopology_graphs(plan: Plan) -> list[SubtopologyGraph]:
    """The sub-topologies of a plan in order, then one for each global store; ids as in ``describe()``."""
    graphs = [SubtopologyGraph(sub.id, _nodes(sub.nodes)) for sub in plan.subtopologies]
    taken = {graph.id for graph in graphs}
    free = (number for number in count() if number not in taken)
    for number, store in zip(free, plan.global_stores, strict=False):
        graphs.append(SubtopologyGraph(number, _nodes((store.source, store.processor)), is_global=True))
    return graphs


def _nodes(nodes: Iterable[Node]) -> list[TopologyNode]:
    listed = list(nodes)
    successors: dict[str, list[str]] = defaultdict(list)
    for node in listed:
        for parent in node.parents:
            successors[parent].append(node.name)
    return [_node(node, successors[node.name]) for node in listed]


def _node(node: Node, successors: list[str]) -> TopologyNode:
    match node:
        case SourceNode():
            topics = node.topics or ((node.pattern.pattern,) if node.pattern else ())
            return TopologyNode(node.name, "source", topics=topics, successors=successors)
        case ProcessorNode():
            return TopologyNode(node.name, "processor", stores=node.stores, successors=successors)
        case SinkNode():
            topic = node.topic if isinstance(node.topic, str) else "(chosen for each record)"
            return TopologyNode(node.name, "sink", topics=(topic,), successors=successors)
