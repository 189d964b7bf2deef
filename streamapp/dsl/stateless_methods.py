"""The operators of a `KStream` that look at one record at a time, as methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from streamapp._base.callables import check_supplier, require_function
from streamapp._base.names import check_name
from streamapp.dsl.answers import answered
from streamapp.dsl.arguments import check_stores
from streamapp.dsl.graph import Node
from streamapp.dsl.graph_nodes import ProcessorNode
from streamapp.dsl.steps import Fixed
from streamapp.dsl.stream import Described
from streamapp.engine.operator import Operator
from streamapp.engine.operators.processor import ProcessorOperator
from streamapp.engine.operators.stateless import (
    Filter,
    FlatMap,
    FlatMapValues,
    ForEach,
    Map,
    MapValues,
    Peek,
    SelectKey,
)
from streamapp.engine.processor import FixedKeyProcessor, Processor
from streamapp.on_error import OnError
from streamapp.serdes.base import Serde

if TYPE_CHECKING:
    from streamapp.dsl.kstream import KStream

__all__ = ["StatelessMethods"]

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")


class StatelessMethods(Described[K, V]):
    """What can be done with each record for itself, and with a processor of the user's.

    ``on_error`` of each method decides about a record for which the function raises (see `OnError`, docs/failures.md). Default:
    ``processing_exception_handler`` of the configuration.
    """

    repartition_required: bool
    """The key may have changed, so that what goes by key needs a repartition topic first."""

    def filter(
        self, predicate: Callable[[K, V], bool], *, name: str | None = None, on_error: OnError | None = None
    ) -> KStream[K, V]:
        """Keeps the records for which ``predicate(key, value)`` holds; null keys and values are given to it.
        (``KStream.filter``)

        >>> from streamapp.testing import try_out
        >>> try_out(lambda delays: delays.filter(lambda flight, delay: delay > 15), [("UA1", 20), ("UA2", 3)])
        [('UA1', 20)]
        """
        require_function(predicate, f"filter() of {self.name}", "a predicate of key and value", 2)
        return self._keep(Filter(predicate), "KSTREAM-FILTER-", name, on_error)

    def filter_not(
        self, predicate: Callable[[K, V], bool], *, name: str | None = None, on_error: OnError | None = None
    ) -> KStream[K, V]:
        """Drops the records for which ``predicate(key, value)`` holds. (``KStream.filterNot``)

        >>> from streamapp.testing import try_out
        >>> try_out(lambda delays: delays.filter_not(lambda flight, delay: delay > 15), [("UA1", 20), ("UA2", 3)])
        [('UA2', 3)]
        """
        require_function(predicate, f"filter_not() of {self.name}", "a predicate of key and value", 2)
        return self._keep(Filter(predicate, negate=True), "KSTREAM-FILTER-", name, on_error)

    def map(
        self, fn: Callable[[K, V], tuple[K2, V2]], *, name: str | None = None, on_error: OnError | None = None
    ) -> KStream[K2, V2]:
        """One new (key, value) pair for each record, with its timestamp and headers. (``KStream.map``)

        The key may change, so a grouping or join behind it goes through a repartition topic; see `map_values`.

        >>> from streamapp.testing import try_out
        >>> try_out(lambda flights: flights.map(lambda tail, origin: (origin, tail)), [("N1", "JFK")])
        [('JFK', 'N1')]
        """
        require_function(
            fn, f"map() of {self.name}", "a function of key and value that returns (key, value)", 2
        )
        return self._change_key(Map(fn), "KSTREAM-MAP-", name, None, on_error)

    @overload
    def map_values(
        self,
        fn: Callable[[V], V2],
        *,
        with_key: Literal[False] = False,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def map_values(
        self,
        fn: Callable[[K, V], V2],
        *,
        with_key: Literal[True],
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, V2]: ...
    def map_values(
        self,
        fn: Callable[..., V2],
        *,
        with_key: bool = False,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, V2]:
        """One new value for each record: ``fn(value)``, or ``fn(key, value)``; called for None too.

        Prefer it to `map`: the key stays, so that nothing has to be repartitioned. (``KStream.mapValues``)

        >>> from streamapp.testing import try_out
        >>> try_out(lambda words: words.map_values(len), [("a", "to be"), ("b", "or")])
        [('a', 5), ('b', 2)]
        >>> try_out(lambda words: words.map_values("{}: {}".format, with_key=True), [("a", "to be")])
        [('a', 'a: to be')]
        """
        what = "a function of key and value" if with_key else "a function of the value"
        require_function(
            fn,
            f"map_values() of {self.name}",
            what,
            2 if with_key else 1,
            key_option=None if with_key else "with_key",
        )
        return self._change_value(MapValues(fn, with_key), "KSTREAM-MAPVALUES-", name, on_error)

    def flat_map(
        self,
        fn: Callable[[K, V], Iterable[tuple[K2, V2]]],
        *,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K2, V2]:
        """Any number of (key, value) pairs for each record, all with its timestamp and headers. (``KStream.flatMap``)

        The key may change, so a grouping or join behind it goes through a repartition topic; see `flat_map_values`.

        >>> from streamapp.testing import try_out
        >>> try_out(lambda lines: lines.flat_map(lambda key, line: [(word, 1) for word in line.split()]), [("a", "to be")])
        [('to', 1), ('be', 1)]
        """
        require_function(
            fn, f"flat_map() of {self.name}", "a function of key and value that returns (key, value) pairs", 2
        )
        return self._change_key(FlatMap(fn), "KSTREAM-FLATMAP-", name, None, on_error)

    @overload
    def flat_map_values(
        self,
        fn: Callable[[V], Iterable[V2]],
        *,
        with_key: Literal[False] = False,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def flat_map_values(
        self,
        fn: Callable[[K, V], Iterable[V2]],
        *,
        with_key: Literal[True],
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, V2]: ...
    def flat_map_values(
        self,
        fn: Callable[..., Iterable[V2]],
        *,
        with_key: bool = False,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, V2]:
        """Any number of values for each record, all with its key. (``KStream.flatMapValues``)

        >>> from streamapp import StreamsBuilder, StringSerde, TopologyTestDriver
        >>> text, builder = StringSerde(), StreamsBuilder()
        >>> builder.stream("lines", key_serde=text, value_serde=text).flat_map_values(str.split).to(
        ...     "words", value_serde=text)
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("lines", text, text).pipe_input("a", "to be")
        ...     driver.create_output_topic("words", text, text).read_key_values()
        [('a', 'to'), ('a', 'be')]
        """
        what = "a function of key and value" if with_key else "a function of the value"
        require_function(
            fn, f"flat_map_values() of {self.name}", f"{what} that returns values", 2 if with_key else 1
        )
        return self._change_value(FlatMapValues(fn, with_key), "KSTREAM-FLATMAPVALUES-", name, on_error)

    def select_key(
        self, fn: Callable[[K, V], K2], *, name: str | None = None, on_error: OnError | None = None
    ) -> KStream[K2, V]:
        """A new key for each record. (``KStream.selectKey``)

        A grouping or join behind it goes through a repartition topic, where records without key are dropped unless a left or outer
        join reads them (KIP-962).

        >>> from streamapp.testing import try_out
        >>> try_out(lambda flights: flights.select_key(lambda tail, flight: flight["to"]), [("N1", {"to": "JFK"})])
        [('JFK', {'to': 'JFK'})]
        """
        require_function(
            fn, f"select_key() of {self.name}", "a function of key and value that returns the new key", 2
        )
        return self._change_key(SelectKey(fn), "KSTREAM-KEY-SELECT-", name, self.value_serde, on_error)

    def peek(
        self, fn: Callable[[K, V], object], *, name: str | None = None, on_error: OnError | None = None
    ) -> KStream[K, V]:
        """Calls ``fn(key, value)`` with each record in passing, for its side effect. (``KStream.peek``)

        It is called again for records that are processed again after a failure.

        >>> from streamapp.testing import try_out
        >>> _ = try_out(lambda words: words.peek(print), [("a", "to be")])
        a to be
        """
        require_function(fn, f"peek() of {self.name}", "a function of key and value", 2)
        return self._keep(Peek(fn), "KSTREAM-PEEK-", name, on_error)

    def foreach(
        self, fn: Callable[[K, V], object], *, name: str | None = None, on_error: OnError | None = None
    ) -> None:
        """Calls ``fn(key, value)`` with each record, as the last operator. (``KStream.foreach``)

        It is called again for records that are processed again after a failure.

        >>> from streamapp import StreamsBuilder, StringSerde, TopologyTestDriver
        >>> text, builder = StringSerde(), StreamsBuilder()
        >>> builder.stream("words", key_serde=text, value_serde=text).foreach(print)
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("words", text, text).pipe_input("a", "to be")
        a to be
        """
        require_function(fn, f"foreach() of {self.name}", "a function of key and value", 2)
        self._keep(ForEach(fn), "KSTREAM-FOREACH-", name, on_error)

    def process(
        self,
        supplier: Callable[[], Processor[K, V, K2, V2]],
        *store_names: str,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K2, V2]:
        """Runs a `Processor` of its own for each task, with the named stores. (``KStream.process``, KIP-820)

        ``supplier`` is its class, or a function that returns a new one each time. Stores are named here or brought along by
        the attribute ``stores`` of the supplier or the processor. It may change the key, so that grouping or joining repartitions.

        >>> from streamapp import Processor, Record
        >>> from streamapp.testing import try_out
        >>> class Twice(Processor):
        ...     def process(self, record: Record) -> None:
        ...         self.context.forward(record)
        ...         self.context.forward(record.with_value(record.value + 1))
        >>> try_out(lambda numbers: numbers.process(Twice), [("a", 1)])
        [('a', 1), ('a', 2)]
        """
        node = self._processor(
            supplier, store_names, "KSTREAM-PROCESSOR-", name, fixed_key=False, on_error=on_error
        )
        return self._next(node, None, None, True)

    def process_values(
        self,
        supplier: Callable[[], FixedKeyProcessor[K, V, V2]],
        *store_names: str,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, V2]:
        """Runs a `FixedKeyProcessor` of its own for each task, with the named stores. (``KStream.processValues``, KIP-820)

        It has to keep the key (`StreamsError` if it forwards another), so that nothing has to be repartitioned.

        >>> from streamapp import FixedKeyProcessor, Record
        >>> from streamapp.testing import try_out
        >>> class Negative(FixedKeyProcessor):
        ...     def process(self, record: Record) -> None:
        ...         self.context.forward(record.with_value(-record.value))
        >>> try_out(lambda numbers: numbers.process_values(Negative), [("a", 1)])
        [('a', -1)]
        """
        node = self._processor(
            supplier, store_names, "KSTREAM-PROCESSVALUES-", name, fixed_key=True, on_error=on_error
        )
        return self._next(node, self.key_serde, None, self.repartition_required)

    # ------------------------------------------------------------------ inside

    def _keep(
        self, operator: Operator, prefix: str, name: str | None, on_error: OnError | None = None
    ) -> KStream[K, V]:
        node_name = self._context.names.given_or_new(name, prefix)
        node = ProcessorNode(node_name, self._answered(operator, on_error, node_name))
        return self._next(node, self.key_serde, self.value_serde, self.repartition_required)

    def _change_value(
        self, operator: Operator, prefix: str, name: str | None, on_error: OnError | None = None
    ) -> KStream[K, Any]:
        node_name = self._context.names.given_or_new(name, prefix)
        node = ProcessorNode(node_name, self._answered(operator, on_error, node_name), value_changing=True)
        return self._next(node, self.key_serde, None, self.repartition_required)

    def _change_key(
        self,
        operator: Operator,
        prefix: str,
        name: str | None,
        value_serde: Serde[Any] | None,
        on_error: OnError | None = None,
    ) -> KStream[Any, Any]:
        node_name = self._context.names.given_or_new(name, prefix)
        node = ProcessorNode(node_name, self._answered(operator, on_error, node_name), key_changing=True)
        return self._next(node, None, value_serde, True)

    def _processor(
        self,
        supplier: Any,
        stores: tuple[str, ...],
        prefix: str,
        name: str | None,
        *,
        fixed_key: bool,
        on_error: OnError | None,
    ) -> ProcessorNode:
        node_name = check_name(name) if name is not None else self._context.names.new(prefix)
        check_supplier(supplier, node_name, "process", 1)
        check_stores(stores, node_name)
        operator = ProcessorOperator(supplier, fixed_key=fixed_key)
        return ProcessorNode(node_name, self._answered(operator, on_error, node_name), stores)

    def _answered(self, operator: Operator, on_error: OnError | None, name: str) -> Fixed:
        return answered(self._context, operator, on_error, name, self.key_serde, self.value_serde)

    def _next(
        self, node: Node, key_serde: Serde[Any] | None, value_serde: Serde[Any] | None, repartition: bool
    ) -> KStream[Any, Any]:
        """Appends a node and returns the stream behind it."""
        self._context.graph.add(node, self._node)
        return self._context.faces.stream(
            self._context,
            node.name,
            node,
            self._sources,
            key_serde,
            value_serde,
            repartition_required=repartition,
        )
