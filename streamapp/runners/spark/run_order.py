"""The order of the sub-topologies in a batch, and the check for topologies that a batch cannot run."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from graphlib import TopologicalSorter
from typing import Any, NamedTuple

from streamapp.engine.global_state import GlobalState
from streamapp.engine.runner_ports import InMemory, TaskEnvironment
from streamapp.engine.task_session import TaskSession
from streamapp.errors import StreamsError, TopologyError, UnsupportedOperation
from streamapp.records import Headers
from streamapp.runners.spark.batch_rules import BATCH_RULES
from streamapp.topology.nodes import ProcessorNode, SinkNode
from streamapp.topology.plan import Plan, Subtopology

__all__ = ["Group", "check_runnable", "in_order", "topics_of"]


class Group(NamedTuple):
    """One stage of a run: a sub-topology, or all sub-topologies of a ``cycle``."""

    subtopology: Subtopology
    ids: tuple[int, ...]
    """The ids of its sub-topologies."""
    cycle: frozenset[str] = frozenset()
    """The topics that the stage writes and reads."""


def in_order(plan: Plan, given: Collection[str], *, whole: bool = True) -> list[Group]:
    """The sub-topologies in the order of a run: a topic's writers come before its readers, except for ``given`` topics.

    Sub-topologies that feed each other (a cycle) run together as one stage, because none of them can run first.
    Examples are foreign-key joins, and topologies that read their own output. With ``whole`` False, a cycle raises
    `UnsupportedOperation`.
    """
    subs = {sub.id: sub for sub in plan.subtopologies}
    feeds = {
        sub.id: {
            writer.id
            for writer in plan.subtopologies
            if any(topic in sub.source_topics and topic not in given for topic in writer.sink_topics)
        }
        for sub in plan.subtopologies
    }
    reached = {number: _reached(number, feeds) for number in feeds}
    together = {n: frozenset({n} | {m for m in reached[n] if n in reached[m]}) for n in feeds}
    graph = {together[n]: set[frozenset[int]]() for n in feeds}
    for number, writers in feeds.items():
        graph[together[number]] |= {together[w] for w in writers} - {together[number]}
    groups = []
    for ids in TopologicalSorter(graph).static_order():
        members = tuple(sorted(ids))
        read = {t for n in members for t in subs[n].source_topics if t not in given}
        cycle = frozenset(t for n in members for t in subs[n].sink_topics if t in read)
        if cycle and not whole:
            raise _no_state_of_cycle(cycle, [subs[n] for n in members])
        sub = Subtopology.merge([subs[n] for n in members]) if cycle else subs[members[0]]
        groups.append(Group(sub, members, cycle))
    return groups


def _no_state_of_cycle(cycle: frozenset[str], members: list[Subtopology]) -> UnsupportedOperation:
    """The error for a cycle that would have to continue from the state of an application."""
    feeding, remedy = "sub-topologies that feed each other (for example those of foreign-key joins)", ""
    if len(members) == 1 and (stores := _stores_on_both_sides(members[0], cycle)):
        feeding = (
            f"steps before and behind {', '.join(sorted(cycle))} use the store {', '.join(stores)}, so one "
            "sub-topology writes and reads the topic. Sub-topologies that feed themselves"
        )
        remedy = (
            f"Move all steps with this store behind the topic, for example the join with {stores[0]}. Or use "
        )
    return UnsupportedOperation(
        f"the cycle of topics {', '.join(sorted(cycle))}",
        "Spark with the state of an application",
        f"{feeding} run as one task on Spark, and their state cannot be divided into partitions afterwards",
        f"{remedy or 'Use '}SparkRunner.batch for results only, or let workers process the history",
    )


def _stores_on_both_sides(sub: Subtopology, cycle: frozenset[str]) -> list[str]:
    """The stores that steps before the topics of a cycle share with steps behind these topics."""
    above, users = sub.sources_above, dict[str, list[frozenset[str]]]()
    feeding = frozenset[str]()
    for node in sub.nodes:
        if isinstance(node, SinkNode) and node.topic in cycle:
            feeding |= above[node.name]
        for store in node.stores if isinstance(node, ProcessorNode) else ():
            users.setdefault(store, []).append(above[node.name])
    behind = frozenset(source.name for source in sub.sources if not cycle.isdisjoint(source.topics))
    before = feeding - behind
    return sorted(
        store
        for store, sources in users.items()
        if any(not each.isdisjoint(before) for each in sources)
        and any(not each.isdisjoint(behind) for each in sources)
    )


def _reached(start: int, feeds: dict[int, set[int]]) -> set[int]:
    found, new = set[int](), {start}
    while new:
        new = {writer for number in new for writer in feeds[number]} - found
        found |= new
    return found


def topics_of(sub: Subtopology, available: Collection[str]) -> tuple[str, ...]:
    """The topics that a sub-topology reads, with the topics that match its patterns.

    Raises `TopologyError` if there are none.
    """
    patterns = [source.pattern for source in sub.sources if source.pattern is not None]
    matched = sorted(topic for topic in available for pattern in patterns if pattern.fullmatch(topic))
    found = tuple(dict.fromkeys([*sub.source_topics, *matched]))
    if not found:
        raise TopologyError(f"no topic matches {', '.join(p.pattern for p in patterns)}")
    return found


def check_runnable(plan: Plan) -> None:
    """Opens and closes a task of each sub-topology, without records, and raises the errors of a batch early.

    The check creates and initializes processors in this process.
    """
    with closing(GlobalState(plan, wall_clock_ms=lambda: 0)) as state:
        environment = TaskEnvironment(
            plan, _Nowhere(), wall_clock_ms=lambda: 0, global_stores=state.stores, rules=BATCH_RULES
        )
        for sub in plan.subtopologies:
            with closing(TaskSession(environment, sub, 0, InMemory())) as session:
                try:
                    session.start()
                except StreamsError as error:
                    if isinstance(error.__cause__, UnsupportedOperation):
                        raise error.__cause__ from None
                    raise


class _Nowhere:
    """A `Collector` that drops the records which processors send while they start."""

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int | None,
        headers: Headers,
        partition: int | None,
    ) -> None:
        pass

    def partition_count(self, topic: str) -> Any:
        return 1
