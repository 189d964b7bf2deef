"""`KStream`: a stream of independent records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from streamapp._base.callables import require_function
from streamapp._base.names import check_name, check_topic_name
from streamapp.dsl.answers import answer_of_edge
from streamapp.dsl.arguments import check_materialized
from streamapp.dsl.async_methods import AsyncMethods
from streamapp.dsl.branched import BranchedKStream
from streamapp.dsl.context import Context
from streamapp.dsl.graph import Node
from streamapp.dsl.graph_nodes import Partitioner, ProcessorNode, RepartitionNode, SinkNode
from streamapp.dsl.grouped import KGroupedStream
from streamapp.dsl.join_methods import JoinMethods
from streamapp.dsl.ktable import KTable
from streamapp.dsl.materialize import Materialized, key_value_spec, named_store
from streamapp.dsl.repartition import repartition_node
from streamapp.dsl.steps import Fixed, SourceStep
from streamapp.engine.operators.stateless import (
    PassThrough,
)
from streamapp.errors import TopologyError
from streamapp.on_error import OnError
from streamapp.serdes.base import Serde

__all__ = ["KStream"]

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

    _hints: ClassVar[Mapping[str, str]] = {
        "count": "group first: stream.group_by_key().count()",
        "reduce": "group first: stream.group_by_key().reduce(reducer)",
        "aggregate": "group first: stream.group_by_key().aggregate(initializer, aggregator)",
        "windowed_by": "group first: stream.group_by_key().windowed_by(windows)",
        "through": "write stream.repartition() for an internal topic; for one of yours, to(topic) and builder.stream(topic)",
        "transform": "write stream.process(supplier)",
        "transform_values": "write stream.process_values(supplier)",
        "for_each": "write stream.foreach(action)",
        "sink": "write stream.to(topic)",
    }

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

    # ------------------------------------------------------------------ several streams

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

    # ------------------------------------------------------------------ topics and tables

    def to(
        self,
        topic: str | Callable[[K, V, Any], str],
        *,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        partitioner: Partitioner | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> None:
        """Writes the records to a topic, or to the topic that ``topic(key, value, context)`` names for each.

        ``context`` is a `RecordContext`. ``partitioner(topic, key, value, partitions)`` may choose the partition; None leaves it to the key's
        bytes, as Kafka's default partitioner does. Windowed keys go by the key without its window. A result that the serdes do not take
        is for ``on_error`` (default: ``production_exception_handler``). The topic has to exist. (``KStream.to``)

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
            on_error=answer_of_edge(on_error, node_name, "a result that cannot be written"),
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
        check_materialized(
            materialized,
            f"to_table() of {self.name}",
            key_serde or self.key_serde,
            value_serde or self.value_serde,
        )
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
