"""Records of an earlier version in repartition topics that no operator of this version reads, or reads with other
serdes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from streamapp.broker.bounded_reads import with_records
from streamapp.broker.requests import LastingAdmin
from streamapp.config import StreamsConfig
from streamapp.engine.store_notes import by_task, written_otherwise
from streamapp.errors import TopologyError
from streamapp.records import TopicPartition
from streamapp.runners.worker.clients import consumer_settings, find_committed, find_topics
from streamapp.topology.plan import Plan

__all__ = ["check_nothing_left", "check_readable", "tell_left_by_agents"]

logger: logging.Logger = logging.getLogger(__name__)


def check_nothing_left(
    plan: Plan, admin: LastingAdmin, existing: Mapping[str, int], timeout: float = 60.0
) -> None:
    """Raises `TopologyError` if an earlier version has left records in a repartition topic of its own.

    The name of such a topic has a number if nobody gives a name. So an operator that is added or removed may change the
    name, and the records that no task has processed yet would be lost. ``existing`` has the partition counts of all
    topics. Only topics in which a task has committed offsets count, because agents have repartition topics, too.
    """
    read = {topic.name for topic in plan.internal_topics}.union(plan.source_topics)
    names = [
        name
        for name in existing
        if name.startswith(f"{plan.application_id}-") and name.endswith("-repartition") and name not in read
    ]
    partitions = {name: existing[name] for name in names}
    committed = _committed(plan.config, partitions, timeout, of_tasks=True)
    for tp in sorted(with_records(consumer_settings(plan.config), admin, committed, timeout)):
        raise TopologyError(
            f"the repartition topic {tp.topic} has records of an earlier version, from offset {committed[tp]} of "
            f"partition {tp.partition} on. No operator of this version reads the topic, so the records would be lost. "
            "If only the generated name has changed, give the operator the old name. Otherwise stop what writes to the "
            "inputs, and run the version before. Stop all workers when `streamapp offsets show --group "
            f"{plan.application_id}` shows no lag of the topic. To give the records up, delete the topic"
        )


def check_readable(
    plan: Plan,
    admin: LastingAdmin,
    committed: Mapping[TopicPartition, tuple[int, str]],
    timeout: float = 60.0,
) -> None:
    """Raises `TopologyError` if records wait in a repartition topic that an earlier version has written with other
    serdes.

    This version could not read the records, or would read other values. ``committed`` has the offset and the metadata
    of all inputs.
    """
    readers = {tp: plan.reader_of(tp.topic) for tp in committed}
    written = {
        tp: (words, sub.repartitioned[tp.topic])
        for tp, sub in readers.items()
        if sub is not None
        and tp.topic in sub.repartitioned
        and (words := written_otherwise(sub, tp.topic, committed[tp][1]))
    }
    starts = {tp: committed[tp][0] for tp in written}
    for tp in sorted(with_records(consumer_settings(plan.config), admin, starts, timeout)):
        words, read = written[tp]
        raise TopologyError(
            f"the repartition topic {tp.topic} has records that {words} have written, from offset "
            f"{starts[tp]} of partition {tp.partition} on. This version would read them with {read}. Stop what writes "
            "to the inputs, and run the version before. Stop all workers when `streamapp offsets show --group "
            f"{plan.application_id}` shows no lag of the topic, then start this version"
        )


def tell_left_by_agents(
    config: StreamsConfig, admin: LastingAdmin, is_read: Callable[[str], bool], timeout: float = 60.0
) -> None:
    """Logs a warning if an earlier version has left records in a topic of ``group_by`` that no agent reads now.

    The name of such a topic has the name of the agent. So a new name of the agent leaves the records in the old topic.
    The warning is no error, because a worker of the earlier version may still run, and process the records.
    """
    existing = find_topics(config, admin, timeout).topics
    counts = {
        name: len(topic.partitions)
        for name, topic in existing.items()
        if name.endswith("-repartition") and not is_read(name)
    }
    committed = _committed(config, counts, timeout, of_tasks=False)
    found = with_records(consumer_settings(config), admin, committed, timeout)
    left = {tp.topic: tp for tp in sorted(found, reverse=True)}
    for topic, tp in sorted(left.items()):
        logger.warning(
            "the topic %s of group_by has records of an earlier version, from offset %s of partition %s on. No agent "
            "of this version reads the topic. A worker of the earlier version that still runs will process the "
            "records. Otherwise give the agent its old name: `app.agent(topic, name=...)`. Or run the version before "
            "until `streamapp offsets show --group %s` shows no lag of the topic. To give the records up, delete the "
            "topic",
            topic,
            committed[tp],
            tp.partition,
            config.application_id,
        )


def _committed(
    config: StreamsConfig, counts: Mapping[str, int], timeout: float, *, of_tasks: bool
) -> dict[TopicPartition, int]:
    """The offsets that tasks, or else agents, have committed in topics with these numbers of partitions."""
    partitions = [TopicPartition(name, number) for name, count in counts.items() for number in range(count)]
    return {
        tp: offset
        for tp, (offset, metadata) in find_committed(config, partitions, timeout).items()
        if offset >= 0 and by_task(metadata) == of_tasks
    }
