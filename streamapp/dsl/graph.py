"""The graph of nodes that calls of the DSL build up. Later it is optimised and written into a `Topology`."""

from __future__ import annotations

import copy
import heapq
from collections.abc import Callable, Iterator

from streamapp.topology import Topology

__all__ = ["Graph", "Node"]


class Node:
    """One operation of the DSL. Parents and children keep the order in which they were added."""

    key_changing = False
    value_changing = False
    merge = False
    output_versioned: bool | None = None
    """True if the resulting table is versioned; None if this depends on its inputs."""
    relaxed_null_keys = False
    """True for a left or outer join, which also gives results for records without a key (KIP-962)."""
    grace_ms: int | None = None
    """The time from the end of a window to its close, for a windowed aggregation; None for all other nodes."""
    checks_versions = False
    """True if the operator works in another way when it reads a versioned table (KIP-914)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.priority = 0
        self.parents: dict[Node, None] = {}
        self.children: dict[Node, None] = {}
        self.versioned_parents: set[str] = set()

    def write(self, topology: Topology) -> None:
        """Adds the sources, processors, stores and sinks of this node to the topology."""
        raise NotImplementedError

    @property
    def parent_names(self) -> tuple[str, ...]:
        return tuple(parent.name for parent in self.parents)

    def add_child(self, child: Node) -> None:
        self.children[child] = None
        child.parents[self] = None

    def remove_child(self, child: Node) -> None:
        self.children.pop(child, None)
        child.parents.pop(self, None)

    def find_above(self, matches: Callable[[Node], bool]) -> Node | None:
        """The first node that matches: this node itself, or a node upstream, searched depth first."""
        if matches(self):
            return self
        for parent in self.parents:
            found = parent.find_above(matches)
            if found is not None:
                return found
        return None

    def is_versioned(self) -> bool:
        """True if the node's table is versioned, by itself or because all its inputs are."""
        if self.output_versioned is not None:
            return self.output_versioned
        return bool(self.parents) and all(parent.is_versioned() for parent in self.parents)


class Root(Node):
    """The parent of all sources, which adds nothing to the topology."""

    def write(self, topology: Topology) -> None:
        pass


class Graph:
    """The nodes of one builder, and the groups of sources that need the same number of partitions."""

    def __init__(self) -> None:
        self.root: Node = Root("root")
        self.nodes: list[Node] = [self.root]
        self.copartitions: list[frozenset[str]] = []
        self._next_priority = 0

    def add(self, node: Node, *parents: Node) -> None:
        """Appends a node to its parents. A node that is added again gets a later place in the order of writing."""
        for parent in parents or (self.root,):
            parent.add_child(node)
            node.priority = self._next_priority
            self._next_priority += 1
        if node not in self.nodes:
            self.nodes.append(node)

    def copy(self) -> Graph:
        """A copy of the graph with copied nodes, so that optimisations do not change the user's graph."""
        result = Graph()
        copies = {node: copy.copy(node) for node in self.nodes}
        for node in copies.values():
            node.parents = {copies[parent]: None for parent in node.parents}
            node.children = {copies[child]: None for child in node.children}
            node.versioned_parents = set()
        result.root, result.nodes = copies[self.root], list(copies.values())
        result.copartitions = list(self.copartitions)
        return result

    def in_build_order(self) -> Iterator[Node]:
        """All nodes in the order in which they were added, but each node after all its parents."""
        waiting: list[tuple[int, int, Node]] = [(-1, 0, self.root)]
        done: set[Node] = set()
        offered = 0
        while waiting:
            _, _, node = heapq.heappop(waiting)
            if node in done or not done.issuperset(node.parents):
                continue
            done.add(node)
            yield node
            for child in node.children:
                offered += 1
                heapq.heappush(waiting, (child.priority, offered, child))

    def write(self, topology: Topology) -> None:
        """Writes all nodes to the topology, and the groups of sources that need the same number of partitions."""
        for node in self.in_build_order():
            node.write(topology)
        for group in self.copartitions:
            if len(group) > 1:
                topology.copartition_sources(*sorted(group))
