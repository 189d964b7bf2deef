"""`KTable`: the latest value by key, as a changing table."""

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
    """A table with keys of type K and rows of type V; None deletes a row.

    Methods return new tables, which follow the changes of this one. A derived table is kept in a store of its own only
    if ``materialized`` names it; otherwise its rows are computed when a join asks. An update that comes late overwrites
    the row, unless the table is versioned. (Kafka Streams: ``KTable``.)

    ``on_error`` decides about a row for which the function of a method raises (see `OnError`, docs/failures.md). If the
    answer is to go on, the row is not in the result, as if the function had returned None. Records of tables do not
    wait for a `Retry`.

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
        """The store's name for queries; None if the table was not given one."""

    def filter(
        self,
        predicate: Callable[[K, V], bool],
        *,
        materialized: Materialized | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KTable[K, V]:
        """The rows for which ``predicate(key, value)`` holds; a row that stops matching is deleted. (``KTable.filter``)

        Deletions are not given to the predicate. They are handed on also where the row was never in the result, unless
        the table sends old values or is materialized.

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
        """The rows for which ``predicate(key, value)`` does not hold. (``KTable.filterNot``)

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
        """Rows with new values: ``fn(value)``, or ``fn(key, value)``. (``KTable.mapValues``)

        Not called for deletions, which stay deletions; a result of None deletes the row. The row's timestamp stays.

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
        """Rows with values from a `ValueTransformer` of its own for each task, which may use the named stores.

        The transformer gets deletions as None, and may be called again for rows that no store keeps. The transformer
        cannot forward. (``KTable.transformValues``, KIP-292)

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
        """The changes as a stream of new values, None for deletions. (``KTable.toStream``)

        With ``key_selector(key, value)`` they get new keys, and later groupings and joins repartition the stream.

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
        """Groups the rows by ``fn(key, value) -> (group, value)``. (``KTable.groupBy``)

        A repartition topic carries old and new value of each change, so a row that changes its group leaves the old
        group. Rows for which the function returns None, or a pair with None, do not take part; deletions are not given
        to the function.

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
        """Holds changes back: until their window is closed, or so that a key changes only so often.
        (``KTable.suppress``, KIP-328)

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
        materialized: Materialized | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KTable[K, VR]:
        """Joins rows with the other table's: ``joiner(left, right)`` where both sides have a row.

        By the same key, or, with ``foreign_key(value)`` (``foreign_key(key, value)`` if ``foreign_key_with_key``), by
        the other table's key that it names (KIP-213), through two internal topics. The result changes with both tables;
        its timestamp is the larger one; it is deleted when either row is. Both tables are materialized for it; by the
        same key they have to be co-partitioned. (``KTable.join``)

        >>> from streamapp.testing import try_out
        >>> def described(names, ages):
        ...     return names.to_table().join(ages.to_table(), "{} is {}".format)
        >>> try_out(described, [("u1", "Ann"), ("u2", "Bob")], [("u1", 30), ("u1", None)])
        [('u1', 'Ann is 30'), ('u1', None)]
        """
        return join_tables(
            "inner", self, other, joiner, foreign_key, foreign_key_with_key, materialized, name, on_error
        )

    def left_join(
        self,
        other: KTable[Any, V2],
        joiner: Callable[[V, V2 | None], VR],
        *,
        foreign_key: Callable[..., Any] | None = None,
        foreign_key_with_key: bool = False,
        materialized: Materialized | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KTable[K, VR]:
        """As `join`, but all rows of this table are in the result, without a match with None. (``KTable.leftJoin``)

        With ``foreign_key``, a row whose foreign key is None is joined with None.

        >>> from streamapp.testing import try_out
        >>> def described(names, ages):
        ...     return names.to_table().left_join(ages.to_table(), "{} is {}".format)
        >>> try_out(described, [("u1", "Ann")], [("u1", 30)])
        [('u1', 'Ann is None'), ('u1', 'Ann is 30')]
        """
        return join_tables(
            "left", self, other, joiner, foreign_key, foreign_key_with_key, materialized, name, on_error
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
        """As `join`, but all rows of both tables are in the result, without a match with None. (``KTable.outerJoin``)

        >>> from streamapp.testing import try_out
        >>> def described(names, ages):
        ...     return names.to_table().outer_join(ages.to_table(), "{} is {}".format)
        >>> try_out(described, [("u1", "Ann")], [("u2", 30)])
        [('u1', 'Ann is None'), ('u2', 'None is 30')]
        """
        return join_tables("outer", self, other, joiner, None, False, materialized, name, on_error)

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
        """The store of a derived table, if it is named; an unnamed Materialized only uses up a number."""
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
