"""The schemas of the records that an application writes and reads, by their subjects in the schema registry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from streamapp.serdes.base import Serde
from streamapp.serdes.registered import Registered
from streamapp.topology.nodes import SinkNode, SourceNode
from streamapp.topology.plan import Plan

__all__ = ["PlannedSchema", "planned_schemas"]


@dataclass(frozen=True)
class PlannedSchema:
    """One schema of an application. ``serde`` is bound to ``topic``. ``writes`` is false for input topics."""

    topic: str
    serde: Serde[Any]
    registered: Registered
    writes: bool
    is_key: bool

    @property
    def subject(self) -> str:
        return self.registered.subject


def planned_schemas(plan: Plan) -> list[PlannedSchema]:
    """The schemas of sources, sinks and stores, each once for its subject and its text, in the order of the plan.

    The result lacks the schemas of topics that a function or a pattern chooses, and of stores without a changelog. A
    foreign-key join has two more subjects, which the result lacks: those of the stored foreign keys and of the hashed
    left values.
    """
    found: dict[tuple[str, str], PlannedSchema] = {}
    for each in _all(plan):
        key = each.subject, str(each.registered.schema)
        if key not in found or (each.writes and not found[key].writes):
            found[key] = each
    return list(found.values())


def _all(plan: Plan) -> Iterator[PlannedSchema]:
    for sub in plan.subtopologies:
        for node in sub.nodes:
            if isinstance(node, SourceNode):
                for topic in node.topics:
                    yield from _bound(topic, node.key_serde, node.value_serde, False)
            elif isinstance(node, SinkNode) and isinstance(node.topic, str):
                yield from _bound(node.topic, node.key_serde, node.value_serde, True)
        for spec in sub.stores:
            changelog = sub.changelog_topics.get(spec.name)
            if changelog is not None:
                yield from _of(changelog.name, spec.key_serde, True, True)
                yield from _of(changelog.name, spec.value_serde, True, False)
    for store in plan.global_stores:
        yield from _of(store.topic, store.spec.key_serde, False, True)
        yield from _of(store.topic, store.spec.value_serde, False, False)


def _bound(topic: str, key: Serde[Any], value: Serde[Any], writes: bool) -> Iterator[PlannedSchema]:
    yield from _of(topic, key.bind(topic, True), writes, True)
    yield from _of(topic, value.bind(topic, False), writes, False)


def _of(topic: str, serde: Any, writes: bool, is_key: bool) -> Iterator[PlannedSchema]:
    """The schemas of a serde, and of serdes inside it."""
    registered = getattr(serde, "registered", None)
    if isinstance(registered, Registered):
        yield PlannedSchema(topic, serde, registered, writes, is_key)
    elif isinstance(serde, Serde):
        for inner in vars(serde).values():
            if isinstance(inner, Serde):
                yield from _of(topic, inner, writes, is_key)
