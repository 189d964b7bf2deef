"""`KTable`: the latest value by key, as a changing table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from streamapp.dsl.checks import check_materialized, check_stores, check_supplier
from streamapp.dsl.context import Context
from streamapp.dsl.foreign_key import join_on_foreign_key
from streamapp.dsl.graph import Node
from streamapp.dsl.materialize import Materialized, key_value_spec, refuse_ttl
from streamapp.dsl.nodes import ProcessorNode
from streamapp.dsl.steps import DerivedStep, Fixed, TableStep
from streamapp.dsl.stream import Described, require_function
from streamapp.dsl.suppression import suppress
from streamapp.dsl.table_joins import join_tables
from streamapp.engine.operators.stateless import ToStream
from streamapp.engine.operators.table import (
    TableFilter,
    TableMapValues,
    TableRepartitionMap,
    TableTransformValues,
    ValueTransformer,
)
from streamapp.engine.operators.views import FilterView, MapView, TransformView
from streamapp.errors import TopologyError
from streamapp.serdes.base import Serde
from streamapp.state.spec import StoreSpec
from streamapp.suppressed import Suppressed

if TYPE_CHECKING:
    from streamapp.dsl.grouped import KGroupedTable
    from streamapp.dsl.kstream import KStream

__all__ = ["GlobalKTable", "KTable"]

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
VR = TypeVar("VR")

_DERIVED_TTL = "its rows go with those that it is made of; give the ttl to the tables that it comes from"


class GlobalKTable(Generic[K, V]):
    """A table that every process keeps whole; only to be joined with. (Kafka Streams: ``GlobalKTable``.)"""

    def __init__(self, store_name: str, queryable_store_name: str | None) -> None:
        self.store_name = store_name
        self.queryable_store_name = queryable_store_name

    def __repr__(self) -> str:
        return f"<GlobalKTable {self.store_name}>"


class KTable(Described[K, V]):
    """A table with keys of type K and rows of type V; None deletes a row.

    Methods return new tables, which follow the changes of this one. A derived table is kept in a store of
    its own only if ``materialized`` names it; otherwise its rows are computed when a join asks. (Kafka
    Streams: ``KTable``.)
    """

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
    ) -> KTable[K, V]:
        """The rows for which ``predicate(key, value)`` holds; a row that stops matching is deleted.
        (``KTable.filter``)"""
        return self._filter(predicate, False, materialized, name)

    def filter_not(
        self,
        predicate: Callable[[K, V], bool],
        *,
        materialized: Materialized | None = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """The rows for which ``predicate(key, value)`` does not hold. (``KTable.filterNot``)"""
        return self._filter(predicate, True, materialized, name)

    @overload
    def map_values(
        self,
        fn: Callable[[V], V2],
        *,
        with_key: Literal[False] = False,
        materialized: Materialized | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]: ...
    @overload
    def map_values(
        self,
        fn: Callable[[K, V], V2],
        *,
        with_key: Literal[True],
        materialized: Materialized | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]: ...
    def map_values(
        self,
        fn: Callable[..., V2],
        *,
        with_key: bool = False,
        materialized: Materialized | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]:
        """Rows with new values: ``fn(value)``, or ``fn(key, value)``. Not called for deletions; None deletes.
        (``KTable.mapValues``)"""
        what = "a function of key and value" if with_key else "a function of the value"
        require_function(fn, f"map_values() of {self.name}", what, 2 if with_key else 1)
        spec = self._spec(materialized, "KTABLE-MAPVALUES-", None)
        node_name = self._context.names.given_or_new(name, "KTABLE-MAPVALUES-")
        step = DerivedStep(
            self._step,
            spec,
            lambda store, send_old, versioned: TableMapValues(fn, with_key, store, send_old),
            lambda parent: MapView(parent, fn, with_key),
        )
        return self._derived(ProcessorNode(node_name, step), step, materialized, None)

    def transform_values(
        self,
        supplier: Callable[[], ValueTransformer],
        *store_names: str,
        materialized: Materialized | None = None,
        name: str | None = None,
    ) -> KTable[K, Any]:
        """Rows with values from a `ValueTransformer` of its own for each task, which may use the named
        stores.

        It sees deletions as None. (``KTable.transformValues``)
        """
        node_name = self._context.names.given_or_new(name, "KTABLE-TRANSFORMVALUES-")
        check_supplier(supplier, node_name, "transform", 2)
        check_stores(store_names, node_name)
        spec = self._spec(materialized, None, None)
        step = DerivedStep(
            self._step,
            spec,
            lambda store, send_old, versioned: TableTransformValues(supplier, store, send_old),
            lambda parent: TransformView(parent, supplier),
        )
        return self._derived(ProcessorNode(node_name, step, store_names), step, materialized, None)

    @overload
    def to_stream(self, key_selector: None = None, *, name: str | None = None) -> KStream[K, V]: ...
    @overload
    def to_stream(self, key_selector: Callable[[K, V], K2], *, name: str | None = None) -> KStream[K2, V]: ...
    def to_stream(
        self, key_selector: Callable[[K, V], Any] | None = None, *, name: str | None = None
    ) -> KStream[Any, V]:
        """The changes as a stream of new values, None for deletions; with new keys if ``key_selector`` is
        given. (``KTable.toStream``)"""
        from streamapp.dsl.kstream import KStream

        node_name = self._context.names.given_or_new(name, "KTABLE-TOSTREAM-")
        node = ProcessorNode(node_name, Fixed(ToStream()))
        self._context.graph.add(node, self._node)
        if key_selector is not None:
            require_function(key_selector, node_name, "a key selector of key and value", 2)
        stream: KStream[K, V] = KStream(
            self._context, node_name, node, self._sources, self.key_serde, self.value_serde
        )
        return stream if key_selector is None else stream.select_key(key_selector)

    def group_by(
        self,
        fn: Callable[[K, V], tuple[K2, V2]],
        *,
        key_serde: Serde[K2] | None = None,
        value_serde: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KGroupedTable[K2, V2]:
        """Groups the rows by ``fn(key, value) -> (group, value)``. (``KTable.groupBy``)

        It goes through a repartition topic, with old and new value of each change.
        """
        from streamapp.dsl.grouped import KGroupedTable

        require_function(
            fn, f"group_by() of {self.name}", "a function of key and value that returns (key, value)", 2
        )
        node_name = self._context.names.given_or_new(name, "KTABLE-SELECT-")
        node = ProcessorNode(node_name, _GroupStep(fn), checks_versions=True)
        self._context.graph.add(node, self._node)
        self._step.enable_old_values(True)
        return KGroupedTable(self._context, node_name, node, self._sources, key_serde, value_serde, name)

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
    ) -> KTable[K, VR]:
        """Joins rows with the other table's: ``joiner(left, right)`` where both sides have a row.

        By the same key, or, with ``foreign_key(value)`` (``foreign_key(key, value)`` if
        ``foreign_key_with_key``), by the other table's key that it names (KIP-213). The result changes with
        both tables; its timestamp is the larger one. (``KTable.join``)
        """
        return self._join("inner", other, joiner, foreign_key, foreign_key_with_key, materialized, name)

    def left_join(
        self,
        other: KTable[Any, V2],
        joiner: Callable[[V, V2 | None], VR],
        *,
        foreign_key: Callable[..., Any] | None = None,
        foreign_key_with_key: bool = False,
        materialized: Materialized | None = None,
        name: str | None = None,
    ) -> KTable[K, VR]:
        """As `join`, but all rows of this table are in the result, without a match with None.
        (``KTable.leftJoin``)"""
        return self._join("left", other, joiner, foreign_key, foreign_key_with_key, materialized, name)

    def outer_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V | None, V2 | None], VR],
        *,
        materialized: Materialized | None = None,
        name: str | None = None,
    ) -> KTable[K, VR]:
        """As `join`, but all rows of both tables are in the result, without a match with None.
        (``KTable.outerJoin``)"""
        return self._join("outer", other, joiner, None, False, materialized, name)

    # ------------------------------------------------------------------ inside

    def _join(
        self,
        kind: Literal["inner", "left", "outer"],
        other: KTable[Any, Any],
        joiner: Callable[[Any, Any], Any],
        foreign_key: Callable[..., Any] | None,
        foreign_key_with_key: bool,
        materialized: Materialized | None,
        name: str | None,
    ) -> KTable[K, Any]:
        if not isinstance(other, KTable):
            raise TopologyError(
                f"table {self.name} joins with a KTable, not {other!r}; turn it round or to_table() it"
            )
        require_function(joiner, f"the join of {self.name}", "a joiner of left and right value", 2)
        check_materialized(materialized, f"the join of {self.name}")
        refuse_ttl(materialized, f"the join of {self.name}", _DERIVED_TTL)
        if foreign_key is None:
            return join_tables(self, other, joiner, kind, materialized, name)
        takes = 2 if foreign_key_with_key else 1
        require_function(
            foreign_key, f"the join of {self.name}", "a function that extracts the foreign key", takes
        )
        left = kind == "left"
        return join_on_foreign_key(
            self, other, foreign_key, foreign_key_with_key, joiner, left, materialized, name
        )

    def _filter(
        self,
        predicate: Callable[[K, V], bool],
        negate: bool,
        materialized: Materialized | None,
        name: str | None,
    ) -> KTable[K, V]:
        require_function(predicate, f"filter() of {self.name}", "a predicate of key and value", 2)
        spec = self._spec(materialized, "KTABLE-FILTER-", self.value_serde)
        node_name = self._context.names.given_or_new(name, "KTABLE-FILTER-")
        step = DerivedStep(
            self._step,
            spec,
            lambda store, send_old, versioned: TableFilter(predicate, negate, store, send_old, versioned),
            lambda parent: FilterView(parent, predicate, negate),
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
        refuse_ttl(materialized, f"the table derived from {self.name}", _DERIVED_TTL)
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


class _GroupStep(Fixed):
    def __init__(self, fn: Callable[[Any, Any], tuple[Any, Any]]) -> None:
        super().__init__(None)
        self._fn = fn

    def operator(self, versioned: bool) -> TableRepartitionMap:
        return TableRepartitionMap(self._fn, versioned)
