"""Suppression (KIP-328): holds the updates of a table back until a window closes, or for a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from streamapp._base.counted import counted
from streamapp.engine.metadata import STREAM_TIME
from streamapp.engine.operator import NodeContext, Operator, ProcessFn, ValueGetter
from streamapp.engine.operators.closing import bind_idle
from streamapp.engine.operators.views import TableView
from streamapp.errors import RecordTooLateError
from streamapp.records import Headers, RecordContext

__all__ = ["SuppressView", "TableSuppress"]


@dataclass(frozen=True)
class TableSuppress(Operator):
    """Buffers the latest update of each key, and emits it when stream time is ``wait_ms`` past the key's time.

    The time of a key is the timestamp of its first buffered update, or for final results the end of its window. For
    final results, the deletion of a window is not emitted, because no result of the window was emitted before. If the
    buffer exceeds its limits, the oldest updates are emitted early, or with ``shut_down_when_full`` the operator raises
    `RecordTooLateError`. Source: ``KTableSuppressProcessorSupplier``.

    With ``idle_timeout_ms``, windows also close by the wall clock while there is no input. Later updates of such a
    window are dropped, so that each window has only one final result.
    """

    persistent_name = "TableSuppress"
    drops: ClassVar[tuple[str, ...]] = ("late",)

    store: str
    wait_ms: int
    until_window_closes: bool
    max_records: int | None = None
    max_bytes: int | None = None
    shut_down_when_full: bool = False
    idle_timeout_ms: int | None = None

    def bind(self, ctx: NodeContext) -> ProcessFn:
        buffer, task, forward = ctx.store(self.store), ctx.task, ctx.handled(ctx.forward)
        wait, by_window = self.wait_ms, self.until_window_closes
        limited = self.max_records is not None or self.max_bytes is not None
        observed = -1

        def stream_time() -> int:
            return observed

        observed = task.remember(f"{ctx.name}{STREAM_TIME}", stream_time)

        def is_due() -> bool:
            return bool(buffer.min_timestamp <= observed - wait)

        def is_over() -> bool:
            return (self.max_records is not None and buffer.num_records > self.max_records) or (
                self.max_bytes is not None and buffer.buffer_size > self.max_bytes
            )

        def emit(key: Any, new: Any, old: Any, context: RecordContext) -> None:
            if new is None and by_window:
                return
            task.work_as(context, forward, key, (new, old, True), context.timestamp, context.headers)

        def suppress(key: Any, change: Any, timestamp: int, headers: Headers) -> None:
            nonlocal observed
            if timestamp > observed:
                observed = timestamp
            buffer.put(key.end if by_window else timestamp, key, change[0], change[1], timestamp, headers)
            if is_due():
                buffer.evict_while(is_due, emit)
            if limited and is_over():
                if self.shut_down_when_full:
                    records = _of(buffer.num_records, self.max_records, "record")
                    size = _of(buffer.buffer_size, self.max_bytes, "byte")
                    raise RecordTooLateError(
                        f"the buffer of {ctx.name} is full: it holds {records} and {size}. "
                        'Allow more, or when_full="emit_early"'
                    )
                buffer.evict_while(is_over, emit)

        if self.idle_timeout_ms is None:
            return suppress
        closed = -1

        def closed_until() -> int:
            return closed

        closed = task.remember(f"{ctx.name}.closed-until", closed_until)

        def suppress_open(key: Any, change: Any, timestamp: int, headers: Headers) -> None:
            if key.end <= closed:
                ctx.drop("late")
            else:
                suppress(key, change, timestamp, headers)

        def advance(elapsed: int) -> None:
            nonlocal observed, closed
            if observed >= 0:
                observed += elapsed
                closed = observed - wait
                buffer.evict_while(is_due, emit)

        return bind_idle(ctx, self.idle_timeout_ms, suppress_open, advance)


@dataclass(frozen=True)
class SuppressView(TableView):
    """The table behind a suppression, as joins read it: without the updates that the suppression holds back."""

    parent: TableView
    store: str

    @property
    def store_names(self) -> tuple[str, ...]:
        return (self.store, *self.parent.store_names)

    def bind(self, ctx: NodeContext) -> ValueGetter:
        buffer, read = ctx.store(self.store), self.parent.bind(ctx)

        def get(key: Any) -> tuple[Any, int] | None:
            prior = buffer.prior_value(key)
            if prior is None:
                return read(key)
            return None if prior[0] is None else (prior[0], -1)

        return get


def _of(count: int, bound: int | None, noun: str) -> str:
    return counted(count, noun) if bound is None else f"{count:,} of {counted(bound, noun)}"
