"""Java's PriorityQueue, where the order of equals is part of the semantics."""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["JavaHeap"]

T = TypeVar("T")


class JavaHeap(Generic[T]):
    """Things by their times, the earliest first, in the moves of Java's PriorityQueue.

    Which of several equal times comes first follows from these moves, so what Kafka Streams keeps in such a queue (the heads of a task's
    inputs in PartitionGroup, its punctuators in PunctuationQueue) comes in the same order here.

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
        """The earliest time; None: there is nothing."""
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
