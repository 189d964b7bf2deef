"""A sorted list that stays fast when entries are added, removed and looked up in turn."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Set
from typing import Any

__all__ = ["SortedEntries"]

_MANY = 512
"""The number of entries above which a part of the list is split in two."""


class SortedEntries:
    """A sorted list that consists of short parts, so that an addition or a removal moves only the entries of one part.

    `between` gives the entries as they are at its first step. An iteration over one part copies the entries. While an
    iteration over more parts is open, each change replaces a part by a changed copy.

    >>> entries = SortedEntries()
    >>> entries.update([(3, "c"), (1, "a")])
    >>> entries.add((2, "b"))
    >>> entries.remove((3, "c"))
    >>> list(entries.between((1,), None)), len(entries), entries.first
    ([(1, 'a'), (2, 'b')], 2, (1, 'a'))
    """

    __slots__ = ("_count", "_last", "_open", "_parts")

    def __init__(self) -> None:
        self._parts: list[list[Any]] = []
        self._last: list[Any] = []
        """The last entry of each part."""
        self._count = 0
        self._open = 0
        """The number of open iterations that pass more than one part."""

    def __len__(self) -> int:
        return self._count

    @property
    def first(self) -> Any:
        return self._parts[0][0]

    def update(self, added: Iterable[Any], removed: Set[Any] = frozenset()) -> None:
        """Adds and removes entries. If many entries change, the whole list is sorted again, which is faster.

        The removed entries must be in the list.
        """
        new = list(added)
        if (len(new) + len(removed)) * 8 < self._count:
            for entry in removed:
                self.remove(entry)
            for entry in new:
                self.add(entry)
            return
        whole = [entry for part in self._parts for entry in part]
        if removed:
            whole = [entry for entry in whole if entry not in removed]
        whole += new
        whole.sort()
        half = _MANY // 2
        self._parts = [whole[at : at + half] for at in range(0, len(whole), half)]
        self._last = [part[-1] for part in self._parts]
        self._count = len(whole)

    def add(self, entry: Any) -> None:
        self._count += 1
        if not self._parts:
            self._parts.append([entry])
            self._last.append(entry)
            return
        at = min(bisect_left(self._last, entry), len(self._parts) - 1)
        part = self._part_to_change(at)
        insort(part, entry)
        if len(part) > _MANY:
            half = len(part) // 2
            self._parts[at : at + 1] = [part[:half], part[half:]]
            self._last[at : at + 1] = [part[half - 1], part[-1]]
        else:
            self._last[at] = part[-1]

    def remove(self, entry: Any) -> None:
        """Removes an entry, which must be in the list."""
        at = bisect_left(self._last, entry)
        part = self._part_to_change(at)
        del part[bisect_left(part, entry)]
        self._count -= 1
        if part:
            self._last[at] = part[-1]
        else:
            del self._parts[at], self._last[at]

    def clear(self) -> None:
        self._parts.clear()
        self._last.clear()
        self._count = 0

    def between(self, start: Any, end: Any, reverse: bool = False) -> Iterator[Any]:
        """The entries from ``start`` to before ``end``, as they are at the first step; None means no bound."""
        first = 0 if start is None else bisect_left(self._last, start)
        stop = len(self._parts) if end is None else bisect_left(self._last, end) + 1
        parts = self._parts[first:stop]
        if not parts:
            return
        low = 0 if start is None else bisect_left(parts[0], start)
        high = len(parts[-1]) if end is None else bisect_left(parts[-1], end)
        if len(parts) == 1:
            part = parts[0][low:high]
            yield from reversed(part) if reverse else part
            return
        parts[0], parts[-1] = parts[0][low:], parts[-1][:high]
        self._open += 1
        try:
            for part in reversed(parts) if reverse else parts:
                yield from reversed(part) if reverse else part
        finally:
            self._open -= 1

    def _part_to_change(self, at: int) -> list[Any]:
        part = self._parts[at]
        if self._open:
            part = self._parts[at] = part.copy()
        return part
