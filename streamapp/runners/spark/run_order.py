"""In which order the sub-topologies run in a batch, and what cannot run in one."""

from __future__ import annotations

from collections.abc import Collection
from graphlib import TopologicalSorter
from typing import Any, NamedTuple

from streamapp.engine.global_state import GlobalState
from streamapp.engine.runner_ports import InMemory, TaskEnvironment
from streamapp.engine.task_session import TaskSession
from streamapp.errors import StreamsError, TopologyError, UnsupportedOperation
from streamapp.records import Headers
from streamapp.runners.spark.batch_rules import BATCH_RULES
from streamapp.topology.plan import Plan, Subtopology

__all__ = ["Group", "check_runnable", "in_order", "topics_of"]


class Group(NamedTuple):
    """One stage of a run: a sub-topology, or all sub-topologies of a ``cycle``."""

    subtopology: Subtopology
    ids: tuple[int, ...]
    """Of the sub-topologies in it."""
    cycle: frozenset[str] = frozenset()
    """Topics that it writes and reads."""


def in_order(plan: Plan, given: Collection[str], *, whole: bool = True) -> list[Group]:
    """The sub-topologies, each behind all that write what it reads, except topics that are ``given``.

    Those that feed each other (foreign-key joins, topologies that read what they write) wait for each other, so
    they run as one. ``whole`` False: raises `UnsupportedOperation` for them.
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
            raise UnsupportedOperation(
                f"the cycle of topics {', '.join(sorted(cycle))}",
                "Spark with the state of an application",
                "sub-topologies that feed each other (as those of foreign-key joins do) run as one task on Spark, and their "
                "state cannot be told apart by partition afterwards",
                "Use SparkRunner.batch for results only, or let workers process the history",
            )
        sub = Subtopology.merge([subs[n] for n in members]) if cycle else subs[members[0]]
        groups.append(Group(sub, members, cycle))
    return groups


def _reached(start: int, feeds: dict[int, set[int]]) -> set[int]:
    found, new = set[int](), {start}
    while new:
        new = {writer for number in new for writer in feeds[number]} - found
        found |= new
    return found


def topics_of(sub: Subtopology, available: Collection[str]) -> tuple[str, ...]:
    """The topics a sub-topology reads, those included that match its patterns."""
    patterns = [source.pattern for source in sub.sources if source.pattern is not None]
    matched = sorted(topic for topic in available for pattern in patterns if pattern.fullmatch(topic))
    found = tuple(dict.fromkeys([*sub.source_topics, *matched]))
    if not found:
        raise TopologyError(f"no topic matches {', '.join(p.pattern for p in patterns)}")
    return found


def check_runnable(plan: Plan) -> None:
    """Opens and closes a task of each sub-topology, without records: what a batch refuses shows here.

    Processors are created and initialized for it in this process.
    """
    state = GlobalState(plan, wall_clock_ms=lambda: 0)
    environment = TaskEnvironment(
        plan, _Nowhere(), wall_clock_ms=lambda: 0, global_stores=state.stores, rules=BATCH_RULES
    )
    for sub in plan.subtopologies:
        session = TaskSession(environment, sub, 0, InMemory())
        try:
            session.start()
        except StreamsError as error:
            if isinstance(error.__cause__, UnsupportedOperation):
                raise error.__cause__ from None
            raise
        finally:
            session.close()


class _Nowhere:
    """A `Collector` for tasks that get no records; what a processor sends while it starts goes nowhere."""

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
