"""Aggregations by sliding windows (KIP-450): windows that a record opens by arriving."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from streamapp.engine.operator import NodeContext, ProcessFn
from streamapp.engine.operators.closing import ClosingOperator, bind_idle
from streamapp.engine.operators.forward import TableForward, emit_nothing, table_forwarder
from streamapp.errors import StreamsError
from streamapp.records import NO_HEADERS, Headers, Windowed
from streamapp.windows import SlidingWindows

__all__ = ["SlidingWindowAggregate"]

_Row = tuple[Any, int]
"""An aggregate and the largest timestamp in it."""


@dataclass(frozen=True)
class SlidingWindowAggregate(ClosingOperator):
    """Folds the values of a key by all distinct windows of one length that hold a record.

    A record at t belongs to its *left* window [t - d, t], opens the *right* windows (t, t + d] of itself (if a later record is
    there already) and of the record before it, and joins every window that holds t. Windows never start
    before 0: records earlier than d share the window [0, d]. Null keys and values are dropped, and so is a record whose right
    window would already be closed. Source: KStreamSlidingWindowAggregate.
    """

    persistent_name = "SlidingWindowAggregate"

    windows: SlidingWindows
    store: str
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    emit_final: bool = False
    send_old: bool = False

    def bind(self, ctx: NodeContext) -> ProcessFn:
        store, task, drop = ctx.store(self.store), ctx.task, ctx.task.drop
        difference, grace = self.windows.difference_ms, self.windows.grace_ms
        forward = emit_nothing if self.emit_final else table_forwarder(ctx, store, self.send_old)
        too_late = self.bind_late(ctx)
        update = _WindowUpdate(self, store, forward, drop, too_late)
        observed = -1

        def stream_time() -> int:
            return observed

        observed = task.remember(f"{ctx.name}.stream-time", stream_time)
        emit_closed = self._bind_final(ctx, store) if self.emit_final else None

        def aggregate(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            nonlocal observed
            if key is None or value is None:
                drop()
                return
            if timestamp > observed:
                observed = timestamp
            close_time = observed - grace
            if timestamp + difference < close_time:
                drop()
                if too_late is not None:
                    too_late(key, value, timestamp, headers)
                return
            update.begin(key, value, timestamp, headers, close_time)
            if timestamp < difference:
                update.early()
                return
            update.regular()
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
        forward, difference = ctx.forward, self.windows.difference_ms
        last_close = -1

        def last() -> int:
            return last_close

        last_close = ctx.task.remember(self.store, last)

        def emit_closed(close_time: int, headers: Headers) -> None:
            nonlocal last_close
            if last_close != -1 and last_close >= close_time:
                return
            upper = close_time - difference - 1
            if upper < 0:
                return
            lower = 0 if last_close == -1 else max(0, last_close - difference)
            for key, value, timestamp in store.fetch_all(lower, upper):
                forward(key, (value, None, True), timestamp, headers)
            last_close = close_time

        return emit_closed


class _WindowUpdate:
    """Brings one record into the windows of its key. One instance is used again for each record of a task."""

    key: Any
    value: Any
    timestamp: int
    headers: Headers
    close_time: int

    def __init__(
        self,
        operator: SlidingWindowAggregate,
        store: Any,
        forward: TableForward,
        drop: Callable[[], None],
        too_late: ProcessFn | None,
    ) -> None:
        self.difference = operator.windows.difference_ms
        self.initializer, self.aggregator = operator.initializer, operator.aggregator
        self.fetch, self.put, self.forward, self.drop = store.fetch, store.put, forward, drop
        self.too_late = too_late
        self.told_late = False

    def begin(self, key: Any, value: Any, timestamp: int, headers: Headers, close_time: int) -> None:
        self.key, self.value, self.timestamp, self.headers, self.close_time = (
            key,
            value,
            timestamp,
            headers,
            close_time,
        )
        self.told_late = False

    def regular(self) -> None:
        """A record whose left window starts at 0 or later: goes through its windows from the newest to the oldest."""
        timestamp, difference = self.timestamp, self.difference
        starts: set[int] = set()
        right: _Row | None = None
        left: _Row | None = None
        left_exists = right_exists = False
        previous: int | None = None
        newest_first: Iterable[tuple[int, Any, int]] = list(
            self.fetch(self.key, max(0, timestamp - 2 * difference), timestamp + 1, reverse=True)
        )
        for start, aggregate, latest in newest_first:
            starts.add(start)
            end = start + difference
            if start == timestamp + 1:
                right_exists = True
            elif end > timestamp:
                right = right or (aggregate, latest)
                self.add_to(start, (aggregate, latest))
            elif end == timestamp:
                left_exists = True
                self.add_to(start, (aggregate, latest))
                if latest >= timestamp:
                    return  # another record of this very time has made all the windows already
                previous = latest
            else:
                left, previous = (aggregate, latest), latest
                break
        if previous is not None and previous + 1 not in starts and previous + 1 + difference >= timestamp:
            self.add_to(previous + 1, (self.initializer(), timestamp))
        if not left_exists:
            joins_previous = left is not None and previous is not None and timestamp - difference <= previous
            base = left[0] if joins_previous and left is not None else self.initializer()
            self.add_to(timestamp - difference, (base, timestamp))
        if not right_exists:
            self.open_right(right)

    def early(self) -> None:
        """A record earlier than the length of a window: it belongs to [0, d], whatever else there is."""
        timestamp = self.timestamp
        starts: set[int] = set()
        combined: _Row | None = None
        right: _Row | None = None
        right_exists = False
        previous: int | None = None
        for start, aggregate, latest in list(self.fetch(self.key, 0, timestamp + 1)):
            starts.add(start)
            if start == 0:
                combined = (aggregate, latest)
                if latest < timestamp:
                    previous = latest
            elif start <= timestamp:
                right = (aggregate, latest)
                self.add_to(start, right)
            else:
                right_exists = True
        if right is None and combined is not None and combined[1] > timestamp:
            right = combined
        if not right_exists:
            self.open_right(right)
        if previous is not None and previous + 1 not in starts:
            self.add_to(previous + 1, (self.initializer(), timestamp))
        self.add_to(0, combined or (self.initializer(), timestamp))

    def open_right(self, right: _Row | None) -> None:
        """Opens (t, t + d] if records later than t are there; they are those of the window that was found."""
        if right is None or right[1] <= self.timestamp:
            return
        start = self.timestamp + 1
        self.put(self.key, right[0], start, right[1])
        self.forward(
            Windowed(self.key, start, start + self.difference), right[0], None, right[1], self.headers
        )

    def add_to(self, start: int, row: _Row) -> None:
        """Folds the record into one window."""
        end = start + self.difference
        if end <= start:
            raise StreamsError(
                "sliding windows with a time difference of 0 ms hold nothing: a window's end must be after its start; "
                "use a difference of at least 1 ms"
            )
        if end < self.close_time:
            self.drop()
            if self.too_late is not None and not self.told_late:
                self.told_late = True
                self.too_late(self.key, self.value, self.timestamp, self.headers)
            return
        old = row[0]
        new = self.aggregator(self.key, self.value, old)
        timestamp = self.timestamp if old is None else max(self.timestamp, row[1])
        self.put(self.key, new, start, self.timestamp if new is None else timestamp)
        self.forward(Windowed(self.key, start, end), new, old, timestamp, self.headers)
