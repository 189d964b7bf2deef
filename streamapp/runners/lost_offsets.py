"""The refusal of tables whose group has lost the offsets up to which their rows go, or has other offsets instead.

A group may lose the offsets of some topics only: they were deleted, or their topic was created anew. A new topic has no
offsets either. So agents with tables note, in each commit, the topics in which their group has committed offsets.

Kafka's own tools may set the offsets of a group without members, for example ``kafka-consumer-groups``. They write no
metadata (`from_outside`). The next commit of a task replaces such an offset by one with metadata.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice

from streamapp.engine.metadata import decode_metadata, from_outside
from streamapp.engine.store_notes import comes_from
from streamapp.errors import TopologyError
from streamapp.records import TopicPartition
from streamapp.topology.plan import Plan

__all__ = [
    "KEEP_TABLES",
    "agents_without_offsets",
    "fed_changelogs",
    "note_of_topics",
    "noted_topics",
    "offsets_from_outside",
    "refuse_offsets_from_outside",
    "rows_of_other_offsets",
    "rows_without_offsets",
]

KEEP_TABLES = "`streamapp offsets reset APPLICATION --shift-by 0 --keep-tables --execute`"
"""The command that accepts the offsets that a group has, although rows of tables may not fit them."""

_NOTE = "topics with offsets "
_LETTERS = 8
_MOST_TOPICS = 100
"""The most topics in a note. Brokers limit the length of metadata."""
_MOST_NAMED = 3
"""The most partitions that an error names."""


def note_of_topics(topics: Iterable[str]) -> str:
    """The note, for the metadata of an offset, that the group has committed offsets in these topics.

    The note has a short hash of each topic, and leaves out the topics after the first hundred.

    >>> from streamapp.engine.metadata import metadata_of
    >>> text = metadata_of("A1", note_of_topics(["orders", "returns"]))
    >>> sorted(noted_topics([text, ""], ["orders", "returns", "new"]))
    ['orders', 'returns']
    """
    return _NOTE + "".join(map(_short, sorted(topics)[:_MOST_TOPICS]))


def noted_topics(texts: Iterable[str], topics: Iterable[str]) -> set[str]:
    """The topics, among ``topics``, that notes in the metadata ``texts`` name."""
    noted = {
        found[at : at + _LETTERS]
        for text in texts
        for name in decode_metadata(text)[1]
        if name.startswith(_NOTE)
        for found in [name.removeprefix(_NOTE)]
        for at in range(0, len(found), _LETTERS)
    }
    return {topic for topic in topics if _short(topic) in noted}


def _short(topic: str) -> str:
    return hashlib.blake2s(topic.encode(), digest_size=_LETTERS // 2).hexdigest()


def rows_without_offsets(group: str, task: object, store: str) -> TopologyError:
    """The error for a store with rows whose group has no committed offset in any input.

    Rows and offsets are committed together. So a group that has never committed has no rows.
    """
    return TopologyError(
        f"task {task}: the table {store} has rows, but the group {group} has no committed offsets of any input. The "
        "offsets have expired (offsets.retention.minutes) or were deleted. Or the inputs were created anew, or an "
        "earlier version read other topics. The table would count the records of the inputs twice, or lack records. "
        "Stop all workers. To compute all tables anew, run `streamapp reset`. To keep the tables, choose the next "
        "records: `streamapp offsets reset APPLICATION --to-latest --keep-tables --execute`, or with --to-earliest or "
        "--to-time"
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


def refuse_offsets_from_outside(
    plan: Plan,
    committed: Mapping[TopicPartition, tuple[int, str]],
    counts: Mapping[str, int],
    with_rows: Callable[[Collection[TopicPartition]], TopicPartition | None],
) -> None:
    """Raises `TopologyError` if another tool has set some of these offsets, and tables that they feed have rows.

    ``with_rows`` gives one of some partitions that has committed records, or None.
    """
    outside = offsets_from_outside(committed)
    changelogs = fed_changelogs(plan, {tp.topic for tp in outside}, counts)
    if (found := with_rows(changelogs)) is not None:
        raise rows_of_other_offsets(plan.application_id, changelogs[found], outside)


def rows_of_other_offsets(group: str, store: str, outside: Mapping[TopicPartition, int]) -> TopologyError:
    """The error for a store with rows if another tool has set offsets of its inputs."""
    named = ", ".join(f"{offset} of {tp}" for tp, offset in islice(sorted(outside.items()), _MOST_NAMED))
    more = f" and {len(outside) - _MOST_NAMED} more" if len(outside) > _MOST_NAMED else ""
    return TopologyError(
        f"the table {store} has rows, but another tool than streamapp has set offsets of the group {group}: {named}"
        f"{more}. The table would count records twice, or lack records. Stop all workers. To compute all tables anew, "
        f"run `streamapp reset`. To keep the tables and go on at these offsets, run {KEEP_TABLES}"
    )
