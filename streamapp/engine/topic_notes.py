"""The note, in the metadata of committed offsets, that names the topics in which a task or agents have offsets.

If the group loses the offsets of one topic, the offsets of the other topics tell that there were some. A topic that is
new to the application has no offsets either, but no note names this topic.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache

from streamapp.engine.metadata import decode_metadata

__all__ = ["TOPICS", "note_of_topics", "noted_topics"]

TOPICS = "topics with offsets "
"""The beginning of the note."""
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
    return _note(frozenset(topics))


@lru_cache
def _note(topics: frozenset[str]) -> str:
    """Made once for each set of topics, because each commit of each task has the note."""
    return TOPICS + "".join(map(_short, sorted(topics)[:_MOST_TOPICS]))


def noted_topics(texts: Iterable[str], topics: Iterable[str]) -> set[str]:
    """The topics, among ``topics``, that notes in the metadata ``texts`` name."""
    noted = {
        found[at : at + _LETTERS]
        for text in texts
        for name in decode_metadata(text)[1]
        if name.startswith(TOPICS)
        for found in [name.removeprefix(TOPICS)]
        for at in range(0, len(found), _LETTERS)
    }
    return {topic for topic in topics if _short(topic) in noted}


def _short(topic: str) -> str:
    return hashlib.blake2s(topic.encode(), digest_size=_LETTERS // 2).hexdigest()
