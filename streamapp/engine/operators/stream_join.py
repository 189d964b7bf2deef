"""Windowed joins of two streams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from streamapp.engine.equality import same
from streamapp.engine.metadata import STREAM_TIME
from streamapp.engine.operator import NodeContext, Operator, ProcessFn
from streamapp.engine.operators.closing import LateOutput
from streamapp.records import Headers

__all__ = ["StreamJoinWindow", "StreamStreamJoin", "StreamStreamSelfJoin"]

_NEVER = 2**63 - 1


@dataclass(frozen=True)
class StreamJoinWindow(Operator):
    """Stores the records of one side, so that later records of the other side can join them.

    A record is handed on before it is stored. So if both sides are the same stream, a record joins itself only once.
    """

    persistent_name = "StreamJoinWindow"

    store: str

    def bind(self, ctx: NodeContext) -> ProcessFn:
        put, forward = ctx.store(self.store).put, ctx.forward

        def keep(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            forward(key, value, timestamp, headers)
            if key is not None:
                put(key, value, timestamp, timestamp, headers)

        return keep


class _JoinTime:
    """The stream time of one join, which both of its sides share."""

    def __init__(self) -> None:
        self.stream_time = -1
        self.earliest_unmatched = _NEVER
        """The timestamp in ms of an unmatched record. The join looks for unmatched records when this record's window
        is closed, to save a scan for each record. As in Kafka Streams, an older unmatched record may exist.
        """

    def unmatched_since(self) -> int:
        return -1 if self.earliest_unmatched == _NEVER else self.earliest_unmatched


@dataclass(frozen=True)
class StreamStreamJoin(LateOutput):
    """One side of a stream-stream join: joins each record with the records of the other side in its window.

    ``before_ms``, ``after_ms`` and ``grace_ms`` come from the `JoinWindows`, as the left side sees them. A result has
    the larger timestamp of its two records. Source: ``KStreamKStreamJoin``.

    On an ``outer`` side, a record without a match waits in ``outer_store`` until its window is closed. The next record
    of either side with key and value that is not behind stream time first emits the waiting records whose windows are
    closed. Their other value is None, and their order is by time, right side before left, then by key. A record that
    comes after the end of its window does not wait: its result with None goes out at once. Without an outer store
    (`JoinWindows.of`), no record waits, and each result with None goes out at once.

    An inner side drops null keys and null values. An outer side drops null values, and joins null keys with None
    (KIP-962). The child ``late`` gets each record with a key and a value whose window is already closed when the record
    comes. Such a record is still joined, if the other side has a match.
    """

    persistent_name = "StreamStreamJoin"
    drops: ClassVar[tuple[str, ...]] = ("null_key", "null_value")

    is_left: bool
    other_store: str
    before_ms: int
    after_ms: int
    grace_ms: int
    joiner: Callable[[Any, Any, Any], Any]
    outer: bool
    outer_store: str | None
    shared: str
    """The name under which both sides of the join share their stream time."""

    def bind(self, ctx: NodeContext) -> ProcessFn:
        fetch, forward, drop = ctx.store(self.other_store).fetch, ctx.forward, ctx.drop
        is_left, outer, join = self.is_left, self.outer, self._joined()
        before, after = (self.before_ms, self.after_ms) if is_left else (self.after_ms, self.before_ms)
        unmatched = None if self.outer_store is None else ctx.store(self.outer_store)
        time: _JoinTime = ctx.task.shared(self.shared, _JoinTime)
        time.stream_time = max(
            time.stream_time, ctx.task.remember(f"{self.shared}{STREAM_TIME}", lambda: time.stream_time)
        )
        emit_unmatched = None if unmatched is None else self._bind_unmatched(ctx, unmatched, time)
        if unmatched is not None:
            # Each look for unmatched records decides the time of the next one, which a restart must not change.
            known = ctx.task.remember(f"{self.shared}.unmatched", time.unmatched_since, may_fall=True)
            oldest = min((row[0] for row in unmatched.all()), default=_NEVER)
            time.earliest_unmatched = oldest if known < 0 else known
        grace = self.grace_ms

        def side(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if timestamp > time.stream_time:
                time.stream_time = timestamp
            if key is None or value is None:
                if outer and value is not None:
                    forward(key, join(key, value, None), timestamp, headers)
                else:
                    drop("null_key" if key is None else "null_value")
                return
            if (
                emit_unmatched is not None
                and timestamp == time.stream_time
                and time.earliest_unmatched + after + grace < timestamp
            ):
                emit_unmatched(headers)
            until = timestamp + after
            if until < 0:
                until = 0
            matched = False
            for row in fetch(key, timestamp - before if timestamp > before else 0, until):
                other_time = row[0]
                matched = True
                if unmatched is not None:
                    unmatched.delete_if_present(other_time, not is_left, key, timestamp)
                forward(
                    key,
                    join(key, value, row[1]),
                    timestamp if timestamp > other_time else other_time,
                    headers,
                )
            if outer and not matched:
                if unmatched is None or until < time.stream_time:
                    forward(key, join(key, value, None), timestamp, headers)
                else:
                    if timestamp < time.earliest_unmatched:
                        time.earliest_unmatched = timestamp
                    unmatched.append(timestamp, is_left, key, (is_left, value), timestamp)

        too_late = self.bind_late(ctx)
        if too_late is None:
            return side

        def side_and_late(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            side(key, value, timestamp, headers)
            if timestamp + after + grace < time.stream_time and key is not None and value is not None:
                too_late(key, value, timestamp, headers)

        return side_and_late

    def _joined(self) -> Callable[[Any, Any, Any], Any]:
        """The joiner with this side's value first."""
        joiner = self.joiner
        if self.is_left:
            return joiner
        return lambda key, this, other: joiner(key, other, this)

    def _bind_unmatched(self, ctx: NodeContext, unmatched: Any, time: _JoinTime) -> Callable[[Headers], None]:
        forward, joiner, grace = ctx.forward, self.joiner, self.grace_ms
        before, after = self.before_ms, self.after_ms

        def emit(headers: Headers) -> None:
            now = time.stream_time
            earliest = _NEVER
            due = []
            previous: tuple[int, bool, Any] | None = None
            left_open = right_open = False
            # Rows are collected before any is deleted, and only up to the first ones that are not due.
            for row in unmatched.all():
                timestamp, is_left, _, _ = row
                earliest = timestamp
                if left_open and right_open:
                    break
                if timestamp + (after if is_left else before) + grace < now:
                    due.append(row)
                elif is_left:
                    left_open = True
                else:
                    right_open = True
            for timestamp, is_left, key, (_, value) in due:
                time.earliest_unmatched = timestamp  # if the joiner raises, the next look begins here
                forward(
                    key, joiner(key, value, None) if is_left else joiner(key, None, value), timestamp, headers
                )
                here = (timestamp, is_left, key)
                if previous is not None and not same(previous, here):
                    unmatched.delete(*previous, now)
                previous = here
            if previous is not None:
                unmatched.delete(*previous, now)
            time.earliest_unmatched = earliest

        return emit


