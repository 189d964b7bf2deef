"""The check that the rows of agents' tables belong to the offsets of the group.

Plain Faust commits offsets without metadata, as Kafka's own tools do. So such offsets are taken over from plain Faust,
unless there is a sign that agents of streamapp have run. Their commits note the topics in which all offsets have
metadata (`topic_notes`). Otherwise the changelogs tell: each row that agents write has the header `WRITTEN`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Set
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer

from streamapp.broker.bounded_reads import TO_THE_END, read_to_end
from streamapp.broker.librdkafka import opening
from streamapp.broker.requests import LastingAdmin
from streamapp.config import StreamsConfig
from streamapp.engine.topic_notes import noted_as_own, noted_topics
from streamapp.errors import TopologyError
from streamapp.records import TopicPartition
from streamapp.runners.earlier_topics import changelogs_anew, noted_by_agents
from streamapp.runners.lost_offsets import (
    agents_of_earlier_rows,
    agents_of_other_offsets,
    agents_without_offsets,
    offsets_from_outside,
)
from streamapp.runners.worker.agents.sends import WRITTEN
from streamapp.runners.worker.agents.topics import changelogs_of_agents
from streamapp.runners.worker.clients import (
    PATIENCE_SECONDS,
    admin_client,
    consumer_settings,
    find_committed,
    list_offsets,
)

__all__ = ["check_tables"]

logger: logging.Logger = logging.getLogger(__name__)

_TAIL = 1_000
"""The offsets at the end of a changelog among which its last record is sought. The others are markers."""


def check_tables(app: Any, topics: Set[str], counts: Mapping[str, int]) -> dict[TopicPartition, int]:
    """The offsets of the group in these topics that have no metadata, and that agents may take over.

    ``counts`` has the partition counts of all topics of the cluster.

    Raises `TopologyError` if the changelog of a table was created anew since a commit. Raises the same error if a table
    of agents has rows whose offsets are lost, or were moved by another tool. With at_least_once, a worker that was
    killed before its first commit also leaves rows. So the call only logs a warning then, unless notes name the topic
    of a moved offset.
    """
    config, admin = app.config, admin_client(app.config)
    wanted = _partitions(topics, counts)
    found = find_committed(config, wanted, PATIENCE_SECONDS)
    committed = {tp: each for tp, each in found.items() if each[0] >= 0}
    outside = offsets_from_outside(committed)
    texts = {tp: text for tp, (_, text) in committed.items()}
    present = counts.keys() & changelogs_of_agents(app)
    earlier = changelogs_anew(admin, noted_by_agents(texts), present, PATIENCE_SECONDS)
    for tp, changelog in sorted(earlier.items()):
        raise agents_of_earlier_rows(config.application_id, changelog, tp.topic)
    table = app.tables.with_rows
    if table is None:
        return outside
    moved = {tp: outside[tp] for tp in outside if noted_as_own(texts.values(), [tp.topic])}
    if moved:
        raise agents_of_other_offsets(config.application_id, table, moved)
    if lost := _lost(app, admin, topics, wanted, committed):
        _tell(config, agents_without_offsets(config.application_id, table, lost))
    elif doubtful := _doubtful(outside, committed):
        wrote = _agents_wrote_last(app, admin, counts, {tp.partition for tp in doubtful})
        if moved := {tp: offset for tp, offset in doubtful.items() if tp.partition in wrote}:
            _tell(config, agents_of_other_offsets(config.application_id, table, moved))
    return outside


def _doubtful(
    outside: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, tuple[int, str]]
) -> dict[TopicPartition, int]:
    """The offsets without metadata, except for topics without any metadata if other topics have some.

    Such a topic is new: a tool has set its offsets before the version that reads the topic. In a topic with some
    metadata, another worker may have taken over offsets a moment ago, although a tool has moved all of them.
    """
    taken = {tp.topic for tp in committed.keys() - outside.keys()}
    return {tp: offset for tp, offset in outside.items() if not taken or tp.topic in taken}


def _tell(config: StreamsConfig, error: TopologyError) -> None:
    if config.exactly_once:
        raise error
    logger.warning("%s", error)


def _partitions(topics: Collection[str], counts: Mapping[str, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic in topics for number in range(counts.get(topic, 0))]


def _lost(
    app: Any,
    admin: LastingAdmin,
    topics: Set[str],
    wanted: Collection[TopicPartition],
    committed: Mapping[TopicPartition, tuple[int, str]],
) -> Set[str]:
    """The topics whose offsets are lost: all topics of a group without any offset, or those that other offsets note.

    The rows may also come from an agent that reads a channel in memory, whose messages have no offsets. So in such an
    application, topics without a record are not lost. A partition without a leader may have records, so it counts as
    one that has some.
    """
    if committed:
        present = {tp.topic for tp in committed}
        return noted_topics((text for _, text in committed.values()), topics) - present
    in_memory = any(not hasattr(agent.channel, "topics") for agent in app.agents.values())
    unled: set[TopicPartition] = set()
    ends = list_offsets(admin, wanted, latest=True, leaderless=unled) if in_memory else {}
    if in_memory and not unled and not any(ends.values()):
        return frozenset()
    return topics


def _agents_wrote_last(
    app: Any, admin: LastingAdmin, counts: Mapping[str, int], numbers: Set[int]
) -> set[int]:
    """The partitions, among ``numbers``, in which the last row of a table is of agents of streamapp, not plain Faust.

    Rows are in the partition of the record that made them. The result lacks changelogs without a leader: their rows are
    not known, and no agent can use them.
    """
    logs = [tp for tp in _partitions(changelogs_of_agents(app), counts) if tp.partition in numbers]
    first = list_offsets(admin, logs, latest=False, leaderless=set())
    end = list_offsets(admin, first, latest=True, leaderless=set())
    starts = {tp: max(first[tp], end[tp] - _TAIL) for tp in end if end[tp] > first[tp]}
    if not starts:
        return set()
    last: dict[TopicPartition, bool] = {}
    settings = {**consumer_settings(app.config), **TO_THE_END}
    with opening(settings) as current, closing(Consumer(current)) as consumer:
        for message in read_to_end(consumer, starts, PATIENCE_SECONDS):
            tp = TopicPartition(message.topic(), message.partition())
            last[tp] = any(name == WRITTEN for name, _ in message.headers() or ())
    return {tp.partition for tp, of_agents in last.items() if of_agents}
