"""Aggregations by sliding windows (KIP-450), whose bounds follow from the timestamps of the records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any

from streamapp.engine.operators.forward import TableForward, copier, copier_for_old, emit_nothing
from streamapp.engine.operators.window_aggregate import Place, WindowedAggregate
from streamapp.errors import StreamsError
from streamapp.records import Headers, Windowed
from streamapp.windows import SlidingWindows

__all__ = ["SlidingWindowAggregate"]

_Row = tuple[Any, int]
"""An aggregate and the largest timestamp in it."""


@dataclass(frozen=True)
class SlidingWindowAggregate(WindowedAggregate):
    """Aggregates the values of each key by sliding windows of length d (``difference_ms``).

    Both ends of a window are inclusive. A record at t has a *left* window [t - d, t] and a *right* window
    [t + 1, t + 1 + d]. A right window exists only if a record is in it. So a new record opens its own left window and,
    if t is in it, the right window of the record before. If a later record within t + 1 + d is there already, the new
    record also opens its own right window. The record is added to every window that contains t and is not closed.

    No window starts before 0, so records earlier than d share the window [0, d]. Null values are dropped. If t + d is
    before the close time, the record is in no window. Source: ``KStreamSlidingWindowAggregate``.
    """

    persistent_name = "SlidingWindowAggregate"
    takes_null_values = False

    windows: SlidingWindows
    _: KW_ONLY

    @property
    def closes_after_ms(self) -> int:
        return self.windows.grace_ms

    def bind_windows(self, store: Any, forward: TableForward) -> Place:
        difference, update = self.windows.difference_ms, _WindowUpdate(self, store, forward)

        def place(key: Any, value: Any, timestamp: int, headers: Headers, close_time: int) -> int:
            if timestamp + difference < close_time:
                return 1
            update.begin(key, value, timestamp, headers, close_time)
            if timestamp < difference:
                update.early()
            else:
                update.regular()
            update.write()
            return update.closed

        return place

    def closed_rows(
        self, store: Any, last_close: int, close_time: int
    ) -> Iterable[tuple[Any, Any, int]] | None:
        difference = self.windows.difference_ms
        upper = close_time - difference - 1
        if upper < 0:
            return None
        lower = 0 if last_close == -1 else max(0, last_close - difference)
        return store.find_closed(lower, upper)  # type: ignore[no-any-return]


class _WindowUpdate:
    """Adds one record to the windows of its key. A task uses one instance for all records, one after the other."""

    key: Any
    value: Any
    timestamp: int
    headers: Headers
    close_time: int
    closed: int
    """The number of the record's windows that are closed."""

    def __init__(self, operator: SlidingWindowAggregate, store: Any, forward: TableForward) -> None:
        self.difference = operator.windows.difference_ms
        self.initializer, self.aggregator = operator.initializer, operator.aggregator
        self.scan_key, self.put, self.forward = store.scan_key, store.put, forward
        self.emits = forward is not emit_nothing
        self.copy = copier(store)
        self.keep_old = copier_for_old(store, operator.send_old and self.emits) is not None
        self.writes: list[tuple[int, Any, Any, int, int]] = []
        """For each window: start, new and old aggregate, time of the row, time of the result."""

    def begin(self, key: Any, value: Any, timestamp: int, headers: Headers, close_time: int) -> None:
        self.key, self.value, self.timestamp, self.headers, self.close_time = (
            key,
            value,
            timestamp,
            headers,
            close_time,
        )
        self.closed = 0
        self.writes.clear()

    def write(self) -> None:
        """Writes the windows and hands them on.

        All calls of the user's function come before, so if the function raises, no window has the record.
        """
        for start, new, old, put_at, timestamp in self.writes:
            self.put(self.key, new, start, put_at)
            if self.emits:
                window = Windowed(self.key, start, start + self.difference)
                self.forward(window, new, old, timestamp, self.headers)

    def regular(self) -> None:
        """Places a record whose left window starts at 0 or later. Windows are read from the newest to the oldest."""
        timestamp, difference = self.timestamp, self.difference
        starts: set[int] = set()
        right: _Row | None = None
        left: _Row | None = None
        left_exists = right_exists = False
        previous: int | None = None
        newest_first: Iterable[tuple[int, Any, int]] = self.scan_key(
            self.key, max(0, timestamp - 2 * difference), timestamp + 1, reverse=True
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
                    return  # another record with this timestamp has opened all windows already
                previous = latest
            else:
                left, previous = (aggregate, latest), latest
                break
        if previous is not None and previous + 1 not in starts and previous + 1 + difference >= timestamp:
            self.add_to(previous + 1, None)
        if not left_exists:
            joins_previous = left is not None and previous is not None and timestamp - difference <= previous
            base = (left[0], timestamp) if joins_previous and left is not None else None
            self.add_to(timestamp - difference, base)
        if not right_exists:
            self.open_right(right)

    def early(self) -> None:
        """Places a record earlier than d, the length of a window. The record always belongs to [0, d]."""
        timestamp = self.timestamp
        starts: set[int] = set()
        combined: _Row | None = None
        right: _Row | None = None
        right_exists = False
        previous: int | None = None
        for start, aggregate, latest in self.scan_key(self.key, 0, timestamp + 1):
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
            self.add_to(previous + 1, None)
        self.add_to(0, combined)

    def open_right(self, right: _Row | None) -> None:
        """Opens the right window of t with the aggregate of ``right``, if ``right`` has a record later than t."""
        if right is None or right[1] <= self.timestamp:
            return
        self.writes.append((self.timestamp + 1, right[0], None, right[1], right[1]))

    def add_to(self, start: int, row: _Row | None) -> None:
        """Adds the record to the aggregate of one window. None: the aggregate is the initializer's value.

        `open_right` may need the same aggregate without the record, but only of a row with a later record.
        """
        end = start + self.difference
        if end <= start:
            raise StreamsError(
                "sliding windows with a time difference of 0 ms hold nothing: a window's end must be after its start. "
                "Use a difference of at least 1 ms"
            )
        if end < self.close_time:
            self.closed += 1
            return
        if row is None:
            old, latest = self.initializer(), self.timestamp
            before = self.initializer() if self.keep_old else old
        else:
            old, latest = row
            before = old
            if self.copy is not None and (self.keep_old or latest > self.timestamp):
                before = self.copy(old)
        new = self.aggregator(self.key, self.value, before)
        timestamp = self.timestamp if old is None else max(self.timestamp, latest)
        self.writes.append((start, new, old, self.timestamp if new is None else timestamp, timestamp))
