"""`KTable`: a table with the latest value of each key, which changes with each record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, overload

from streamapp._base.callables import check_supplier, require_function
from streamapp.dsl.answers import answer_of_table
from streamapp.dsl.arguments import check_materialized, check_stores
from streamapp.dsl.context import Context
from streamapp.dsl.graph import Node
from streamapp.dsl.graph_nodes import ProcessorNode
from streamapp.dsl.materialize import DERIVED_TTL, Materialized, key_value_spec, refuse_ttl
from streamapp.dsl.steps import DerivedStep, Fixed, GroupStep, TableStep
from streamapp.dsl.stream import Described
from streamapp.dsl.suppression import suppress
from streamapp.dsl.table_joins import join_tables
from streamapp.engine.operators.stateless import ToStream
from streamapp.engine.operators.table import (
    TableFilter,
    TableMapValues,
    TableTransformValues,
)
from streamapp.engine.operators.table_answers import or_none
from streamapp.engine.operators.transformer import ValueTransformer
from streamapp.engine.operators.views import FilterView, MapView, TransformView
from streamapp.on_error import OnError
from streamapp.serdes.base import Serde
from streamapp.state.spec import StoreSpec
from streamapp.suppressed import Suppressed
from streamapp.topology.nodes import Partitioner

if TYPE_CHECKING:
    from streamapp.dsl.grouped import KGroupedTable
    from streamapp.dsl.kstream import KStream

__all__ = ["KTable"]

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
VR = TypeVar("VR")


class KTable(Described[K, V]):
    """A table with the latest value of each key; keys have the type K and values the type V. (Kafka Streams:
    ``KTable``.)

    The value None deletes a row. Most methods return a new table, which follows the changes of this one. A new table
    has a store only if ``materialized`` names one (`join` has other rules). Without a store, a row is computed each
    time a join reads it. An update with a smaller timestamp than the row's still overwrites the row, unless the table
    is versioned.

    ``name`` is the name of the operator, and ``materialized`` has the settings of the store (`Materialized`).
    ``on_error`` decides about a row for which the function of a method raises (see `OnError`, docs/failures.md). If the
    answer drops the row, the result lacks the row, as if the function had returned None. A `Retry` is not possible,
    because readers of the table would miss the change while it waits.

    >>> from streamapp.testing import try_out
    >>> gates = [("A1", "open"), ("A1", "closed"), ("B2", "open")]
    >>> try_out(lambda stream: stream.to_table().filter(lambda gate, state: state == "open"), gates)
    [('A1', 'open'), ('A1', None), ('B2', 'open')]
    """

    _hints: ClassVar[Mapping[str, str]] = {
        "to": "write the changes of the table to a topic: table.to_stream().to(topic)",
        "foreach": "a table has no records of its own; write table.to_stream().foreach(action)",
        "peek": "a table has no records of its own; write table.to_stream().peek(action)",
        "map": "rows keep their key in a table; write table.map_values(mapper), or table.group_by(function) "
        "for other keys",
        "select_key": "rows keep their key in a table; write table.to_stream(key_selector)",
        "group_by_key": "write table.group_by(lambda key, value: (key, value))",
        "get": "a description holds no rows; ask a running application, or driver.store(name).get(key) in a test",
    }

    def __init__(
        self,
        context: Context,
        name: str,
        node: Node,
        sources: frozenset[str],
        key_serde: Serde[Any] | None,
        value_serde: Serde[Any] | None,
        step: TableStep,
        queryable_store_name: str | None,
    ) -> None:
        super().__init__(context, name, node, sources, key_serde, value_serde)
        self._step = step
        self.queryable_store_name = queryable_store_name
        """The name of the table's store for queries. None if ``materialized`` gave the table no name.

        For the result of a join, the name may be a generated one. After a foreign-key join, there may be a name but no
        store.
        """

    def filter(
        self,
        predicate: Callable[[K, V], bool],
        *,
        materialized: Materialized | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KTable[K, V]:
        """The rows for which ``predicate(key, value)`` is true. (``KTable.filter``)

        If a row changes and the predicate becomes false, the row is deleted from the result. The predicate never gets
        the value None. The result may emit deletions of rows that it never had. Such deletions are left out if this
        table, or a table from which it is derived, already has a store without versions.

        >>> from streamapp.testing import try_out
        >>> try_out(lambda delays: delays.to_table().filter(lambda k, v: v > 15), [("UA1", 20), ("UA1", 5)])
        [('UA1', 20), ('UA1', None)]
        """
        return self._filter(predicate, False, materialized, name, on_error)

    def filter_not(
        self,
        predicate: Callable[[K, V], bool],
        *,
        materialized: Materialized | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KTable[K, V]:
        """The rows for which ``predicate(key, value)`` is false. (``KTable.filterNot``)

        >>> from streamapp.testing import try_out
        >>> try_out(lambda delays: delays.to_table().filter_not(lambda k, v: v > 15), [("UA1", 5), ("UA1", 20)])
        [('UA1', 5), ('UA1', None)]
        """
        return self._filter(predicate, True, materialized, name, on_error)

    @overload
    def map_values(
        self,
        fn: Callable[[V], V2],
        *,
        with_key: Literal[False] = False,
        materialized: Materialized | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KTable[K, V2]: ...
    @overload
    def map_values(
        self,
        fn: Callable[[K, V], V2],
        *,
        with_key: Literal[True],
        materialized: Materialized | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KTable[K, V2]: ...
    def map_values(
        self,
        fn: Callable[..., V2],
        *,
        with_key: bool = False,
        materialized: Materialized | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KTable[K, V2]:
        """The rows with the value ``fn(value)``, or with ``with_key`` ``fn(key, value)``. (``KTable.mapValues``)

        If the function returns None, the row is deleted from the result. The function never gets the value None,
        because deletions are handed on without a call. The timestamp of a row stays.

        >>> from streamapp.testing import try_out
        >>> try_out(lambda words: words.to_table().map_values(str.upper), [("a", "to"), ("a", None)])
        [('a', 'TO'), ('a', None)]
        """
        what = "a function of key and value" if with_key else "a function of the value"
        require_function(
            fn,
            f"map_values() of {self.name}",
            what,
            2 if with_key else 1,
            key_option=None if with_key else "with_key",
        )
        spec = self._spec(materialized, "KTABLE-MAPVALUES-", None)
        node_name = self._context.names.given_or_new(name, "KTABLE-MAPVALUES-")
        answer = answer_of_table(on_error, node_name)
        step = DerivedStep(
            self._step,
            spec,
            lambda store, send_old, versioned: TableMapValues(fn, with_key, store, send_old, answer),
            lambda parent: MapView(parent, or_none(fn, answer), with_key),
        )
        return self._derived(ProcessorNode(node_name, step), step, materialized, None)

    def transform_values(
        self,
        supplier: Callable[[], ValueTransformer],
        *store_names: str,
        materialized: Materialized | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KTable[K, Any]:
        """The rows with values that a `ValueTransformer` computes. (``KTable.transformValues``, KIP-292)

        ``supplier`` is the transformer's class, or a function that returns a new one, because each task needs its own.
        ``store_names`` are the stores that the transformer uses. For a deletion, the transformer gets None. If
        ``materialized`` names no store, the result is not stored. The transformer is then called again when a join
        reads the row, and for the old result of a changed row. The transformer cannot forward records.

        >>> from streamapp.testing import try_out
        >>> class Doubled:
        ...     def init(self, context): ...
        ...     def transform(self, key, value):
        ...         return None if value is None else value * 2
        ...     def close(self): ...
        >>> try_out(lambda numbers: numbers.to_table().transform_values(Doubled), [("a", 2)])
        [('a', 4)]
        """
        node_name = self._context.names.given_or_new(name, "KTABLE-TRANSFORMVALUES-")
        check_supplier(supplier, node_name, "transform", 2)
        check_stores(store_names, node_name)
        spec = self._spec(materialized, None, None)
        answer = answer_of_table(on_error, node_name)
        step = DerivedStep(
            self._step,
            spec,
            lambda store, send_old, versioned: TableTransformValues(supplier, store, send_old, answer),
            lambda parent: TransformView(parent, supplier, answer),
        )
        return self._derived(ProcessorNode(node_name, step, store_names), step, materialized, None)

    @overload
    def to_stream(self, key_selector: None = None, *, name: str | None = None) -> KStream[K, V]: ...
    @overload
    def to_stream(self, key_selector: Callable[[K, V], K2], *, name: str | None = None) -> KStream[K2, V]: ...
    def to_stream(
        self, key_selector: Callable[[K, V], Any] | None = None, *, name: str | None = None
    ) -> KStream[Any, V]:
        """The changes of the table as a stream of new values, with None for deletions. (``KTable.toStream``)

        With ``key_selector(key, value)`` the records get new keys, so later groupings and joins need a repartition
        topic.

        >>> from streamapp.testing import try_out
        >>> try_out(lambda words: words.to_table().to_stream(), [("a", "to"), ("a", None)])
        [('a', 'to'), ('a', None)]
        """
        node_name = self._context.names.given_or_new(name, "KTABLE-TOSTREAM-")
        node = ProcessorNode(node_name, Fixed(ToStream()))
        self._context.graph.add(node, self._node)
        if key_selector is not None:
            require_function(key_selector, node_name, "a key selector of key and value", 2)
        stream: KStream[K, V] = self._context.faces.stream(
            self._context, node_name, node, self._sources, self.key_serde, self.value_serde
        )
        return stream if key_selector is None else stream.select_key(key_selector)

    def group_by(
        self,
        fn: Callable[[K, V], tuple[K2, V2] | None],
        *,
        key_serde: Serde[K2] | None = None,
        value_serde: Serde[V2] | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KGroupedTable[K2, V2]:
        """Groups the rows for an aggregation. ``fn(key, value)`` returns (group, value). (``KTable.groupBy``)

        A repartition topic carries the old and the new value of each change. So an aggregation can subtract a row from
        its old group when the row moves to another group. A row for which the function returns None, or a pair with
        None, is in no group. The function is called for the old and for the new value of a row, but never gets the
        value None.

        >>> from streamapp.testing import try_out
        >>> seats = [("ann", "window"), ("bob", "aisle"), ("ann", "aisle")]
        >>> try_out(lambda stream: stream.to_table().group_by(lambda who, seat: (seat, who)).count(), seats)
        [('window', 1), ('aisle', 1), ('window', 0), ('aisle', 2)]
        """
        require_function(
            fn, f"group_by() of {self.name}", "a function of key and value that returns (key, value)", 2
        )
        node_name = self._context.names.given_or_new(name, "KTABLE-SELECT-")
        step = GroupStep(fn, answer_of_table(on_error, node_name))
        node = ProcessorNode(node_name, step, checks_versions=True)
        self._context.graph.add(node, self._node)
        self._step.enable_old_values(True)
        return self._context.faces.grouped_table(
            self._context, node_name, node, self._sources, key_serde, value_serde, name
        )

    def suppress(self, suppressed: Suppressed) -> KTable[K, V]:
        """Holds the changes of the table back, so that fewer are handed on. (``KTable.suppress``, KIP-328)

        `Suppressed.until_window_closes` holds the changes of a window until the window is closed, so that only its
        final result comes out. `Suppressed.until_time_limit` holds the changes of a key for a span of stream time after
        the first held change, and then hands on the last change.

        >>> from streamapp import BufferConfig, StreamsBuilder, StringSerde, Suppressed
        >>> text = StringSerde()
        >>> gates = StreamsBuilder().table("gates", key_serde=text, value_serde=text)
        >>> gates.suppress(Suppressed.until_time_limit(1000, BufferConfig.unbounded(), name="calm"))
        <KTable calm>
        """
        return suppress(self, suppressed)

    # ------------------------------------------------------------------ joins

    def join(
        self,
        other: KTable[Any, V2],
        joiner: Callable[[V, V2], VR],
        *,
        foreign_key: Callable[..., Any] | None = None,
        foreign_key_with_key: bool = False,
        other_partitioner: Partitioner | None = None,
        materialized: Materialized | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KTable[K, VR]:
        """Joins each row with a row of the other table: the result is ``joiner(left, right)``. (``KTable.join``)

        The two rows have the same key. With ``foreign_key``, the function ``foreign_key(value)`` gives the key of the
        other table's row (with ``foreign_key_with_key`` the call is ``foreign_key(key, value)``; KIP-213).
        A row whose foreign key is None has no result. If a partitioner of its own has written the other table's topic,
        give this function as ``other_partitioner``. The function gets topic, foreign key, None and the number of
        partitions, and has to choose one partition. (``TableJoined.otherPartitioner``)

        The result changes when either row changes, and is deleted when either row is deleted. A result has the larger
        timestamp of its two rows. With ``foreign_key``, a change of the right row gives a result with the timestamp of
        this change. Both tables, or the tables from which they are derived, get stores, because each side has to look
        up the other side's rows. For a join by the same key, both tables need topics with the same number of
        partitions. A foreign-key join has two internal topics between the tables, so the numbers may differ.

        The result of a join by the same key has a store if ``materialized`` is given. The result of a foreign-key join
        has a store if ``materialized`` names one, or if a later method needs one.

        >>> from streamapp.testing import try_out
        >>> def described(names, ages):
        ...     return names.to_table().join(ages.to_table(), "{} is {}".format)
        >>> try_out(described, [("u1", "Ann"), ("u2", "Bob")], [("u1", 30), ("u1", None)])
        [('u1', 'Ann is 30'), ('u1', None)]
        """
        return join_tables(
            "inner",
            self,
            other,
            joiner,
            foreign_key,
            foreign_key_with_key,
            other_partitioner,
            materialized,
            name,
            on_error,
        )

    def left_join(
        self,
        other: KTable[Any, V2],
        joiner: Callable[[V, V2 | None], VR],
        *,
        foreign_key: Callable[..., Any] | None = None,
        foreign_key_with_key: bool = False,
        other_partitioner: Partitioner | None = None,
        materialized: Materialized | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KTable[K, VR]:
        """As `join`, but a row of this table without a match is in the result, too. (``KTable.leftJoin``)

        The joiner then gets None for the right side. With ``foreign_key``, a row whose foreign key is None counts as a
        row without a match.

        >>> from streamapp.testing import try_out
        >>> def described(names, ages):
        ...     return names.to_table().left_join(ages.to_table(), "{} is {}".format)
        >>> try_out(described, [("u1", "Ann")], [("u1", 30)])
        [('u1', 'Ann is None'), ('u1', 'Ann is 30')]
        """
        return join_tables(
            "left",
            self,
            other,
            joiner,
            foreign_key,
            foreign_key_with_key,
            other_partitioner,
            materialized,
            name,
            on_error,
        )

    def outer_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V | None, V2 | None], VR],
        *,
        materialized: Materialized | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KTable[K, VR]:
        """As `join`, but rows of both tables without a match are in the result, too. (``KTable.outerJoin``)

        The joiner then gets None for the missing side.

        >>> from streamapp.testing import try_out
        >>> def described(names, ages):
        ...     return names.to_table().outer_join(ages.to_table(), "{} is {}".format)
        >>> try_out(described, [("u1", "Ann")], [("u2", 30)])
        [('u1', 'Ann is None'), ('u2', 'None is 30')]
        """
        return join_tables("outer", self, other, joiner, None, False, None, materialized, name, on_error)

    # ------------------------------------------------------------------ inside

    def _filter(
        self,
        predicate: Callable[[K, V], bool],
        negate: bool,
        materialized: Materialized | None,
        name: str | None,
        on_error: OnError | None,
    ) -> KTable[K, V]:
        require_function(predicate, f"filter() of {self.name}", "a predicate of key and value", 2)
        spec = self._spec(materialized, "KTABLE-FILTER-", self.value_serde)
        node_name = self._context.names.given_or_new(name, "KTABLE-FILTER-")
        answer = answer_of_table(on_error, node_name)
        step = DerivedStep(
            self._step,
            spec,
            lambda store, send_old, versioned: TableFilter(
                predicate, negate, store, send_old, versioned, answer
            ),
            lambda parent: FilterView(parent, predicate, negate, answer),
            wants_old=True,
        )
        node = ProcessorNode(node_name, step, checks_versions=True)
        return self._derived(node, step, materialized, self.value_serde)

    def _spec(
        self, materialized: Materialized | None, prefix: str | None, value_serde: Serde[Any] | None
    ) -> StoreSpec | None:
        """The store of a derived table, or None if no name is given.

        As in Kafka Streams, a `Materialized` without a name advances the counter of generated names. So later generated
        names have the same numbers as in Kafka Streams.
        """
        context = self._context
        check_materialized(materialized, f"the table derived from {self.name}")
        if materialized is None:
            return None
        refuse_ttl(materialized, f"the table derived from {self.name}", DERIVED_TTL)
        if materialized.name is None:
            if prefix is not None:
                context.names.new_store(prefix)
            return None
        key_serde = context.key_serde(materialized.key_serde or self.key_serde, f"table {materialized.name}")
        value_serde = context.value_serde(
            materialized.value_serde or value_serde, f"table {materialized.name}"
        )
        return key_value_spec(context, materialized.name, materialized, key_serde, value_serde)

    def _derived(
        self,
        node: ProcessorNode,
        step: TableStep,
        materialized: Materialized | None,
        value_serde: Serde[Any] | None,
    ) -> KTable[K, Any]:
        m = materialized or Materialized()
        if materialized is not None:
            node.output_versioned = m.versioned
        self._context.graph.add(node, self._node)
        return KTable(
            self._context,
            node.name,
            node,
            self._sources,
            m.key_serde or self.key_serde,
            m.value_serde or value_serde,
            step,
            m.name,
        )
