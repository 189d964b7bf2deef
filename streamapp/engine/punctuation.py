"""Punctuators: callbacks at intervals of stream time or of the wall clock."""

from __future__ import annotations

from collections.abc import Callable

from streamapp.engine.java_heap import JavaHeap

__all__ = ["NEVER", "Punctuations", "Schedule"]

NEVER = 2**63
"""Later than every timestamp."""


class Schedule:
    """One punctuator; it can be cancelled."""

    __slots__ = ("callback", "cancelled", "interval", "node", "start", "time")

    def __init__(
        self, node: str, time: int, interval: int, callback: Callable[[int], None], start: int = 0
    ) -> None:
        self.node: str = node
        self.time: int = time
        self.interval: int = interval
        self.start: int = start
        """No call comes before this time."""
        self.callback: Callable[[int], None] = callback
        self.cancelled: bool = False

    def cancel(self) -> None:
        """No further calls."""
        self.cancelled = True

    def go_on(self, now: int) -> None:
        """Moves the time of the next call to the first interval after ``now``, and at least one interval further."""
        missed = max(0, (now - self.time) // self.interval)
        self.time += (missed + 1) * self.interval

    def set_back(self, now: int) -> None:
        """Moves the time of the next call to the first interval after ``now``, but not before ``start``."""
        ahead = max(0, (self.time - now - 1) // self.interval)
        self.time = max(self.start, self.time - ahead * self.interval)


class Punctuations:
    """All punctuators of one clock. ``next_time`` is the time of the next call; the task compares it with its time."""

    def __init__(self) -> None:
        self._heap = JavaHeap[Schedule]()
        self.next_time: int = NEVER

    def add(self, schedule: Schedule) -> None:
        self._heap.push(schedule, schedule.time)
        self._note_next()

    def run(self, now: int, call: Callable[[Schedule, int], None]) -> bool:
        """Calls each punctuator that is due, once even if several intervals have passed.

        Returns True if a punctuator was called.
        """
        called = False
        heap = self._heap
        while (time := heap.earliest) is not None and time <= now:
            schedule = heap.pop()
            if schedule.cancelled:
                continue
            call(schedule, now)
            called = True
            if not schedule.cancelled:
                schedule.go_on(now)
                heap.push(schedule, schedule.time)
        self._note_next()
        return called

    def set_back(self, now: int) -> None:
        """Lets no punctuator wait for longer than its interval, because its clock was set back to ``now``."""
        heap, self._heap = self._heap, JavaHeap()
        while heap.earliest is not None:
            schedule = heap.pop()
            schedule.set_back(now)
            self._heap.push(schedule, schedule.time)
        self._note_next()

    def _note_next(self) -> None:
        earliest = self._heap.earliest
        self.next_time = NEVER if earliest is None else earliest
