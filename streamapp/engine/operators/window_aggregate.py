"""The base of all windowed aggregations: stream time, late records, final results and idle inputs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from streamapp.engine.metadata import STREAM_TIME
from streamapp.engine.operator import NodeContext, ProcessFn
from streamapp.engine.operators.closing import LateOutput, bind_idle
from streamapp.engine.operators.forward import TableForward, emit_nothing, table_forwarder
from streamapp.records import NO_HEADERS, Headers

__all__ = ["Place", "WindowedAggregate"]

Place = Callable[[Any, Any, int, Headers, int], int]
"""Adds a record to its open windows, and returns the number of its windows that are already closed. The arguments are
key, value, timestamp, headers, close time."""


@dataclass(frozen=True, kw_only=True)
class WindowedAggregate(LateOutput):
    """Aggregates the values of a key by window. Null keys are dropped.

    This class decides when a window is closed. The *close time* is the operator's stream time minus ``closes_after_ms``
    (the grace period, and for sessions also the gap). A window is closed when the close time is past the last timestamp
    of the window. A record is not added to its closed windows, and is counted as late for each closed window. The child
    for late records gets the record only once. With ``emit_final`` a window has a single result, which is emitted when
    the window closes (KIP-825).

    Each kind of window has a subclass. `bind_windows` adds a record to its windows. `closed_rows` finds the windows
    that the close time has passed. `bind_forward` hands an update on.
    """

    drops: ClassVar[tuple[str, ...]] = ("late", "null_key", "null_value")

    takes_null_values: ClassVar[bool] = True

    store: str
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    emit_final: bool = False
    send_old: bool = False
    idle_timeout_ms: int | None = None
    """The time without records after which the windows close by the wall clock; None: never (`bind_idle`)."""
    all_or_none: bool = False
    """True for an operator with ``on_error``: if a function raises, the record is added to none of its windows."""

    @property
    @abstractmethod
    def closes_after_ms(self) -> int:
        """The time from the end of a window to its close, in ms: the grace period, and for sessions also the gap."""

    @abstractmethod
    def bind_windows(self, store: Any, forward: TableForward) -> Place:
        """The function that adds a record to its open windows."""

    @abstractmethod
    def closed_rows(
        self, store: Any, last_close: int, close_time: int
    ) -> Iterable[tuple[Any, Any, int]] | None:
        """The windows that closed between the close times ``last_close`` and ``close_time``, as (`Windowed` key, value,
        timestamp of the result).

        ``last_close`` is the ``close_time`` of the last call whose result was not None, or -1 at first. The result None
        means that no window can have closed.
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

        observed = task.remember(f"{ctx.name}{STREAM_TIME}", stream_time)

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
