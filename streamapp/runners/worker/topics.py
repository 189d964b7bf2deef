"""The topics of an application on the cluster: source topics must be there, internal topics are created."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.cimpl import NewTopic

from streamapp._base.counted import counted
from streamapp.broker.requests import (
    REQUEST_SECONDS,
    LastingAdmin,
    ask_controller,
    broker_error,
    check_shown,
    describe_brokers,
)
from streamapp.engine.store_notes import check_stores, latest_edition, noted_changelogs
from streamapp.errors import TopologyError
from streamapp.records import TopicPartition
from streamapp.runners.earlier_topics import check_changelogs, check_not_anew, ids_of
from streamapp.runners.first_offsets import first_new_partitions
from streamapp.runners.lost_offsets import OffsetCheck, check_repartition_topics
from streamapp.runners.worker.clients import GRANTS, consumer_settings, find_committed, find_topics
from streamapp.runners.worker.leftovers import check_nothing_left, check_readable
from streamapp.topology.plan import Plan, Subtopology

__all__ = ["Topics", "create_topics", "existing_topics", "offset_check", "prepare_topics"]

logger: logging.Logger = logging.getLogger(__name__)

_NO_RIGHT = KafkaError.TOPIC_AUTHORIZATION_FAILED
_CREATE = "Grant this client CREATE on the topic: `streamapp acls` lists all rights"


@dataclass(frozen=True)
class Topics:
    """The partition count of each topic on the cluster, and the topics that each sub-topology reads."""

    partitions: Mapping[str, int]
    sources: Mapping[int, tuple[str, ...]]
    ids: Mapping[str, str] = field(default_factory=dict)
    """The ids of the topics for whose committed offsets the check of the ids has asked."""
    with_offsets: frozenset[str] = frozenset()
    """The inputs in which the group had committed offsets at the start of the worker."""
    first_new: Mapping[str, int] = field(default_factory=dict)
    """The `first_new_partitions` at the start of the worker."""
    from_outside: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The offsets that another tool had set at the start of the worker, before tables had rows."""
    edition: int = 0
    """The largest edition of the notes in committed offsets at the start of the worker."""

    def task_count(self, subtopology: Subtopology) -> int:
        return max((self.partitions[topic] for topic in self.sources[subtopology.id]), default=0)

    def ids_of(self, admin: LastingAdmin, names: Set[str]) -> dict[str, str]:
        """The ids of these topics, as `earlier_topics.ids_of` gives them. Asks only for ids that are not known yet."""
        known = {name: self.ids[name] for name in names & self.ids.keys()}
        return {**known, **ids_of(admin, names - known.keys())}


