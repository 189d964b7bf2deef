"""Aggregations by session: windows that grow while records follow each other closely."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamapp.engine.operator import NodeContext, ProcessFn
from streamapp.engine.operators.closing import ClosingOperator, bind_idle
from streamapp.engine.operators.forward import TableForward, emit_nothing, table_forwarder
from streamapp.records import NO_HEADERS, Headers, Windowed
from streamapp.windows import SessionWindows

__all__ = ["SessionWindowAggregate"]


@dataclass(frozen=True)
class SessionWindowAggregate(ClosingOperator):
    """Folds the values of a key by session. Null keys are dropped, null values are not.

    A record within the gap of one or several sessions joins and merges them: each merged session is deleted (a
    tombstone), also when it only grows. A record whose session would end before stream time - gap - grace is dropped.
    A result's timestamp is the session's end. Source: KStreamSessionWindowAggregate.
    """

    persistent_name = "SessionWindowAggregate"

    windows: SessionWindows
    store: str
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    merger: Callable[[Any, Any, Any], Any]
    emit_final: bool = False
    send_old: bool = False

    def bind(self, ctx: NodeContext) -> ProcessFn:
        store, task, drop = ctx.store(self.store), ctx.task, ctx.task.drop
        initializer, aggregator, merger = self.initializer, self.aggregator, self.merger
        gap, grace = self.windows.gap_ms, self.windows.grace_ms
        forward: TableForward = (
            emit_nothing if self.emit_final else table_forwarder(ctx, store, self.send_old)
        )
        if store.cached and not self.emit_final:
            # The cache hands a session on with the time of the record that changed it; its own time is its end.
            store.set_flush_listener(ctx.handled(self._at_end(ctx.forward, store.spec.headers_format)))
        find, put, remove = store.find_sessions, store.put, store.remove
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
            close_time = observed - grace - gap
            start = end = timestamp
            result = initializer()
            merged = list(find(key, timestamp - gap, timestamp + gap))
            for session_start, session_end, session in merged:
                result = merger(key, result, session)
                start, end = min(start, session_start), max(end, session_end)
            if end < close_time:
                drop()
                if too_late is not None:
                    too_late(key, value, timestamp, headers)
            else:
                if start != timestamp or end != timestamp:
                    for session_start, session_end, session in merged:
                        remove(key, session_start, session_end, timestamp)
                        forward(
                            Windowed(key, session_start, session_end), None, session, session_end, NO_HEADERS
                        )
                result = aggregator(key, value, result)
                put(key, start, end, result, timestamp)
                forward(Windowed(key, start, end), result, None, end, NO_HEADERS)
            if emit_closed is not None:
                emit_closed(close_time, headers)

        def advance(elapsed: int) -> None:
            nonlocal observed
            if observed >= 0:
                observed += elapsed
                if emit_closed is not None:
                    emit_closed(observed - grace - gap, NO_HEADERS)

        return bind_idle(ctx, self.idle_timeout_ms, aggregate, advance)

    def _at_end(self, forward: ProcessFn, headers_format: bool) -> TableForward:
        send_old = self.send_old

        def forward_at_end(key: Any, new: Any, old: Any, timestamp: int, headers: Headers) -> None:
            # In Kafka Streams' headers format the row's own headers go on, and an aggregate has none.
            forward(
                key,
                (new, old if send_old else None, True),
                key.end,
                NO_HEADERS if headers_format else headers,
            )

        return forward_at_end

    def _bind_final(self, ctx: NodeContext, store: Any) -> Callable[[int, Headers], None]:
        forward = ctx.forward
        last_close = -1

        def last() -> int:
            return last_close

        last_close = ctx.task.remember(self.store, last)

        def emit_closed(close_time: int, headers: Headers) -> None:
            nonlocal last_close
            if last_close != -1 and last_close >= close_time:
                return
            lower, upper = max(0, last_close), close_time - 1
            if upper < 0 or upper < lower:
                return
            for key, value in store.find_closed(lower, upper):
                forward(key, (value, None, True), key.end, headers)
            last_close = close_time

        return emit_closed
