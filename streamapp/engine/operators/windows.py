"""Aggregations by tumbling, hopping and unlimited windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamapp.engine.operator import NodeContext, ProcessFn
from streamapp.engine.operators.closing import ClosingOperator, bind_idle
from streamapp.engine.operators.forward import TableForward, emit_nothing, table_forwarder
from streamapp.records import NO_HEADERS, Headers, Windowed
from streamapp.windows import TimeWindows, UnlimitedWindows

__all__ = ["WindowAggregate"]

_new_tuple = tuple.__new__


@dataclass(frozen=True)
class WindowAggregate(ClosingOperator):
    """Folds the values of a key by window. Null keys are dropped, null values are not.

    A window takes records until stream time, as this operator has seen it, reaches its end + grace; a record that is late for
    a window is dropped for that window and counted. With ``emit_final`` nothing is emitted before a window closes, and then
    one result (KIP-825). Source: KStreamWindowAggregate.
    """

    persistent_name = "WindowAggregate"

    windows: TimeWindows | UnlimitedWindows
    store: str
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    emit_final: bool = False
    send_old: bool = False

    def bind(self, ctx: NodeContext) -> ProcessFn:
        store, task = ctx.store(self.store), ctx.task
        drop = task.drop
        size, grace, starts_of = self.windows.size_ms, self.windows.grace_ms, self.windows.windows_for
        if isinstance(self.windows, UnlimitedWindows):
            size -= self.windows.start_ms  # they all end at the last millisecond there is
        tumbling = isinstance(self.windows, TimeWindows) and self.windows.advance_ms == size
        forward: TableForward = (
            emit_nothing if self.emit_final else table_forwarder(ctx, store, self.send_old)
        )
        emits = forward is not emit_nothing
        fold = store.folder(self.initializer, self.aggregator)
        observed = -1

        def stream_time() -> int:
            return observed

        observed = task.remember(f"{ctx.name}.stream-time", stream_time)
        emit_closed = self._bind_final(ctx, store) if self.emit_final else None
        too_late = self.bind_late(ctx)

        def aggregate(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            nonlocal observed
            if key is None:
                drop()
                return
            if timestamp > observed:
                observed = timestamp
            close_time = observed - grace
            for start in (timestamp - timestamp % size,) if tumbling else starts_of(timestamp):
                end = start + size
                if end <= close_time:
                    drop()
                    if too_late is not None and (tumbling or start == starts_of(timestamp)[0]):
                        too_late(key, value, timestamp, headers)
                    continue
                new, old, latest = fold(key, start, value, timestamp)
                if emits:
                    forward(_new_tuple(Windowed, (key, start, end)), new, old, latest, headers)
            if emit_closed is not None:
                emit_closed(close_time, headers)

        def advance(elapsed: int) -> None:
            nonlocal observed
            if observed >= 0:
                observed += elapsed
                if emit_closed is not None:
                    emit_closed(observed - grace, NO_HEADERS)

        return bind_idle(ctx, self.idle_timeout_ms, aggregate, advance)

    def _bind_final(self, ctx: NodeContext, store: Any) -> Callable[[int, Headers], None]:
        forward, size, starts_of = ctx.forward, self.windows.size_ms, self.windows.windows_for
        last_close = -1

        def last() -> int:
            return last_close

        last_close = ctx.task.remember(self.store, last)

        def emit_closed(close_time: int, headers: Headers) -> None:
            nonlocal last_close
            if last_close != -1 and last_close >= close_time:
                return
            upper = close_time - size
            if upper < 0:
                return
            lower = 0 if last_close == -1 else max(0, last_close - size) + 1
            if last_close != -1 and starts_of(upper) == starts_of(lower - 1):
                return  # the close time has not yet passed another window's end
            for key, value, timestamp in store.fetch_all(lower, upper):
                forward(key, (value, None, True), timestamp, headers)
            last_close = close_time

        return emit_closed
