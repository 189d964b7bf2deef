"""Two additions to Kafka Streams: late records as a stream of their own, and windows that close without new input."""

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
    """The base of operators that can hand late records to a child, each record once.

    ``late`` is the name of this child; None: there is no such child. A record is late for an aggregation if at least
    one of its windows is closed. The aggregation still adds the record to its open windows. A record is late for a join
    if its window is closed.
    """

    late: str | None = None

    @property
    def side_outputs(self) -> tuple[str, ...]:
        return () if self.late is None else (self.late,)

    def bind_late(self, ctx: NodeContext) -> ProcessFn | None:
        """The function that hands a record to the child for late records; None: there is no such child."""
        return None if self.late is None else ctx.forward_to(self.late)


def bind_idle(
    ctx: NodeContext, timeout_ms: int | None, process: ProcessFn, advance: Callable[[int], None]
) -> ProcessFn:
    """``process``, together with a punctuator that advances time while no records come.

    After ``timeout_ms`` without a record, ``advance(elapsed)`` is called at intervals until the next record.
    ``elapsed`` is the time on the wall clock since the last record or the last call, in ms. Jumps of the clock, and
    times in which the task did not work, do not count. If ``timeout_ms`` is None, the result is ``process`` itself.
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

    def follow(by_ms: int) -> None:
        nonlocal last, told
        now, passed_over = clock(), max(0, by_ms)
        last, told = min(last + passed_over, now), min(told + passed_over, now)

    ctx.task.follow_clock(follow)
    interval = max(1, min(timeout_ms // 10, _LONGEST_CHECK_MS))
    ctx.task.schedule(ctx.name, interval, PunctuationType.WALL_CLOCK_TIME, check)
    return process_and_note
