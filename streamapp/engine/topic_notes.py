"""The note, in the metadata of committed offsets, that names the topics in which a task or agents have offsets.

If the group loses the offsets of one topic, the offsets of the other topics tell that there were some. A topic that is
new to the application has no offsets either, but no note names this topic.

The note of a task also tells in which of these topics the task itself has offsets. A task reads one partition number.
So the note tells that the offset of one partition is lost, too. The note of agents tells in the same way in which
topics all offsets have metadata (`runners/worker/agents/table_offsets.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from streamapp._base.names import HASH_LETTERS, short_hash
from streamapp.engine.metadata import decode_metadata
from streamapp.records import TopicPartition

__all__ = ["TOPICS", "note_of_topics", "noted_as_own", "noted_by_task", "noted_in_full", "noted_topics"]

TOPICS = "topics with offsets "
"""The beginning of the note."""
_COUNT = ","
"""The beginning of the number of topics in which the task itself has offsets. They come first in the note."""
_MOST_TOPICS = 100
"""The most topics in a note. Brokers limit the length of metadata."""


class _Noted(NamedTuple):
    topics: frozenset[str]
    """The short hash of each topic in which the group has offsets."""
    own: frozenset[str]
    """The short hash of each topic that is ``own`` in `note_of_topics`."""
    copied: bool
    """True if Kafka Streams has copied the note, and so may know further topics.

    The number of a note is the partition time of its commit, and Kafka Streams commits other partition times.
    """


def note_of_topics(topics: Iterable[str], own: Iterable[str] = ()) -> str:
    """The note, for the metadata of an offset, that the group has committed offsets in these topics.

    ``own`` are the topics in which the task itself has offsets, or agents have metadata with all offsets. The note has
    a short hash of each topic, and leaves out the topics after the first hundred.

    >>> from streamapp.engine.metadata import metadata_of
    >>> text = metadata_of("A1", note_of_topics(["orders", "returns"]))
    >>> sorted(noted_topics([text, ""], ["orders", "returns", "new"]))
    ['orders', 'returns']
    """
    return _note(frozenset(topics), frozenset(own))


@lru_cache
def _note(topics: frozenset[str], own: frozenset[str]) -> str:
    """Made once for each set of topics, because each commit of each task has the note."""
    named = [*sorted(own), *sorted(topics - own)][:_MOST_TOPICS]
    count = f"{_COUNT}{min(len(own), _MOST_TOPICS)}" if own else ""
    return f"{TOPICS}{''.join(map(short_hash, named))}{count}"


def noted_topics(texts: Iterable[str], topics: Iterable[str]) -> set[str]:
    """The topics, among ``topics``, that notes in the metadata ``texts`` name."""
    noted = frozenset[str]().union(*(note.topics for text in texts for note in _notes(text)))
    return {topic for topic in topics if short_hash(topic) in noted}


def noted_by_task(
    committed: Mapping[TopicPartition, str], partitions: Iterable[TopicPartition]
) -> set[TopicPartition]:
    """The partitions in which a task had an offset, as the metadata of its offsets notes.

    ``committed`` has the metadata of offsets. A task has offsets in partitions of the same number.

    >>> from streamapp.engine.metadata import metadata_of
    >>> text = metadata_of("A1", note_of_topics(["a", "b", "c"], own=["a", "b"]))
    >>> sorted(noted_by_task({TopicPartition("a", 0): text}, [TopicPartition(t, p) for t in "abc" for p in (0, 1)]))
    [TopicPartition(topic='a', partition=0), TopicPartition(topic='b', partition=0)]
    """
    texts: dict[int, list[str]] = {}
    for tp, text in committed.items():
        texts.setdefault(tp.partition, []).append(text)
    return {tp for tp in partitions if noted_as_own(texts.get(tp.partition, ()), [tp.topic])}


def noted_as_own(texts: Iterable[str], topics: Iterable[str]) -> set[str]:
    """The topics, among ``topics``, that notes in the metadata ``texts`` name as those of the task or agents."""
    noted = frozenset[str]().union(*(note.own for text in texts for note in _notes(text)))
    return {topic for topic in topics if short_hash(topic) in noted}


def noted_in_full(text: str) -> bool:
    """True if the metadata of an offset names all topics in which the task had offsets after the commit.

    A note with the most own topics may lack further ones.

    >>> from streamapp.engine.metadata import encode_metadata
    >>> note = note_of_topics(["a", "b"], own=["a"])
    >>> noted_in_full(encode_metadata(5, {note: 5})), noted_in_full(encode_metadata(6, {note: 5}))
    (True, False)
    """
    return any(0 < len(note.own) < _MOST_TOPICS and not note.copied for note in _notes(text))


def _notes(text: str) -> Iterable[_Noted]:
    """The notes in the metadata of an offset. Kafka Streams copies unknown names, so there may be several."""
    partition_time, names = decode_metadata(text)
    for name, number in names.items():
        if name.startswith(TOPICS):
            hashes, _, count = name.removeprefix(TOPICS).partition(_COUNT)
            found = [hashes[at : at + HASH_LETTERS] for at in range(0, len(hashes), HASH_LETTERS)]
            copied = number != max(partition_time, 0)
            yield _Noted(frozenset(found), frozenset(found[: int(count or 0)]), copied)
