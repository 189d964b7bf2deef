"""The refusal of tables whose group has lost the offsets up to which their rows go.

A group may lose the offsets of some topics only: they were deleted, or their topic was created anew. A new topic has no
offsets either. So agents with tables note, in each commit, the topics in which their group has committed offsets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable

from streamapp.engine.metadata import decode_metadata
from streamapp.errors import TopologyError

__all__ = ["agents_without_offsets", "note_of_topics", "noted_topics", "rows_without_offsets"]

_NOTE = "topics with offsets "
_LETTERS = 8
_MOST_TOPICS = 100
"""The most topics in a note. Brokers limit the length of metadata."""


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
