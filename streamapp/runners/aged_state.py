"""Local state that is so old that its changelogs may lack the tombstones of later deletions.

A deletion is a tombstone in the changelog. Compaction keeps a tombstone for ``delete.retention.ms``, by default a day,
and may remove it then. If the last write to the state on disk is longer ago, the state may have rows that no tombstone
deletes any more. So the worker deletes the rows of the store, and restores the store from its whole changelog. If the
changelog has no records after the offset on disk, the store keeps its rows. Kafka Streams keeps the rows in all cases.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import NamedTuple

from confluent_kafka import KafkaException

from streamapp.broker.requests import LastingAdmin, describe_topic_settings
from streamapp.records import TopicPartition
from streamapp.state.backend import StateDamagedError, WriteSet
from streamapp.state.rocks import RocksBackend, offsets_in, written_at
from streamapp.topology.plan import Plan

__all__ = ["StateOnDisk", "forget_aged_rows", "state_on_disk", "tombstone_seconds"]

logger: logging.Logger = logging.getLogger(__name__)
_SECONDS = 10.0
_RETENTION = "delete.retention.ms"
_DAY_MS = 24 * 3_600_000
"""Kafka's default of ``delete.retention.ms``."""


class StateOnDisk(NamedTuple):
    """The state of a task in a folder, while no process has the folder open."""

    folder: str
    offsets: Mapping[str, int]
    """The next changelog offset of each store."""
    written: float
    """The time of the last commit or restored record, in seconds since 1970."""


def state_on_disk(folder: str | os.PathLike[str]) -> StateOnDisk:
    """The state in the folder of a task. Raises `ProcessorStateError` if the files cannot be read."""
    written = written_at(folder)
    return StateOnDisk(os.fspath(folder), offsets_in(folder), time.time() if written is None else written)


def tombstone_seconds(plan: Plan, admin: LastingAdmin) -> dict[str, float]:
    """The time in seconds for which each compacted changelog keeps tombstones.

    Without the right to ask (``DescribeConfigs``), the setting with which streamapp creates the topic counts, or
    Kafka's default.
    """
    changelogs = {topic.name: topic for sub in plan.subtopologies for topic in sub.changelog_topics.values()}
    found = {}
    for topic, answer in describe_topic_settings(admin, sorted(changelogs), seconds=_SECONDS).items():
        try:
            settings = {name: entry.value for name, entry in answer.result().items()}
        except KafkaException:
            settings = dict(changelogs[topic].config)
        if "compact" in settings.get("cleanup.policy", "compact"):
            found[topic] = int(settings.get(_RETENTION, _DAY_MS)) / 1000
    return found


def forget_aged_rows(
    states: Mapping[str, StateOnDisk],
    changelogs: Mapping[tuple[str, str], TopicPartition],
    tombstones: Mapping[str, float],
    ends_of: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]],
) -> dict[str, StateOnDisk]:
    """Deletes the rows of old stores, whose changelogs may lack the tombstones of later deletions. Returns the states
    as they are afterwards.

    A store is old if its last write is longer ago than its changelog keeps tombstones. If a changelog has no records
    after the offset on disk, the store keeps its rows, however old the rows are. The end of a changelog without a
    leader is not known, so its rows are deleted.

    ``states`` are the states on disk by task, ``changelogs`` the changelog partitions by task and store, and
    ``tombstones`` the result of `tombstone_seconds`. ``ends_of`` asks for the end offsets of changelogs, and leaves out
    changelogs without a leader.

    A damaged state keeps its rows, and is left out of the result. Its task finds the damage, as at any other time, and
    restores the state. Raises `ProcessorStateError` if the disk fails, and `LockError` if another process has opened a
    state.
    """
    now = time.time()
    old = {
        (task, store): changelogs[task, store]
        for task, state in states.items()
        for store, offset in state.offsets.items()
        if offset and (task, store) in changelogs
        if now - state.written > tombstones.get(changelogs[task, store].topic, float("inf"))
    }
    ends = ends_of(set(old.values())) if old else {}
    aged: dict[str, list[str]] = {}
    for (task, store), tp in old.items():
        # The marker of the last commit may follow the offset of the state.
        if tp not in ends or ends[tp] > states[task].offsets[store] + 1:
            aged.setdefault(task, []).append(store)
    left = dict(states)
    for task, stores in aged.items():
        state = states[task]
        logger.warning(
            "task %s: the rows of %s on disk %s. So rows may be there that were deleted meanwhile. The whole "
            "changelogs are read anew",
            task,
            ", ".join(sorted(stores)),
            f"are {timedelta(seconds=int(now - state.written))} old, and {_RETENTION} of their changelogs is shorter"
            if state.written
            else f"may be older than {_RETENTION} of their changelogs: the note of their last write is damaged",
        )
        try:
            _forget(state.folder, stores)
        except StateDamagedError as error:
            logger.warning("%s", error)
            del left[task]
            continue
        left[task] = state._replace(offsets={**state.offsets, **dict.fromkeys(stores, 0)})
    return left


def _forget(folder: str, stores: Collection[str]) -> None:
    """Deletes the rows and the changelog offsets of stores, all together or not at all."""
    backend = RocksBackend(folder)
    try:
        writes = WriteSet(offsets=dict.fromkeys(stores, 0))
        for store in stores:
            last = next(iter(backend.table(store).range(None, None, reverse=True)), None)
            if last is not None:
                writes.range_deletes[store] = [(b"", last[0] + b"\0")]
        backend.write(writes)
    finally:
        backend.close()
