"""Co-grouping (KIP-150): an aggregation of several grouped streams into one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, overload

from streamapp.dsl.aggregation import Aggregator, check_adder, check_initializer, check_merger
from streamapp.dsl.answers import answer_of_aggregation
from streamapp.dsl.arguments import check_materialized
from streamapp.dsl.graph import Node
from streamapp.dsl.graph_nodes import ProcessorNode
from streamapp.dsl.ktable import KTable
from streamapp.dsl.late import WindowedKTable
from streamapp.dsl.materialize import Materialized, key_value_spec, named_store
from streamapp.dsl.steps import AggregateStep, CogroupStep
from streamapp.dsl.window_kinds import WindowKind, window_kind
from streamapp.engine.operator import Operator
from streamapp.engine.operators.aggregate import StreamAggregate
from streamapp.engine.operators.views import StoreView, TableView
from streamapp.errors import TopologyError
from streamapp.on_error import OnError
from streamapp.serdes.base import Serde
from streamapp.state.spec import StoreSpec
from streamapp.windows import SessionWindows, SlidingWindows, Windows

if TYPE_CHECKING:
    from streamapp.dsl.grouped import KGroupedStream

__all__ = ["CogroupedKStream", "SessionWindowedCogroupedKStream", "TimeWindowedCogroupedKStream"]

K = TypeVar("K")
V = TypeVar("V")
VA = TypeVar("VA")

MakeOperator = Callable[[str, Aggregator, bool], Operator]


class CogroupedKStream(Generic[K, VA]):
    """Several grouped streams whose records update the same aggregates, each stream with its own aggregator. (Kafka
    Streams: ``CogroupedKStream``, KIP-150.)

    `KGroupedStream.cogroup` makes this object from the first stream, and `cogroup` adds the others. The aggregates are
    in one store. Records without a key are dropped; without windows, and with sliding windows, records without a value
    are dropped, too. ``drops`` of ``/status`` counts all of them. As in Kafka Streams, the metric ``dropped_records``
    leaves out drops before a repartition topic. The topics of all streams need the same number of partitions.

    >>> from streamapp.testing import try_out
    >>> def counted(clicks, views):
    ...     one, two = clicks.group_by_key(), views.group_by_key()
    ...     return one.cogroup(lambda k, v, n: n + 1).cogroup(two, lambda k, v, n: n + 1).aggregate(int)
    >>> try_out(counted, [("ann", "x")], [("ann", "y")])
    [('ann', 1), ('ann', 2)]
    """

    def __init__(self, first: KGroupedStream[K, Any]) -> None:
        self._context, self._first = first._context, first
        self._groups: dict[KGroupedStream[K, Any], Aggregator] = {}
        self._parents: dict[KGroupedStream[K, Any], Node] = {}

    def cogroup(
        self, grouped: KGroupedStream[K, V], aggregator: Callable[[K, V, VA], VA]
    ) -> CogroupedKStream[K, VA]:
        """Adds a grouped stream and its ``aggregator(key, value, aggregate)``. (``CogroupedKStream.cogroup``)

        >>> from streamapp.testing import try_out
        >>> def counted(clicks, views):
        ...     one, two = clicks.group_by_key(), views.group_by_key()
        ...     return one.cogroup(lambda k, v, n: n + 1).cogroup(two, lambda k, v, n: n + len(v)).aggregate(int)
        >>> try_out(counted, [("ann", "x")], [("ann", "four")])
        [('ann', 1), ('ann', 5)]
        """
        check_adder(aggregator, f"cogroup() of {self._first.name}", "an aggregator")
        if not isinstance(grouped, type(self._first)):
            raise TopologyError(
                f"cogroup() of {self._first.name} takes a KGroupedStream, not {grouped!r}; group_by_key() the stream"
            )
        self._first._same_builder(grouped)
        self._groups[grouped] = aggregator
        return self

    def aggregate(
        self,
        initializer: Callable[[], VA],
        *,
        materialized: Materialized | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KTable[K, VA]:
        """The table of the aggregates. (``CogroupedKStream.aggregate``)

        The aggregate of a new key is ``initializer()``. If an aggregator returns None, the row is deleted.

        >>> from streamapp.testing import try_out
        >>> try_out(lambda clicks: clicks.group_by_key().cogroup(lambda k, v, n: n + 1).aggregate(int), [("ann", "x")])
        [('ann', 1)]
        """
        check_initializer(initializer, f"aggregate() of {self._first.name}")
        check_materialized(materialized, f"the co-grouped aggregation of {self._first.name}")
        m = materialized or Materialized()
        store = named_store(self._context, materialized, "COGROUPKSTREAM-AGGREGATE-")
        key_serde, value_serde = self._serdes(m, store)
        spec = key_value_spec(self._context, store, materialized, key_serde, value_serde)

        def make_operator(store: str, aggregator: Aggregator, send_old: bool) -> Operator:
            return StreamAggregate(
                store=store, initializer=initializer, aggregator=aggregator, send_old=send_old
            )

        merged = self._build(spec, make_operator, StoreView(store), name, m.name, None, m.versioned, on_error)
        node, step = merged.node, merged.step
        return KTable(self._context, node.name, node, merged.sources, key_serde, value_serde, step, m.name)

    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedCogroupedKStream[K, VA]: ...
    @overload
    def windowed_by(self, windows: Windows | SlidingWindows) -> TimeWindowedCogroupedKStream[K, VA]: ...
    def windowed_by(
        self, windows: Windows | SlidingWindows | SessionWindows
    ) -> TimeWindowedCogroupedKStream[K, VA] | SessionWindowedCogroupedKStream[K, VA]:
        """Groups the records by windows of time, too, so that each key has a result per window.
        (``CogroupedKStream.windowedBy``)

        >>> from streamapp import TimeWindows
        >>> from streamapp.testing import try_out
        >>> tens = TimeWindows.of_size_with_no_grace(10)
        >>> def counted(clicks):
        ...     return clicks.group_by_key().cogroup(lambda k, v, n: n + 1).windowed_by(tens).aggregate(int)
        >>> [(str(window), count) for window, count in try_out(counted, [("ann", "x", 12)])]
        [('[ann@10/20]', 1)]
        """
        kind = window_kind(windows)
        return (
            SessionWindowedCogroupedKStream(self, kind)
            if kind.merges
            else TimeWindowedCogroupedKStream(self, kind)
        )

    def _windowed(
        self,
        kind: WindowKind,
        initializer: Callable[[], Any],
        merger: Callable[[Any, Any, Any], Any] | None,
        materialized: Materialized | None,
        name: str | None,
        on_error: OnError | None,
    ) -> WindowedKTable[Any, Any, Any]:
        check_initializer(initializer, f"aggregate() of {self._first.name}")
        check_materialized(materialized, f"the co-grouped aggregation of {self._first.name}")
        m = materialized or Materialized()
        store = named_store(self._context, materialized, "COGROUPKSTREAM-AGGREGATE-")
        key_serde, value_serde = self._serdes(m, store)
        spec = kind.spec(self._context, store, materialized, key_serde, value_serde, False)

        def make_operator(store: str, aggregator: Aggregator, send_old: bool) -> Operator:
            return kind.operator(
                merger, store=store, initializer=initializer, aggregator=aggregator, send_old=send_old
            )

        merged = self._build(
            spec, make_operator, kind.view(store), name, m.name, kind.final_after_ms, None, on_error
        )
        table: WindowedKTable[Any, Any, Any] = WindowedKTable(
            self._context,
            merged.node.name,
            merged.node,
            merged.sources,
            kind.key_serde(key_serde),
            value_serde,
            merged.step,
            m.name,
        )
        given = {id(group.value_serde): group.value_serde for group in self._groups}
        late_value_serde = next(iter(given.values())) if len(given) == 1 else None
        return table._takes_late(merged.aggregations, key_serde, late_value_serde)

    def _serdes(self, m: Materialized, store: str) -> tuple[Serde[Any], Serde[Any]]:
        given = (group.key_serde for group in self._groups if group.key_serde is not None)
        operator = f"the co-grouped aggregation of store {store}"
        key_serde = self._context.key_serde(m.key_serde or next(given, None), operator)
        return key_serde, self._context.value_serde(m.value_serde, operator)

    def _build(
        self,
        spec: StoreSpec,
        make_operator: MakeOperator,
        view: TableView,
        name: str | None,
        queryable: str | None,
        grace_ms: int | None,
        versioned: bool | None,
        on_error: OnError | None,
    ) -> _Merged:
        """Adds an aggregation for each stream, all with the same store, and a node that merges their results."""
        context, names = self._context, self._context.names
        self._add_parents(spec.name, queryable is not None)
        aggregations: list[tuple[Node, AggregateStep]] = []
        for number, (grouped, aggregator) in enumerate(self._groups.items()):
            node_name = names.suffixed_or_new(name, f"-cogroup-agg-{number}", "COGROUPKSTREAM-AGGREGATE-")
            answer = answer_of_aggregation(on_error, node_name)
            step = AggregateStep(spec, _Bound(make_operator, spec.name, aggregator), view, answer)
            node = ProcessorNode(node_name, step)
            node.grace_ms, node.output_versioned = grace_ms, versioned
            context.graph.add(node, self._parents[grouped])
            aggregations.append((node, step))
        merge_name = names.suffixed_or_new(name, "-cogroup-merge", "COGROUPKSTREAM-MERGE-")
        merge_step = CogroupStep([step for _, step in aggregations])
        merge = ProcessorNode(merge_name, merge_step)
        context.graph.add(merge, *(node for node, _ in aggregations))
        sources = frozenset().union(*(self._sources(group) for group in self._groups))
        return _Merged(merge, merge_step, sources, aggregations)

    def _add_parents(self, store: str, store_is_named: bool) -> None:
        for grouped in self._groups:
            if not grouped.repartition_required:
                self._parents[grouped] = grouped._node
                continue
            node = grouped._own_repartition(store, store_is_named)
            if grouped not in self._parents:
                self._context.graph.add(node, grouped._node)
                self._parents[grouped] = node
        self._context.graph.copartitions.append(
            frozenset().union(*(self._sources(group) for group in self._groups))
        )

    def _sources(self, grouped: KGroupedStream[K, Any]) -> frozenset[str]:
        if grouped.repartition_required:
            return frozenset((self._parents[grouped].name,))
        return grouped._sources


class _Merged(NamedTuple):
    """The node that merges the results of the streams' aggregations, and its parts."""

    node: ProcessorNode
    step: CogroupStep
    sources: frozenset[str]
    aggregations: list[tuple[Node, AggregateStep]]


