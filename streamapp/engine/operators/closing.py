"""Two additions to Kafka Streams: late records as a side output, and time that goes on while the input is quiet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamapp.engine.operator import NodeContext, Operator, ProcessFn
from streamapp.engine.processor import PunctuationType
from streamapp.records import Headers

__all__ = ["LateOutput", "bind_idle"]

_LONGEST_CHECK_MS = 1000


@dataclass(frozen=True, kw_only=True)
class LateOutput(Operator):
    """An operator that hands records that are too late for it to the child named ``late``, each once.

    A record is late for an aggregation if at least one of its windows was closed to it.
    """

    late: str | None = None

    @property
    def side_outputs(self) -> tuple[str, ...]:
        return () if self.late is None else (self.late,)

    def bind_late(self, ctx: NodeContext) -> ProcessFn | None:
        """The way to the child that gets late records, if there is one."""
        return None if self.late is None else ctx.forward_to(self.late)


def bind_idle(
    ctx: NodeContext, timeout_ms: int | None, process: ProcessFn, advance: Callable[[int], None]
) -> ProcessFn:
    """The function that handles a record and notes when. While the input is quiet ``advance(elapsed ms)`` is called.

    Once no record has come for ``timeout_ms``, time goes on from where it is, by as much as the wall clock has moved since the
    last record. Without a time-out it is ``process`` itself: the clock is only asked where the option is used.
    """
    if timeout_ms is None:
        return process
    clock = ctx.task.wall_clock_ms
    last = told = clock()

    def process_and_note(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        nonlocal last, told
        last = told = clock()
        process(key, value, timestamp, headers)

    def check(now: int) -> None:
        nonlocal told
        if now - last >= timeout_ms:
            elapsed, told = now - told, now
            advance(elapsed)

    interval = max(1, min(timeout_ms // 10, _LONGEST_CHECK_MS))
    ctx.task.schedule(ctx.name, interval, PunctuationType.WALL_CLOCK_TIME, check)
    return process_and_note