@dataclass(frozen=True)
class StreamStreamSelfJoin(Operator):
    """Joins a stream with itself, with one window store instead of two (the ``single.store.self.join`` optimisation).

    As in Kafka Streams, a late record may give other results than with two stores. Without a grace period, two records
    of which one is exactly at the end of the other's window may do so, too. All other results, and their order, are the
    same. Source: ``KStreamKStreamSelfJoin``.
    """

    persistent_name = "StreamStreamSelfJoin"
    drops: ClassVar[tuple[str, ...]] = ("null_key", "null_value")

    window_store: str
    before_ms: int
    after_ms: int
    grace_ms: int
    joiner: Callable[[Any, Any, Any], Any]

    def bind(self, ctx: NodeContext) -> ProcessFn:
        fetch, forward, drop, joiner = (
            ctx.store(self.window_store).fetch,
            ctx.forward,
            ctx.drop,
            self.joiner,
        )
        before, after = self.before_ms, self.after_ms
        retention = before + after + self.grace_ms
        observed = -1

        def stream_time() -> int:
            return observed

        observed = ctx.task.remember(f"{ctx.name}{STREAM_TIME}", stream_time)

        def join(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            nonlocal observed
            if key is None or value is None:
                drop("null_key" if key is None else "null_value")
                return
            if timestamp > observed:
                observed = timestamp
            joins_itself = timestamp > observed - retention + 1
            for row in fetch(key, max(0, timestamp - before), max(0, timestamp + after)):
                forward(key, joiner(key, value, row[1]), max(timestamp, row[0]), headers)
            for row in fetch(key, max(0, timestamp - after), max(0, timestamp + before)):
                if row[0] > timestamp and joins_itself:
                    joins_itself = False
                    forward(key, joiner(key, value, value), timestamp, headers)
                forward(key, joiner(key, row[1], value), max(timestamp, row[0]), headers)
            if joins_itself:
                forward(key, joiner(key, value, value), timestamp, headers)

        return join
