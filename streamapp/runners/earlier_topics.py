"""Topics that were deleted and created anew since the commits of a group, as the metadata of its offsets says."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Container, Iterable, Mapping

from confluent_kafka import KafkaException, TopicCollection

from streamapp._base.names import NO_TOPIC_ID
from streamapp.broker.requests import REQUEST_SECONDS, LastingAdmin, ask
from streamapp.engine.metadata import (
    SHORT_MARK,
    changelog_number,
    changelogs_of_agents_in,
    marks_of,
    topic_ids_in,
)
from streamapp.errors import BrokerError, TopologyError
from streamapp.records import TopicPartition

__all__ = [
    "KEEP_COPIED",
    "changelogs_anew",
    "check_changelogs",
    "check_not_anew",
    "committed_in_others",
    "created_anew",
    "ids_of",
    "noted_by_agents",
]

Noted = Mapping[str, Mapping[TopicPartition, int]]
"""Changelogs that the metadata of offsets names: for each changelog, the `changelog_number` of each input."""
KEEP_COPIED = (
    "If a tool has copied topics and offsets from another cluster, the offsets are right: run `streamapp offsets reset "
    "APPLICATION --shift-by 0 --keep-tables --execute`"
)
"""The way out for offsets of another cluster: MirrorMaker 2 translates the offsets, and copies their metadata."""
_PAUSE_SECONDS = 0.1


def ids_of(admin: LastingAdmin, topics: Iterable[str], timeout: float = 60.0) -> dict[str, str]:
    """Kafka's ids of topics. A topic that was deleted and created anew has another id.

    Topics on brokers without ids (before KIP-516) are left out. Raises `BrokerError` for a topic that brokers do not
    know after ``timeout`` seconds.
    """
    names = sorted(topics)
    deadline = time.monotonic() + timeout
    found: dict[str, str] = {}
    while missing := [name for name in names if name not in found]:
        answers = ask(admin.describe_topics, TopicCollection(missing), seconds=min(timeout, REQUEST_SECONDS))
        for name, answer in answers.items():
            try:
                found[name] = str(answer.result().topic_id)
            except KafkaException as exc:  # a new topic does not reach all brokers at once
                if time.monotonic() > deadline:
                    raise BrokerError(f"the topic {name} is not known: {exc.args[0].str()}") from exc
                time.sleep(_PAUSE_SECONDS)
    return {name: topic_id for name, topic_id in found.items() if topic_id != NO_TOPIC_ID}


def committed_in_others(
    admin: LastingAdmin, committed: Mapping[TopicPartition, tuple[int, str]], timeout: float = 60.0
) -> set[TopicPartition]:
    """The partitions whose offset was committed in an earlier topic of this name, as the metadata says.

    ``committed`` has offsets with their metadata. Raises `BrokerError` as `ids_of` does.
    """
    return _compared(admin, committed, timeout)[0]


def _compared(
    admin: LastingAdmin, committed: Mapping[TopicPartition, tuple[int, str]], timeout: float
) -> tuple[set[TopicPartition], dict[str, str]]:
    """The result of `committed_in_others`, and the ids of the topics whose offsets name an id.

    Kafka Streams reads the ids of all inputs of a task, and writes all of them with each input. An input may have no
    commit of a worker. The offset of such an input names ids of other topics only. So an offset whose ids all belong to
    present topics is not taken for an offset of an earlier topic. Kafka Streams also writes the same short id with all
    inputs. So the comparison leaves out a short id that offsets of several topics name.
    """
    named = {tp: ids for tp, (_, metadata) in committed.items() if (ids := topic_ids_in(metadata))}
    topics = Counter(mark for _, mark in {(tp.topic, mark) for tp, ids in named.items() for mark in ids})
    shared = {mark for mark, count in topics.items() if count > 1 and mark.startswith(SHORT_MARK)}
    named = {tp: rest for tp, ids in named.items() if (rest := ids - shared)}
    present = ids_of(admin, {tp.topic for tp in named}, timeout)
    marks = {topic: marks_of(topic_id) for topic, topic_id in present.items()}
    of_today = frozenset().union(*marks.values())
    others = {
        tp
        for tp, ids in named.items()
        if tp.topic in present and not marks[tp.topic] & ids and not ids <= of_today
    }
    return others, present


def created_anew(topic: str, group: str) -> str:
    """The first sentence of an error for offsets of an earlier topic."""
    return (
        f"the topic {topic} was deleted and created anew since the group {group} has committed offsets there, so these "
        "offsets mean nothing in the new topic"
    )


def check_not_anew(
    group: str,
    admin: LastingAdmin,
    committed: Mapping[TopicPartition, tuple[int, str]],
    timeout: float = 60.0,
) -> dict[str, str]:
    """Raises `TopologyError` if the metadata of an offset says that the topic was deleted and created anew since.

    Returns the present ids of the topics that the metadata of the offsets names, so that a worker need not ask for
    these ids again.
    """
    others, present = _compared(admin, committed, timeout)
    for tp in sorted(others):
        raise TopologyError(
            f"{created_anew(tp.topic, group)}. Stop all workers. To compute all tables anew, run `streamapp reset`. To "
            f"keep the tables, run `streamapp offsets reset APPLICATION --topic {tp.topic} --to-earliest "
            f"--keep-tables --execute`. {KEEP_COPIED}"
        )
    return present


def noted_by_agents(committed: Mapping[TopicPartition, str]) -> dict[str, dict[TopicPartition, int]]:
    """The changelogs that commits of agents name, with their ids, in the form of `noted_changelogs`.

    ``committed`` has the metadata of offsets.
    """
    noted: dict[str, dict[TopicPartition, int]] = {}
    for tp, text in committed.items():
        for changelog, topic_id in changelogs_of_agents_in(text).items():
            noted.setdefault(changelog, {})[tp] = changelog_number(topic_id)
    return noted


def changelogs_anew(
    admin: LastingAdmin, noted: Noted, existing: Container[str], timeout: float = 60.0
) -> dict[TopicPartition, str]:
    """The inputs whose metadata names an earlier changelog of a table, each with this changelog.

    The changelog was deleted and created anew since the commit, so the table lacks rows. ``noted`` is the result of
    `noted_changelogs` or of `noted_by_agents`. Changelogs that are not among the ``existing`` topics are left out.
    Raises `BrokerError` as `ids_of` does.
    """
    return _compared_changelogs(admin, noted, existing, timeout)[0]


def _compared_changelogs(
    admin: LastingAdmin, noted: Noted, existing: Container[str], timeout: float
) -> tuple[dict[TopicPartition, str], dict[str, str]]:
    """The result of `changelogs_anew`, and the present ids of the changelogs."""
    present = ids_of(admin, [name for name in noted if name in existing], timeout)
    earlier = {
        tp: name
        for name, topic_id in sorted(present.items())
        if changelog_number(topic_id) not in noted[name].values()
        for tp in noted[name]
    }
    return earlier, present


def check_changelogs(
    group: str, admin: LastingAdmin, noted: Noted, existing: Container[str], timeout: float = 60.0
) -> dict[str, str]:
    """Raises `TopologyError` if a changelog was deleted and created anew since the group has committed offsets.

    The local state has the id of its changelog, too. But a worker without local state would restore a table that lacks
    rows. Returns the present ids of the changelogs that the metadata names.
    """
    earlier, present = _compared_changelogs(admin, noted, existing, timeout)
    for tp, changelog in sorted(earlier.items()):
        raise TopologyError(
            f"the changelog {changelog} was deleted and created anew since the group {group} has committed offsets of "
            f"{tp.topic}, so the table lacks rows. Stop all workers. To compute all tables anew, run `streamapp "
            "reset`. To go on with the rows that the changelog has now, run `streamapp offsets reset APPLICATION "
            "--shift-by 0 --keep-tables --execute`"
        )
    return present
