"""The graph of logical nodes that the DSL records, before anything is optimised or written into a `Topology`."""

from __future__ import annotations

import copy
import heapq
from collections.abc import Callable, Iterator

from streamapp.topology import Topology

__all__ = ["Graph", "Node"]


class Node:
    """One logical step. Parents and children keep the order in which they were added."""

    key_changing = False
    value_changing = False
    merge = False
    output_versioned: bool | None = None
    """None: as versioned as what it reads."""
    relaxed_null_keys = False
    """A left or outer join, which has a use for records without key (KIP-962)."""
    grace_ms: int | None = None
    """The late records of a windowed aggregation."""
    checks_versions = False
    """Behaves differently below a versioned table (KIP-914)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.priority = 0
        self.parents: dict[Node, None] = {}
        self.children: dict[Node, None] = {}
        self.versioned_parents: set[str] = set()

    def write(self, topology: Topology) -> None:
        """Adds to the topology what this node stands for."""
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
        """This node or the first above it, depth first, that matches."""
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
    """Above all sources; stands for nothing."""

    def write(self, topology: Topology) -> None:
        pass


class Graph:
    """The nodes of one builder, and which of its sources have to be co-partitioned."""

    def __init__(self) -> None:
        self.root: Node = Root("root")
        self.nodes: list[Node] = [self.root]
        self.copartitions: list[frozenset[str]] = []
        self._next_priority = 0

    def add(self, node: Node, *parents: Node) -> None:
        """Appends a node. One that is added again only moves in the order of writing."""
        for parent in parents or (self.root,):
            parent.add_child(node)
            node.priority = self._next_priority
            self._next_priority += 1
        if node not in self.nodes:
            self.nodes.append(node)

    def copy(self) -> Graph:
        """A graph of copied nodes, to be optimised without a trace in the user's."""
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
        """Each node once: by priority, but after all its parents."""
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
        """Writes all nodes, and the groups of co-partitioned sources."""
        for node in self.in_build_order():
            node.write(topology)
        for group in self.copartitions:
            if len(group) > 1:
                topology.copartition_sources(*sorted(group))
