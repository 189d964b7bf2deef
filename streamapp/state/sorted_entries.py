"""A sorted list that stays fast when entries are added, removed and looked up in turn."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["SortedEntries"]

_MANY = 512
"""The number of entries above which a part of the list is split in two."""


class SortedEntries:
    """A sorted list that consists of short parts, so that an addition or a removal moves only the entries of one part.

    >>> entries = SortedEntries()
    >>> entries.update([(3, "c"), (1, "a")])
    >>> entries.add((2, "b"))
    >>> entries.remove((3, "c"))
    >>> list(entries.between((1,), None)), len(entries), entries.first
    ([(1, 'a'), (2, 'b')], 2, (1, 'a'))
    """

    __slots__ = ("_count", "_last", "_parts")

    def __init__(self) -> None:
        self._parts: list[list[Any]] = []
        self._last: list[Any] = []
        """The last entry of each part."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def first(self) -> Any:
        return self._parts[0][0]

    def update(self, entries: Iterable[Any]) -> None:
        """Adds entries. If there are many new ones, the whole list is sorted again, which is faster."""
        added = list(entries)
        if len(added) * 8 < self._count:
            for entry in added:
                self.add(entry)
            return
        whole = [entry for part in self._parts for entry in part]
        whole += added
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
        part = self._parts[at]
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
        part = self._parts[at]
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

    def between(self, start: Any, end: Any) -> Iterator[Any]:
        """The entries from ``start`` to before ``end``; None means no bound. Valid until the list changes."""
        parts = self._parts
        first = 0 if start is None else bisect_left(self._last, start)
        for number in range(first, len(parts)):
            part = parts[number]
            low = bisect_left(part, start) if start is not None and number == first else 0
            if end is not None and part[-1] >= end:
                yield from part[low : bisect_left(part, end)]
                return
            yield from part[low:] if low else part
