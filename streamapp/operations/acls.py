"""The rights (ACLs) that an application needs on a cluster with an authorizer."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from streamapp.config import StreamsConfig
from streamapp.consumer.account import ConsumerStatus
from streamapp.producer import ReliableProducer, SyncReliableProducer
from streamapp.producer.relay import OUTBOX
from streamapp.topology.plan import Plan

__all__ = [
    "Acl",
    "acls_of_agents",
    "acls_of_consumers",
    "acls_of_leader",
    "acls_of_producer",
    "acls_of_relay",
    "acls_of_topology",
    "acls_of_worker",
    "as_commands",
]

Operation = Literal["Read", "Write", "Create", "Delete"]
Resource = Literal["topic", "group", "transactional-id"]
_ORDER = ("Read", "Write", "Create", "Delete")


@dataclass(frozen=True, order=True)
class Acl:
    """One right. Read, Write and Delete include Describe, so Describe is never listed."""

    resource: Resource
    name: str
    operation: Operation
    pattern: Literal["literal", "prefixed"] = "literal"

    def as_dict(self, principal: str) -> dict[str, str]:
        """The right as a dict for JSON, with the principal that gets the right."""
        return {"principal": principal, "host": "*", "permission": "Allow", **asdict(self)}


def acls_of_agents(reads: Iterable[str], tables: Iterable[str]) -> set[Acl]:
    """The rights that agents need in addition to their worker's: for the topics they read, and for Faust's tables."""
    found = {Acl("topic", topic, "Read") for topic in reads}
    return found | {
        Acl("topic", topic, operation) for topic in tables for operation in ("Read", "Write", "Create")
    }


def acls_of_leader(topic: str) -> set[Acl]:
    """The rights to the topic by which Faust finds a leader."""
    return {Acl("topic", topic, operation) for operation in ("Read", "Create")}


def acls_of_worker(config: StreamsConfig) -> set[Acl]:
    """The rights of a worker without a topology, except those to the topic of its leader."""
    found = {Acl("group", config.application_id, "Read")} | _of_letters(config)
    if config.exactly_once:
        found.add(Acl("transactional-id", f"{config.application_id}-agents-", "Write", "prefixed"))
    return found


def acls_of_consumers(config: StreamsConfig, consumers: Iterable[ConsumerStatus]) -> set[Acl]:
    """The rights of consumers (`App.consume`, `ReliableConsumer`), without the topics of their outputs."""
    found = _of_letters(config)
    for each in consumers:
        found |= {Acl("group", each.name, "Read"), *(Acl("topic", topic, "Read") for topic in each.topics)}
        if each.transactions:
            found.add(Acl("transactional-id", f"{each.name}-", "Write", "prefixed"))
    return found


def acls_of_producer(
    producer: ReliableProducer[Any, Any] | SyncReliableProducer[Any, Any], writes: Collection[str]
) -> set[Acl]:
    """The rights of a `ReliableProducer` that writes these topics."""
    if not producer.transactional:
        return {Acl("topic", topic, "Write") for topic in writes}
    return _with_bookmarks(f"{producer.config.application_id}-", writes)


def acls_of_relay(name: str, writes: Collection[str]) -> set[Acl]:
    """The rights of an `OutboxRelay` whose rows are for these topics."""
    return _with_bookmarks(f"{name}{OUTBOX}", writes)


def _with_bookmarks(prefix: str, writes: Collection[str]) -> set[Acl]:
    # The bookmark of a transaction is an offset of a topic that it writes, in a group of its name.
    return {
        Acl("transactional-id", prefix, "Write", "prefixed"),
        Acl("group", prefix, "Read", "prefixed"),
        *(Acl("topic", topic, operation) for topic in writes for operation in ("Read", "Write")),
    }


def _of_letters(config: StreamsConfig) -> set[Acl]:
    topic = config.dead_letter_queue_topic
    return set() if topic is None else {Acl("topic", topic, "Write")}


def acls_of_topology(plan: Plan, topics: Collection[str]) -> set[Acl]:
    """The rights of a topology's workers. ``topics`` are those of the cluster, for sources that read by pattern."""
    return {*_of_topology(plan, topics)}


def _of_topology(plan: Plan, topics: Collection[str]) -> Iterator[Acl]:
    yield Acl("group", plan.application_id, "Read")
    # Each worker has its own transactional id. Workers commit offsets in transactions under both guarantees.
    yield Acl("transactional-id", f"{plan.application_id}-", "Write", "prefixed")
    patterns = [s.pattern for sub in plan.subtopologies for s in sub.sources if s.pattern]
    for topic in {*plan.source_topics, *(t for t in topics if any(p.fullmatch(t) for p in patterns))}:
        yield Acl("topic", topic, "Read")
    for sub in plan.subtopologies:
        for topic in sub.sink_topics:
            yield Acl("topic", topic, "Write")
    for internal in plan.internal_topics:
        for operation in ("Read", "Write", "Create"):
            yield Acl("topic", internal.name, operation)
        if internal.kind == "repartition" or "delete" in internal.config.get("cleanup.policy", "delete"):
            yield Acl("topic", internal.name, "Delete")
    yield from _of_letters(plan.config)


def as_commands(acls: Sequence[Acl], principal: str, servers: str) -> list[str]:
    """``kafka-acls`` commands, one for each resource.

    >>> as_commands([Acl("group", "flights", "Read")], "User:ada", "kafka:9092")
    ['kafka-acls --bootstrap-server kafka:9092 --add --allow-principal User:ada --operation Read --group flights']
    """
    operations: dict[tuple[Resource, str, str], list[str]] = {}
    for acl in acls:
        operations.setdefault((acl.resource, acl.name, acl.pattern), []).append(acl.operation)
    return [
        shlex.join(_command(resource, name, pattern, found, {"principal": principal, "servers": servers}))
        for (resource, name, pattern), found in operations.items()
    ]


def _command(
    resource: Resource, name: str, pattern: str, operations: Sequence[str], who: Mapping[str, str]
) -> list[str]:
    words = [
        "kafka-acls",
        "--bootstrap-server",
        who["servers"],
        "--add",
        "--allow-principal",
        who["principal"],
    ]
    for operation in sorted(operations, key=_ORDER.index):
        words += ["--operation", operation]
    words += [f"--{resource}", name]
    return words if pattern == "literal" else [*words, "--resource-pattern-type", pattern]