def prepare_topics(plan: Plan, admin: LastingAdmin, timeout: float = 60.0) -> Topics:
    """Checks the source and output topics, and creates missing internal topics.

    Raises `BrokerError` if Kafka cannot be reached, or refuses a request. Raises `CopartitionError` if topics that are
    joined or co-grouped have different numbers of partitions. Raises `TopologyError` for these reasons:

    - A source topic is missing, or a sub-topology that reads a pattern finds no topic.
    - An output topic or the dead-letter topic is missing, and the brokers do not create topics themselves.
    - An internal topic has a wrong number of partitions.
    - A source topic that restores a table has another number of partitions than at the last commit.
    - A topic matches the patterns of two sources.
    - No other topic tells the number of partitions of a repartition topic.
    - A changelog is missing, or was created anew, although the group has committed offsets of its input.
    - A repartition topic is missing although the group has committed offsets there.
    - A source topic was deleted and created anew since the group has committed its offsets.
    - Tables have rows, but another tool has set offsets of the group, or some offsets are lost.
    - A store would read rows that another definition has written.
    - An earlier version has left records in a repartition topic that no operator reads now, or reads with other serdes.

    Raises `AuthorizationError` if brokers hide a topic of the application from this client.
    """
    # Offsets come before topics here. Another worker that starts now creates topics first and commits later.
    positions = _committed(plan, existing_topics(plan, admin, timeout), timeout)
    committed = {tp.topic for tp, (offset, _) in positions.items() if offset > 0}
    existing = existing_topics(plan, admin, timeout)
    check_shown(admin, _named_topics(plan) - existing.keys(), GRANTS[_NO_RIGHT], seconds=timeout)
    missing = sorted(topic for topic in plan.source_topics if topic not in existing)
    if missing:
        raise TopologyError(f"the source {_absent(missing, plan)}")
    there = {tp: at for tp, at in positions.items() if tp.topic in existing}
    ids = check_not_anew(plan.application_id, admin, there, timeout)
    plan.check_patterns(existing)
    counts = plan.partition_counts(existing)
    sources = {sub.id: _sources(sub, existing, counts) for sub in plan.subtopologies}
    texts = {tp: text for tp, (_, text) in there.items()}
    check_stores(plan, texts, existing)
    noted = noted_changelogs(plan, texts)
    ids |= check_changelogs(plan.application_id, admin, noted, existing, timeout)
    check_repartition_topics(plan, texts, existing, counts)
    # A group without any offset may be about to get its first ones (`streamapp offsets reset`). If the group has lost
    # its offsets, the tasks of a worker notice (`LiveTask`).
    from_outside: Mapping[TopicPartition, int] = {}
    if any(offset >= 0 for offset, _ in there.values()):
        from_outside = offset_check(plan, admin, timeout).check(there, existing)
    known = {**existing, **counts}
    for sub in plan.subtopologies:
        tasks = max((known[topic] for topic in sources[sub.id]), default=0)
        counts.update({t.name: tasks for t in sub.changelog_topics.values() if t.name in counts})
        if any(s.pattern for s in sub.sources) and not tasks:
            raise TopologyError(
                f"no topic matches {sub.name}, which {plan.application_id} reads. Create such a topic first"
            )
    _check_counts(existing, counts)
    for sub in plan.subtopologies:
        above = committed.intersection(_above(plan, sub, sources))
        _check_changelogs(plan, sub, above, noted.keys(), existing, counts)
    check_nothing_left(plan, admin, existing, timeout)
    check_readable(plan, admin, there, timeout)
    _check_outputs(plan, admin, {**existing, **counts}, timeout)
    _create(plan, admin, {name: count for name, count in counts.items() if name not in existing}, timeout)
    with_offsets = frozenset(tp.topic for tp, (offset, _) in positions.items() if offset >= 0)
    first_new = first_new_partitions({tp: offset for tp, (offset, _) in there.items()})
    edition = latest_edition(texts.values())
    return Topics({**existing, **counts}, sources, ids, with_offsets, first_new, from_outside, edition)


def offset_check(plan: Plan, admin: LastingAdmin, timeout: float) -> OffsetCheck:
    """The check that the rows of tables belong to the offsets of the group."""
    ask = partial(find_committed, plan.config, seconds=timeout)
    return OffsetCheck(plan, admin, consumer_settings(plan.config), timeout, ask)


def _check_outputs(plan: Plan, admin: LastingAdmin, known: Mapping[str, int], timeout: float) -> None:
    """Raises `TopologyError` for missing output topics, unless the brokers create topics automatically."""
    missing = sorted(plan.written_topics - known.keys())
    if missing and not _creates_topics(admin, find_topics(plan.config, admin, timeout).brokers):
        raise TopologyError(f"the output {_absent(missing, plan)}")


def _named_topics(plan: Plan) -> set[str]:
    """All topics of the application, except those of patterns, and those that a function chooses."""
    return {*plan.source_topics, *(topic.name for topic in plan.internal_topics), *plan.written_topics}


def _absent(topics: Sequence[str], plan: Plan) -> str:
    several = len(topics) > 1
    return (
        f"topic{'s' if several else ''} {', '.join(topics)} {'do' if several else 'does'} not exist on "
        f"{plan.config.bootstrap_servers}. Create {'them' if several else 'it'} first, for example with: "
        f"streamapp topic create {topics[0]} --partitions 4"
    )


def _creates_topics(admin: LastingAdmin, brokers: Iterable[int]) -> bool:
    """True if a broker creates topics automatically, or does not tell. Few clients have the right to ask."""
    answers = describe_brokers(admin, brokers, seconds=REQUEST_SECONDS)
    for answer in answers.values():
        try:
            setting = answer.result().get("auto.create.topics.enable")
        except KafkaException:
            return True
        if setting is None or setting.value != "false":
            return True
    return False


def existing_topics(plan: Plan, admin: LastingAdmin, timeout: float = 60.0) -> dict[str, int]:
    """The partition counts of all topics of the cluster. Raises `BrokerError` if Kafka cannot be reached."""
    found = find_topics(plan.config, admin, timeout).topics
    return {name: len(topic.partitions) for name, topic in found.items() if topic.partitions}


