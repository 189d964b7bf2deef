"""Windowed streams: grouped by key and by windows of time. An aggregation gives a table with `Windowed` keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from streamapp._base.durations import Duration
from streamapp.dsl.aggregation import COUNT, Aggregation, folding, reducing
from streamapp.dsl.answers import answer_of_aggregation
from streamapp.dsl.arguments import check_materialized
from streamapp.dsl.graph_nodes import ProcessorNode
from streamapp.dsl.late import WindowedKTable
from streamapp.dsl.materialize import Materialized, named_store
from streamapp.dsl.steps import AggregateStep
from streamapp.dsl.window_kinds import WindowKind
from streamapp.errors import ConfigError, TopologyError
from streamapp.on_error import OnError
from streamapp.windows import (
    EmitStrategy,
    idle_timeout_ms,
)

if TYPE_CHECKING:
    from streamapp.dsl.grouped import KGroupedStream

__all__ = ["SessionWindowedKStream", "TimeWindowedKStream"]

K = TypeVar("K")
V = TypeVar("V")
VA = TypeVar("VA")


class _WindowedKStream(Generic[K, V]):
    def __init__(
        self,
        grouped: KGroupedStream[K, V],
        kind: WindowKind,
        emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE,
        idle_timeout: Duration | None = None,
    ) -> None:
        if not isinstance(emit, EmitStrategy):
            raise TopologyError(
                f"emit_strategy() of {grouped.name} takes EmitStrategy.ON_WINDOW_UPDATE or ON_WINDOW_CLOSE, "
                f"not {emit!r}"
            )
        self._grouped, self._kind = grouped, kind
        self._emit_final = emit is EmitStrategy.ON_WINDOW_CLOSE
        if self._emit_final and not kind.closes:
            raise ConfigError(
                "unlimited windows never close, so ON_WINDOW_CLOSE would never emit; use TimeWindows"
            )
        if idle_timeout is not None and not self._emit_final:
            raise ConfigError(
                "an idle_timeout closes windows, but ON_WINDOW_UPDATE does not wait for their close; "
                "use it with EmitStrategy.ON_WINDOW_CLOSE"
            )
        self._idle_timeout_ms = idle_timeout_ms(idle_timeout)

    def _count(
        self, materialized: Materialized | None, name: str | None, on_error: OnError | None
    ) -> WindowedKTable[Any, Any, int]:
        self._grouped._begin_count(materialized, self._kind.count_uses_a_name)
        return self._aggregate(COUNT, materialized, name, on_error)

    def _aggregate(
        self,
        aggregation: Aggregation,
        materialized: Materialized | None,
        name: str | None,
        on_error: OnError | None,
    ) -> WindowedKTable[Any, Any, Any]:
        grouped, kind, emit_final = self._grouped, self._kind, self._emit_final
        operator = f"the windowed aggregation of {grouped.name}"
        check_materialized(materialized, operator, grouped.key_serde, aggregation.value_serde)
        context = grouped._context
        m = materialized or Materialized()
        store = named_store(context, materialized, aggregation.prefix)
        node_name = context.names.given_or_new(name, aggregation.prefix)
        key_serde = context.key_serde(m.key_serde or grouped.key_serde, node_name)
        value_serde = context.value_serde(m.value_serde or aggregation.value_serde, node_name)
        spec = kind.spec(context, store, materialized, key_serde, value_serde, emit_final)
        step = AggregateStep(
            spec,
            lambda send_old: kind.operator(
                aggregation.merger if kind.merges else None,
                store=store,
                initializer=aggregation.initializer,
                aggregator=aggregation.aggregator,
                emit_final=emit_final,
                send_old=send_old,
            ),
            kind.view(store),
            answer_of_aggregation(on_error, node_name),
        )
        node = ProcessorNode(node_name, step)
        node.output_versioned, node.grace_ms = False, kind.final_after_ms
        if self._idle_timeout_ms is not None:
            step.close_when_idle(self._idle_timeout_ms)
        sources = grouped._add_aggregation(node, store, m.name is not None)
        table: WindowedKTable[Any, Any, Any] = WindowedKTable(
            context, node_name, node, sources, kind.key_serde(key_serde), value_serde, step, m.name
        )
        return table._takes_late([(node, step)], key_serde, grouped.value_serde)


class TimeWindowedKStream(_WindowedKStream[K, V]):
    """A stream grouped by key and by tumbling, hopping, sliding or unlimited windows. (Kafka Streams:
    ``TimeWindowedKStream``.)

    Records without a key are dropped, and sliding windows also drop records without a value. A record is added to those
    of its windows that are open, and is counted as late once for each window that is closed. If all its sliding windows
    are closed, the record is counted only once. A result's timestamp is the largest timestamp of the window's records.

    >>> from streamapp import TimeWindows
    >>> from streamapp.testing import try_out
    >>> tens = TimeWindows.of_size_with_no_grace(10)
    >>> counts = try_out(lambda words: words.group_by_key().windowed_by(tens.advance_by(5)).count(), [("a", "to", 7)])
    >>> [str(window) for window, _ in counts]
    ['[a@0/10]', '[a@5/15]']
    """

    def emit_strategy(
        self, emit: EmitStrategy, *, idle_timeout: Duration | None = None
    ) -> TimeWindowedKStream[K, V]:
        """Chooses when results come out: with each update, or once for each window, when the window is closed.
        (``TimeWindowedKStream.emitStrategy``, KIP-825)

        A window is closed when stream time reaches its end + grace; a sliding window, when stream time passes this
        time. Only new records move stream time, so without records the last window never closes. ``idle_timeout``,
        which Kafka Streams does not have, solves this: after this time without a record, stream time follows the wall
        clock. An ``idle_timeout`` needs ``ON_WINDOW_CLOSE``.

        >>> from streamapp import EmitStrategy, StreamsBuilder, StringSerde, TimeWindows, TopologyTestDriver
        >>> text, builder = StringSerde(), StreamsBuilder()
        >>> flights = builder.stream("flights", key_serde=text, value_serde=text)
        >>> windowed = flights.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(1000))
        >>> final = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE, idle_timeout=5000).count()
        >>> final.to_stream().foreach(lambda window, count: print(window, count))
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("flights", text, text).pipe_input("JFK", "UA1", timestamp=500)
        ...     driver.advance_wall_clock_time(5000)
        [JFK@0/1000] 1
        """
        return TimeWindowedKStream(self._grouped, self._kind, emit, idle_timeout)

    def count(
        self,
        *,
        materialized: Materialized | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> WindowedKTable[K, V, int]:
        """Counts the records of each key in each window. (``TimeWindowedKStream.count``)

        >>> from streamapp import StreamsBuilder, StringSerde, TimeWindows
        >>> flights = StreamsBuilder().stream("flights", key_serde=StringSerde(), value_serde=StringSerde())
        >>> hourly = TimeWindows.of_size_with_no_grace(3_600_000)
        >>> flights.group_by_key().windowed_by(hourly).count(name="hourly")
        <WindowedKTable hourly>
        """
        return self._count(materialized, name, on_error)

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        *,
        materialized: Materialized | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> WindowedKTable[K, V, V]:
        """Combines the values of each key and window with ``reducer(aggregate, value)``.
        (``TimeWindowedKStream.reduce``)

        The first value of a window is the first result.

        >>> from streamapp import TimeWindows
        >>> from streamapp.testing import try_out
        >>> tens = TimeWindows.of_size_with_no_grace(10)
        >>> worst = try_out(lambda delays: delays.group_by_key().windowed_by(tens).reduce(max),
        ...     [("UA", 5, 1), ("UA", 9, 2)])
        >>> [(str(window), delay) for window, delay in worst]
        [('[UA@0/10]', 5), ('[UA@0/10]', 9)]
        """
        grouped = self._grouped
        return self._aggregate(
            reducing(reducer, grouped.name, grouped.value_serde), materialized, name, on_error
        )

    def aggregate(
        self,
        initializer: Callable[[], VA],
        aggregator: Callable[[K, V, VA], VA],
        *,
        materialized: Materialized | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> WindowedKTable[K, V, VA]:
        """Combines the values of each key and window with ``aggregator(key, value, aggregate)``.
        (``TimeWindowedKStream.aggregate``)

        The aggregate of a new window is ``initializer()``. If the aggregator returns None, the row is deleted.

        >>> from streamapp import TimeWindows
        >>> from streamapp.testing import try_out
        >>> tens = TimeWindows.of_size_with_no_grace(10)
        >>> def total(delays):
        ...     return delays.group_by_key().windowed_by(tens).aggregate(int, lambda carrier, delay, sum: sum + delay)
        >>> [(str(window), sum) for window, sum in try_out(total, [("UA", 5, 1), ("UA", 9, 2)])]
        [('[UA@0/10]', 5), ('[UA@0/10]', 14)]
        """
        return self._aggregate(
            folding(initializer, aggregator, self._grouped.name), materialized, name, on_error
        )


class SessionWindowedKStream(_WindowedKStream[K, V]):
    """A stream grouped by key and by sessions. (Kafka Streams: ``SessionWindowedKStream``.)

    The key of a result has the start and the end of its session. So when a session grows or two sessions merge, the old
    results are deleted (None) before the new one comes out. A record inside a session leaves start and end as they are.
    Without a record cache, the old result is deleted first in this case, too, unless start equals end. A result's
    timestamp is the end of its session. Records without a key are dropped.

    >>> from streamapp import SessionWindows
    >>> from streamapp.testing import try_out
    >>> sessions = SessionWindows.of_inactivity_gap_with_no_grace(5)
    >>> counts = try_out(lambda clicks: clicks.group_by_key().windowed_by(sessions).count(),
    ...     [("ann", "x", 0), ("ann", "y", 9)])
    >>> [(str(window), count) for window, count in counts]
    [('[ann@0/0]', 1), ('[ann@9/9]', 1)]
    """

    def emit_strategy(
        self, emit: EmitStrategy, *, idle_timeout: Duration | None = None
    ) -> SessionWindowedKStream[K, V]:
        """Chooses when results come out: with each update, or once for each session, when the session is closed.
        (``SessionWindowedKStream.emitStrategy``, KIP-825)

        A session is closed when stream time passes its end + gap + grace. ``idle_timeout`` is the same as in
        `TimeWindowedKStream.emit_strategy`.

        >>> from streamapp import EmitStrategy, SessionWindows
        >>> from streamapp.testing import try_out
        >>> sessions = SessionWindows.of_inactivity_gap_with_no_grace(5)
        >>> def final(clicks):
        ...     windowed = clicks.group_by_key().windowed_by(sessions)
        ...     return windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count()
        >>> [(str(window), n) for window, n in try_out(final, [("ann", "x", 0), ("ann", "y", 3), ("bob", "z", 20)])]
        [('[ann@0/3]', 2)]
        """
        return SessionWindowedKStream(self._grouped, self._kind, emit, idle_timeout)

    def count(
        self,
        *,
        materialized: Materialized | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> WindowedKTable[K, V, int]:
        """Counts the records of each session. (``SessionWindowedKStream.count``)

        When a record extends or merges sessions, the table deletes each old row (None), and then adds the row of the
        new session.

        >>> from streamapp import SessionWindows
        >>> from streamapp.testing import try_out
        >>> sessions = SessionWindows.of_inactivity_gap_with_no_grace(5)
        >>> counts = try_out(lambda clicks: clicks.group_by_key().windowed_by(sessions).count(),
        ...     [("ann", "x", 0), ("ann", "y", 3)])
        >>> [(str(window), count) for window, count in counts]
        [('[ann@0/0]', 1), ('[ann@0/0]', None), ('[ann@0/3]', 2)]
        """
        return self._count(materialized, name, on_error)

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        *,
        materialized: Materialized | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> WindowedKTable[K, V, V]:
        """Combines the values of each session with ``reducer(aggregate, value)``. (``SessionWindowedKStream.reduce``)

        The reducer also combines the aggregates of two sessions that merge.

        >>> from streamapp import SessionWindows
        >>> from streamapp.testing import try_out
        >>> sessions = SessionWindows.of_inactivity_gap_with_no_grace(5)
        >>> worst = try_out(lambda delays: delays.group_by_key().windowed_by(sessions).reduce(max),
        ...     [("UA", 5, 0), ("UA", 9, 3)])
        >>> [(str(window), delay) for window, delay in worst]
        [('[UA@0/0]', 5), ('[UA@0/0]', None), ('[UA@0/3]', 9)]
        """
        grouped = self._grouped
        return self._aggregate(
            reducing(reducer, grouped.name, grouped.value_serde), materialized, name, on_error
        )

    def aggregate(
        self,
        initializer: Callable[[], VA],
        aggregator: Callable[[K, V, VA], VA],
        merger: Callable[[K, VA, VA], VA],
        *,
        materialized: Materialized | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> WindowedKTable[K, V, VA]:
        """Combines the values of each session with ``aggregator(key, value, aggregate)``.
        (``SessionWindowedKStream.aggregate``)

        The aggregate of a new session is ``initializer()``. A record may lie within the gap of one or several sessions,
        which become one session. For each of them, ``merger(key, first, second)`` is called, with its aggregate as
        ``second``. In the first call, ``first`` is ``initializer()``; later it is the result of the call before. The
        aggregator then adds the record. If the aggregator returns None, the session is deleted.

        >>> from streamapp import SessionWindows
        >>> from streamapp.testing import try_out
        >>> sessions = SessionWindows.of_inactivity_gap_with_no_grace(5)
        >>> def total(delays):
        ...     windowed = delays.group_by_key().windowed_by(sessions)
        ...     return windowed.aggregate(int, lambda k, delay, sum: sum + delay, lambda k, one, two: one + two)
        >>> [(str(window), sum) for window, sum in try_out(total, [("UA", 5, 0), ("UA", 9, 10), ("UA", 1, 5)])][-1]
        ('[UA@0/10]', 15)
        """
        grouping = self._grouped.name
        fold = folding(initializer, aggregator, grouping).over_sessions(merger, grouping)
        return self._aggregate(fold, materialized, name, on_error)
