"""The schemas of the records that an application writes and reads, by their subjects in the schema registry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from streamapp.serdes.base import Serde
from streamapp.serdes.registered import Registered
from streamapp.state.spec import StoreSpec
from streamapp.topology.nodes import ProcessorNode, SinkNode, SourceNode
from streamapp.topology.plan import Plan, Subtopology

__all__ = ["PlannedRecords", "PlannedSchema", "planned_schemas"]


@dataclass(frozen=True)
class PlannedRecords:
    """The keys or the values of a topic, and the serde that reads them."""

    topic: str
    serde: Serde[Any]
    is_key: bool


@dataclass(frozen=True)
class PlannedSchema:
    """One schema of an application, under the subject to which its serde is bound."""

    registered: Registered
    writes: bool
    """False if workers only read with this schema. Workers register each other schema with its first value."""
    records: PlannedRecords | None
    """Records with values of this schema. None: no serde of the application reads the bytes of such a record."""
    internal: bool
    """True if stores or internal topics of the application have values of this schema."""

    @property
    def subject(self) -> str:
        return self.registered.subject


def planned_schemas(plan: Plan) -> list[PlannedSchema]:
    """All schemas of a topology, each once for its subject and its text, in the order of the plan.

    The result lacks the schemas of topics that a function or a pattern chooses.
    """
    found: dict[tuple[str, str], PlannedSchema] = {}
    for each in _all(plan):
        key = each.subject, str(each.registered.schema)
        before = found.get(key, each)
        found[key] = replace(
            before,
            writes=before.writes or each.writes,
            records=before.records or each.records,
            internal=before.internal or each.internal,
        )
    return list(found.values())


def _all(plan: Plan) -> Iterator[PlannedSchema]:
    internal = {
        topic.name
        for sub in plan.subtopologies
        for topic in (*sub.repartition_topics, *sub.changelog_topics.values())
    }
    for sub in plan.subtopologies:
        for node in sub.nodes:
            if isinstance(node, SourceNode):
                for topic in node.topics:
                    yield from _bound(topic, node.key_serde, node.value_serde, False, topic in internal)
            elif isinstance(node, SinkNode) and isinstance(node.topic, str):
                yield from _bound(node.topic, node.key_serde, node.value_serde, True, node.topic in internal)
            elif isinstance(node, ProcessorNode):
                for serde in _bound_by(node.operator, plan.application_id):
                    yield from _of(serde, True, None, True)
        for spec in sub.stores:
            yield from _of_store(sub, spec)
    for store in plan.global_stores:
        # A worker encodes the rows of a global table anew, when the table keeps them.
        yield from _read(store.topic, store.spec.key_serde, True, True, False)
        yield from _read(store.topic, store.spec.value_serde, True, False, False)


def _bound(
    topic: str, key: Serde[Any], value: Serde[Any], writes: bool, internal: bool
) -> Iterator[PlannedSchema]:
    yield from _read(topic, key.bind(topic, True), writes, True, internal)
    yield from _read(topic, value.bind(topic, False), writes, False, internal)


def _of_store(sub: Subtopology, spec: StoreSpec) -> Iterator[PlannedSchema]:
    changelog, shape = sub.changelog_topics.get(spec.name), spec.kind.shape
    if changelog is None or shape is None:  # the changelog of an operator's own store has a format of its own
        yield from _of(spec.key_serde, True, None, True)
        yield from _of(spec.value_serde, True, None, True)
        return
    if shape.times_in_key:
        yield from _of(spec.key_serde, True, None, True)
    else:
        yield from _read(changelog.name, spec.key_serde, True, True, True)
    yield from _read(changelog.name, spec.value_serde, True, False, True)


def _bound_by(operator: Any, application_id: str) -> Iterator[Serde[Any]]:
    """The serdes that an operator, and the operators inside it, bind themselves (`Operator.bound_serdes`)."""
    while hasattr(operator, "bound_serdes"):
        yield from operator.bound_serdes(application_id)
        operator = getattr(operator, "operator", None)


def _read(topic: str, serde: Any, writes: bool, is_key: bool, internal: bool) -> Iterator[PlannedSchema]:
    """The schemas of the keys or values of a topic."""
    return _of(serde, writes, PlannedRecords(topic, serde, is_key), internal)


def _of(serde: Any, writes: bool, records: PlannedRecords | None, internal: bool) -> Iterator[PlannedSchema]:
    """The schemas of a serde, and of serdes inside it."""
    registered = getattr(serde, "registered", None)
    if isinstance(registered, Registered):
        yield PlannedSchema(registered, writes, records, internal)
    elif isinstance(serde, Serde):
        for inner in vars(serde).values():
            if isinstance(inner, Serde):
                yield from _of(inner, writes, records, internal)