class _Bound:
    def __init__(self, make_operator: MakeOperator, store: str, aggregator: Aggregator) -> None:
        self._make_operator, self._store, self._aggregator = make_operator, store, aggregator

    def __call__(self, send_old: bool) -> Operator:
        return self._make_operator(self._store, self._aggregator, send_old)


class TimeWindowedCogroupedKStream(Generic[K, VA]):
    """Grouped streams that are aggregated together into one table, with a row for each key and window.

    The windows are tumbling, hopping, sliding or unlimited. (Kafka Streams: ``TimeWindowedCogroupedKStream``.)

    >>> from streamapp import TimeWindows
    >>> from streamapp.testing import try_out
    >>> tens = TimeWindows.of_size_with_no_grace(10)
    >>> def counted(clicks):
    ...     return clicks.group_by_key().cogroup(lambda k, v, n: n + 1).windowed_by(tens).aggregate(int)
    >>> [(str(window), count) for window, count in try_out(counted, [("ann", "x", 1), ("ann", "y", 2)])]
    [('[ann@0/10]', 1), ('[ann@0/10]', 2)]
    """

    def __init__(self, cogrouped: CogroupedKStream[K, VA], kind: WindowKind) -> None:
        self._cogrouped, self._kind = cogrouped, kind

    def aggregate(
        self,
        initializer: Callable[[], VA],
        *,
        materialized: Materialized | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> WindowedKTable[K, Any, VA]:
        """The table of the aggregates by key and window. (``TimeWindowedCogroupedKStream.aggregate``)

        The aggregate of a new window is ``initializer()``. Each stream has a stream time of its own, by which its
        records are late or not. `WindowedKTable.late_records` of the result gives the late records of all streams.

        The common store has only one stream time, and deletes rows that are ``retention`` of ``materialized`` behind
        this time. If the records of one stream are further behind this time, the store deletes their rows at once. Each
        of these records then begins a new aggregate. A longer ``retention`` avoids this.

        >>> from streamapp import TimeWindows
        >>> from streamapp.testing import try_out
        >>> tens = TimeWindows.of_size_with_no_grace(10)
        >>> def counted(clicks):
        ...     return clicks.group_by_key().cogroup(lambda k, v, n: n + 1).windowed_by(tens).aggregate(int)
        >>> [(str(window), count) for window, count in try_out(counted, [("ann", "x", 12)])]
        [('[ann@10/20]', 1)]
        """
        return self._cogrouped._windowed(self._kind, initializer, None, materialized, name, on_error)


class SessionWindowedCogroupedKStream(Generic[K, VA]):
    """Co-grouped streams that are also grouped by sessions. (Kafka Streams: ``SessionWindowedCogroupedKStream``.)

    >>> from streamapp import SessionWindows
    >>> from streamapp.testing import try_out
    >>> sessions = SessionWindows.of_inactivity_gap_with_no_grace(5)
    >>> def counted(clicks):
    ...     cogrouped = clicks.group_by_key().cogroup(lambda k, v, n: n + 1)
    ...     return cogrouped.windowed_by(sessions).aggregate(int, lambda k, one, two: one + two)
    >>> [(str(window), count) for window, count in try_out(counted, [("ann", "x", 1), ("ann", "y", 2)])][-1]
    ('[ann@1/2]', 2)
    """

    def __init__(self, cogrouped: CogroupedKStream[K, VA], kind: WindowKind) -> None:
        self._cogrouped, self._kind = cogrouped, kind

    def aggregate(
        self,
        initializer: Callable[[], VA],
        merger: Callable[[K, VA, VA], VA],
        *,
        materialized: Materialized | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> WindowedKTable[K, Any, VA]:
        """The table of the aggregates by key and session. (``SessionWindowedCogroupedKStream.aggregate``)

        The aggregate of a new session is ``initializer()``. A record may lie within the gap of one or several sessions,
        which become one session. For each of them, ``merger(key, first, second)`` is called, with its aggregate as
        ``second``. In the first call, ``first`` is ``initializer()``; later it is the result of the call before. The
        aggregator then adds the record. If the aggregator returns None, the session is deleted.

        >>> from streamapp import SessionWindows
        >>> from streamapp.testing import try_out
        >>> sessions = SessionWindows.of_inactivity_gap_with_no_grace(5)
        >>> def counted(clicks):
        ...     cogrouped = clicks.group_by_key().cogroup(lambda k, v, n: n + 1)
        ...     return cogrouped.windowed_by(sessions).aggregate(int, lambda k, one, two: one + two)
        >>> [(str(window), count) for window, count in try_out(counted, [("ann", "x", 12)])]
        [('[ann@12/12]', 1)]
        """
        check_merger(merger, f"aggregate() of {self._cogrouped._first.name}")
        return self._cogrouped._windowed(self._kind, initializer, merger, materialized, name, on_error)
