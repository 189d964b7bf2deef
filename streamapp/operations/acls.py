"""The rights (ACLs) that the workers of an application need on a cluster with an authorizer."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from streamapp.topology.plan import Plan

__all__ = ["Acl", "acls_of", "as_commands"]

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


def acls_of(
    plan: Plan,
    topics: Collection[str],
    *,
    agents: Sequence[Any] = (),
    tables: Sequence[str] = (),
    writes: Collection[str] = (),
    consumers: Mapping[str, Collection[str]] | None = None,
) -> list[Acl]:
    """The rights of a worker, sorted.

    ``topics`` are the topics of the cluster, for sources with a pattern. ``agents`` are Faust's agents, which know
    the topics that they read. ``tables`` are the changelogs of Faust's tables. ``writes`` are the topics to which
    agents or other code send. ``consumers`` are the groups of `App.consume` with their topics.
    """
    found = {*_of_topology(plan, topics)}
    found |= {Acl("topic", topic, "Read") for agent in agents for topic in agent.channel.topics}
    found |= {Acl("topic", topic, operation) for topic in tables for operation in ("Read", "Write", "Create")}
    found |= {Acl("topic", topic, "Write") for topic in writes}
    for group, read in (consumers or {}).items():
        found |= {Acl("group", group, "Read"), *(Acl("topic", topic, "Read") for topic in read)}
    return sorted(found)


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
        if internal.kind == "repartition":
            yield Acl("topic", internal.name, "Delete")
    if plan.config.dead_letter_queue_topic is not None:
        yield Acl("topic", plan.config.dead_letter_queue_topic, "Write")


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
