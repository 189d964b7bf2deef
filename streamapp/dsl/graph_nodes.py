"""The kinds of nodes in the DSL's graph. Each kind knows the sources, processors and sinks that it adds to the
topology."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from streamapp._base.offset_reset import OffsetReset
from streamapp.dsl.graph import Node
from streamapp.dsl.steps import Fixed, JoinStep, SourceStep, Step, StreamJoinStep
from streamapp.engine.operators.change import ChangeSerde
from streamapp.engine.operators.stateless import DropNullKeys, PassThrough
from streamapp.engine.timestamps import fail_on_invalid_timestamp
from streamapp.errors import TopologyError
from streamapp.on_error import Answer, Chooser
from streamapp.serdes.base import Serde
from streamapp.state.spec import StoreSpec
from streamapp.topology import Topology
from streamapp.topology.nodes import Partitioner

__all__ = [
    "GlobalStoreNode",
    "GroupedTableRepartitionNode",
    "LateNode",
    "ProcessorNode",
    "RepartitionNode",
    "SinkNode",
    "SourceNode",
    "StoreNode",
    "StreamJoinNode",
    "TableJoinNode",
    "TableSourceNode",
]

Extractor = Callable[..., int]


class SourceNode(Node):
    """A node that reads topics as a stream."""

    def __init__(
        self,
        name: str,
        topics: tuple[str, ...],
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        timestamp_extractor: Extractor | None = None,
        pattern: re.Pattern[str] | None = None,
        on_error: Answer | Chooser | None = None,
        offset_reset: OffsetReset | None = None,
    ) -> None:
        super().__init__(name)
        self.topics: tuple[str, ...] = topics
        self.pattern: re.Pattern[str] | None = pattern
        self.reads_by: dict[str, Any] = {
            "key_serde": key_serde,
            "value_serde": value_serde,
            "timestamp_extractor": timestamp_extractor,
            "on_error": on_error,
            "offset_reset": offset_reset,
        }
        """Arguments of `Topology.add_source`. Two streams of a topic share one source, so theirs have to be alike."""

    def write(self, topology: Topology) -> None:
        topology.add_source(self.name, *self.topics, pattern=self.pattern, **self.reads_by)


class ProcessorNode(Node):
    """A node with one operator and the operator's stores. ``connected`` are further stores that the operator uses."""

    def __init__(
        self,
        name: str,
        step: Step,
        connected: Sequence[str] = (),
        *,
        key_changing: bool = False,
        value_changing: bool = False,
        merge: bool = False,
        checks_versions: bool = False,
    ) -> None:
        super().__init__(name)
        self.step: Step = step
        self._connected = tuple(connected)
        self.key_changing: bool = key_changing
        self.value_changing: bool = value_changing
        self.merge: bool = merge
        self.checks_versions: bool = checks_versions

    def write(self, topology: Topology) -> None:
        _write_step(topology, self.name, self.step, self.parent_names, bool(self.versioned_parents))
        if self._connected:
            topology.connect_processor_and_state_stores(self.name, *self._connected)


class StoreNode(Node):
    """A store that processors name (`StreamsBuilder.add_state_store`)."""

    def __init__(self, spec: StoreSpec) -> None:
        super().__init__(spec.name)
        self._spec = spec

    def write(self, topology: Topology) -> None:
        topology.add_state_store(self._spec)


class GlobalStoreNode(Node):
    """A global store, which every process fills from a topic."""

    def __init__(
        self,
        spec: StoreSpec,
        source: str,
        topic: str,
        processor: str,
        supplier: Any,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        timestamp_extractor: Extractor | None,
        on_error: Answer | Chooser | None,
    ) -> None:
        super().__init__(processor)
        self._spec, self._source, self._topic, self._supplier = spec, source, topic, supplier
        self._key_serde, self._value_serde, self._extractor = key_serde, value_serde, timestamp_extractor
        self._on_error = on_error

    def write(self, topology: Topology) -> None:
        topology.add_global_store(
            self._spec,
            self._source,
            self._topic,
            self.name,
            self._supplier,
            key_serde=self._key_serde,
            value_serde=self._value_serde,
            timestamp_extractor=self._extractor,
            on_error=self._on_error,
        )


class TableSourceNode(Node):
    """A node that reads a topic as a table."""

    reuse_topic = False
    """True if the topic also serves as the changelog of the table (``reuse.ktable.source.topics``)."""

    def __init__(
        self,
        name: str,
        source: str,
        topic: str,
        step: SourceStep,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        timestamp_extractor: Extractor | None,
        on_error: Answer | Chooser | None,
        offset_reset: OffsetReset | None,
    ) -> None:
        super().__init__(name)
        self._source, self._topic, self._step = source, topic, step
        self.expires: bool = step.spec.kind.ttl_ms > 0
        """True if rows expire (ttl). The topic then cannot serve as the changelog, because the topic gets no tombstones
        for expired rows."""
        self._key_serde, self._value_serde, self._extractor = key_serde, value_serde, timestamp_extractor
        self._on_error, self._offset_reset = on_error, offset_reset

    def write(self, topology: Topology) -> None:
        topology.add_source(
            self._source,
            self._topic,
            key_serde=self._key_serde,
            value_serde=self._value_serde,
            timestamp_extractor=self._extractor,
            on_error=self._on_error,
            offset_reset=self._offset_reset,
        )
        topology.add_processor(self.name, self._step.operator(False), self._source)
        for spec in self._step.stores():
            topology.add_state_store(replace(spec, logged=False) if self.reuse_topic else spec, self.name)
            if self.reuse_topic:
                topology.connect_source_store_and_topic(spec.name, self._topic)


