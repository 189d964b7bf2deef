"""Local state that is so old that its changelogs may lack the tombstones of later deletions.

A deletion is a tombstone in the changelog. Compaction removes a tombstone ``delete.retention.ms`` after its time, by
default after a day. State that was written last before this time may have rows that no tombstone deletes any more. So
the rows of such a store are deleted, and the store is restored from its whole changelog. Kafka Streams keeps the rows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource

from streamapp.broker.requests import LastingAdmin, ask
from streamapp.records import TopicPartition
from streamapp.runners.worker.clients import list_offsets
from streamapp.runners.worker.offsets import StateOnDisk
from streamapp.runners.worker.placement import TaskId
from streamapp.state.backend import WriteSet
from streamapp.state.directory import StateDirectory
from streamapp.state.rocks import RocksBackend
from streamapp.topology.plan import InternalTopic, Plan

__all__ = ["forget_aged_stores"]

logger: logging.Logger = logging.getLogger(__name__)
_SECONDS = 10.0
_RETENTION = "delete.retention.ms"
_DAY_MS = 24 * 3_600_000
"""Kafka's default of ``delete.retention.ms``."""


def forget_aged_stores(
    plan: Plan,
    on_disk: Mapping[TaskId, StateOnDisk],
    directory: StateDirectory,
    admin: LastingAdmin,
    now: float | None = None,
) -> dict[TaskId, StateOnDisk]:
    """Deletes the rows of stores on disk whose changelogs may lack tombstones. Returns the state that is left.

    The next restore reads the whole changelogs of these stores. A store whose changelog has no new records stays as it
    is, however old it is. ``now`` is the time in seconds since 1970 (default: the machine's clock). Raises
    `BrokerError` if brokers do not answer.
    """
    now = time.time() if now is None else now
    changelogs = {sub.id: sub.changelog_topics for sub in plan.subtopologies}
    read = {
        (task, store): TopicPartition(changelogs[task.subtopology][store].name, task.partition)
        for task, state in on_disk.items()
        if state.written is not None
        for store, offset in state.offsets.items()
        if offset
    }
    ends = list_offsets(admin, list(read.values()), latest=True) if read else {}
    # The marker of the last commit may follow the offset of the state.
    behind = {at: tp.topic for at, tp in read.items() if ends[tp] > on_disk[at[0]].offsets[at[1]] + 1}
    kept = _retentions(admin, {topic.name: topic for topic in plan.internal_topics}, set(behind.values()))
    aged: dict[TaskId, list[str]] = {}
    for (task, store), topic in behind.items():
        if topic in kept and now - (on_disk[task].written or now) > kept[topic]:
            aged.setdefault(task, []).append(store)
    left = dict(on_disk)
    for task, stores in aged.items():
        age = timedelta(seconds=int(now - (on_disk[task].written or now)))
        logger.warning(
            "task %s: the rows of %s on disk are %s old, and %s of their changelogs is shorter. So rows may be there "
            "that were deleted meanwhile. The whole changelogs are read anew",
            task,
            ", ".join(sorted(stores)),
            age,
            _RETENTION,
        )
        _forget(directory, task, stores)
        left[task] = StateOnDisk(
            {name: at for name, at in on_disk[task].offsets.items() if name not in stores}, now
        )
    return left


def _forget(directory: StateDirectory, task: TaskId, stores: Iterable[str]) -> None:
    """Deletes the rows and the changelog offsets of stores, in one write."""
    backend = RocksBackend(directory.task_path(str(task)))
    try:
        writes = WriteSet(offsets=dict.fromkeys(stores, 0))
        for store in writes.offsets:
            last = next(iter(backend.table(store).range(None, None, reverse=True)), None)
            if last is not None:
                writes.range_deletes[store] = [(b"", last[0] + b"\0")]
        backend.write(writes)
    finally:
        backend.close()


def _retentions(
    admin: LastingAdmin, known: Mapping[str, InternalTopic], topics: Collection[str]
) -> dict[str, float]:
    """The time in seconds for which each compacted topic keeps tombstones.

    Without the right to ask (``DescribeConfigs``), the setting with which streamapp creates the topic counts, or
    Kafka's default.
    """
    asked = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in sorted(topics)]
    found = {}
    for resource, answer in (ask(admin.describe_configs, asked, seconds=_SECONDS) if asked else {}).items():
        try:
            settings = {name: entry.value for name, entry in answer.result().items()}
        except KafkaException:
            settings = dict(known[resource.name].config) if resource.name in known else {}
        if "compact" in settings.get("cleanup.policy", "compact"):
            found[resource.name] = int(settings.get(_RETENTION, _DAY_MS)) / 1000
    return found
