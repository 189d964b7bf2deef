"""Records of an earlier version in repartition topics that no operator of this version reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as RdTopicPartition

from streamapp.broker.consumer import next_message
from streamapp.broker.requests import LastingAdmin
from streamapp.config import StreamsConfig
from streamapp.engine.store_notes import by_task
from streamapp.errors import TopologyError
from streamapp.records import TopicPartition
from streamapp.runners.worker.clients import consumer_settings, find_committed, list_offsets
from streamapp.topology.plan import Plan

__all__ = ["check_nothing_left"]

_SECONDS = 30.0


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
    partitions = [TopicPartition(name, number) for name in names for number in range(existing[name])]
    committed = {
        tp: offset
        for tp, (offset, metadata) in find_committed(plan.config, partitions, timeout).items()
        if offset >= 0 and by_task(metadata)
    }
    for tp in sorted(_with_records(plan.config, admin, committed)):
        raise TopologyError(
            f"the repartition topic {tp.topic} has records of an earlier version, from offset {committed[tp]} of "
            f"partition {tp.partition} on. No operator of this version reads the topic, so the records would be lost. "
            "If only the generated name has changed, give the operator the old name. Otherwise stop what writes to the "
            "inputs, and run the version before. Stop all workers when `streamapp offsets show --group "
            f"{plan.application_id}` shows no lag of the topic. To give the records up, delete the topic"
        )


def _with_records(
    config: StreamsConfig, admin: LastingAdmin, committed: Mapping[TopicPartition, int]
) -> Iterator[TopicPartition]:
    """The partitions with a committed record behind the committed offset. The end of a log may be a marker."""
    starts = list_offsets(admin, committed, latest=False)
    ends = list_offsets(admin, committed, latest=True)
    behind = {tp: max(offset, starts[tp]) for tp, offset in committed.items() if ends[tp] > offset}
    if not behind:
        return
    with closing(Consumer(consumer_settings(config))) as consumer:
        for tp, offset in behind.items():
            consumer.assign([RdTopicPartition(*tp, offset)])
            if next_message(consumer, str(tp), _SECONDS).error() is None:
                yield tp
