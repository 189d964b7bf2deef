"""A copy of Java's PriorityQueue, because results of Kafka Streams depend on its order of entries with equal times."""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["JavaHeap"]

T = TypeVar("T")


class JavaHeap(Generic[T]):
    """Entries by time, the earliest first. Entries with equal times come in the order of Java's PriorityQueue.

    Kafka Streams keeps the inputs of a task (``PartitionGroup``) and its punctuators (``PunctuationQueue``) in such a
    queue. This class makes the same swaps as Java's, so inputs and punctuators come in the same order.

    >>> heap = JavaHeap[str]()
    >>> for name in "ABC":
    ...     heap.push(name, 10)
    >>> heap.pop(), heap.pop(), heap.pop()
    ('A', 'C', 'B')
    """

    __slots__ = ("_things", "_times")

    def __init__(self) -> None:
        self._things: list[T] = []
        self._times: list[int] = []

    @property
    def earliest(self) -> int | None:
        """The earliest time; None: the heap is empty."""
        return self._times[0] if self._times else None

    def push(self, thing: T, time: int) -> None:
        things, times = self._things, self._times
        at = len(things)
        things.append(thing)
        times.append(time)
        while at:
            parent = (at - 1) >> 1
            if time >= times[parent]:
                break
            things[at], times[at] = things[parent], times[parent]
            at = parent
        things[at], times[at] = thing, time

    def pop(self) -> T:
        things, times = self._things, self._times
        first, thing, time = things[0], things.pop(), times.pop()
        size = len(things)
        if size:
            at, child = 0, 1
            while child < size:
                if child + 1 < size and times[child + 1] < times[child]:
                    child += 1
                if time <= times[child]:
                    break
                things[at], times[at] = things[child], times[child]
                at, child = child, 2 * child + 1
            things[at], times[at] = thing, time
        return first