def _committed(
    plan: Plan, existing: Mapping[str, int], timeout: float
) -> dict[TopicPartition, tuple[int, str]]:
    """The offsets that the group has committed in its inputs (negative: none), and their metadata."""
    topics = {topic for sub in plan.subtopologies for topic in _sources(sub, existing, {})}
    wanted = [TopicPartition(t, p) for t in topics if t in existing for p in range(existing[t])]
    return find_committed(plan.config, wanted, timeout)


def _check_changelogs(
    plan: Plan,
    sub: Subtopology,
    committed: set[str],
    noted: Set[str],
    existing: Mapping[str, int],
    counts: Mapping[str, int],
) -> None:
    """Raises `TopologyError` for a missing changelog. ``noted`` are the changelogs that the last commits name."""
    gone = [t for t in sub.changelog_topics.values() if t.name in counts and t.name not in existing]
    if gone and committed:
        name = gone[0].name
        settings = "".join(f" --config {setting}={value}" for setting, value in gone[0].config.items())
        # The last commits name the changelogs of stores that are not new.
        new = (
            ""
            if name in noted
            else (
                ". If the store is new in this version and may begin empty, create its changelog first: "
                f"STREAMAPP_BOOTSTRAP_SERVERS={plan.config.bootstrap_servers} streamapp topic create {name} "
                f"--partitions {counts[name]}{settings}"
            )
        )
        raise TopologyError(
            f"the changelog {name} does not exist, but the group {plan.application_id} has committed offsets of "
            f"{', '.join(sorted(committed))}. The table would begin empty in the middle of its input. If the changelog "
            "was deleted, restore the topic; or, to compute the tables anew, stop all workers and run `streamapp "
            f"reset`{new}"
        )


def _above(plan: Plan, sub: Subtopology, sources: Mapping[int, Sequence[str]]) -> set[str]:
    """The topics that a sub-topology reads, with all topics whose records come there through repartition topics."""
    found, waiting = set(sources[sub.id]), [sub]
    while waiting:
        internal = {topic.name for topic in waiting.pop().repartition_topics}
        for writer in plan.subtopologies:
            if internal.intersection(writer.sink_topics) and not found.issuperset(sources[writer.id]):
                found.update(sources[writer.id])
                waiting.append(writer)
    return found


def _sources(sub: Subtopology, existing: Mapping[str, int], internal: Mapping[str, int]) -> tuple[str, ...]:
    matching = [topic for topic in sorted(existing) if topic not in internal and sub.pattern_of(topic)]
    return tuple(dict.fromkeys((*sub.source_topics, *matching)))


def _check_counts(existing: Mapping[str, int], wanted: Mapping[str, int]) -> None:
    for name, count in sorted(wanted.items()):
        found = existing.get(name, count)
        if found != count:
            raise TopologyError(
                f"the internal topic {name} has {counted(found, 'partition')}, but the application needs {count}. The "
                "number of partitions of its input, or of the topic itself, has changed, so keys belong to other "
                "partitions than before. To compute all tables anew, stop all workers and run `streamapp reset`. If "
                f"the input had {counted(found, 'partition')} before, an input with this number is an answer, too"
            )


def _create(plan: Plan, admin: LastingAdmin, counts: Mapping[str, int], timeout: float) -> None:
    config = {topic.name: dict(topic.config) for topic in plan.internal_topics}
    new = [
        NewTopic(
            name,
            num_partitions=count,
            replication_factor=plan.config.replication_factor,
            config=config.get(name, {}),
        )
        for name, count in counts.items()
    ]
    create_topics(admin, new, timeout)


def create_topics(admin: LastingAdmin, topics: Iterable[NewTopic], timeout: float = 60.0) -> None:
    """Creates topics. A topic that exists is no error, because another worker may create the same topics now.

    The request is repeated while brokers come and go. Raises `BrokerError` after ``timeout`` seconds, or at once if
    brokers refuse the request.
    """
    new = {topic.topic: topic for topic in topics}
    for name, answer in ask_controller(admin.create_topics, new.values(), seconds=timeout).items():
        try:
            answer.result()
            logger.info("created topic %s with %s", name, counted(new[name].num_partitions, "partition"))
        except KafkaException as exc:
            error: KafkaError = exc.args[0]
            if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                text = f"the topic {name} could not be created: {error.str()}"
                raise broker_error(text, error, {_NO_RIGHT: _CREATE}) from exc
