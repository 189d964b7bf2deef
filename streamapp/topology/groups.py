"""Groups of nodes that are connected, directly or through a store. Each group becomes a sub-topology."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["NodeGroups"]


class NodeGroups:
    """Disjoint sets of node names (a union-find structure)."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def unite(self, first: str, *others: str) -> None:
        for other in others:
            a, b = self._root(first), self._root(other)
            if a != b:
                self._parent[b] = a

    def split(self, names: Iterable[str]) -> list[list[str]]:
        """The names by group. Groups, and names in a group, keep the order of ``names``."""
        groups: dict[str, list[str]] = {}
        for name in names:
            groups.setdefault(self._root(name), []).append(name)
        return list(groups.values())

    def _root(self, name: str) -> str:
        while (parent := self._parent.get(name, name)) != name:
            name = parent
        return name
