"""A plan as plain data (``streamapp describe --json``). Keep it with a release, to compare the next release with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamapp._base.names import persistent_serde_name
from streamapp.serdes.base import Serde
from streamapp.serdes.json import JsonSerde
from streamapp.serdes.json_changes import json_form
from streamapp.state.backend import STATE_FORMAT
from streamapp.state.spec import StoreSpec
from streamapp.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode
from streamapp.topology.plan import Plan, Subtopology
from streamapp.topology.schemas import planned_schemas

__all__ = ["FORMAT", "snapshot"]

FORMAT = 2
"""The form of new snapshots. In format 1, a subject has one schema instead of a list."""


def snapshot(plan: Plan) -> dict[str, Any]:
    """The parts of a plan with which existing state, topics and positions have to agree, as JSON values.

    >>> from streamapp import StreamsBuilder, StringSerde
    >>> builder = StreamsBuilder()
    >>> flights = builder.stream("flights", key_serde=StringSerde(), value_serde=StringSerde())
    >>> _ = flights.group_by_key().count(name="count")
    >>> snapshot(builder.build().plan())["stores"]["KSTREAM-AGGREGATE-STATE-STORE-0000000001"]["kind"]
    'timestamped'
    """
    return {
        "format": FORMAT,
        "application_id": plan.application_id,
        "fingerprint": plan.fingerprint,
        "state_format": STATE_FORMAT,
        "subtopologies": {str(sub.id): _subtopology(sub) for sub in plan.subtopologies},
        "repartition_topics": {
            topic.name: {
                "partitions": topic.partitions,
                "records": sub.repartitioned[topic.name],
                "json": _read_as_json(topic.name, sub),
            }
            for sub in plan.subtopologies
            for topic in sub.repartition_topics
        },
        "stores": {spec.name: _store(spec, sub) for sub in plan.subtopologies for spec in sub.stores},
        "global_stores": {
            store.name: {**_layout(store.spec), "topic": store.topic} for store in plan.global_stores
        },
        "schemas": _schemas(plan),
    }


def _schemas(plan: Plan) -> dict[str, list[dict[str, Any]]]:
    """Subject -> its schemas. A subject has several if serdes with different schemas write or read a topic."""
    found: dict[str, list[dict[str, Any]]] = {}
    for each in planned_schemas(plan):
        found.setdefault(each.subject, []).append(
            {
                "name": each.registered.record,
                "format": each.registered.format,
                "schema": each.registered.whole,
                "writes": each.writes,
                "internal": each.internal,
                "derived": each.registered.objection is not None,
            }
        )
    return found


def _subtopology(sub: Subtopology) -> dict[str, Any]:
    return {
        "source_topics": sorted({*sub.source_topics, *(s.pattern.pattern for s in sub.sources if s.pattern)}),
        "sink_topics": sorted(sub.sink_topics),
        "nodes": {node.name: _node(node) for node in sub.nodes},
    }


def _node(node: Node) -> dict[str, Any]:
    parents: dict[str, Any] = {"parents": list(node.parents)}
    if isinstance(node, SourceNode):
        return {"kind": "source", "topics": list(node.topics), **parents}
    if isinstance(node, SinkNode):
        return {"kind": "sink", "topic": node.topic if isinstance(node.topic, str) else None, **parents}
    return {"kind": node.operator_name, "stores": list(node.stores), **parents}


def _store(spec: StoreSpec, sub: Subtopology) -> dict[str, Any]:
    changelog = sub.changelog_topics.get(spec.name)
    owners = [node for node in sub.nodes if isinstance(node, ProcessorNode) and spec.name in node.stores]
    by_name = {node.name: node for node in sub.nodes}
    return {
        **_layout(spec),
        "json": _json(spec.key_serde, spec.value_serde),
        "subtopology": sub.id,
        "operators": sorted({node.operator_name for node in owners}),
        "writers": sorted({node.operator_name for node in sub.writers.get(spec.name, ())}),
        "reads": sorted({topic for node in owners for topic in _topics_above(node, by_name)}),
        "origins": sorted(
            {
                topic
                for source in sub.sources
                if source.name in sub.origins.get(spec.name, ())
                for topic in (*source.topics, *([source.pattern.pattern] if source.pattern else []))
            }
        ),
        "changelog": None if changelog is None else changelog.name,
    }


def _layout(spec: StoreSpec) -> dict[str, Any]:
    return {
        "kind": spec.kind.persistent_name,
        "key_serde": persistent_serde_name(spec.key_serde),
        "value_serde": persistent_serde_name(spec.value_serde),
        "rows": spec.changelog_rows,
        "persistent": spec.persistent,
        **spec.kind.remembered,
    }


def _read_as_json(topic: str, sub: Subtopology) -> dict[str, Any]:
    source = next(each for each in sub.sources if topic in each.topics)
    return _json(source.key_serde, source.value_serde)


def _json(key_serde: Serde[Any] | None, value_serde: Serde[Any] | None) -> dict[str, Any]:
    """The types of `JsonSerde` for keys and values; None for other serdes, and for JSON without a type."""
    return {"key": _json_type(key_serde), "value": _json_type(value_serde)}


def _json_type(serde: Serde[Any] | None) -> dict[str, Any] | None:
    # A subclass with a deserialize of its own may read more than its type tells.
    if not isinstance(serde, JsonSerde) or type(serde).deserialize is not JsonSerde.deserialize:
        return None
    return None if serde.type is None else json_form(serde.type)


def _topics_above(node: Node, by_name: Mapping[str, Node]) -> set[str]:
    if isinstance(node, SourceNode):
        return set(node.topics) | ({node.pattern.pattern} if node.pattern else set())
    return {topic for parent in node.parents for topic in _topics_above(by_name[parent], by_name)}
