"""Aggregations by session: windows that grow as long as the next record comes within the gap."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any

from streamapp.engine.operator import NodeContext, ProcessFn
from streamapp.engine.operators.forward import TableForward, copier_for_old, emit_nothing, nowhere
from streamapp.engine.operators.window_aggregate import Place, WindowedAggregate
from streamapp.records import NO_HEADERS, Headers, Windowed
from streamapp.windows import SessionWindows

__all__ = ["SessionWindowAggregate"]


@dataclass(frozen=True)
class SessionWindowAggregate(WindowedAggregate):
    """Aggregates the values of each key by session. Null values are aggregated, too. Both ends of a session are
    inclusive.

    A record within the gap of one or several sessions joins them to one session. The key of a row contains start and
    end of the session. So a session that grows or merges gets a new row, and each old row a tombstone. A session that
    keeps its bounds also gets a tombstone before its result, unless it begins and ends at the record's time. With a
    record cache, only the last update of each row goes out, at a flush. A result's timestamp is the end of its session.
    Source: ``KStreamSessionWindowAggregate``.
    """

    persistent_name = "SessionWindowAggregate"

    windows: SessionWindows
    _: KW_ONLY
    merger: Callable[[Any, Any, Any], Any]

    @property
    def closes_after_ms(self) -> int:
        return self.windows.grace_ms + self.windows.gap_ms

    def bind_windows(self, store: Any, forward: TableForward) -> Place:
        initializer, aggregator, merger = self.initializer, self.aggregator, self.merger
        find, put, remove = store.find_sessions, store.put, store.remove
        gap = self.windows.gap_ms
        emits = forward is not emit_nothing
        copy = copier_for_old(store, self.send_old and emits)

        def place(key: Any, value: Any, timestamp: int, headers: Headers, close_time: int) -> int:
            start = end = timestamp
            result = initializer()
            merged = list(find(key, timestamp - gap, timestamp + gap))
            for session_start, session_end, session in merged:
                result = merger(key, result, session if copy is None else copy(session))
                start, end = min(start, session_start), max(end, session_end)
            if end < close_time:
                return 1
            result = aggregator(key, value, result)  # before anything is removed: the function may raise
            if start != timestamp or end != timestamp:
                for session_start, session_end, session in merged:
                    remove(key, session_start, session_end, timestamp)
                    if emits:
                        former = Windowed(key, session_start, session_end)
                        forward(former, None, session, session_end, NO_HEADERS)
            put(key, start, end, result, timestamp)
            if emits:
                forward(Windowed(key, start, end), result, None, end, NO_HEADERS)
            return 0

        return place

    def closed_rows(
        self, store: Any, last_close: int, close_time: int
    ) -> Iterable[tuple[Any, Any, int]] | None:
        lower, upper = max(0, last_close), close_time - 1
        if upper < 0 or upper < lower:
            return None
        return ((key, value, key.end) for key, value in store.find_closed(lower, upper))

    def bind_forward(self, ctx: NodeContext, store: Any) -> TableForward:
        forward = super().bind_forward(ctx, store)
        if store.cached and ctx.forward is not nowhere:
            # A session is handed on with its end as the timestamp.
            at_end = self._at_end(ctx.forward, store.spec.headers_format)
            store.set_flush_listener(ctx.handled(at_end), self.send_old)
        return forward

    def _at_end(self, forward: ProcessFn, headers_format: bool) -> TableForward:
        def forward_at_end(key: Any, new: Any, old: Any, timestamp: int, headers: Headers) -> None:
            # In Kafka Streams' headers format the row's headers are handed on, and the row of an aggregate has none.
            forward(
                key,
                (new, old, True),
                key.end,
                NO_HEADERS if headers_format else headers,
            )

        return forward_at_end
