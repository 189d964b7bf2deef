"""The notes about stores in the metadata of committed offsets. Each note says how the rows of one changelog are read.

Rows of a changelog do not say everything about themselves. The row of a window, for example, has its start, but not its
length. A worker without a state folder reads the rows by the store's definition in its own version of the application.
So each version leaves notes in its commits. A later version is refused if it defines a store in another way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from streamapp._base.counted import counted
from streamapp._base.names import short_hash
from streamapp.engine.metadata import (
    BACKFILL,
    SOME_NOTES,
    changelog_in,
    changelog_number,
    changelogs_of_agents_in,
    decode_metadata,
    encode_metadata,
)
from streamapp.engine.topic_notes import TOPICS
from streamapp.errors import TopologyError
from streamapp.records import TopicPartition
from streamapp.state.spec import of_other_keys, same_rows
from streamapp.topology.plan import Plan, Subtopology

__all__ = [
    "EDITION",
    "by_task",
    "changelog_numbers",
    "check_notes",
    "check_stores",
    "comes_from",
    "latest_edition",
    "not_of_this_store",
    "noted_changelogs",
    "notes_differ",
    "notes_for",
    "unnoted",
    "without_notes",
    "written_otherwise",
]

_STORE = "store "
_ELSEWHERE = "other store "
"""The beginning of a note about a store whose rows come from another input of the task than the topic of the note."""
_PARTITIONS = "partitions "
"""The beginning of a note about the partition count of a topic that serves as the changelog of a table."""
_RECORDS = "records "
"""The beginning of a note about the serdes of a repartition topic."""
_WRITES = "writes "
"""The beginning of a note with short hashes of the repartition topics to which the sub-topology writes."""
EDITION = "edition of the notes"
"""The name of a number, which is larger in the commits of a later version of the application.

