"""Punctuators: callbacks at intervals of stream time or of the wall clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

__all__ = ["NEVER", "Punctuations", "Schedule"]

NEVER = 2**63
"""Later than every timestamp."""


class Schedule:
    """One punctuator; it can be cancelled."""

    __slots__ = ("callback", "cancelled", "interval", "node", "time")

    def __init__(self, node: str, time: int, interval: int, callback: Callable[[int], None]) -> None:
        self.node, self.time, self.interval, self.callback = node, time, interval, callback
        self.cancelled = False

    def cancel(self) -> None:
        """No further calls."""
        self.cancelled = True


class Punctuations:
    """All punctuators of one clock, the next one first. ``next_time`` is compared with each record's timestamp."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Schedule]] = []
        self._order = count()
        self.next_time = NEVER

    def add(self, schedule: Schedule) -> None:
        heapq.heappush(self._heap, (schedule.time, next(self._order), schedule))
        self.next_time = self._heap[0][0]

    def run(self, now: int, call: Callable[[Schedule, int], None]) -> bool:
        """Calls what is due, each once however many intervals have passed; returns whether there was any."""
        called = False
        while self._heap and self._heap[0][0] <= now:
            schedule = heapq.heappop(self._heap)[2]
            if schedule.cancelled:
                continue
            call(schedule, now)
            called = True
            if not schedule.cancelled:
                missed = max(0, (now - schedule.time) // schedule.interval)
                schedule.time += (missed + 1) * schedule.interval
                heapq.heappush(self._heap, (schedule.time, next(self._order), schedule))
        self.next_time = self._heap[0][0] if self._heap else NEVER
        return called
