"""A copy of Java's TreeSet, whose order `Topology.describe` needs to give the same text as Kafka Streams.

Kafka Streams keeps the neighbours of a node in a ``java.util.TreeSet``, sorted by a number that still grows after the
insertion. So the set is not in the order of the final numbers. The order depends on the shape of Java's tree, which
this class therefore copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Literal, TypeVar

__all__ = ["TreeSet"]

T = TypeVar("T")
_Side = Literal["left", "right"]


class _Branch(Generic[T]):
    __slots__ = ("item", "left", "parent", "red", "right")

    def __init__(self, item: T, parent: _Branch[T] | None) -> None:
        self.item, self.parent = item, parent
        self.left: _Branch[T] | None = None
        self.right: _Branch[T] | None = None
        self.red = True


class TreeSet(Generic[T]):
    """A red-black tree. ``compare`` returns a negative number, zero or a positive number, as in Java."""

    def __init__(self, compare: Callable[[T, T], int]) -> None:
        self._compare = compare
        self._root: _Branch[T] | None = None

    def __iter__(self) -> Iterator[T]:
        return self._walk(self._root)

    def _walk(self, branch: _Branch[T] | None) -> Iterator[T]:
        if branch is not None:
            yield from self._walk(branch.left)
            yield branch.item
            yield from self._walk(branch.right)

    def add(self, item: T) -> None:
        parent, branch, side = None, self._root, 0
        while branch is not None:
            parent, side = branch, self._compare(item, branch.item)
            if side == 0:
                return
            branch = branch.left if side < 0 else branch.right
        new = _Branch(item, parent)
        if parent is None:
            self._root = new
        elif side < 0:
            parent.left = new
        else:
            parent.right = new
        self._balance(new)

    def _balance(self, branch: _Branch[T]) -> None:
        while (parent := branch.parent) is not None and parent.red:
            top = parent.parent
            assert top is not None  # the root is black
            near: _Side
            far: _Side
            near, far = ("left", "right") if parent is top.left else ("right", "left")
            uncle: _Branch[T] | None = getattr(top, far)
            if uncle is not None and uncle.red:
                parent.red = uncle.red = False
                top.red = True
                branch = top
                continue
            if branch is getattr(parent, far):
                self._rotate(parent, near)
                branch, parent = parent, branch
            parent.red, top.red = False, True
            self._rotate(top, far)
        assert self._root is not None
        self._root.red = False

    def _rotate(self, branch: _Branch[T], side: _Side) -> None:
        """Rotates the tree: the branch moves down to ``side``, and the branch's child on the other side takes its
        place."""
        other: _Side = "right" if side == "left" else "left"
        child: _Branch[T] = getattr(branch, other)
        moved: _Branch[T] | None = getattr(child, side)
        setattr(branch, other, moved)
        if moved is not None:
            moved.parent = branch
        child.parent = parent = branch.parent
        if parent is None:
            self._root = child
        elif parent.left is branch:
            parent.left = child
        else:
            parent.right = child
        setattr(child, side, branch)
        branch.parent = child
