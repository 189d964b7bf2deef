"""`KGroupedStream` and `KGroupedTable`: streams and tables that are grouped by key for an aggregation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from streamapp._base.callables import require_function
from streamapp.dsl.aggregation import (
    COUNT,
    Aggregation,
    add_one,
    check_adder,
    check_initializer,
    folding,
    reducing,
    subtract_one,
    zero,
)
from streamapp.dsl.answers import answer_of_aggregation, refuse_answers
from streamapp.dsl.arguments import check_materialized
from streamapp.dsl.cogroup import CogroupedKStream
from streamapp.dsl.context import Context
from streamapp.dsl.graph import Node
from streamapp.dsl.graph_nodes import GroupedTableRepartitionNode, ProcessorNode, RepartitionNode
from streamapp.dsl.ktable import KTable
from streamapp.dsl.materialize import Materialized, key_value_spec, named_store, refuse_ttl
from streamapp.dsl.repartition import REPARTITION_SUFFIX, repartition_node
from streamapp.dsl.steps import AggregateStep
from streamapp.dsl.stream import Described
from streamapp.dsl.window_kinds import window_kind
from streamapp.dsl.windowed_streams import SessionWindowedKStream, TimeWindowedKStream
from streamapp.engine.operator import Operator
from streamapp.engine.operators.table import TableAggregate, TableReduce
from streamapp.engine.operators.views import StoreView
from streamapp.on_error import OnError
from streamapp.serdes import LongSerde
from streamapp.serdes.base import Serde
from streamapp.windows import SessionWindows, SlidingWindows, Windows

__all__ = ["KGroupedStream", "KGroupedTable"]

K = TypeVar("K")
V = TypeVar("V")
VA = TypeVar("VA")


class KGroupedStream(Described[K, V]):
    """A stream grouped by key, for an aggregation. (Kafka Streams: ``KGroupedStream``.)

    Aggregations without windows drop records whose key or value is None. ``drops`` of ``/status`` counts them. As in
    Kafka Streams, the metric ``dropped_records`` leaves out drops before a repartition topic. Records that come out of
    order are aggregated like all others. A result's timestamp is the largest timestamp of its records. Each aggregation
    has a store, with a changelog unless ``Materialized(logging=False)`` is given. If the key may have changed, a
    repartition topic comes before the aggregation.

    ``name`` is the name of the operator, and ``materialized`` has the settings of the store (`Materialized`).
    ``on_error`` decides about a record for which a function raises (see `OnError`, docs/failures.md). If the answer
    drops the record, the aggregate stays as it was. A `Retry` is not possible, because windows could close while the
    record waits.

    >>> from streamapp.testing import try_out
    >>> try_out(lambda delays: delays.group_by_key().reduce(max), [("UA", 5), ("UA", 20), ("UA", 10)])
    [('UA', 5), ('UA', 20), ('UA', 20)]
    """

    def __init__(
        self,
        context: Context,
        name: str,
        node: Node,
        sources: frozenset[str],
        key_serde: Serde[Any] | None,
        value_serde: Serde[Any] | None,
        *,
        repartition_required: bool,
        repartition_name: str | None,
    ) -> None:
        super().__init__(context, name, node, sources, key_serde, value_serde)
        self.repartition_required = repartition_required
        self.repartition_name = repartition_name
        self._repartitioned: RepartitionNode | None = None

    def count(
        self,
        *,
        materialized: Materialized | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KTable[K, int]:
        """Counts the records of each key. Drops records without a key or a value. (``KGroupedStream.count``)

        >>> from streamapp import StreamsBuilder, StringSerde
        >>> flights = StreamsBuilder().stream("flights", key_serde=StringSerde(), value_serde=StringSerde())
        >>> flights.group_by_key().count(name="by-plane")
        <KTable by-plane>
        """
        self._begin_count(materialized)
        return self._aggregate(COUNT, materialized, name, on_error)

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        *,
        materialized: Materialized | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KTable[K, V]:
        """Combines the values of each key with ``reducer(aggregate, value)``. (``KGroupedStream.reduce``)

        The first value of a key is the first result. If the reducer returns None, the row is deleted.

        >>> from streamapp.testing import try_out
        >>> try_out(lambda words: words.group_by_key().reduce(lambda line, word: line + " " + word),
        ...     [("a", "to"), ("a", "be")])
        [('a', 'to'), ('a', 'to be')]
        """
        return self._aggregate(reducing(reducer, self.name, self.value_serde), materialized, name, on_error)

    def aggregate(
        self,
        initializer: Callable[[], VA],
        aggregator: Callable[[K, V, VA], VA],
        *,
        materialized: Materialized | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KTable[K, VA]:
        """Combines the values of each key with ``aggregator(key, value, aggregate)``. (``KGroupedStream.aggregate``)

        The aggregate of a new key is ``initializer()``. If the aggregator returns None, the row is deleted. The result
        needs a value serde: ``Materialized(value_serde=...)``, or the configuration's default.

        >>> from streamapp.testing import try_out
        >>> try_out(lambda words: words.group_by_key().aggregate(int, lambda key, word, n: n + len(word)),
        ...     [("a", "to"), ("a", "be")])
        [('a', 2), ('a', 4)]
        """
        return self._aggregate(folding(initializer, aggregator, self.name), materialized, name, on_error)

    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream[K, V]: ...
    @overload
    def windowed_by(self, windows: Windows | SlidingWindows) -> TimeWindowedKStream[K, V]: ...
    def windowed_by(
        self, windows: Windows | SlidingWindows | SessionWindows
    ) -> TimeWindowedKStream[K, V] | SessionWindowedKStream[K, V]:
        """Groups the records by windows of time, too, so that each key has a result per window.
        (``KGroupedStream.windowedBy``)

        >>> from streamapp import TimeWindows
        >>> from streamapp.testing import try_out
        >>> tens = TimeWindows.of_size_with_no_grace(10)
        >>> counts = try_out(lambda words: words.group_by_key().windowed_by(tens).count(),
        ...     [("a", "to", 1), ("a", "be", 12)])
        >>> [(str(window), count) for window, count in counts]
        [('[a@0/10]', 1), ('[a@10/20]', 1)]
        """
        kind = window_kind(windows)
        return SessionWindowedKStream(self, kind) if kind.merges else TimeWindowedKStream(self, kind)

    def cogroup(self, aggregator: Callable[[K, V, VA], VA]) -> CogroupedKStream[K, VA]:
        """Begins an aggregation of this and other grouped streams into one table. (``KGroupedStream.cogroup``, KIP-150)

        ``aggregator(key, value, aggregate)`` adds a record of this stream; `CogroupedKStream.cogroup` adds further
        streams.

        >>> from streamapp.testing import try_out
        >>> def both(clicks, views):
        ...     one, two = clicks.group_by_key(), views.group_by_key()
        ...     return one.cogroup(lambda k, v, sum: sum + 10).cogroup(two, lambda k, v, sum: sum + 1).aggregate(int)
        >>> try_out(both, [("ann", "x"), ("ann", "y")], [("ann", "z")])
        [('ann', 10), ('ann', 20), ('ann', 21)]
        """
        return CogroupedKStream[K, VA](self).cogroup(self, aggregator)

    def _begin_count(self, materialized: Materialized | None, uses_a_name: bool = True) -> None:
        """Checks the argument of a count. As in Java, an unnamed `Materialized` uses up a number for a name."""
        check_materialized(materialized, f"count() of {self.name}")
        if materialized is not None and materialized.name is None and uses_a_name:
            self._context.names.new_store(COUNT.prefix)

    def _aggregate(
        self,
        aggregation: Aggregation,
        materialized: Materialized | None,
        name: str | None,
        on_error: OnError | None,
    ) -> KTable[Any, Any]:
        operator = f"the aggregation of {self.name}"
        check_materialized(materialized, operator, self.key_serde, aggregation.value_serde)
        context = self._context
        m = materialized or Materialized()
        store = named_store(context, materialized, aggregation.prefix)
        node_name = context.names.given_or_new(name, aggregation.prefix)
        key_serde = context.key_serde(m.key_serde or self.key_serde, node_name)
        value_serde = context.value_serde(m.value_serde or aggregation.value_serde, node_name)
        spec = key_value_spec(context, store, materialized, key_serde, value_serde)
        answer = answer_of_aggregation(on_error, node_name)
        step = AggregateStep(
            spec, lambda send_old: aggregation.by_key(store, send_old), StoreView(store), answer
        )
        node = ProcessorNode(node_name, step)
        node.output_versioned = m.versioned
        sources = self._add_aggregation(node, store, m.name is not None)
        return KTable(context, node_name, node, sources, key_serde, value_serde, step, m.name)

    def _add_aggregation(self, node: Node, store: str, store_is_named: bool) -> frozenset[str]:
        """Appends an aggregation, behind a repartition topic if the key may have changed. Returns its sources."""
        parent, sources = self._node, self._sources
        if self.repartition_required:
            parent = self._repartition(store, store_is_named)
            self._context.graph.add(parent, self._node)
            sources = frozenset((parent.name,))
        self._context.graph.add(node, parent)
        return sources

    def _repartition(self, store: str, store_is_named: bool) -> RepartitionNode:
        """The repartition node of an aggregation. All aggregations of a grouping with a name share one node."""
        node = self._own_repartition(store, store_is_named)
        if self._repartitioned is None or self.repartition_name is None:
            self._repartitioned = node
        return self._repartitioned

    def _own_repartition(self, store: str, store_is_named: bool) -> RepartitionNode:
        """A new repartition node, which takes its name from the grouping, or from the store if the grouping has none.

        As in Kafka Streams, each co-grouped aggregation has such a node of its own. So if a grouping with a name has
        another aggregation, too, the topology is refused, unless an optimisation merges the two nodes.
        """
        context = self._context
        return repartition_node(
            context.names,
            self.repartition_name or store,
            context.key_serde(self.key_serde, f"the grouping of {self.name}"),
            context.value_serde(self.value_serde, f"the grouping of {self.name}"),
            named=self.repartition_name is not None or store_is_named,
        )


class KGroupedTable(Described[K, V]):
    """A table whose rows are grouped by the key that a function gives, for an aggregation. (Kafka Streams:
    ``KGroupedTable``.)

    When a row changes, its old value is subtracted from the aggregate of its group, then its new value is added. Rows
    whose group or value is None are in no group. A result's timestamp is the largest timestamp of all changes of its
    group. Each aggregation has a store, and a repartition topic before it.

    Aggregations have no ``on_error``. If a row's new value were left out after an error, a later change of the row
    would still subtract this value.

    >>> from streamapp.testing import try_out
    >>> seats = [("ann", "window"), ("ann", "aisle")]
    >>> try_out(lambda stream: stream.to_table().group_by(lambda who, seat: (seat, who)).count(), seats)
    [('window', 1), ('window', 0), ('aisle', 1)]
    """

    _repartitioned: GroupedTableRepartitionNode | None = None

    def __init__(
        self,
        context: Context,
        name: str,
        node: Node,
        sources: frozenset[str],
        key_serde: Serde[Any] | None,
        value_serde: Serde[Any] | None,
        repartition_name: str | None,
    ) -> None:
        super().__init__(context, name, node, sources, key_serde, value_serde)
        self.repartition_name = repartition_name

    def count(self, *, materialized: Materialized | None = None, name: str | None = None) -> KTable[K, int]:
        """Counts the rows of each group. A group that loses its last row has the count 0. (``KGroupedTable.count``)

        >>> from streamapp.testing import try_out
        >>> seats = [("ann", "aisle"), ("bob", "aisle"), ("ann", None)]
        >>> try_out(lambda stream: stream.to_table().group_by(lambda who, seat: (seat, who)).count(), seats)
        [('aisle', 1), ('aisle', 2), ('aisle', 1)]
        """
        return self._aggregate(
            "KTABLE-AGGREGATE-",
            lambda store, send_old: TableAggregate(store, zero, add_one, subtract_one, send_old),
            LongSerde(),
            materialized,
            name,
        )

    def reduce(
        self,
        adder: Callable[[V, V], V],
        subtractor: Callable[[V, V], V],
        *,
        materialized: Materialized | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KTable[K, V]:
        """Combines the values of each group. (``KGroupedTable.reduce``)

        When a row changes, ``subtractor(aggregate, old)`` is called with its old value, then ``adder(aggregate, new)``
        with its new value. The first value of a group is its first result. If the last of these calls returns None, the
        group's row is deleted.

        >>> from operator import add, sub
        >>> from streamapp.testing import try_out
        >>> points = [("ann", 3), ("bob", 4), ("ann", 5)]
        >>> try_out(lambda stream: stream.to_table().group_by(lambda who, n: ("all", n)).reduce(add, sub), points)
        [('all', 3), ('all', 7), ('all', 9)]
        """
        refuse_answers(on_error, f"reduce() of {self.name}")
        require_function(adder, f"reduce() of {self.name}", "an adder of aggregate and value", 2)
        require_function(subtractor, f"reduce() of {self.name}", "a subtractor of aggregate and value", 2)
        return self._aggregate(
            "KTABLE-REDUCE-",
            lambda store, send_old: TableReduce(store, adder, subtractor, send_old),
            self.value_serde,
            materialized,
            name,
        )

    def aggregate(
        self,
        initializer: Callable[[], VA],
        adder: Callable[[K, V, VA], VA],
        subtractor: Callable[[K, V, VA], VA],
        *,
        materialized: Materialized | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KTable[K, VA]:
        """Combines the rows of each group into an aggregate of any type. (``KGroupedTable.aggregate``)

        The aggregate of a new group is ``initializer()``. When a row changes, ``subtractor(key, old, aggregate)`` is
        called with its old value, then ``adder(key, new, aggregate)`` with its new value. If the last of these calls
        returns None, the group's row is deleted.

        >>> from streamapp.testing import try_out
        >>> def together(stream):
        ...     grouped = stream.to_table().group_by(lambda who, seat: (seat, who))
        ...     return grouped.aggregate(list, lambda k, who, names: [*names, who], lambda k, who,
        ...     names: [n for n in names if n != who])
        >>> try_out(together, [("ann", "aisle"), ("bob", "aisle"), ("ann", None)])
        [('aisle', ['ann']), ('aisle', ['ann', 'bob']), ('aisle', ['bob'])]
        """
        operator = f"aggregate() of {self.name}"
        refuse_answers(on_error, operator)
        check_initializer(initializer, operator)
        check_adder(adder, operator, "an adder")
        check_adder(subtractor, operator, "a subtractor")
        return self._aggregate(
            "KTABLE-AGGREGATE-",
            lambda store, send_old: TableAggregate(store, initializer, adder, subtractor, send_old),
            None,
            materialized,
            name,
        )

    def _aggregate(
        self,
        prefix: str,
        make_operator: Callable[[str, bool], Operator],
        value_serde: Serde[Any] | None,
        materialized: Materialized | None,
        name: str | None,
    ) -> KTable[Any, Any]:
        check_materialized(materialized, f"the aggregation of {self.name}", self.key_serde, value_serde)
        context, names = self._context, self._context.names
        m = materialized or Materialized()
        refuse_ttl(
            m,
            f"the aggregation of table {self.name}",
            "a group goes with the rows it is made of; give the ttl to their table",
        )
        # Java names the stores of reductions AGGREGATE too.
        store = named_store(context, materialized, "KTABLE-AGGREGATE-")
        sink = names.suffixed_or_new(name, "-sink", "KSTREAM-SINK-")
        source = names.suffixed_or_new(name, "-source", "KSTREAM-SOURCE-")
        node_name = names.given_or_new(name, prefix)
        key_serde = context.key_serde(m.key_serde or self.key_serde, node_name)
        result_serde = context.value_serde(m.value_serde or value_serde, node_name)
        if self._repartitioned is None or self.repartition_name is None:
            self._repartitioned = GroupedTableRepartitionNode(
                (self.repartition_name or store) + REPARTITION_SUFFIX,
                sink,
                source,
                context.key_serde(self.key_serde, node_name),
                context.value_serde(self.value_serde, node_name),
            )
        repartition = self._repartitioned
        context.graph.add(repartition, self._node)
        spec = key_value_spec(context, store, materialized, key_serde, result_serde)
        step = AggregateStep(spec, lambda send_old: make_operator(store, send_old), StoreView(store))
        node = ProcessorNode(node_name, step)
        node.output_versioned = m.versioned
        context.graph.add(node, repartition)
        sources = frozenset((repartition.name,))
        return KTable(context, node_name, node, sources, key_serde, result_serde, step, m.name)