class SinkNode(Node):
    """A node that writes to a topic."""

    def __init__(
        self,
        name: str,
        topic: str | Callable[..., str],
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        partitioner: Partitioner | None = None,
        internal: bool = False,
        on_error: Answer | Chooser | None = None,
    ) -> None:
        super().__init__(name)
        self._topic, self._internal, self._on_error = topic, internal, on_error
        self._key_serde, self._value_serde = key_serde, value_serde
        self._partitioner = partitioner

    def write(self, topology: Topology) -> None:
        if self._internal:
            assert isinstance(self._topic, str)
            topology.add_internal_topic(self._topic)
        topology.add_sink(
            self.name,
            self._topic,
            *self.parent_names,
            key_serde=self._key_serde,
            value_serde=self._value_serde,
            partitioner=self._partitioner,
            on_error=self._on_error,
        )


class RepartitionNode(Node):
    """A repartition topic, with its sink and its source. The node has the name of the source."""

    drop_null_keys = False

    def __init__(
        self,
        topic: str,
        filter_name: str,
        sink: str,
        source: str,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        partitioner: Partitioner | None = None,
        partitions: int | None = None,
        optimizable: bool = True,
    ) -> None:
        super().__init__(source)
        self.topic: str = topic
        self.optimizable: bool = optimizable
        self.key_serde: Serde[Any] = key_serde
        self.value_serde: Serde[Any] = value_serde
        self._filter, self._sink = filter_name, sink
        self._partitioner, self._partitions = partitioner, partitions

    def write(self, topology: Topology) -> None:
        serdes: dict[str, Any] = {"key_serde": self.key_serde, "value_serde": self.value_serde}
        topology.add_internal_topic(self.topic, self._partitions)
        topology.add_processor(
            self._filter, DropNullKeys() if self.drop_null_keys else PassThrough(), *self.parent_names
        )
        topology.add_sink(self._sink, self.topic, self._filter, partitioner=self._partitioner, **serdes)
        topology.add_source(self.name, self.topic, timestamp_extractor=fail_on_invalid_timestamp, **serdes)


class GroupedTableRepartitionNode(Node):
    """The repartition topic of a grouped table's changes, with its sink and its source."""

    def __init__(
        self, topic: str, sink: str, source: str, key_serde: Serde[Any], value_serde: Serde[Any]
    ) -> None:
        super().__init__(source)
        self._topic, self._sink = topic, sink
        self._serdes: dict[str, Any] = {"key_serde": key_serde, "value_serde": ChangeSerde(value_serde)}

    def write(self, topology: Topology) -> None:
        topology.add_internal_topic(self._topic)
        topology.add_sink(self._sink, self._topic, *self.parent_names, **self._serdes)
        topology.add_source(
            self.name, self._topic, timestamp_extractor=fail_on_invalid_timestamp, **self._serdes
        )


class TableJoinNode(Node):
    """A table-table join, with a processor for each side and a merger. The node has the name of the merger."""

    checks_versions = True

    def __init__(
        self,
        name: str,
        this_name: str,
        other_name: str,
        step: JoinStep,
        this_parent: tuple[str, Node],
        other_parent: tuple[str, Node],
    ) -> None:
        super().__init__(name)
        self._this, self._other, self._step = this_name, other_name, step
        self._this_parent, self._other_parent = this_parent, other_parent
        self._this_stores = step.this.reads.store_names
        self._other_stores = step.other.reads.store_names

    def write(self, topology: Topology) -> None:
        for name, (parent, node), side in (
            (self._this, self._this_parent, self._step.this),
            (self._other, self._other_parent, self._step.other),
        ):
            topology.add_processor(name, side.operator(node.name in self.versioned_parents), parent)
        _write_step(topology, self.name, self._step, (self._this, self._other), False)
        topology.connect_processor_and_state_stores(self._this, *self._this_stores)
        topology.connect_processor_and_state_stores(self._other, *self._other_stores)


class LateNode(Node):
    """The stream of late records of an operator, or of one side of a join."""

    def __init__(self, name: str, givers: Sequence[str]) -> None:
        super().__init__(name)
        self._givers = tuple(givers)

    def write(self, topology: Topology) -> None:
        topology.add_processor(self.name, PassThrough(), *self._givers)


class StreamJoinNode(Node):
    """A stream-stream join, with a processor for each side and a merger; or one processor for a self-join."""

    self_join = False

    def __init__(
        self,
        name: str,
        this_window: str,
        other_window: str,
        this: tuple[str, StreamJoinStep],
        other: tuple[str, StreamJoinStep],
        itself: Fixed,
    ) -> None:
        super().__init__(name)
        self.this_window: str = this_window
        self.other_window: str = other_window
        self._this, self._other, self._itself = this, other, itself

    @property
    def needs_both_sides(self) -> bool:
        """True if the topology reads the late records of a side. One processor then cannot replace both sides."""
        return self._this[1].late is not None or self._other[1].late is not None

    def write(self, topology: Topology) -> None:
        if self.self_join:
            _write_step(topology, self.name, self._itself, (self.this_window,), False)
            return
        _write_step(topology, *self._this, (self.this_window,), False)
        _write_step(topology, *self._other, (self.other_window,), False)
        topology.add_processor(self.name, PassThrough(), self._this[0], self._other[0])


def _write_step(topology: Topology, name: str, step: Step, parents: tuple[str, ...], versioned: bool) -> None:
    topology.add_processor(name, step.operator(versioned), *parents)
    for spec in step.stores():
        for part in ("key", "value"):
            if getattr(spec, f"{part}_serde") is None:
                raise TopologyError(
                    f"store {spec.name} of {name} knows no {part} serde; give "
                    f"Materialized({part}_serde=...), or set default_{part}_serde in the StreamsConfig that "
                    "StreamsBuilder gets"
                )
        topology.add_state_store(spec, name)
