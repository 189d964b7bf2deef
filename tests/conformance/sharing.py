"""Cases share one broker: the external topics of a case get a prefix, which is taken off what comes out."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from streamapp import StreamsConfig, Topology
from streamapp.records import OutputRecord
from streamapp.topology.nodes import Node, SinkNode, SourceNode
from streamapp.topology.plan import Plan, Subtopology

__all__ = ["PrefixedTopology", "without_prefix"]


class PrefixedTopology(Topology):
    """A topology that was built for the names of a case, and reads and writes topics with a prefix.

    Names of nodes and stores, which may hold those of topics, stay as the case has them.
    """

    def __init__(self, topology: Topology, prefix: str) -> None:
        vars(self).update(vars(topology))
        self._prefix = prefix

    def plan(self, config: StreamsConfig | None = None) -> Plan:
        plan = super().plan(config)
        internal = {topic.name for topic in plan.internal_topics}

        def named(topic: str) -> str:
            return topic if topic in internal else self._prefix + topic

        stores = [
            replace(store, topic=named(store.topic), source=self._node(store.source, named))
            for store in plan.global_stores
        ]
        subtopologies = tuple(self._subtopology_of(sub, named) for sub in plan.subtopologies)
        return replace(plan, subtopologies=subtopologies, global_stores=tuple(stores))

    def _subtopology_of(self, sub: Subtopology, named: Callable[[str], str]) -> Subtopology:
        return replace(
            sub,
            nodes=tuple(self._node(node, named) for node in sub.nodes),
            changelog_topics={
                store: replace(topic, name=named(topic.name)) for store, topic in sub.changelog_topics.items()
            },
            copartition_groups=tuple(frozenset(map(named, group)) for group in sub.copartition_groups),
        )

    def _node(self, node: Node, named: Callable[[str], str]) -> Any:
        if isinstance(node, SourceNode):
            pattern = node.pattern and re.compile(f"{re.escape(self._prefix)}(?:{node.pattern.pattern})")
            return replace(node, topics=tuple(map(named, node.topics)), pattern=pattern)
        if isinstance(node, SinkNode):
            topic = node.topic
            chosen = (lambda *args: self._prefix + topic(*args)) if callable(topic) else named(topic)
            return replace(node, topic=chosen)
        return node


def without_prefix(record: OutputRecord, prefix: str) -> OutputRecord:
    """The record as the case has it: values and headers may name the topic that a record came from."""
    text = prefix.encode()
    return record._replace(
        topic=record.topic.removeprefix(prefix),
        value=record.value and record.value.replace(text, b""),
        headers=tuple((name, value and value.replace(text, b"")) for name, value in record.headers),
    )
