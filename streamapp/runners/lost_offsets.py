"""The refusal of tables whose group has lost the offsets up to which their rows go, or has other offsets instead.

A group may lose some offsets only: they were deleted, or their topic was created anew. A new topic has no offsets
either. So tasks and agents note the topics in which they have committed offsets (`topic_notes`).

Kafka's own tools may set the offsets of a group without members, for example ``kafka-consumer-groups``. They write no
metadata (`from_outside`). The next commit of a task replaces such an offset by one with metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any

from streamapp.broker.bounded_reads import with_records
from streamapp.broker.requests import LastingAdmin
from streamapp.engine.metadata import from_outside
from streamapp.engine.store_notes import comes_from
from streamapp.engine.topic_notes import noted_by_task, noted_in_full, noted_topics
from streamapp.errors import TopologyError
from streamapp.records import TopicPartition
from streamapp.topology.plan import Plan

__all__ = [
    "KEEP_TABLES",
    "NO_OFFSET",
    "OffsetCheck",
    "agents_of_earlier_rows",
    "agents_of_other_offsets",
    "agents_without_offsets",
    "check_repartition_topics",
    "fed_changelogs",
    "lost_offsets",
    "names_of",
    "offsets_from_outside",
    "rows_of_other_offsets",
    "rows_without_offsets",
    "set_ahead",
]

KEEP_TABLES = "`streamapp offsets reset APPLICATION --shift-by 0 --keep-tables --execute`"
"""The command that accepts the offsets that a group has, although rows of tables may not fit them."""

NO_OFFSET: tuple[int, str] = (-1, "")
"""A partition without a committed offset, among offsets with their metadata."""

_MOST_NAMED = 3
"""The most partitions that an error names."""


def lost_offsets(
    plan: Plan, committed: Mapping[TopicPartition, tuple[int, str]]
) -> frozenset[TopicPartition]:
    """The inputs without a committed offset in which the group had one.

    ``committed`` has all inputs, with offsets (negative: none) and their metadata. If there is no offset at all, the
    group has lost all of them, or is new. Otherwise the metadata of the other offsets notes the topics and partitions
    in which the group had offsets. Topics that only patterns name are left out: they come and go, and brokers delete
    the offsets of a topic together with the topic.
    """
    texts = {tp: text for tp, (offset, text) in committed.items() if offset >= 0}
    if not texts:
        return frozenset(committed)
    without = {tp for tp in committed.keys() - texts.keys() if plan.pattern_of(tp.topic) is None}
    topics = noted_topics(texts.values(), {tp.topic for tp in without} - {tp.topic for tp in texts})
    return frozenset(noted_by_task(texts, without).union(tp for tp in without if tp.topic in topics))


def check_repartition_topics(
    plan: Plan,
    committed: Mapping[TopicPartition, str],
    existing: Container[str],
    counts: Mapping[str, int],
) -> None:
    """Raises `TopologyError` if a repartition topic is missing, although the group has committed offsets there.

    Brokers delete the offsets of a topic together with the topic. A runner would create the topic anew, empty, and the
    records that waited there would be lost without a word. ``committed`` has the metadata of all other inputs.
    ``counts`` has the partition counts of the topics that are to be created.
    """
    names = {topic.name for sub in plan.subtopologies for topic in sub.repartition_topics}
    for name in sorted(noted_topics(committed.values(), {each for each in names if each not in existing})):
        raise TopologyError(
            f"the repartition topic {name} does not exist, but the group {plan.application_id} has committed offsets "
            "there. If records waited in the topic, the tables behind it lack them. To compute all tables anew, stop "
            "all workers and run `streamapp reset`. If no record waited, create the topic: "
            f"STREAMAPP_BOOTSTRAP_SERVERS={plan.config.bootstrap_servers} streamapp topic create {name} --partitions "
            f"{counts[name]}. Then run `streamapp offsets reset APPLICATION --topic {name} --to-earliest --keep-tables "
            "--execute`"
        )


def names_of(
    lost: Collection[TopicPartition], committed: Mapping[TopicPartition, tuple[int, str]]
) -> list[str]:
    """The lost offsets in words: ``topic`` if the group has no offset in the topic, and else ``topic:partition``.

    Empty if the group has no offset at all.
    """
    present = {tp.topic for tp, (offset, _) in committed.items() if offset >= 0}
    return sorted(
        {f"{tp.topic}:{tp.partition}" if tp.topic in present else tp.topic for tp in lost if present}
    )


def rows_without_offsets(group: str, task: object, store: str, lost: Collection[str] = ()) -> TopologyError:
    """The error for a store with rows whose group has no committed offset in any input, or only in those of ``lost``.

    Rows and offsets are committed together. So a group that has never committed has no rows. ``lost`` has topics, or
    partitions as ``topic:0``.
    """
    where = f"in {', '.join(sorted(lost))}" if lost else "of any input"
    topics = "".join(f" --topic {each}" for each in sorted(lost))
    return TopologyError(
        f"task {task}: the table {store} has rows, but the group {group} has no committed offsets {where}. The "
        "offsets have expired (offsets.retention.minutes) or were deleted. Or the inputs were created anew, or an "
        "earlier version read other topics. The table would count the records of the inputs twice, or lack records. "
        "Stop all workers. To compute all tables anew, run `streamapp reset`. To keep the tables, choose the next "
        f"records: `streamapp offsets reset APPLICATION{topics} --to-latest --keep-tables --execute`, or with "
        "--to-earliest or --to-time. If punctuators have written the rows before the first record, choose --to-earliest"
    )


def agents_without_offsets(group: str, table: str, topics: Collection[str]) -> TopologyError:
    """The error for a table of agents with rows whose group has no committed offset in these topics of the agents."""
    return TopologyError(
        f"the table {table} has rows, but the group {group} has no committed offsets in {', '.join(sorted(topics))}. "
        "The offsets have expired (offsets.retention.minutes) or were deleted. Or the topics were created anew, or an "
        "earlier version read other topics. The table would count records twice, or lack records. Stop all workers. To "
        "compute the tables anew, run `streamapp reset`. To keep the tables, choose the next records of each topic: "
        f"`streamapp offsets reset --group {group} --topic TOPIC --to-latest --execute`, or with --to-earliest or "
        "--to-time"
    )


def agents_of_earlier_rows(group: str, changelog: str, topic: str) -> TopologyError:
    """The error for a table of agents whose changelog was created anew since the commit of an offset in a topic."""
    return TopologyError(
        f"the changelog {changelog} was deleted and created anew since agents of the group {group} have committed "
        f"offsets of {topic}, so their table lacks rows. Stop all workers. To compute the tables anew, run `streamapp "
        "reset`. To go on with the rows that the changelog has now, run `streamapp offsets reset --group "
        f"{group} --shift-by 0 --keep-tables --execute`"
    )


def agents_of_other_offsets(group: str, table: str, moved: Mapping[TopicPartition, int]) -> TopologyError:
    """The error for a table of agents with rows if another tool has set offsets of the agents."""
    keep = (
        "for example because plain Faust has run in between: "
        f"`streamapp offsets reset --group {group} --shift-by 0 --keep-tables --execute`"
    )
    return _of_other_offsets(group, table, moved, "the tables", keep)


def set_ahead(
    plan: Plan, outside: Collection[TopicPartition], committed: Mapping[TopicPartition, tuple[int, str]]
) -> set[TopicPartition]:
    """The inputs, among ``outside``, whose offset another tool has set before the group ever read the topic.

    An operator may set the offsets of a new input first, and then deploy the version that reads it. The task that reads
    the partition may have committed before. Then the metadata of its other offsets notes the topics of its rows.
    ``committed`` has the offsets with their metadata.
    """
    beside: dict[int, dict[TopicPartition, str]] = {tp.partition: {} for tp in outside}
    for tp, (offset, text) in committed.items():
        if offset >= 0 and tp.partition in beside and not from_outside(text):
            beside[tp.partition][tp] = text
    ahead = set()
    for tp in outside:
        texts, reader = beside[tp.partition], plan.reader_of(tp.topic)
        of_task = (text for each, text in texts.items() if plan.reader_of(each.topic) is reader)
        if any(map(noted_in_full, of_task)) and not noted_topics(texts.values(), [tp.topic]):
            ahead.add(tp)
    return ahead


def offsets_from_outside(committed: Mapping[TopicPartition, tuple[int, str]]) -> dict[TopicPartition, int]:
    """The offsets that another tool has set. ``committed`` has offsets (negative: none) with their metadata.

    >>> from streamapp.engine.metadata import encode_metadata
    >>> offsets_from_outside({TopicPartition("a", 0): (7, ""), TopicPartition("a", 1): (7, encode_metadata(5, {}))})
    {TopicPartition(topic='a', partition=0): 7}
    """
    return {tp: offset for tp, (offset, text) in committed.items() if offset >= 0 and from_outside(text)}


def fed_changelogs(
    plan: Plan, topics: Collection[str], counts: Mapping[str, int]
) -> dict[TopicPartition, str]:
    """The changelogs of the tables that records of these topics reach, and the store of each.

    A table that is restored from its source topic is left out. So is a table that a stream of these topics only looks
    up, as in a join. ``counts`` has the partition counts of the topics that exist.
    """
    reached = plan.fed_by(topics)
    names = {*topics, *(topic for sub in reached for topic in sub.sink_topics)}
    return {
        TopicPartition(topic.name, number): store
        for sub in reached
        for store, topic in sub.changelog_topics.items()
        if topic.name not in sub.source_topics and any(comes_from(sub, store, name) for name in names)
        for number in range(counts.get(topic.name, 0))
    }


def rows_of_other_offsets(group: str, store: str, outside: Mapping[TopicPartition, int]) -> TopologyError:
    """The error for a store with rows if another tool has set offsets of its inputs."""
    keep = f"for example if the topics are new in this version, run {KEEP_TABLES}"
    return _of_other_offsets(group, store, outside, "all tables", keep)


def _of_other_offsets(
    group: str, table: str, offsets: Mapping[TopicPartition, int], tables: str, keep: str
) -> TopologyError:
    named = ", ".join(f"{offset} of {tp}" for tp, offset in islice(sorted(offsets.items()), _MOST_NAMED))
    more = f" and {len(offsets) - _MOST_NAMED} more" if len(offsets) > _MOST_NAMED else ""
    return TopologyError(
        f"the table {table} has rows, but another tool than streamapp has set offsets of the group {group}: "
        f"{named}{more}. The table would count records twice, or lack records. Stop all workers. To compute {tables} "
        f"anew, run `streamapp reset`. To keep the tables and go on at these offsets, {keep}"
    )


class OffsetCheck:
    """The check that the rows of tables belong to the offsets of the group, for all runners.

    ``ask`` gives committed offsets with their metadata. Partitions without an offset may be missing there. Clients with
    the settings ``reader``, of a consumer with a ``group.id``, look for rows, and wait at most ``seconds`` for brokers.

    Other workers may begin at the same time. The first one commits offsets of other tools again, with metadata, and
    later come the first rows. So the check asks the group once more before each error.
    """

    def __init__(
        self,
        plan: Plan,
        admin: LastingAdmin,
        reader: Mapping[str, Any],
        seconds: float,
        ask: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, tuple[int, str]]],
    ) -> None:
        self._plan, self._admin, self._reader, self._seconds, self._ask = plan, admin, reader, seconds, ask

    def check(
        self, committed: Mapping[TopicPartition, tuple[int, str]], counts: Mapping[str, int]
    ) -> dict[TopicPartition, int]:
        """Does the work of `check_outside`, and also raises `TopologyError` for tables with rows of lost offsets.

        ``committed`` has all inputs. `lost_offsets` says which offsets are lost.
        """
        outside = self.check_outside(committed, counts)
        if self._with_rows(lost_offsets(self._plan, committed), counts) is not None:
            again = self._asked(committed)
            lost = lost_offsets(self._plan, again)
            if (found := self._with_rows(lost, counts)) is not None:
                changelog, store = found
                task = f"{self._plan.store_subtopology[store].id}_{changelog.partition}"
                raise rows_without_offsets(self._plan.application_id, task, store, names_of(lost, again))
        return outside

    def check_outside(
        self,
        committed: Mapping[TopicPartition, tuple[int, str]],
        counts: Mapping[str, int],
        harmless: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> dict[TopicPartition, int]:
        """Raises `TopologyError` if another tool has set some of these offsets, and tables that they feed have rows.

        Otherwise returns the offsets that another tool has set. ``harmless`` are offsets that an earlier call has
        returned: the first rows came after them. ``committed`` has offsets (negative: none) with their metadata.
        ``counts`` has the partition counts of the topics that exist. Brokers are only asked if another tool has set
        offsets. Raises `BrokerError` if they do not answer.
        """
        outside = offsets_from_outside(committed)
        doubtful = {tp for tp, offset in outside.items() if harmless.get(tp) != offset}
        doubtful -= set_ahead(self._plan, doubtful, committed)
        if self._with_rows(doubtful, counts) is None:
            return outside
        still = offsets_from_outside(self._asked(doubtful))
        if (found := self._with_rows(still, counts)) is not None:
            raise rows_of_other_offsets(self._plan.application_id, found[1], still)
        return {tp: offset for tp, offset in outside.items() if tp in still or tp not in doubtful}

    def _asked(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, str]]:
        found = self._ask(partitions)
        return {tp: found.get(tp, NO_OFFSET) for tp in partitions}

    def _with_rows(
        self, inputs: Collection[TopicPartition], counts: Mapping[str, int]
    ) -> tuple[TopicPartition, str] | None:
        """A changelog partition that has rows, and its store, if the topics of the inputs feed the store's table."""
        changelogs = fed_changelogs(self._plan, {tp.topic for tp in inputs}, counts)
        starts = dict.fromkeys(changelogs, 0)
        found = next(with_records(self._reader, self._admin, starts, self._seconds), None)
        return None if found is None else (found, changelogs[found])
