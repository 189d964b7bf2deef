"""`KStream`: a stream of independent records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, Literal, TypeVar, overload

from streamapp.dsl.async_methods import AsyncMethods
from streamapp.dsl.branched import BranchedKStream
from streamapp.dsl.checks import check_materialized, check_stores, check_supplier
from streamapp.dsl.context import Context
from streamapp.dsl.graph import Node
from streamapp.dsl.grouped import KGroupedStream
from streamapp.dsl.join_methods import JoinMethods
from streamapp.dsl.ktable import KTable
from streamapp.dsl.late import Giver, late_stream
from streamapp.dsl.materialize import Materialized, key_value_spec, named_store
from streamapp.dsl.nodes import Partitioner, ProcessorNode, RepartitionNode, SinkNode
from streamapp.dsl.repartition import repartition_node
from streamapp.dsl.steps import Fixed, SourceStep
from streamapp.dsl.stream import require_function
from streamapp.engine.operator import Operator
from streamapp.engine.operators.processor import ProcessorOperator
from streamapp.engine.operators.stateless import (
    Filter,
    FlatMap,
    FlatMapValues,
    ForEach,
    Map,
    MapValues,
    PassThrough,
    Peek,
    SelectKey,
)
from streamapp.errors import TopologyError
from streamapp.names import check_name, check_topic_name
from streamapp.serdes.base import Serde

__all__ = ["JoinedKStream", "KStream"]

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
VR = TypeVar("VR")

_PARTITIONER = "a partitioner of topic, key, value and number of partitions"


class KStream(AsyncMethods[K, V], JoinMethods[K, V]):
    """A stream of records with keys of type K and values of type V.

    Each method adds one operator and returns a new stream; the stream itself does not change and may be used
    any number of times. Keys and values may be None unless a method says otherwise; timestamps and headers
    stay with the record. No method makes a topic unless it says so. ``name`` names the operator (default: generated, as Kafka
    Streams does). Wrong arguments raise `TopologyError` at once. (Kafka Streams: ``KStream``.)

    >>> from streamapp.testing import try_out
    >>> try_out(lambda words: words.filter(lambda key, word: word > "m"), [("a", "now"), ("a", "here")])
    [('a', 'now')]
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
        repartition_required: bool = False,
    ) -> None:
        super().__init__(context, name, node, sources, key_serde, value_serde)
        self.repartition_required = repartition_required
        """The key may have changed, so that what goes by key needs a repartition topic first."""
        self._repartitioned: RepartitionNode | None = None

    # ------------------------------------------------------------------ one record at a time

    def filter(self, predicate: Callable[[K, V], bool], *, name: str | None = None) -> KStream[K, V]:
        """Keeps the records for which ``predicate(key, value)`` holds; null keys and values are given to it.
        (``KStream.filter``)

        >>> from streamapp.testing import try_out
        >>> try_out(lambda delays: delays.filter(lambda flight, delay: delay > 15), [("UA1", 20), ("UA2", 3)])
        [('UA1', 20)]
        """
        require_function(predicate, f"filter() of {self.name}", "a predicate of key and value", 2)
        return self._keep(Filter(predicate), "KSTREAM-FILTER-", name)

    def filter_not(self, predicate: Callable[[K, V], bool], *, name: str | None = None) -> KStream[K, V]:
        """Drops the records for which ``predicate(key, value)`` holds. (``KStream.filterNot``)

        >>> from streamapp.testing import try_out
        >>> try_out(lambda delays: delays.filter_not(lambda flight, delay: delay > 15), [("UA1", 20), ("UA2", 3)])
        [('UA2', 3)]
        """
        require_function(predicate, f"filter_not() of {self.name}", "a predicate of key and value", 2)
        return self._keep(Filter(predicate, negate=True), "KSTREAM-FILTER-", name)

    def map(self, fn: Callable[[K, V], tuple[K2, V2]], *, name: str | None = None) -> KStream[K2, V2]:
        """One new (key, value) pair for each record, with its timestamp and headers. (``KStream.map``)

        The key may change, so a grouping or join behind it goes through a repartition topic; see `map_values`.

        >>> from streamapp.testing import try_out
        >>> try_out(lambda flights: flights.map(lambda tail, origin: (origin, tail)), [("N1", "JFK")])
        [('JFK', 'N1')]
        """
        require_function(
            fn, f"map() of {self.name}", "a function of key and value that returns (key, value)", 2
        )
        return self._change_key(Map(fn), "KSTREAM-MAP-", name, None)

    @overload
    def map_values(
        self, fn: Callable[[V], V2], *, with_key: Literal[False] = False, name: str | None = None
    ) -> KStream[K, V2]: ...
    @overload
    def map_values(
        self, fn: Callable[[K, V], V2], *, with_key: Literal[True], name: str | None = None
    ) -> KStream[K, V2]: ...
    def map_values(
        self, fn: Callable[..., V2], *, with_key: bool = False, name: str | None = None
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
        require_function(fn, f"map_values() of {self.name}", what, 2 if with_key else 1)
        return self._change_value(MapValues(fn, with_key), "KSTREAM-MAPVALUES-", name)

    def flat_map(
        self, fn: Callable[[K, V], Iterable[tuple[K2, V2]]], *, name: str | None = None
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
        return self._change_key(FlatMap(fn), "KSTREAM-FLATMAP-", name, None)

    @overload
    def flat_map_values(
        self, fn: Callable[[V], Iterable[V2]], *, with_key: Literal[False] = False, name: str | None = None
    ) -> KStream[K, V2]: ...
    @overload
    def flat_map_values(
        self, fn: Callable[[K, V], Iterable[V2]], *, with_key: Literal[True], name: str | None = None
    ) -> KStream[K, V2]: ...
    def flat_map_values(
        self, fn: Callable[..., Iterable[V2]], *, with_key: bool = False, name: str | None = None
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
        return self._change_value(FlatMapValues(fn, with_key), "KSTREAM-FLATMAPVALUES-", name)

    def select_key(self, fn: Callable[[K, V], K2], *, name: str | None = None) -> KStream[K2, V]:
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
        return self._change_key(SelectKey(fn), "KSTREAM-KEY-SELECT-", name, self.value_serde)

    def peek(self, fn: Callable[[K, V], object], *, name: str | None = None) -> KStream[K, V]:
        """Calls ``fn(key, value)`` with each record in passing, for its side effect. (``KStream.peek``)

        It is called again for records that are processed again after a failure.

        >>> from streamapp.testing import try_out
        >>> _ = try_out(lambda words: words.peek(print), [("a", "to be")])
        a to be
        """
        require_function(fn, f"peek() of {self.name}", "a function of key and value", 2)
        return self._keep(Peek(fn), "KSTREAM-PEEK-", name)

    def foreach(self, fn: Callable[[K, V], object], *, name: str | None = None) -> None:
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
        self._keep(ForEach(fn), "KSTREAM-FOREACH-", name)

    def merge(self, other: KStream[K, V], *, name: str | None = None) -> KStream[K, V]:
        """The records of both streams, in no particular order between them. (``KStream.merge``)

        Serdes are kept if both streams have the same. It repartitions nothing; what follows does if either key may have changed.

        >>> from streamapp.testing import try_out
        >>> try_out(lambda one, two: one.merge(two), [("a", 1)], [("b", 2)])
        [('a', 1), ('b', 2)]
        """
        if not isinstance(other, KStream):
            raise TopologyError(
                f"{self.name} merges with a KStream, not {other!r}; turn a table into one with to_stream()"
            )
        self._same_builder(other)
        node_name = self._context.names.given_or_new(name, "KSTREAM-MERGE-")
        node = ProcessorNode(node_name, Fixed(PassThrough()), merge=True)
        self._context.graph.add(node, self._node, other._node)
        return KStream(
            self._context,
            node_name,
            node,
            self._sources | other._sources,
            self.key_serde if self.key_serde is other.key_serde else None,
            self.value_serde if self.value_serde is other.value_serde else None,
            repartition_required=self.repartition_required or other.repartition_required,
        )

    def split(self, name: str | None = None) -> BranchedKStream[K, V]:
        """Begins to split the stream into branches. (``KStream.split``)

        >>> from streamapp import StreamsBuilder, StringSerde
        >>> text = StringSerde()
        >>> flights = StreamsBuilder().stream("flights", key_serde=text, value_serde=text)
        >>> sorted(flights.split("by-").branch(lambda k, v: v == "late", "late").default_branch("other"))
        ['by-late', 'by-other']
        """
        return BranchedKStream(self, name)

    def process(
        self, supplier: Callable[[], Any], *store_names: str, name: str | None = None
    ) -> KStream[Any, Any]:
        """Runs a `Processor` of its own for each task, with the named stores. (``KStream.process``, KIP-820)

        ``supplier`` is its class, or a function that returns a new one each time. Stores are named here or brought along by
        ``supplier.stores``. It may change the key, so that grouping or joining repartitions.

        >>> from streamapp import Processor, Record
        >>> from streamapp.testing import try_out
        >>> class Twice(Processor):
        ...     def process(self, record: Record) -> None:
        ...         self.context.forward(record)
        ...         self.context.forward(record._replace(value=record.value + 1))
        >>> try_out(lambda numbers: numbers.process(Twice), [("a", 1)])
        [('a', 1), ('a', 2)]
        """
        node = self._processor(supplier, store_names, "KSTREAM-PROCESSOR-", name, fixed_key=False)
        return self._next(node, None, None, True)

    def process_values(
        self, supplier: Callable[[], Any], *store_names: str, name: str | None = None
    ) -> KStream[K, Any]:
        """Runs a `FixedKeyProcessor` of its own for each task, with the named stores. (``KStream.processValues``, KIP-820)

        It has to keep the key (`StreamsError` if it forwards another), so that nothing has to be repartitioned.

        >>> from streamapp import FixedKeyProcessor, Record
        >>> from streamapp.testing import try_out
        >>> class Negative(FixedKeyProcessor):
        ...     def process(self, record: Record) -> None:
        ...         self.context.forward(record._replace(value=-record.value))
        >>> try_out(lambda numbers: numbers.process_values(Negative), [("a", 1)])
        [('a', -1)]
        """
        node = self._processor(supplier, store_names, "KSTREAM-PROCESSVALUES-", name, fixed_key=True)
        return self._next(node, self.key_serde, None, self.repartition_required)

    # ------------------------------------------------------------------ topics and tables

    def to(
        self,
        topic: str | Callable[[K, V, Any], str],
        *,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        partitioner: Partitioner | None = None,
        name: str | None = None,
    ) -> None:
        """Writes the records to a topic, or to the topic that ``topic(key, value, context)`` names for each.

        ``context`` is a `RecordContext`. ``partitioner(topic, key, value, partitions)`` may choose the partition; None leaves it to the key's
        bytes, as Kafka's default partitioner does. Windowed keys go by the key without its window. A result that the serdes do not take
        is for ``production_exception_handler``. The topic has to exist. (``KStream.to``)

        >>> from streamapp import StreamsBuilder, StringSerde, TopologyTestDriver
        >>> text, builder = StringSerde(), StreamsBuilder()
        >>> flights = builder.stream("flights", key_serde=text, value_serde=text)
        >>> flights.to(lambda tail, origin, context: f"flights-{origin}")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("flights", text, text).pipe_input("N1", "JFK")
        ...     driver.create_output_topic("flights-JFK", text, text).read_key_value()
        ('N1', 'JFK')
        """
        node_name = self._context.names.given_or_new(name, "KSTREAM-SINK-")
        if partitioner is not None:
            require_function(partitioner, node_name, _PARTITIONER, 4)
        if isinstance(topic, str):
            check_topic_name(topic, "topic")
        else:
            require_function(topic, node_name, "a topic, or a function of key, value and context", 3)
        node = SinkNode(
            node_name,
            topic,
            self._context.key_serde(key_serde or self.key_serde, node_name),
            self._context.value_serde(value_serde or self.value_serde, node_name),
            partitioner,
        )
        self._context.graph.add(node, self._node)

    def repartition(
        self,
        *,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        partitions: int | None = None,
        partitioner: Partitioner | None = None,
        name: str | None = None,
    ) -> KStream[K, V]:
        """Sends the records through an internal topic, ``<application id>-<name>-repartition``, by their key.

        ``partitions``: how many it has (default: as many as its input). What follows is a sub-topology, and a task, of its own. Records
        without key are dropped unless a left or outer join reads them. (``KStream.repartition``, KIP-221)

        >>> from streamapp import StreamsBuilder, StringSerde
        >>> builder, text = StreamsBuilder(), StringSerde()
        >>> flights = builder.stream("flights", key_serde=text, value_serde=text)
        >>> flights.repartition(name="spread", partitions=8).to("out")
        >>> [(topic.name, topic.partitions) for topic in builder.build().plan().internal_topics]
        [('streamapp-spread-repartition', 8)]
        """
        if partitions is not None and (not isinstance(partitions, int) or partitions < 1):
            raise TopologyError(
                f"the repartition topic behind {self.name} needs a number of partitions of at least 1, not {partitions!r}"
            )
        if partitioner is not None:
            require_function(partitioner, f"repartition() of {self.name}", _PARTITIONER, 4)
        context = self._context
        prefix = check_name(name) if name is not None else context.names.new("KSTREAM-REPARTITION-")
        key_serde, value_serde = key_serde or self.key_serde, value_serde or self.value_serde
        node = repartition_node(
            context.names,
            prefix,
            context.key_serde(key_serde, prefix),
            context.value_serde(value_serde, prefix),
            named=name is not None,
            partitioner=partitioner,
            partitions=partitions,
            optimizable=False,
        )
        context.graph.add(node, self._node)
        return KStream(context, node.name, node, frozenset((node.name,)), key_serde, value_serde)

    def to_table(
        self,
        *,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        materialized: Materialized | None = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """The stream as a table: each record updates the row of its key, None deletes it.

        Records without key are dropped and counted. It has a store, with a changelog, if ``materialized`` names one or a join or
        grouping needs it; if the key may have changed, a repartition topic comes before it. (``KStream.toTable``, KIP-523)

        >>> from streamapp.testing import try_out
        >>> try_out(lambda gates: gates.to_table(), [("A1", "open"), (None, "lost"), ("A1", None)])
        [('A1', 'open'), ('A1', None)]
        """
        check_materialized(materialized, f"to_table() of {self.name}")
        context, names = self._context, self._context.names
        node_name = names.given_or_new(name, "KSTREAM-TOTABLE-")
        store_name = named_store(context, materialized, "KSTREAM-TOTABLE-")
        m = materialized or Materialized()
        key_serde = m.key_serde or key_serde or self.key_serde
        value_serde = m.value_serde or value_serde or self.value_serde
        parent, sources = self._node, self._sources
        if self.repartition_required:
            parent = repartition_node(
                names,
                node_name,
                context.key_serde(key_serde, node_name),
                context.value_serde(value_serde, node_name),
                named=name is not None,
            )
            context.graph.add(parent, self._node)
            sources = frozenset((parent.name,))
        spec = key_value_spec(context, store_name, materialized, key_serde, value_serde)
        step = SourceStep(spec, m.name is not None)
        node = ProcessorNode(node_name, step)
        node.output_versioned = m.versioned
        context.graph.add(node, parent)
        return KTable(context, node_name, node, sources, key_serde, value_serde, step, m.name)

    def group_by_key(
        self,
        *,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[K, V]:
        """Groups by the key, to be aggregated. (``KStream.groupByKey``)

        Where the key may have changed before, the aggregation reads a repartition topic, which ``name`` names.

        >>> from streamapp.testing import try_out
        >>> try_out(lambda flights: flights.group_by_key().count(), [("UA", 1), ("DL", 1), ("UA", 1)])
        [('UA', 1), ('DL', 1), ('UA', 2)]
        """
        if name is not None:
            check_name(name)
        return KGroupedStream(
            self._context,
            self.name,
            self._node,
            self._sources,
            key_serde or self.key_serde,
            value_serde or self.value_serde,
            repartition_required=self.repartition_required,
            repartition_name=name,
        )

    def group_by(
        self,
        fn: Callable[[K, V], K2],
        *,
        key_serde: Serde[K2] | None = None,
        value_serde: Serde[V] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[K2, V]:
        """Groups by a new key ``fn(key, value)``, through a repartition topic that ``name`` names. (``KStream.groupBy``)

        Records that get None as their key are dropped.

        >>> from streamapp.testing import try_out
        >>> try_out(lambda words: words.group_by(lambda key, word: word[0]).count(), [("k", "to"), ("k", "the"), ("k", "be")])
        [('t', 1), ('t', 2), ('b', 1)]
        """
        require_function(
            fn, f"group_by() of {self.name}", "a function of key and value that returns the new key", 2
        )
        return self.select_key(fn, name=name).group_by_key(
            key_serde=key_serde, value_serde=value_serde, name=name
        )

    # ------------------------------------------------------------------ inside

    def _keep(self, operator: Operator, prefix: str, name: str | None) -> KStream[K, V]:
        node = ProcessorNode(self._context.names.given_or_new(name, prefix), Fixed(operator))
        return self._next(node, self.key_serde, self.value_serde, self.repartition_required)

    def _change_value(self, operator: Operator, prefix: str, name: str | None) -> KStream[K, Any]:
        node_name = self._context.names.given_or_new(name, prefix)
        node = ProcessorNode(node_name, Fixed(operator), value_changing=True)
        return self._next(node, self.key_serde, None, self.repartition_required)

    def _change_key(
        self, operator: Operator, prefix: str, name: str | None, value_serde: Serde[Any] | None
    ) -> KStream[Any, Any]:
        node_name = self._context.names.given_or_new(name, prefix)
        node = ProcessorNode(node_name, Fixed(operator), key_changing=True)
        return self._next(node, None, value_serde, True)

    def _processor(
        self, supplier: Any, stores: tuple[str, ...], prefix: str, name: str | None, *, fixed_key: bool
    ) -> ProcessorNode:
        node_name = check_name(name) if name is not None else self._context.names.new(prefix)
        check_supplier(supplier, node_name, "process", 1)
        check_stores(stores, node_name)
        return ProcessorNode(node_name, Fixed(ProcessorOperator(supplier, fixed_key=fixed_key)), stores)

    def _next(
        self, node: Node, key_serde: Serde[Any] | None, value_serde: Serde[Any] | None, repartition: bool
    ) -> KStream[Any, Any]:
        """Appends a node and returns the stream behind it."""
        self._context.graph.add(node, self._node)
        return KStream(
            self._context,
            node.name,
            node,
            self._sources,
            key_serde,
            value_serde,
            repartition_required=repartition,
        )

    def _repartition_for_join(
        self, prefix: str, named: bool, key_serde: Serde[Any] | None, value_serde: Serde[Any] | None
    ) -> KStream[K, V]:
        """This stream behind a repartition topic, which joins that give it no name share."""
        context = self._context
        key_serde, value_serde = key_serde or self.key_serde, value_serde or self.value_serde
        operator = f"the join of {self.name}"
        node = repartition_node(
            context.names,
            prefix,
            context.key_serde(key_serde, operator),
            context.value_serde(value_serde, operator),
            named=named,
        )
        if self._repartitioned is None or prefix != self.name:
            self._repartitioned = node
            context.graph.add(node, self._node)
        node = self._repartitioned
        return KStream(context, node.name, node, frozenset((node.name,)), key_serde, value_serde)


class JoinedKStream(KStream[K, VR], Generic[K, VR, V, V2]):
    """The result of a join of two streams (values V and V2), and what came too late for it.

    >>> from streamapp import JoinWindows
    >>> from streamapp.testing import try_out
    >>> near = JoinWindows.of_time_difference_with_no_grace(10)
    >>> def late_clicks(views, clicks):
    ...     return clicks.join(views, "{} on {}".format, near).late_records("left")
    >>> try_out(late_clicks, [("ann", "home", 100)], [("ann", "buy", 95), ("ann", "sell", 50)])
    [('ann', 'sell')]
    """

    def __init__(
        self,
        context: Context,
        name: str,
        node: Node,
        sources: frozenset[str],
        key_serde: Serde[Any] | None,
        *,
        late_left: tuple[Giver, Serde[Any]],
        late_right: tuple[Giver, Serde[Any]],
    ) -> None:
        super().__init__(context, name, node, sources, key_serde, None)
        self._late = {"left": late_left, "right": late_right}

    @overload
    def late_records(self, side: Literal["left"], *, name: str | None = None) -> KStream[K, V]: ...
    @overload
    def late_records(self, side: Literal["right"], *, name: str | None = None) -> KStream[K, V2]: ...
    def late_records(self, side: Literal["left", "right"], *, name: str | None = None) -> KStream[K, Any]:
        """The records of one side whose join window was closed when they came, so that pairs may be missing.

        That is: the other side's time had passed the record's timestamp + window + grace. They come out once, as they went
        in, beside the results that they still have (a left or outer join's result without match included). Records without
        key or value are not late. Beyond Kafka Streams, which has no sign of them.

        >>> from streamapp import JoinWindows, StreamsBuilder, StringSerde, TopologyTestDriver
        >>> text, builder = StringSerde(), StreamsBuilder()
        >>> clicks, views = (builder.stream(t, key_serde=text, value_serde=text) for t in ("clicks", "views"))
        >>> pairs = clicks.join(views, "{} {}".format, JoinWindows.of_time_difference_with_no_grace(10))
        >>> pairs.late_records("left").foreach(lambda key, click: print("too late:", click))
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("views", text, text).pipe_input("ann", "page", timestamp=100)
        ...     driver.create_input_topic("clicks", text, text).pipe_input("ann", "button", timestamp=50)
        too late: button
        """
        if side not in self._late:
            raise TopologyError(f'late_records() of {self.name} takes "left" or "right", not {side!r}')
        giver, value_serde = self._late[side]
        return late_stream(self, name, [giver], self.key_serde, value_serde)
