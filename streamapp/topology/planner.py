"""Makes the sub-topologies of a plan from the nodes of a topology: full names, internal topics and their settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from streamapp.config import StreamsConfig
from streamapp.state.spec import StoreSpec
from streamapp.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode
from streamapp.topology.plan import InternalTopic, Subtopology

__all__ = ["Planner", "bound_to", "changelog_config", "repartition_topic"]


@dataclass(frozen=True)
class Planner:
    """Makes sub-topologies from the parts of a topology. In these parts, the names of internal topics have no
    application id yet."""

    config: StreamsConfig
    stores: Mapping[str, StoreSpec]
    internal: Mapping[str, InternalTopic]
    source_changelogs: Mapping[str, str]
    """Store -> the source topic that serves as its changelog."""
    copartitions: Sequence[tuple[str, ...]]
    """Groups of sources whose topics must have the same number of partitions."""

    def subtopology(self, number: int, nodes: Sequence[Node]) -> Subtopology:
        sources = {node.name: node for node in nodes if isinstance(node, SourceNode)}
        specs = {
            name: self.stores[name]
            for node in nodes
            if isinstance(node, ProcessorNode)
            for name in node.stores
        }
        changelogs = {name: self._changelog(spec) for name, spec in specs.items()}
        return Subtopology(
            id=number,
            nodes=tuple(self._planned(node) for node in nodes),
            stores=tuple(self._bound(spec, changelogs[spec.name]) for spec in specs.values()),
            repartition_topics=tuple(
                replace(self.internal[topic], name=self._full_name(topic))
                for source in sources.values()
                for topic in source.topics
                if topic in self.internal
            ),
            changelog_topics={name: topic for name, topic in changelogs.items() if topic is not None},
            copartition_groups=tuple(
                frozenset(self._full_name(topic) for name in group for topic in sources[name].topics)
                for group in self.copartitions
                if sources.keys() >= set(group)
            ),
        )

    def _bound(self, spec: StoreSpec, changelog: InternalTopic | None) -> StoreSpec:
        """The store with serdes bound to its topic, so that all code that reads or writes its rows uses the same
        serdes."""
        if spec.serde_topic is not None:
            return bound_to(self._full_name(spec.serde_topic), spec)
        return bound_to(self._changelog_name(spec) if changelog is None else changelog.name, spec)

    def _full_name(self, topic: str) -> str:
        return f"{self.config.application_id}-{topic}" if topic in self.internal else topic

    def _planned(self, node: Node) -> Node:
        if isinstance(node, SourceNode):
            return replace(node, topics=tuple(self._full_name(topic) for topic in node.topics))
        if isinstance(node, SinkNode) and isinstance(node.topic, str):
            return replace(node, topic=self._full_name(node.topic))
        return node

    def _changelog(self, spec: StoreSpec) -> InternalTopic | None:
        if spec.name in self.source_changelogs:
            return InternalTopic(self._full_name(self.source_changelogs[spec.name]), "changelog")
        if not spec.logged:
            return None
        return InternalTopic(self._changelog_name(spec), "changelog", None, changelog_config(spec))

    def _changelog_name(self, spec: StoreSpec) -> str:
        return f"{self.config.application_id}-{spec.name}-changelog"


def bound_to(topic: str, spec: StoreSpec) -> StoreSpec:
    """A copy of the specification, with serdes bound to ``topic``."""
    key, value = spec.key_serde, spec.value_serde
    return replace(
        spec,
        key_serde=None if key is None else key.bind(topic, True),
        value_serde=None if value is None else value.bind(topic, False),
    )


def repartition_topic(name: str, partitions: int | None) -> InternalTopic:
    """A repartition topic. Brokers delete none of its records by age. Workers delete the records that they have
    processed and committed."""
    config = {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "segment.bytes": str(50 * 1024 * 1024),
        "message.timestamp.type": "CreateTime",
    }
    return InternalTopic(name, "repartition", partitions, config)


def changelog_config(spec: StoreSpec) -> dict[str, str]:
    """The topic settings of a store's changelog: those of its kind, overridden by those of the store."""
    return spec.kind.topic_config | spec.topic_config