An input that a version does not read, or that has no new records, keeps the notes of an earlier version. The number
tells which notes are the latest. Metadata without the number has edition 0.
"""
_NOTES = _STORE, _ELSEWHERE, _PARTITIONS, _RECORDS, _WRITES
_ALL = "all stores"
"""The last note: the metadata has a note about each store of the sub-topology. Its number is the partition time of the
commit, and 0 in commits of the first releases."""
_ANEW = "To compute all tables anew, stop all workers and run `streamapp reset`"
_REMEDY = f"Give the store of this version another name, or go back to the version before. {_ANEW}"


class _Found(NamedTuple):
    rows: Mapping[str, frozenset[str]]
    """Store -> the rows that the notes name. Kafka Streams copies unknown names, so a store may have several notes."""
    partitions: frozenset[int]
    """The partition counts of the topic, if it serves as the changelog of a table."""
    records: frozenset[str]
    """The serdes of the records, if the topic is a repartition topic."""
    writes: frozenset[str]
    """The short hashes of the repartition topics to which the sub-topology wrote."""
    edition: int
    """The largest `EDITION`."""
    origins: frozenset[str]
    """The stores whose rows come from the topics of the notes."""
    all: bool
    """True if the notes name each store that the sub-topology had.

    The inputs of a task may have notes of several versions. So a commit that leaves out notes makes this False, even if
    another input has all notes of an earlier version. A later commit of Kafka Streams has a copy of the notes, and the
    application in Java may have had further stores. So such a commit makes this False, too.
    """
    by_task: bool
    """True if a task has made the commits."""


def notes_for(plan: Plan, topic: str, count: Callable[[str], int]) -> tuple[str, ...]:
    """The notes in the metadata of a topic: one about each store of the sub-topology that reads the topic.

    Stores without a changelog have no note, and neither have stores whose changelog is a source topic. If the topic
    itself serves as a changelog, one more note has its partition count, which ``count`` gives. If the topic is a
    repartition topic, one more note has its serdes. One more note has the repartition topics to which the sub-topology
    writes. The last note says that no store is left out.
    """
    found = plan.reader_of(topic)
    if found is None:
        return ()
    notes = [_note(found, store, topic) for store in _logged(found)]
    if _restores(found, topic):
        notes.insert(0, f"{_PARTITIONS}{count(topic)}")
    if written := _written(plan, found):
        notes.insert(0, f"{_WRITES}{','.join(map(short_hash, written))}")
    if topic in found.repartitioned:
        notes.insert(0, f"{_RECORDS}{found.repartitioned[topic]}")
    return (*notes, _ALL)


def changelog_numbers(plan: Plan, topic: str, ids: Mapping[str, str]) -> dict[str, int]:
    """The numbers of notes about stores in the metadata of a topic: each number stands for the id of a changelog.

    ``ids`` has Kafka's ids of topics. Changelogs without an id are left out.
    """
    found = plan.reader_of(topic)
    if found is None:
        return {}
    named = {store: found.changelog_topics[store].name for store in _logged(found)}
    return {
        _note(found, store, topic): changelog_number(ids[changelog])
        for store, changelog in named.items()
        if changelog in ids
    }


def noted_changelogs(
    plan: Plan, committed: Mapping[TopicPartition, str]
) -> dict[str, dict[TopicPartition, int]]:
    """The changelogs whose ids the metadata of committed offsets names: for each changelog, the number of each input.

    A changelog is left out if the last commits of its sub-topology do not name its id.
    """
    noted: dict[str, dict[TopicPartition, int]] = {}
    for sub in plan.subtopologies:
        texts = {tp: text for tp, text in committed.items() if plan.reader_of(tp.topic) is sub}
        edition = latest_edition(texts.values())
        for store in _logged(sub):
            names = f"{_STORE}{store}: ", f"{_ELSEWHERE}{store}: "
            found = {
                tp: number for tp, text in texts.items() if (number := changelog_in(text, names)) is not None
            }
            if any(_edition(texts[tp]) == edition for tp in found):
                noted[sub.changelog_topics[store].name] = found
    return noted


def notes_differ(metadata: str, notes: Collection[str]) -> bool:
    """True if the metadata of a committed offset has other notes about stores than these: another version of the
    application has made the commit.

    An input without new records keeps such an offset for long. The next commit of a task has to renew the metadata.
    Otherwise `unnoted` would find the stores of the earlier version there, although a later version had no such stores.
    """
    names = decode_metadata(metadata)[1].keys()
    if not names & {_ALL, SOME_NOTES}:
        return False
    return {name for name in names if name.startswith(_NOTES)} != {
        note for note in notes if note.startswith(_NOTES)
    }


def latest_edition(texts: Iterable[str]) -> int:
    """The largest edition in the metadata of offsets; 0 if none has an edition."""
    return max((_edition(text) for text in texts), default=0)


def _edition(text: str) -> int:
    return 0 if text.startswith(BACKFILL) else max(decode_metadata(text)[1].get(EDITION, 0), 0)


def check_notes(plan: Plan, committed: Mapping[TopicPartition, str]) -> None:
    """Raises `TopologyError` if a store would read rows of its changelog that another definition has written.

    ``committed`` has the metadata of committed offsets. Metadata without notes, as of earlier releases and of Kafka
    Streams, raises no error.
    """
    for sub in plan.subtopologies:
        for found in _by_partition(plan, sub, committed).values():
            for store in _logged(sub):
                rows, written = sub.store(store).changelog_rows, found.rows.get(store, frozenset())
                if written and not any(same_rows(rows, each) for each in written):
                    raise _other_rows(sub, store, min(written), rows)


def check_stores(plan: Plan, committed: Mapping[TopicPartition, str], counts: Mapping[str, int]) -> None:
    """Raises `TopologyError` if the changelog of a store has rows that do not belong to the store.

    Another definition of the store may have written the rows, or an operator that reads other topics. A generated name
    of a store has a number, so a new operator may take the name of another one. ``committed`` has the metadata of all
    inputs. ``counts`` has the partition counts of the topics. If a topic serves as the changelog of a table, its count
    must stay: a key would belong to another partition than its row. The last commit may be of a version that did not
    write to a repartition topic. Then tables behind the topic lack records.
    """
    check_notes(plan, committed)
    _check_no_rows_of_agents(plan, committed, counts)
    _check_written(plan, committed)
    noted: dict[str, set[str]] = {}
    for tp, text in committed.items():
        sub, found = plan.reader_of(tp.topic), _found([text])
        for store in found.origins:
            noted.setdefault(store, set()).add(tp.topic)
        before = found.partitions
        if sub is not None and _restores(sub, tp.topic) and before and counts[tp.topic] not in before:
            raise TopologyError(
                f"the topic {tp.topic}, which restores a table, had {counted(min(before), 'partition')}, and has "
                f"{counts[tp.topic]} now. Keys belong to other partitions than their rows, so the table would not find "
                "these rows. Copy the records into a new topic with the new number of partitions, and read the new "
                "topic. Or make the table with stream(...).repartition().to_table()"
            )
    for sub in plan.subtopologies:
        for store in _logged(sub):
            topics = noted.get(store, set())
            if topics and not any(comes_from(sub, store, topic) for topic in topics):
                raise TopologyError(
                    f"the changelog {sub.changelog_topics[store].name} has rows that an operator has made of records "
                    f"of {', '.join(sorted(topics))}, and the store {store} of this version reads other topics. A "
                    "generated name belongs to another operator if operators are added or change places. Name the "
                    f"stores. {_REMEDY}"
                )


def _check_no_rows_of_agents(
    plan: Plan, committed: Mapping[TopicPartition, str], existing: Container[str]
) -> None:
    """Raises `TopologyError` if a table of agents has the changelog of a store: both have the same kind of name."""
    of_agents = {changelog for text in committed.values() for changelog in changelogs_of_agents_in(text)}
    for sub in plan.subtopologies:
        for store, topic in sub.changelog_topics.items():
            if topic.name in of_agents and topic.name in existing:
                raise TopologyError(
                    f"the changelog {topic.name} has the rows of a table of agents, in Faust's form, which the store "
                    f"{store} cannot read. To keep both, give the store another name: it begins empty. To compute the "
                    "store from all records of its inputs, stop all workers and run `streamapp reset`"
                )


def _check_written(plan: Plan, committed: Mapping[TopicPartition, str]) -> None:
    for sub in plan.subtopologies:
        tasks = _by_partition(plan, sub, committed).values()
        edition = max((found.edition for found in tasks), default=0)
        last = [found for found in tasks if found.edition == edition]
        for topic in _written(plan, sub):
            if any(not found.all or short_hash(topic) in found.writes for found in last):
                continue
            read = [text for tp, text in committed.items() if tp.topic == topic and by_task(text)]
            # The tasks behind the topic may be those of a later version, whose other tasks have not committed yet.
            if read and latest_edition(read) < edition:
                raise TopologyError(
                    "the last commit of the group is of a version that did not write to the repartition topic "
                    f"{topic}. The tables behind the topic lack all records since an earlier version. Give the "
                    f"operator and these tables other names, or go back to the version before. {_ANEW}"
                )


def unnoted(plan: Plan, committed: Mapping[TopicPartition, str]) -> frozenset[str]:
    """The stores of which the last commit knows nothing: the version of the application that made the commit did not
    have these stores.

    The changelog of each of these stores has to be empty. ``committed`` has the metadata of committed offsets.
    """
    missing: set[str] = set()
    for sub in plan.subtopologies:
        found = _by_partition(plan, sub, committed).values()
        if any(each.all for each in found):
            missing.update(store for store in _logged(sub) if not any(store in each.rows for each in found))
    return frozenset(missing)


def written_otherwise(sub: Subtopology, topic: str, metadata: str) -> str | None:
    """The serdes that have written the records of a repartition topic, if this version reads with others.

    ``metadata`` is that of a committed offset of the topic. None also stands for metadata without a note.
    """
    written = _found([metadata]).records
    return min(written) if written and sub.repartitioned[topic] not in written else None


def without_notes(metadata: str) -> str:
    """The metadata without the notes about stores and topics, for a commit of very many inputs."""
    partition_time, known = decode_metadata(metadata)
    notes = _STORE, _ELSEWHERE, _RECORDS, _WRITES, _ALL, TOPICS
    kept = {name: number for name, number in known.items() if not name.startswith(notes)}
    return metadata if kept == known else encode_metadata(partition_time, kept | {SOME_NOTES: 0})


def by_task(metadata: str) -> bool:
    """True if a task has committed an offset with this metadata, and no agent or other member of the group."""
    return _found([metadata]).by_task


def not_of_this_store(store: str, changelog: str) -> TopologyError:
    """The error for an `unnoted` store whose changelog has rows."""
    return TopologyError(
        f"the changelog {changelog} has rows, but the last commit of the group is of a version without the store "
        f"{store}. The rows are of another operator, or lack all records since an earlier version. Give the store "
        f"another name. If the store may begin empty, stop all workers, delete the topic {changelog}, and start again. "
        "To compute all tables anew, stop all workers and run `streamapp reset`"
    )


def _other_rows(sub: Subtopology, store: str, written: str, rows: str) -> TopologyError:
    hint = ""
    if of_other_keys(written, rows):
        hint = (
            ". The schema of the keys has changed. The bytes of a key begin with the id of its schema, so no key would "
            "find its old row"
        )
    elif written.partition(", ")[2] != rows.partition(", ")[2]:
        hint = (
            ". If a new class of a serde reads the old bytes, give the class the attribute persistent_name with the "
            "old name"
        )
    return TopologyError(
        f"the changelog {sub.changelog_topics[store].name} has {written}, but the store {store} of this version "
        f"would read {rows}. {_REMEDY}{hint}"
    )


def _note(sub: Subtopology, store: str, topic: str) -> str:
    beginning = _STORE if comes_from(sub, store, topic) else _ELSEWHERE
    return f"{beginning}{store}: {sub.store(store).changelog_rows}"


def _logged(sub: Subtopology) -> list[str]:
    return [store for store, topic in sub.changelog_topics.items() if topic.name not in sub.source_topics]


def _restores(sub: Subtopology, topic: str) -> bool:
    """True if a source topic serves as the changelog of a table."""
    return any(each.name == topic for each in sub.changelog_topics.values())


def _by_partition(plan: Plan, sub: Subtopology, committed: Mapping[TopicPartition, str]) -> dict[int, _Found]:
    """The latest notes in the inputs of each task of a sub-topology."""
    texts: dict[int, list[str]] = {}
    for tp, text in committed.items():
        if plan.reader_of(tp.topic) is sub:
            texts.setdefault(tp.partition, []).append(text)
    return {partition: _found(_latest(each)) for partition, each in texts.items()}


def _latest(texts: Sequence[str]) -> list[str]:
    edition = latest_edition(texts)
    return [text for text in texts if _edition(text) == edition]


def _written(plan: Plan, sub: Subtopology) -> list[str]:
    """The repartition topics to which a sub-topology writes."""
    internal = {topic for each in plan.subtopologies for topic in each.repartitioned}
    return sorted(internal.intersection(sub.sink_topics))


def comes_from(sub: Subtopology, store: str, topic: str) -> bool:
    """True if the operator that writes a store gets records of a topic."""
    return any(
        source.name in sub.origins[store]
        for source in sub.sources
        if topic in source.topics or (source.pattern is not None and source.pattern.fullmatch(topic))
    )


def _found(texts: Sequence[str]) -> _Found:
    rows: dict[str, set[str]] = {}
    partitions: set[int] = set()
    records: set[str] = set()
    writes: set[str] = set()
    origins: set[str] = set()
    last: set[str] = set()
    for text in texts:
        partition_time, names = (-1, {}) if text.startswith(BACKFILL) else decode_metadata(text)
        last.update(names.keys() & {_ALL, SOME_NOTES})
        if names.get(_ALL, 0) not in (0, partition_time):
            last.add(SOME_NOTES)  # a copy by Kafka Streams
        for name in names:
            if name.startswith(_PARTITIONS):
                partitions.add(int(name.removeprefix(_PARTITIONS)))
            elif name.startswith(_RECORDS):
                records.add(name.removeprefix(_RECORDS))
            elif name.startswith(_WRITES):
                writes.update(name.removeprefix(_WRITES).split(","))
            store, found, written = name.removeprefix(_ELSEWHERE).removeprefix(_STORE).partition(": ")
            if found and name.startswith((_STORE, _ELSEWHERE)):
                rows.setdefault(store, set()).add(written)
                if name.startswith(_STORE):
                    origins.add(store)
    by_store = {store: frozenset(each) for store, each in rows.items()}
    by_task = bool(last or by_store)
    return _Found(
        rows=by_store,
        partitions=frozenset(partitions),
        records=frozenset(records),
        writes=frozenset(writes),
        edition=latest_edition(texts),
        origins=frozenset(origins),
        all=last == {_ALL},
        by_task=by_task,
    )
