"""The changelog offsets of this worker's state, and the ends of the changelogs. The placement of tasks compares the
two."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from contextlib import suppress

from streamapp.broker.consumer import RecordConsumer
from streamapp.broker.requests import LastingAdmin
from streamapp.config import StreamsConfig
from streamapp.errors import BrokerError, ProcessorStateError
from streamapp.records import TopicPartition
from streamapp.runners.aged_state import forget_aged_rows, state_on_disk, tombstone_seconds
from streamapp.runners.worker.clients import find_committed, list_offsets
from streamapp.runners.worker.placement import TaskId
from streamapp.runners.worker.topics import Topics
from streamapp.state.directory import StateDirectory
from streamapp.topology.plan import Plan

__all__ = ["changelog_ends", "committed_offsets", "offsets_on_disk"]

logger: logging.Logger = logging.getLogger(__name__)
_SECONDS = 10.0
"""The longest time that brokers may take to answer."""
_FAR = 2**62


def offsets_on_disk(
    plan: Plan, topics: Topics, admin: LastingAdmin, directory: StateDirectory
) -> dict[TaskId, int]:
    """The changelog offsets of the state that an earlier process has left, as sums over the stores of each task.

    The sums leave out state that cannot be read. A later attempt to open the task raises the error. First, the function
    deletes the rows of old stores, whose changelogs may lack tombstones (`aged_state`). Raises `BrokerError` if brokers
    do not answer.
    """
    found = {}
    for name in directory.task_ids():
        with suppress(ProcessorStateError):
            found[name] = state_on_disk(directory.task_path(name))
    changelogs = {
        (str(TaskId(sub.id, number)), store): TopicPartition(topic.name, number)
        for sub in plan.subtopologies
        for store, topic in sub.changelog_topics.items()
        for number in range(topics.partitions[topic.name])
    }
    tombstones = tombstone_seconds(plan, admin) if found else {}
    left = forget_aged_rows(
        found, changelogs, tombstones, lambda logs: list_offsets(admin, logs, latest=True, leaderless=set())
    )
    return {
        TaskId.parse(task): sum(at for store, at in state.offsets.items() if (task, store) in changelogs)
        for task, state in left.items()
    }


def changelog_ends(
    plan: Plan, topics: Topics, admin: LastingAdmin, tasks: Iterable[TaskId]
) -> dict[TaskId, int]:
    """The ends of the changelogs of tasks with state, as sums over the stores of each task.

    A changelog that is a source topic counts up to its committed offset. If brokers do not answer, the function gives
    very large ends. No copy then counts as caught up, so tasks stay on the workers that run them.

    The leader of the group waits for this call during an assignment, and sends no heartbeats meanwhile. So the time-out
    is a small part of the session time-out.
    """
    seconds = min(_SECONDS, plan.config.session_timeout_ms / 1000 / 8)
    of_task: dict[TaskId, list[TopicPartition]] = {}
    bounded: set[TopicPartition] = set()
    for task in tasks:
        sub = next(sub for sub in plan.subtopologies if sub.id == task.subtopology)
        changelogs = [TopicPartition(topic.name, task.partition) for topic in sub.changelog_topics.values()]
        if changelogs:
            of_task[task] = changelogs
            bounded.update(tp for tp in changelogs if tp.topic in topics.sources[sub.id])
    try:
        own = [tp for changelogs in of_task.values() for tp in changelogs if tp not in bounded]
        ends = list_offsets(admin, own, latest=True, timeout=seconds)
        ends.update(committed_offsets(plan.config, bounded, seconds))
    except BrokerError as error:
        logger.warning("tasks stay on their workers if these are still members of the group: %s", error)
        return dict.fromkeys(of_task, _FAR)
    return {task: sum(ends[tp] for tp in changelogs) for task, changelogs in of_task.items()}


def committed_offsets(
    config: StreamsConfig,
    partitions: Collection[TopicPartition],
    seconds: float = _SECONDS,
    known: RecordConsumer | None = None,
) -> dict[TopicPartition, int]:
    """The application's committed offsets; 0 for partitions without one. Raises `BrokerError`.

    Offsets of a transaction that has not ended do not count, and the answer does not wait for the end. ``known`` is a
    consumer that reads uncommitted offsets.
    """
    found = find_committed(config, partitions, seconds, known, stable=False)
    return {tp: max(0, offset) for tp, (offset, _) in found.items()}
