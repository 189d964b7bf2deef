"""`Topology`: a graph of named sources, processors, stores and sinks, the low-level way to describe an application.

The DSL builds a `Topology`, too. `Topology.describe` shows the graph as text, and `Topology.plan` prepares the graph
for a runner.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from streamapp._base.callables import check_supplier, require_function, stores_of
from streamapp._base.names import check_name, check_pattern
from streamapp._base.offset_reset import OffsetReset, check_offset_reset
from streamapp.config import StreamsConfig, check_config
from streamapp.errors import ConfigError, TopologyError
from streamapp.on_error import Answer, Chooser
from streamapp.serdes.base import Serde, check_serde
from streamapp.state.spec import StoreSpec
from streamapp.topology.dead_letters import check_cycles, check_dead_letters
from streamapp.topology.describe import describe_global_store, describe_subtopology
from streamapp.topology.edges import (
    UNDECODABLE,
    UNWRITABLE,
    answer_of_edge,
    check_extractor,
    check_partitioner,
)
from streamapp.topology.groups import NodeGroups
from streamapp.topology.mermaid import to_mermaid
from streamapp.topology.nodes import Node, Partitioner, ProcessorNode, SinkNode, SourceNode
from streamapp.topology.plan import GlobalStore, InternalTopic, Plan
from streamapp.topology.planner import Planner, bound_to, repartition_topic

__all__ = ["Topology"]

_FOR_BUILDERS = (
    "topology_optimization",
    "dsl_store_type",
    "dsl_store_format",
    "ensure_explicit_internal_resource_naming",
)
"""Settings that `StreamsBuilder.build` uses. A change after the build would come too late, so `Topology.plan` refuses
one."""


class Topology:
    """A graph of sources, processors, stores and sinks. The examples of the methods use the names of this example.

    >>> from streamapp import Processor, Record, Stores, StringSerde, Topology
    >>> class Pass(Processor):
    ...     def process(self, record: Record) -> None:
    ...         self.context.forward(record)
    >>> text = {"key_serde": StringSerde(), "value_serde": StringSerde()}
    >>> topology = Topology().add_source("in", "flights", **text).add_processor("pass", Pass, "in")
    >>> print(topology.add_sink("out", "copies", "pass", **text).describe())
    Topologies:
       Sub-topology: 0
        Source: in (topics: [flights])
          --> pass
        Processor: pass (stores: [])
          --> out
          <-- in
        Sink: out (topic: copies)
          <-- pass
    <BLANKLINE>
    <BLANKLINE>
    """

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._stores: dict[str, StoreSpec] = {}
        self._global_stores: dict[str, GlobalStore] = {}
        self._internal: dict[str, InternalTopic] = {}
        self._source_changelogs: dict[str, str] = {}
        self._copartitions: list[tuple[str, ...]] = []
        self._groups = NodeGroups()
        self._config, self._built = StreamsConfig(), False

    # ------------------------------------------------------------------ building

    def add_source(
        self,
        name: str,
        *topics: str,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        timestamp_extractor: Callable[..., int] | None = None,
        pattern: re.Pattern[str] | None = None,
        on_error: Answer | Chooser | None = None,
        offset_reset: OffsetReset | None = None,
    ) -> Topology:
        """Adds a source that reads topics, or all topics that match a pattern. (``Topology.addSource``)

        ``timestamp_extractor(record, partition_time)`` returns a record's timestamp in ms. The default is
        ``default_timestamp_extractor`` of the configuration, or else the timestamp of the record in Kafka. ``on_error``
        decides about records that cannot be decoded (default: ``deserialization_exception_handler``). ``offset_reset``
        is the place at which reading begins without a committed offset (default: ``auto_offset_reset``). Raises
        `TopologyError` for a name that is in use, and for a topic that another source reads.

        >>> list(Topology().add_source("in", "flights", "charters", **text).nodes)
        ['in']
        """
        self._new_node(name)
        _check_serdes(name, key_serde, value_serde)
        if not topics and pattern is None:
            raise TopologyError(f"source {name} reads nothing: name at least one topic or give a pattern")
        if topics and pattern is not None:
            raise TopologyError(
                f"source {name} has topics and a pattern: add two sources, or write a pattern for all topics"
            )
        for number, topic in enumerate(topics):
            if not isinstance(topic, str):
                raise TopologyError(
                    f"source {name} reads topics by name, each an argument of its own, not {topic!r}"
                )
            if topic in topics[:number]:
                raise TopologyError(f"source {name} names topic {topic} twice")
            if topic not in self._internal:
                check_name(topic, "topic")
            self._check_topic_free(topic)
        if pattern is not None:
            check_pattern(pattern, f"source {name}")
            self._check_pattern_free(pattern)
        if offset_reset is not None:
            check_offset_reset(offset_reset, f"source {name}: offset_reset")
        check_extractor(timestamp_extractor, f"source {name}")
        answer_of_edge(on_error, f"source {name}", UNDECODABLE)
        self._nodes[name] = SourceNode(
            name,
            tuple(topics),
            pattern,
            key_serde,
            value_serde,
            timestamp_extractor,
            on_error=on_error,
            offset_reset=offset_reset,
        )
        return self

    def add_processor(self, name: str, supplier: Any, *parents: str) -> Topology:
        """Adds a processor behind its parents. (``Topology.addProcessor``)

        Each call of ``supplier`` returns a new `Processor`, because each task needs its own. The supplier or the
        processor may have an attribute ``stores``, a list or tuple of `StoreSpec`. These stores are added and
        connected. Raises `TopologyError` for a name that is in use, and for an unknown parent.

        >>> list(Topology().add_source("in", "flights", **text).add_processor("pass", Pass, "in").nodes)
        ['in', 'pass']
        """
        self._new_node(name)
        stores = _check_processor(name, supplier)
        self._check_parents(name, parents)
        self._nodes[name] = ProcessorNode(name, supplier, tuple(parents))
        self._groups.unite(name, *parents)
        for spec in stores:
            self.add_state_store(spec, name)
        return self

    def add_sink(
        self,
        name: str,
        topic: str | Callable[..., str],
        *parents: str,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        partitioner: Partitioner | None = None,
        on_error: Answer | Chooser | None = None,
    ) -> Topology:
        """Adds a sink that writes the records of its parents to a topic. (``Topology.addSink``)

        ``topic`` is a name, or a function ``topic(key, value, record_context)`` that returns a name for each record.
        ``partitioner(topic, key, value, partition_count)`` may choose the partition, or several (see `KStream.to`).
        Without a partitioner, or if it returns None, Kafka's default partitioner chooses by the bytes of the key.
        Without a partitioner, the bytes of a windowed key leave out the window. ``on_error`` decides about results that
        cannot be serialized, or that brokers refuse (default: ``production_exception_handler``).

        >>> topology = Topology().add_source("in", "flights", **text)
        >>> list(topology.add_sink("out", lambda key, value, context: f"copy-of-{context.topic}", "in", **text).nodes)
        ['in', 'out']
        """
        self._new_node(name)
        _check_serdes(name, key_serde, value_serde)
        if not isinstance(topic, str):
            require_function(
                topic, f"sink {name}", "the name of a topic or a function of key, value and RecordContext", 3
            )
        elif topic not in self._internal:
            check_name(topic, "topic")
        check_partitioner(partitioner, f"sink {name}")
        answer_of_edge(on_error, f"sink {name}", UNWRITABLE)
        self._check_parents(name, parents)
        self._nodes[name] = SinkNode(
            name, topic, tuple(parents), key_serde, value_serde, partitioner, on_error
        )
        self._groups.unite(name, *parents)
        return self

    def add_state_store(self, spec: StoreSpec, *processors: str) -> Topology:
        """Adds a store and connects it to processors. (``Topology.addStateStore``)

        The same `StoreSpec` object may be added again. Raises `TopologyError` for another object with the same name,
        even if both objects are equal.

        >>> topology = Topology().add_source("in", "flights", **text).add_processor("pass", Pass, "in")
        >>> list(topology.add_state_store(Stores.key_value("seen", StringSerde(), StringSerde()), "pass").stores)
        ['seen']
        """
        if not isinstance(spec, StoreSpec):
            raise TopologyError(
                f"add_state_store() takes a StoreSpec, such as Stores.key_value(...) makes, not {spec!r}"
            )
        present = self._stores.get(spec.name)
        if (present is not None and present is not spec) or spec.name in self._global_stores:
            raise self._store_is_there(spec.name, processors)
        check_name(spec.name, "store name")
        self._stores[spec.name] = spec
        for processor in processors:
            self.connect_processor_and_state_stores(processor, spec.name)
        return self

    def connect_processor_and_state_stores(self, processor: str, *stores: str) -> Topology:
        """Lets a processor use stores. (``Topology.connectProcessorAndStateStores``)

        All processors that use a store belong to the same sub-topology, so that one task runs them.

        >>> topology = Topology().add_source("in", "flights", **text).add_processor("pass", Pass, "in")
        >>> _ = topology.add_state_store(Stores.key_value("seen", StringSerde(), StringSerde()))
        >>> topology.connect_processor_and_state_stores("pass", "seen").nodes["pass"].stores
        ('seen',)
        """
        if not stores:
            raise TopologyError(f"name at least one store to connect to {processor}")
        node = self._nodes.get(processor)
        if node is None:
            raise TopologyError(f"processor {processor} is not added yet")
        if not isinstance(node, ProcessorNode):
            raise TopologyError(
                f"a state store cannot be connected to {processor}, which is a source or a sink"
            )
        if (filled := self._filled_by(processor)) is not None:
            raise TopologyError(
                f"{processor} fills global store {filled}, so no other store can be connected to it"
            )
        for store in stores:
            if store in self._global_stores:
                raise TopologyError(
                    f"global store {store} can be used by every processor without connecting it; leave its name out"
                )
            if store not in self._stores:
                raise TopologyError(
                    f"state store {store} is not added yet; add it before {processor} names it"
                )
        for store in stores:
            for other in self._nodes.values():
                if isinstance(other, ProcessorNode) and store in other.stores:
                    self._groups.unite(processor, other.name)
                    break
        merged = tuple(dict.fromkeys((*node.stores, *stores)))
        self._nodes[processor] = replace(node, stores=merged)
        return self

    def add_global_store(
        self,
        spec: StoreSpec,
        source: str,
        topic: str,
        processor: str,
        supplier: Any,
        *,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        timestamp_extractor: Callable[..., int] | None = None,
        on_error: Answer | Chooser | None = None,
    ) -> Topology:
        """Adds a store that every process fills from all partitions of a topic. (``Topology.addGlobalStore``)

        ``supplier`` returns the processor that writes the records to the store. All other processors may read the store
        without being connected to it. ``on_error`` decides about records that cannot be decoded (default:
        ``deserialization_exception_handler``).

        >>> spec = Stores.key_value("airports", StringSerde(), StringSerde())
        >>> list(Topology().add_global_store(spec, "read", "airports", "keep", Pass, **text).stores)
        ['airports']
        """
        if not isinstance(spec, StoreSpec):
            raise TopologyError(f"a global store takes a StoreSpec, as Stores makes them, not {spec!r}")
        others = [store.name for store in _check_processor(processor, supplier) if store is not spec]
        if others:
            raise TopologyError(
                f"{processor} fills global store {spec.name}, so it cannot bring other stores: {', '.join(others)}"
            )
        if spec.name in self._global_stores or spec.name in self._stores:
            raise self._store_is_there(spec.name, (processor,))
        if source == processor:
            raise TopologyError(
                f"source and processor of global store {spec.name} need different names, both are {source}"
            )
        self.add_source(
            source,
            topic,
            key_serde=key_serde,
            value_serde=value_serde,
            timestamp_extractor=timestamp_extractor,
            on_error=on_error,
        )
        self._new_node(processor)
        node = ProcessorNode(processor, supplier, (source,), (spec.name,))
        self._nodes[processor] = node
        self._groups.unite(processor, source)
        source_node = self._nodes[source]
        assert isinstance(source_node, SourceNode)
        self._global_stores[spec.name] = GlobalStore(spec, topic, source_node, node)
        return self

    def add_read_only_state_store(
        self,
        spec: StoreSpec,
        source: str,
        topic: str,
        processor: str,
        supplier: Any,
        *,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        timestamp_extractor: Callable[..., int] | None = None,
        on_error: Answer | Chooser | None = None,
    ) -> Topology:
        """Adds a store that a task fills from its partition of a topic. (``Topology.addReadOnlyStateStore``, KIP-813)

        ``supplier`` returns the processor that writes the records to the store, as they are. The topic serves as the
        changelog, so the store needs no other one, and a restore reads the topic without the processor. Further
        processors may read the store (`connect_processor_and_state_stores`). A new group reads the topic from its
        oldest record.

        >>> spec = Stores.key_value("rates", StringSerde(), StringSerde())
        >>> list(Topology().add_read_only_state_store(spec, "read", "rates", "keep", Pass, **text).stores)
        ['rates']
        """
        if not isinstance(spec, StoreSpec):
            raise TopologyError(f"a read-only store takes a StoreSpec, as Stores makes them, not {spec!r}")
        self.add_source(
            source,
            topic,
            key_serde=key_serde,
            value_serde=value_serde,
            timestamp_extractor=timestamp_extractor,
            on_error=on_error,
            offset_reset="earliest",
        )
        self.add_processor(processor, supplier, source)
        self.add_state_store(replace(spec, logged=False), processor)
        self.connect_source_store_and_topic(spec.name, topic)
        return self

    # ------------------------------------------------------------------ what only the DSL needs

    def add_internal_topic(self, name: str, partitions: int | None = None) -> None:
        """Declares a repartition topic; the plan prefixes its name with the application id."""
        check_name(name, "repartition topic")
        self._internal.setdefault(name, repartition_topic(name, partitions))

    def connect_source_store_and_topic(self, store: str, topic: str) -> None:
        """Makes a source topic serve as the changelog of a store (optimisation ``reuse.ktable.source.topics``)."""
        self._source_changelogs[store] = topic

    def copartition_sources(self, *sources: str) -> None:
        """Requires that the topics of these sources have the same number of partitions, because their records are
        joined."""
        self._copartitions.append(sources)

    def set_config(self, config: StreamsConfig) -> None:
        """Notes the configuration with which the topology was built."""
        self._config, self._built = config, True

    # ------------------------------------------------------------------ results

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes by name, in the order in which they were added.

        >>> type(Topology().add_source("in", "flights", **text).nodes["in"]).__name__
        'SourceNode'
        """
        return self._nodes

    @property
    def stores(self) -> Mapping[str, StoreSpec]:
        """All stores by name, including global stores.

        >>> dict(Topology().add_source("in", "flights", **text).stores)
        {}
        """
        return {**self._stores, **{name: g.spec for name, g in self._global_stores.items()}}

    def describe(self) -> str:
        """The description of this topology, as Kafka Streams writes it. (``Topology.describe``)

        >>> print(Topology().add_source("in", "flights", **text).describe().splitlines()[2])
            Source: in (topics: [flights])
        """
        of_global = {g.processor.name: g for g in self._global_stores.values()}
        text = []
        for number, nodes in enumerate(self._node_groups()):
            global_store = next((of_global[n.name] for n in nodes if n.name in of_global), None)
            if global_store is not None:
                text.append(describe_global_store(number, global_store.source, global_store.processor))
            else:
                text.append(describe_subtopology(number, nodes))
        # As in Java, sub-topologies and global stores stand in the order of their numbers.
        return "Topologies:\n " + "".join("  " + t for t in text)

    def to_mermaid(self) -> str:
        """The topology as a Mermaid flowchart, which GitHub and most documentation tools draw. Global stores are left
        out.

        >>> Topology().add_source("in", "flights", **text).to_mermaid().splitlines()[0]
        'flowchart LR'
        """
        return to_mermaid([nodes for _, nodes in self._subtopologies()])

    def plan(self, config: StreamsConfig | None = None) -> Plan:
        """Prepares the topology to run as one application.

        The settings given in ``config`` override those of the configuration with which the topology was built. Raises
        `TopologyError` if the topology is empty. Raises `ConfigError` for a setting of which the builder has already
        used another value. Raises `ConfigError`, too, if an ``on_error`` is "dead_letter", but
        ``dead_letter_queue_topic`` is not set, and if the topology makes dead letters of its own dead letters.

        >>> from streamapp import StreamsConfig
        >>> Topology().add_source("in", "flights", **text).plan(StreamsConfig("copies")).source_topics
        ('flights',)
        """
        check_config(config, "plan()")
        config = self._config if config is None else self._on_top(config)
        planner = Planner(config, self._stores, self._internal, self._source_changelogs, self._copartitions)
        subtopologies = tuple(planner.subtopology(number, nodes) for number, nodes in self._subtopologies())
        if not subtopologies and not self._global_stores:
            raise TopologyError(
                "the topology is empty: it has no source; add at least one stream() or table()"
            )
        check_dead_letters(self._nodes.values(), config)
        of_global = [node for each in self._global_stores.values() for node in (each.source, each.processor)]
        check_cycles([*self._nodes.values(), *of_global], config)
        stores = tuple(replace(g, spec=bound_to(g.topic, g.spec)) for g in self._global_stores.values())
        return Plan(config, subtopologies, stores)

    def without_answers(self) -> Topology:
        """A copy in which no node has an ``on_error`` of its own, so that the configured exception handlers decide.

        >>> list(Topology().add_source("in", "flights", **text, on_error="skip").without_answers().nodes)
        ['in']
        """
        bare = copy(self)
        bare._nodes = {name: _without_answer(node) for name, node in self._nodes.items()}
        bare._global_stores = {
            name: replace(g, source=replace(g.source, on_error=None), processor=_bare(g.processor))
            for name, g in self._global_stores.items()
        }
        return bare

    # ------------------------------------------------------------------ inside

    def _on_top(self, config: StreamsConfig) -> StreamsConfig:
        merged = config.on_top_of(self._config)
        for name in _FOR_BUILDERS if self._built else ():
            wanted, built = getattr(merged, name), getattr(self._config, name)
            if wanted != built:
                raise ConfigError(
                    f"{name}={wanted!r} comes too late: the topology was built with {built!r}. "
                    f"Give the setting to the builder: StreamsBuilder(StreamsConfig({name}={wanted!r}))"
                )
        return merged

    def _node_groups(self) -> list[list[Node]]:
        return [[self._nodes[name] for name in names] for names in self._groups.split(self._nodes)]

    def _subtopologies(self) -> list[tuple[int, list[Node]]]:
        """The groups of nodes that become sub-topologies, with their numbers. A global store also uses up a number."""
        sources = {g.source.name for g in self._global_stores.values()}
        return [
            (number, nodes)
            for number, nodes in enumerate(self._node_groups())
            if nodes[0].name not in sources
        ]

    def _new_node(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise TopologyError(f"a node needs a name, a text that is not empty, not {name!r}")
        if name in self._nodes:
            raise TopologyError(f"processor {name} is already added; give one of the two another name")

    def _store_is_there(self, name: str, processors: Sequence[str]) -> TopologyError:
        owners = [n.name for n in self._nodes.values() if isinstance(n, ProcessorNode) and name in n.stores]
        of_one = f" by {' and '.join(owners)}" if owners else ""
        of_other = f", and {' and '.join(processors)} brings another" if processors else ""
        return TopologyError(
            f"a different state store has already been added with the name {name}{of_one}{of_other}; give one "
            "of the two another name"
        )

    def _check_parents(self, name: str, parents: tuple[str, ...]) -> None:
        if not parents:
            raise TopologyError(f"{name} has no parent: name the node that it gets its records from")
        for number, parent in enumerate(parents):
            if not isinstance(parent, str):
                raise TopologyError(
                    f"{name} has parents by name, each an argument of its own, not {parent!r}"
                )
            if parent in parents[:number]:
                raise TopologyError(
                    f"{name} names parent {parent} twice, but gets each record once; leave one out"
                )
            if parent == name:
                raise TopologyError(f"parent node {parent} is unknown: a node cannot be its own parent")
            if parent not in self._nodes:
                raise TopologyError(f"parent node {parent} of {name} is unknown; add it first")
            if isinstance(self._nodes[parent], SinkNode):
                raise TopologyError(f"sink {parent} cannot be used as a parent: nothing comes out of it")
            if (filled := self._filled_by(parent)) is not None:
                raise TopologyError(
                    f"{parent} fills global store {filled} and cannot be used as a parent: no task runs {name} behind "
                    "it. Read the store in another processor, or copy the records to a topic that a source reads"
                )

    def _filled_by(self, node: str) -> str | None:
        """The global store whose source or processor is this node."""
        for store in self._global_stores.values():
            if node in (store.source.name, store.processor.name):
                return store.spec.name
        return None

    def _check_topic_free(self, topic: str) -> None:
        for node in self._nodes.values():
            if isinstance(node, SourceNode):
                if topic in node.topics:
                    raise TopologyError(
                        f"topic {topic} has already been registered by source {node.name}; read it once and "
                        "use that stream or table twice"
                    )
                if node.pattern is not None and node.pattern.fullmatch(topic):
                    raise TopologyError(
                        f"topic {topic} matches the pattern {node.pattern.pattern} of source {node.name}, and a "
                        "topic has one source at most. Change the pattern, or use the stream of this source"
                    )

    def _check_pattern_free(self, pattern: re.Pattern[str]) -> None:
        for node in self._nodes.values():
            if isinstance(node, SourceNode):
                if node.pattern == pattern:
                    raise TopologyError(
                        f"pattern {pattern.pattern} has already been registered by source {node.name}; "
                        "read the topics once and use that stream twice"
                    )
                for topic in node.topics:
                    if pattern.fullmatch(topic):
                        raise TopologyError(
                            f"pattern {pattern.pattern} will match topic {topic}, which source {node.name} has "
                            "already registered"
                        )


def _check_processor(name: str, supplier: Any) -> tuple[Any, ...]:
    """Checks a supplier, and returns the stores that its processor brings along."""
    if callable(getattr(supplier, "bind", None)):  # an operator of the DSL
        return tuple(getattr(supplier, "stores", ()))
    return stores_of(supplier, check_supplier(supplier, f"processor {name}", "process", 1))


def _check_serdes(node: str, key_serde: Any, value_serde: Any) -> None:
    check_serde(key_serde, f"key_serde of {node}")
    check_serde(value_serde, f"value_serde of {node}")


def _without_answer(node: Node) -> Node:
    return _bare(node) if isinstance(node, ProcessorNode) else replace(node, on_error=None)


def _bare(node: ProcessorNode) -> ProcessorNode:
    operator = node.operator
    if hasattr(operator, "raises"):  # its children stay: some of them are retry topics
        return replace(node, operator=replace(operator, raises=True))
    if hasattr(operator, "operator") and (hasattr(operator, "on_error") or hasattr(operator, "retry")):
        return replace(node, operator=operator.operator)
    if getattr(operator, "on_error", None) is not None:
        return replace(node, operator=replace(operator, on_error=None))
    return node
