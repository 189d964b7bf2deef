"""Changes a copy of the user's graph before it is written: merges duplicate sources, and applies optimisations.

The steps have the order of Kafka Streams, because the order decides which generated names remain.
"""

from __future__ import annotations

import re
from collections.abc import Set
from pickle import dumps
from typing import Any

from streamapp.dsl.graph import Graph, Node
from streamapp.dsl.graph_nodes import RepartitionNode, SourceNode, StreamJoinNode, TableSourceNode
from streamapp.dsl.repartition import repartition_node
from streamapp.errors import TopologyError

__all__ = ["optimize"]


def optimize(graph: Graph, optimizations: Set[str]) -> None:
    """Applies these optimisations to the graph, and the changes that every graph needs. Changes the graph in place."""
    repartitions = _repartitions_by_key_changer(graph)
    _merge_duplicate_sources(graph)
    if "reuse.ktable.source.topics" in optimizations:
        for node in graph.nodes:
            if isinstance(node, TableSourceNode) and not node.expires:
                node.reuse_topic = True
    if "merge.repartition.topics" in optimizations:
        _merge_repartitions(graph, repartitions)
    if "single.store.self.join" in optimizations:
        _rewrite_self_joins(graph)
    _drop_null_keys(graph)
    _mark_versioned(graph)


# ---------------------------------------------------------------------- sources


def _merge_duplicate_sources(graph: Graph) -> None:
    """Makes one source for all streams of the same topics or the same pattern, because a topology may have only one
    source for a topic."""
    by_topic: dict[str, SourceNode] = {}
    by_pattern: dict[re.Pattern[str], SourceNode] = {}
    for node in list(graph.root.children):
        if not isinstance(node, SourceNode):
            continue
        if node.pattern is not None:
            first = by_pattern.setdefault(node.pattern, node)
            if first is not node:
                _check_read_alike(first, node, f"pattern {node.pattern.pattern}")
                _absorb(graph, first, node)
            continue
        for topic in node.topics:
            first = by_topic.setdefault(topic, node)
            if first is node:
                continue
            if set(first.topics) != set(node.topics):
                raise TopologyError(
                    f"sources {first.name} and {node.name} both read topic {topic}, but differ in "
                    f"their topics ({', '.join(first.topics)} and {', '.join(node.topics)}). Read each topic in one "
                    "stream() and merge() or branch from there"
                )
            _check_read_alike(first, node, f"topic {topic}")
            _absorb(graph, first, node)


def _check_read_alike(first: SourceNode, second: SourceNode, what: str) -> None:
    """Raises `TopologyError` if two streams of a topic have different serdes, extractors, ``on_error`` or
    ``offset_reset``.

    They share one source, which can read a record only in one way.
    """
    for part, one in first.reads_by.items():
        if not _alike(one, second.reads_by[part]):
            raise TopologyError(
                f"{first.name} and {second.name} both read {what}, but not with the same {part}: a topic is read once. "
                f"Give both streams one {part}"
                + (
                    ", or read it as BytesSerde() and convert with map() or map_values()"
                    if part.endswith("_serde")
                    else ""
                )
            )


