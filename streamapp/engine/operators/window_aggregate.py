"""Windowed aggregations: stream time, lateness, final results and idle inputs, the same for every kind of window."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from streamapp.engine.operator import NodeContext, ProcessFn
from streamapp.engine.operators.closing import LateOutput, bind_idle
from streamapp.engine.operators.forward import TableForward, emit_nothing, table_forwarder
from streamapp.records import NO_HEADERS, Headers

__all__ = ["Place", "WindowedAggregate"]

Place = Callable[[Any, Any, int, Headers, int], int]
"""Brings a record into its windows: key, value, timestamp, headers, close time. Returns how many of them are closed."""


@dataclass(frozen=True, kw_only=True)
class WindowedAggregate(LateOutput):
    """Aggregates the values of a key by window. Null keys are dropped.

    This class decides when a window is closed. The *close time* is the operator's stream time less
    ``closes_after_ms``. A window is closed once the close time is past the last timestamp of the window. For each
    closed window, a record is dropped and counted as late. The child for late records gets the record once. With
    ``emit_final`` a window has one result, when it closes (KIP-825).

    Each kind of window has a subclass. `bind_windows` brings a record into its windows. `closed_rows` finds the
    windows that the close time has passed. `bind_forward` hands an update on.
    """

    takes_null_values: ClassVar[bool] = True

    store: str
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    emit_final: bool = False
    send_old: bool = False
    idle_timeout_ms: int | None = None
    """See `bind_idle`."""
    all_or_none: bool = False
    """True: the operator has ``on_error``. If a function raises, the record goes into none of its windows."""

    @property
    @abstractmethod
    def closes_after_ms(self) -> int:
        """The time from the end of a window to its close, in ms: the grace period, and for sessions also the gap."""

    @abstractmethod
    def bind_windows(self, store: Any, forward: TableForward) -> Place:
        """The function that brings a record into its open windows."""

    @abstractmethod
    def closed_rows(
        self, store: Any, last_close: int, close_time: int
    ) -> Iterable[tuple[Any, Any, int]] | None:
        """The windows that closed between two close times: `Windowed` key, value, timestamp of the result.

        ``last_close`` is -1 at first. None: no window can have closed, and ``last_close`` stays as it is.
        """

    def bind_forward(self, ctx: NodeContext, store: Any) -> TableForward:
        """The function that hands on an update of a window."""
        return table_forwarder(ctx, store, self.send_old)

    def bind(self, ctx: NodeContext) -> ProcessFn:
        store, task, drop = ctx.store(self.store), ctx.task, ctx.drop
        delay, takes_null_values = self.closes_after_ms, self.takes_null_values
        place = self.bind_windows(store, emit_nothing if self.emit_final else self.bind_forward(ctx, store))
        emit_closed = self._bind_final(ctx, store) if self.emit_final else None
        too_late = self.bind_late(ctx)
        observed = -1

        def stream_time() -> int:
            return observed

        observed = task.remember(f"{ctx.name}.stream-time", stream_time)

        def aggregate(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            nonlocal observed
            if key is None or (value is None and not takes_null_values):
                drop("null_key" if key is None else "null_value")
                return
            if timestamp > observed:
                observed = timestamp
            closed = place(key, value, timestamp, headers, observed - delay)
            if closed:
                drop("late", closed)
                if too_late is not None:
                    too_late(key, value, timestamp, headers)
            if emit_closed is not None:
                emit_closed(observed - delay, headers)

        def advance(elapsed: int) -> None:
            nonlocal observed
            if observed >= 0:
                observed += elapsed
                if emit_closed is not None:
                    emit_closed(observed - delay, NO_HEADERS)

        return bind_idle(ctx, self.idle_timeout_ms, aggregate, advance)

    def _bind_final(self, ctx: NodeContext, store: Any) -> Callable[[int, Headers], None]:
        forward, closed_rows = ctx.forward, self.closed_rows
        last_close = -1

        def last() -> int:
            return last_close

        last_close = ctx.task.remember(self.store, last)

        def emit_closed(close_time: int, headers: Headers) -> None:
            nonlocal last_close
            if last_close != -1 and last_close >= close_time:
                return
            rows = closed_rows(store, last_close, close_time)
            if rows is None:
                return
            for key, value, timestamp in rows:
                forward(key, (value, None, True), timestamp, headers)
            last_close = close_time

        return emit_closed
