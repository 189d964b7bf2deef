"""`Alarm`: the punctuator of an operator whose records wait until a time of the wall clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamapp.engine.operator import TaskContext
from streamapp.engine.processor import PunctuationType

__all__ = ["Alarm"]


class Alarm:
    """Calls a function of an operator once, at a time that can be set again. Without a time, nothing is scheduled."""

    def __init__(self, task: TaskContext, name: str, call: Callable[[int], None]) -> None:
        self._task = task
        self._name = name
        self._call = call
        self._schedule: Any = None

    @property
    def time(self) -> int | None:
        """The time of the next call, in ms. None: no call comes. Any thread may ask."""
        schedule = self._schedule
        return None if schedule is None else schedule.time

    def set(self, due: int | None) -> None:
        """Lets the call come at ``due`` (ms), in the next ms at the earliest. An earlier call stays.

        None sets nothing.
        """
        if due is None:
            return
        due = max(due, self._task.wall_clock_ms() + 1)
        if self._schedule is not None:
            if self._schedule.time <= due:
                return
            self._schedule.cancel()
        self._schedule = self._task.schedule(self._name, 1, PunctuationType.WALL_CLOCK_TIME, self._ring, due)

    def _ring(self, now: int) -> None:
        self._schedule.cancel()
        self._schedule = None
        self._call(now)