def _alike(one: Any, other: Any) -> bool:
    """True if two serdes or extractors probably do the same: they are equal, or their pickles are."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    try:
        return one == other or one.__reduce_ex__(4) == other.__reduce_ex__(4) or dumps(one) == dumps(other)
    except Exception:
        return False


def _absorb(graph: Graph, first: Node, second: Node) -> None:
    for child in list(second.children):
        second.remove_child(child)
        first.add_child(child)
    graph.root.remove_child(second)
    _rename_in_copartitions(graph, second.name, first.name)


def _rename_in_copartitions(graph: Graph, old: str, new: str) -> None:
    graph.copartitions = [
        frozenset(new if name == old else name for name in group) for group in graph.copartitions
    ]


# ---------------------------------------------------------------------- repartition topics


def _repartitions_by_key_changer(graph: Graph) -> dict[Node, dict[RepartitionNode, None]]:
    """Key-changing operation -> the repartition nodes that are needed because of this operation, for a merge into one
    topic.

    A repartition node is left out if an operation between the two changes values. The merged topic would have to
    contain the value before this operation, whose serde is not known.
    """
    found: dict[Node, dict[RepartitionNode, None]] = {}
    for node in graph.nodes:
        if node.key_changing:
            found[node] = {}
        elif isinstance(node, RepartitionNode) and node.optimizable:
            changer = node.find_above(lambda n: n.key_changing)
            nearest = node.find_above(lambda n: n.key_changing or n.value_changing)
            if changer is not None and changer is nearest:
                found[changer][node] = None
    return found


def _merge_repartitions(graph: Graph, by_changer: dict[Node, dict[RepartitionNode, None]]) -> None:
    """Puts one repartition topic directly behind each key-changing operation, instead of a topic for each reader."""
    _move_to_merges(graph, by_changer)
    for changer, repartitions in by_changer.items():
        if not repartitions:
            continue
        first = next(iter(repartitions))
        merged = repartition_node(None, first.topic, first.key_serde, first.value_serde)
        merged.priority = changer.priority
        graph.nodes.append(merged)
        for replaced in repartitions:
            below_changer = _child_above(replaced, changer)
            if below_changer is None:
                raise TopologyError(f"{changer.name} is not above its repartition node {replaced.name}")
            merged.add_child(below_changer)
            changer.remove_child(below_changer)
            parents = list(replaced.parents)
            for child in list(replaced.children):
                for parent in parents:
                    parent.add_child(child)
                replaced.remove_child(child)
            for parent in parents:
                parent.remove_child(replaced)
            _rename_in_copartitions(graph, replaced.name, merged.name)
        changer.add_child(merged)


def _move_to_merges(graph: Graph, by_changer: dict[Node, dict[RepartitionNode, None]]) -> None:
    """Moves repartition topics behind merges: if streams with changed keys are merged, the topic must come later."""
    moved: dict[Node, dict[RepartitionNode, None]] = {}
    done: set[Node] = set()
    for merge in (node for node in graph.nodes if node.merge):
        moved[merge] = {}
        for changer, repartitions in by_changer.items():
            below_merge = all(_child_above(r, merge) for r in repartitions)
            if below_merge and _child_above(merge, changer):
                moved[merge].update(repartitions)
                done.add(changer)
    by_changer.update(moved)
    for changer in done:
        del by_changer[changer]


def _child_above(node: Node, ancestor: Node) -> Node | None:
    """The child of ``ancestor`` on the path to ``node``, which may be the node itself; None if there is no path."""
    return node.find_above(lambda above: ancestor in above.parents)


# ---------------------------------------------------------------------- joins


def _rewrite_self_joins(graph: Graph) -> None:
    """Makes each join of a stream with itself use one window store instead of two."""
    for join in graph.nodes:
        if not isinstance(join, StreamJoinNode) or len(join.parents) != 1 or join.needs_both_sides:
            continue
        (parent,) = join.parents
        for child in list(parent.children):
            if child.name == join.other_window and child.priority < join.priority:
                parent.remove_child(child)
        join.self_join = True


def _drop_null_keys(graph: Graph) -> None:
    """Makes repartition topics drop records without a key, unless a left or outer join reads the topic (KIP-962)."""
    needed: set[Node] = set()
    visited: set[Node] = set()

    def visit(node: Node) -> None:
        if node in visited:
            return
        for child in node.children:
            visit(child)
            if child.relaxed_null_keys or child in needed:
                needed.add(node)
        visited.add(node)

    visit(graph.root)
    for node in visited:
        if isinstance(node, RepartitionNode) and node not in needed:
            node.drop_null_keys = True


def _mark_versioned(graph: Graph) -> None:
    for node in graph.nodes:
        if node.checks_versions:
            node.versioned_parents = {parent.name for parent in node.parents if parent.is_versioned()}
