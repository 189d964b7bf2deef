"""`StreamsBuilder`: the beginning of every topology that the DSL describes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from streamapp._base.callables import check_supplier
from streamapp._base.names import check_pattern, check_topic_name, of_topics
from streamapp._base.offset_reset import OffsetReset, check_offset_reset
from streamapp.config import StreamsConfig, check_config
from streamapp.dsl.answers import refuse_retry
from streamapp.dsl.arguments import check_materialized
from streamapp.dsl.context import Context, Faces
from streamapp.dsl.global_ktable import GlobalKTable
from streamapp.dsl.graph_nodes import GlobalStoreNode, SourceNode, StoreNode, TableSourceNode
from streamapp.dsl.grouped import KGroupedTable
from streamapp.dsl.joined import JoinedKStream
from streamapp.dsl.kstream import KStream
from streamapp.dsl.ktable import KTable
from streamapp.dsl.materialize import Materialized, key_value_spec, named_store, refuse_ttl
from streamapp.dsl.optimize import optimize
from streamapp.dsl.steps import SourceStep
from streamapp.engine.operators.guarded import guarded
from streamapp.engine.operators.processor import ProcessorOperator
from streamapp.engine.operators.table import TableSource
from streamapp.errors import TopologyError
from streamapp.on_error import Answer, Chooser, OnError
from streamapp.serdes.base import Serde
from streamapp.state.spec import StoreSpec
from streamapp.topology import Topology
from streamapp.topology.edges import UNDECODABLE, answer_of_edge, check_extractor

__all__ = ["StreamsBuilder"]

K = TypeVar("K")
V = TypeVar("V")
TimestampExtractor = Callable[[Any, int], int]


class StreamsBuilder:
    """Describes a topology of streams and tables. `build` returns the `Topology`. (Kafka Streams: ``StreamsBuilder``.)

    ``config`` (a `StreamsConfig`) gives the default serdes, the default kind of stores, and the optimisations.

    >>> from streamapp import StringSerde, TopologyTestDriver
    >>> builder = StreamsBuilder()
    >>> flights = builder.stream("flights", key_serde=StringSerde(), value_serde=StringSerde())
    >>> flights.map_values(str.upper).to("loud", value_serde=StringSerde())
    >>> with TopologyTestDriver(builder.build()) as driver:
    ...     driver.create_input_topic("flights", StringSerde(), StringSerde()).pipe_input("UA1", "delayed")
    ...     driver.create_output_topic("loud", StringSerde(), StringSerde()).read_key_values()
    [('UA1', 'DELAYED')]
    """

    def __init__(self, config: StreamsConfig | None = None) -> None:
        check_config(config, "StreamsBuilder")
        self._context = Context(
            config or StreamsConfig(), Faces(KStream, JoinedKStream, KTable, KGroupedTable)
        )

    def stream(
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        *,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
        offset_reset: OffsetReset | None = None,
    ) -> KStream[K, V]:
        """A stream of the records of one or several topics, which must exist. (``StreamsBuilder.stream``)

        ``topic`` is a name, a list of names, or a compiled pattern, which stands for all topics whose whole name
        matches when the runner starts. Two streams of the same topics share one source. ``on_error`` decides about
        records that the serdes cannot decode (default: ``deserialization_exception_handler``).

        ``timestamp_extractor(record, partition_time)`` returns a record's timestamp in ms; a negative result drops the
        record. The default is ``default_timestamp_extractor`` of the configuration. Without any extractor, the
        timestamp of the record in Kafka counts, and a record without one raises `StreamsError`.

        ``offset_reset`` is the place at which reading begins without a committed offset: ``"earliest"``, ``"latest"``,
        a duration before now, or ``"none"`` (default: ``auto_offset_reset``; KIP-1106).

        >>> from streamapp import StreamsBuilder, StringSerde
        >>> text, builder = {"key_serde": StringSerde(), "value_serde": StringSerde()}, StreamsBuilder()
        >>> builder.stream(["flights", "charters"], **text, name="all-flights")
        <KStream all-flights>
        """
        topics, pattern = _topics(topic)
        node_name = self._context.names.given_or_new(name, "KSTREAM-SOURCE-")
        where = of_topics(node_name, *topics, *([pattern.pattern] if pattern else []))
        check_extractor(timestamp_extractor, where)
        node = SourceNode(
            node_name,
            topics,
            self._context.key_serde(key_serde, where),
            self._context.value_serde(value_serde, where),
            timestamp_extractor,
            pattern,
            answer_of_edge(on_error, where, UNDECODABLE),
            _checked(offset_reset, where),
        )
        self._context.graph.add(node)
        return KStream(self._context, node_name, node, frozenset((node_name,)), key_serde, value_serde)

    def table(
        self,
        topic: str,
        *,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        materialized: Materialized | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
        offset_reset: OffsetReset | None = None,
    ) -> KTable[K, V]:
        """A topic as a table with the latest value of each key. (``StreamsBuilder.table``)

        The value None deletes a row. Records without a key are dropped and counted. An update with a smaller timestamp
        than the row's still overwrites the row. Only a versioned table (``Materialized(history_retention=...)``) treats
        such an update as an earlier version.

        The table has a store with a changelog only if ``materialized`` has a name or a ttl, or for a later method such
        as `KTable.join`. With the optimisation ``reuse.ktable.source.topics``, the topic itself serves as the
        changelog, except for a table with a ttl.

        ``on_error`` decides about records that the serdes cannot decode (default:
        ``deserialization_exception_handler``). If the answer drops such a record, the row of its key stays as before.
        ``offset_reset`` is as in `stream`.

        >>> from streamapp import Materialized, StreamsBuilder, StringSerde, TopologyTestDriver
        >>> text, builder = StringSerde(), StreamsBuilder()
        >>> gates = builder.table("gates", key_serde=text, value_serde=text, materialized=Materialized("gates"))
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("gates", text, text).pipe_input("A1", "open", timestamp=5)
        ...     driver.store("gates").get("A1")
        ('open', 5)
        """
        spec, step, source, node_name = self._table_parts(topic, key_serde, value_serde, materialized, name)
        where = of_topics(node_name, topic)
        check_extractor(timestamp_extractor, where)
        assert spec.key_serde is not None
        assert spec.value_serde is not None
        node = TableSourceNode(
            node_name,
            source,
            topic,
            step,
            spec.key_serde,
            spec.value_serde,
            timestamp_extractor,
            answer_of_edge(on_error, where, UNDECODABLE),
            _checked(offset_reset, where),
        )
        node.output_versioned = spec.kind.history_ms is not None
        self._context.graph.add(node)
        queryable = materialized.name if materialized is not None else None
        return KTable(
            self._context,
            node_name,
            node,
            frozenset((source,)),
            spec.key_serde,
            spec.value_serde,
            step,
            queryable,
        )

    def global_table(
        self,
        topic: str,
        *,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        materialized: Materialized | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> GlobalKTable[K, V]:
        """A topic as a table of which every process has all rows. (``StreamsBuilder.globalTable``)

        So a stream can join the table by any key, and the numbers of partitions may differ. Before a process processes
        any other record, it reads the topic to its end. Later it applies new records as they come. Records without a
        key are dropped. The table needs no changelog, because its topic has all rows. The table cannot be versioned or
        have a ttl. ``on_error`` decides about records that the serdes cannot decode (default:
        ``deserialization_exception_handler``).

        >>> from streamapp import StreamsBuilder, StringSerde, TopologyTestDriver
        >>> text, builder = StringSerde(), StreamsBuilder()
        >>> airports = builder.global_table("airports", key_serde=text, value_serde=text)
        >>> flights = builder.stream("flights", key_serde=text, value_serde=text)
        >>> named = flights.join(airports, "{} to {}".format, key_selector=lambda tail, flight: flight[-3:])
        >>> named.foreach(print)
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("airports", text, text).pipe_input("JFK", "Kennedy")
        ...     driver.create_input_topic("flights", text, text).pipe_input("N1", "UA1 JFK")
        N1 UA1 JFK to Kennedy
        """
        check_materialized(materialized, f"the global table of topic {topic}")
        if materialized is not None and materialized.versioned:
            raise TopologyError(f"global table {topic} cannot be versioned; leave history_retention out")
        refuse_ttl(
            materialized,
            f"global table {topic}",
            "every process fills it alone; read it by table() to expire rows",
        )
        wanted = replace(materialized or Materialized(), logging=False, caching=False)
        spec, _, source, node_name = self._table_parts(topic, key_serde, value_serde, wanted, name)
        self._add_global(
            spec,
            source,
            topic,
            node_name,
            TableSource(spec.name),
            key_serde,
            value_serde,
            timestamp_extractor,
            answer_of_edge(on_error, of_topics(node_name, topic), UNDECODABLE),
        )
        return GlobalKTable(spec.name, wanted.name if materialized is not None else spec.name)

    def add_state_store(self, store: StoreSpec) -> StreamsBuilder:
        """Adds a store for processors and transformers. (``StreamsBuilder.addStateStore``)

        Each processor or transformer that uses the store has to name it in ``process``, ``process_values`` or
        ``transform_values``. Stores in the attribute ``stores`` of a processor need no call of this method.

        >>> from streamapp import Stores, StreamsBuilder, StringSerde
        >>> builder = StreamsBuilder().add_state_store(Stores.key_value("seen", StringSerde(), StringSerde()))
        >>> list(builder.build().stores)
        ['seen']
        """
        if not isinstance(store, StoreSpec):
            raise TopologyError(
                f"add_state_store() takes a StoreSpec, such as Stores.key_value(...) makes, not {store!r}"
            )
        self._context.graph.add(StoreNode(store))
        return self

    def add_global_store(
        self,
        store: StoreSpec,
        topic: str,
        processor_supplier: Callable[[], Any],
        *,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> StreamsBuilder:
        """Adds a global store, which each process fills from all partitions of a topic.
        (``StreamsBuilder.addGlobalStore``)

        ``processor_supplier`` gives the processor that fills the store. This processor gets all records of the topic,
        including those without a key. All other processors can only read the store: a write raises `StreamsError`.

        ``on_error`` decides about records that the serdes cannot decode, and about exceptions of the processor. The
        defaults are ``deserialization_exception_handler`` and ``processing_exception_handler``.

        >>> from streamapp import Processor, Record, Stores, StreamsBuilder, StringSerde, TopologyTestDriver
        >>> class Keep(Processor):
        ...     def process(self, record: Record) -> None:
        ...         self.context.get_state_store("airports").put(record.key, record.value.title())
        >>> text = StringSerde()
        >>> builder = StreamsBuilder().add_global_store(
        ...     Stores.key_value("airports", text, text), "airports", Keep, key_serde=text, value_serde=text)
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("airports", text, text).pipe_input("JFK", "kennedy")
        ...     driver.store("airports").get("JFK")
        'Kennedy'
        """
        check_topic_name(topic, "topic")
        if not isinstance(store, StoreSpec):
            raise TopologyError(
                f"add_global_store() takes a StoreSpec, such as Stores.key_value(...) makes, not {store!r}"
            )
        names = self._context.names
        source = names.suffixed_or_new(name, "-source", "KSTREAM-SOURCE-")
        node_name = names.given_or_new(name, "KTABLE-SOURCE-")
        check_supplier(processor_supplier, node_name, "process", 1)
        spec = replace(store, logged=False)
        answer = refuse_retry(
            on_error,
            of_topics(node_name, topic),
            "each process reads every record of a global topic, and keeps none for a later attempt",
            'Use "skip", "dead_letter" or a function',
        )
        supplier = guarded(ProcessorOperator(processor_supplier), answer, holds=False)
        self._add_global(
            spec, source, topic, node_name, supplier, key_serde, value_serde, timestamp_extractor, answer
        )
        return self

    def build(self) -> Topology:
        """The topology of all streams and tables so far, with the configured optimisations. (``StreamsBuilder.build``)

        May be called more than once. Raises `TopologyError` for a name that is used twice, and for an unknown store.
        Two streams that read the same topic are refused if they differ in serdes, extractor, ``on_error`` or the list
        of topics. So is another table or stream that reads the topic of a table. With
        ``ensure_explicit_internal_resource_naming`` (KIP-1111), a store or internal topic without a given name raises
        `TopologyError`, too.

        >>> from streamapp import StreamsBuilder, StringSerde
        >>> text, builder = {"key_serde": StringSerde(), "value_serde": StringSerde()}, StreamsBuilder()
        >>> builder.stream("in", **text).to("out")
        >>> list(builder.build().nodes)
        ['KSTREAM-SOURCE-0000000000', 'KSTREAM-SINK-0000000001']
        """
        config = self._context.config
        graph = self._context.graph.copy()
        optimize(graph, config.optimizations)
        topology = Topology()
        topology.set_config(config)
        graph.write(topology)
        if config.ensure_explicit_internal_resource_naming:
            self._context.names.require_explicit()
        return topology

    def _table_parts(
        self,
        topic: str,
        key_serde: Serde[Any] | None,
        value_serde: Serde[Any] | None,
        materialized: Materialized | None,
        name: str | None,
    ) -> tuple[StoreSpec, SourceStep, str, str]:
        check_topic_name(topic, "topic")
        check_materialized(materialized, f"the table of topic {topic}")
        context, names = self._context, self._context.names
        store_name = named_store(context, materialized, f"{topic}-")
        source = names.suffixed_or_new(name, "-source", "KSTREAM-SOURCE-")
        node_name = names.given_or_new(name, "KTABLE-SOURCE-")
        where = of_topics(node_name, topic)
        m = materialized or Materialized()
        m = replace(
            m,
            key_serde=context.key_serde(key_serde or m.key_serde, where),
            value_serde=context.value_serde(value_serde or m.value_serde, where),
        )
        spec = key_value_spec(context, store_name, m, None, None)
        return spec, SourceStep(spec, m.name is not None), source, node_name

    def _add_global(
        self,
        spec: StoreSpec,
        source: str,
        topic: str,
        node_name: str,
        supplier: Any,
        key_serde: Serde[Any] | None,
        value_serde: Serde[Any] | None,
        timestamp_extractor: TimestampExtractor | None,
        on_error: Answer | Chooser | None,
    ) -> None:
        context, where = self._context, of_topics(node_name, topic)
        check_extractor(timestamp_extractor, where)
        node = GlobalStoreNode(
            spec,
            source,
            topic,
            node_name,
            supplier,
            context.key_serde(key_serde or spec.key_serde, where),
            context.value_serde(value_serde or spec.value_serde, where),
            timestamp_extractor,
            on_error,
        )
        context.graph.add(node)


def _checked(offset_reset: OffsetReset | None, source: str) -> OffsetReset | None:
    if offset_reset is not None:
        check_offset_reset(offset_reset, f"{source}: offset_reset")
    return offset_reset


def _topics(topic: str | Sequence[str] | re.Pattern[str]) -> tuple[tuple[str, ...], re.Pattern[str] | None]:
    if isinstance(topic, re.Pattern):
        check_pattern(topic, "stream()")
        return (), topic
    if not isinstance(topic, str | Sequence):
        raise TopologyError(
            f"stream() takes the name of a topic, a list of names, or a compiled pattern, not {topic!r}"
        )
    topics = (topic,) if isinstance(topic, str) else tuple(topic)
    if not topics:
        raise TopologyError("stream() needs at least one topic")
    for one in topics:
        check_topic_name(one, "topic")
    return tuple(dict.fromkeys(topics)), None
