"""In which order the sub-topologies run in a batch, and what cannot run in one."""

from __future__ import annotations

from collections.abc import Collection
from graphlib import CycleError, TopologicalSorter
from typing import Any

from streamapp.engine.global_state import GlobalState
from streamapp.errors import StreamsError, TopologyError, UnsupportedOperation
from streamapp.records import Headers, TopicPartition
from streamapp.runners.spark.stage import BatchTask
from streamapp.state.backend import MemoryBackend
from streamapp.topology.plan import Plan, Subtopology

__all__ = ["check_runnable", "in_order", "topics_of"]


def in_order(plan: Plan, given: Collection[str]) -> list[Subtopology]:
    """The sub-topologies, each behind all that write what it reads, except topics that are ``given``.

    Raises `UnsupportedOperation` where two feed each other: a batch runs one to its end before the next
    begins.
    """
    subs = {sub.id: sub for sub in plan.subtopologies}
    graph = {
        sub.id: {
            writer.id
            for writer in plan.subtopologies
            if any(topic in sub.source_topics and topic not in given for topic in writer.sink_topics)
        }
        for sub in plan.subtopologies
    }
    try:
        return [subs[number] for number in TopologicalSorter(graph).static_order()]
    except CycleError as error:
        circle = list(dict.fromkeys(error.args[1]))
        topics = sorted(
            topic
            for number in circle
            for topic in subs[number].sink_topics
            if any(topic in subs[reader].source_topics for reader in circle)
        )
        raise UnsupportedOperation(
            f"the circle of topics {', '.join(topics)}",
            "Spark in batch",
            "sub-topologies run one after the other, and these wait for each other (as foreign-key joins do, "
            "and topologies that read what they write)",
            "Run it on workers or in the TopologyTestDriver; or join with a re-keyed or a global table; or "
            "cut the circle: give one of its topics as a source",
        ) from None


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
    state = GlobalState(plan, lambda _: MemoryBackend(), wall_clock_ms=_no_time)
    for sub in plan.subtopologies:
        inputs = [TopicPartition(topic, 0) for topic in sub.source_topics]
        task = BatchTask(
            plan,
            sub,
            0,
            _Nowhere(),
            MemoryBackend(),
            global_stores=state.stores,
            wall_clock_ms=_no_time,
            inputs=inputs,
        )
        try:
            task.init()
        except StreamsError as error:
            if isinstance(error.__cause__, UnsupportedOperation):
                raise error.__cause__ from None
            raise
        finally:
            task.close()


def _no_time() -> int:
    return 0


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
