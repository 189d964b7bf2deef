"""Looks at the cluster before a backfill: the application's offsets and state, the cut, and reasons to refuse.

Nothing here changes the cluster.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from streamapp._base.counted import counted
from streamapp.broker.bounded_reads import with_records
from streamapp.broker.requests import check_shown
from streamapp.engine.runner_ports import Position
from streamapp.engine.store_notes import check_stores, noted_changelogs
from streamapp.errors import BrokerError, ConfigError, TopologyError, UnsupportedOperation
from streamapp.records import TopicPartition
from streamapp.runners.connection import admin_of, client_of
from streamapp.runners.earlier_topics import check_changelogs, check_not_anew, committed_in_others, ids_of
from streamapp.runners.first_offsets import check_within
from streamapp.runners.lost_offsets import NO_OFFSET, OffsetCheck, check_repartition_topics
from streamapp.runners.spark.batch_source import (
    READERS,
    Bound,
    KafkaRange,
    KafkaSource,
    Ranges,
    check_named,
)
from streamapp.runners.spark.handover_group import TIMEOUT_SECONDS, Group, Progress
from streamapp.runners.spark.run_order import check_runnable, in_order, topics_of
from streamapp.runners.spark.stage import Resume
from streamapp.state.directory import known_fingerprint
from streamapp.topology import Plan, Subtopology

__all__ = ["Survey", "fingerprint_group", "offset_check", "read_topics", "survey"]

_RIGHTS = "Grant this client the rights that `streamapp acls` lists"
_BEGIN_ANEW = "run `streamapp reset`, then the backfill. Results that are written already come once more"
OPEN_SECONDS = 60.0
"""The time that a survey waits for transactions of killed workers; by default Kafka ends them after 10 s."""


@dataclass(frozen=True)
class Survey:
    """The offsets and state of an application, and the work of a backfill."""

    plan: Plan
    partitions: Mapping[str, int]
    """The partition count of every input and of every internal topic."""
    missing: Mapping[str, int]
    """Internal topics that do not exist yet -> the partition counts that they will have."""
    ranges: Ranges
    """Input -> the group's offsets before and after the backfill.

    A repartition topic has no records between the two.
    """
    resume: Resume
    """The state before the backfill."""
    global_ends: Mapping[str, list[int]]
    """Global topic -> the ends of its partitions. A second run builds the global tables up to the ends of the first."""
    note: Progress | None
    """The progress of an earlier backfill that has not ended, which this one continues; None if there is none."""

    @property
    def external(self) -> Ranges:
        """The ranges of all topics except the application's internal ones."""
        internal = {topic.name for topic in self.plan.internal_topics}
        return {tp: span for tp, span in self.ranges.items() if tp.topic not in internal}

    @property
    def records(self) -> int:
        """The number of offsets between the group's offsets and the cut, without internal topics.

        Markers of transactions count, too, so there may be fewer records.
        """
        return sum(end - start for start, end in self.external.values())

    @property
    def job(self) -> str:
        """A name for this work, by which a later run knows if it continues the same topology over the same ranges."""
        text = f"{self.plan.fingerprint} {sorted(self.ranges.items())}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def tasks(self, sub: Subtopology) -> int:
        return max(self.partitions[topic] for topic in topics_of(sub, self.partitions))

    def inputs(self, sub: Subtopology, task: int) -> list[TopicPartition]:
        topics = topics_of(sub, self.partitions)
        return [TopicPartition(topic, task) for topic in topics if task < self.partitions[topic]]

    def logs(self, sub: Subtopology, task: int) -> dict[str, int]:
        """Store -> the end offset of its changelog, for those changelogs of a task that have records."""
        ends = {
            store: self.resume.changelogs.get(TopicPartition(topic.name, task))
            for store, topic in sub.changelog_topics.items()
            if topic.name not in sub.source_topics
        }
        return {store: span[1] for store, span in ends.items() if span is not None}

    def notes(self, now_ms: int) -> dict[TopicPartition, Progress]:
        """The metadata of each input while the backfill writes.

        Raises `StreamsError` if an application is too large for its metadata.
        """
        metadata = self.resume.metadata
        notes = {
            tp: Progress(self.job, cut, now_ms, metadata.get(tp, "")) for tp, (_, cut) in self.ranges.items()
        }
        for sub in self.plan.subtopologies:
            for task in range(self.tasks(sub)):
                first = self.inputs(sub, task)[0]
                notes[first] = msgspec.structs.replace(notes[first], logs=self.logs(sub, task))
        return _with_ends(notes, self.global_ends)


def fingerprint_group(plan: Plan) -> Group:
    """The group `Plan.backfill_group`, in which a backfill leaves the plan's fingerprint before it ends."""
    return Group(plan.config.replace(application_id=plan.backfill_group))


def survey(plan: Plan, until: Bound, history: Ranges | None = None) -> Survey:
    """Looks at the cluster before a backfill up to ``until``, and changes nothing.

    ``history`` has, by partition, the offsets of the records that come from files.

    - `ConfigError`: workers are running, or offsets and state do not belong together. Records are missing in Kafka and
      in the files, or records of repartition topics are not processed. Another backfill has begun and not ended.
    - `TaskCorruptedError`: an offset of the group is beyond the end of its log.
    - `TopologyError`: topics are missing, or have wrong partition counts; or global topics have too many partitions. An
      input or a changelog was deleted and created anew since the group has committed its offsets. A store would read
      rows of another definition.
    - `UnsupportedOperation`: a batch cannot run the topology. Sub-topologies feed each other, or the application reads
      one of its output topics.
    - `BrokerError`: Kafka does not answer, or transactions in internal topics stay open for 60 seconds.
    """
    check_runnable(plan)
    in_order(plan, (), whole=False)
    kafka, group = KafkaRange(client_of(plan.config)), Group(plan.config)
    existing = kafka.partition_counts()
    group.check_empty()
    there = _existing(existing, _sources(plan, existing))
    committed = group.read(there)
    notes = {tp: note for tp, entry in committed.items() if (note := Progress.of(entry.metadata))}
    _check_no_more_partitions(plan, there, notes)
    partitions, missing = read_topics(plan, existing)
    _check_no_detour(plan, partitions)

    inputs = [TopicPartition(t, p) for t in _sources(plan, partitions) for p in range(partitions[t])]
    if not notes:  # a backfill that continues an earlier one ends the earlier transactions itself
        _settle(kafka, _existing(existing, [topic.name for topic in plan.internal_topics]))
        committed = group.read_settled(there)
    internal = {topic.name for topic in plan.internal_topics}
    if notes:
        ranges = {tp: (committed[tp].offset, note.cut) for tp, note in notes.items()}
        metadata = {tp: note.was for tp, note in notes.items()}
        external = {tp: span for tp, span in ranges.items() if tp.topic not in internal}
        _check_still_there(plan, kafka, external, history or {})
    else:
        _check_fingerprint(plan, committed, there)
        if committed:
            offset_check(plan, group).check({tp: committed.get(tp, NO_OFFSET) for tp in there}, existing)
        outside = [tp for tp in inputs if tp.topic not in internal]
        check_named(until, outside, "until", f"the application {plan.application_id}")
        ranges = _ranges(kafka, outside, committed, until, history or {})
        ranges |= _drained(plan, kafka, [tp for tp in inputs if tp.topic in internal], committed, existing)
        metadata = {tp: entry.metadata for tp, entry in committed.items()}
    if metadata:
        check_stores(plan, metadata, partitions)
        noted = noted_changelogs(plan, metadata)
        check_changelogs(plan.application_id, admin_of(plan.config), noted, existing)
        check_repartition_topics(plan, metadata, existing, partitions)
        _check_not_anew(
            plan, {tp: (committed[tp].offset, text) for tp, text in metadata.items()}, bool(notes)
        )
    note = next(iter(notes.values()), None)
    global_ends = _joined(notes) or _global_ends(plan, kafka, existing)
    found = Survey(plan, partitions, missing, ranges, Resume({}, metadata), global_ends, note)
    # Repartition topics that are still missing have no records, and a worker takes offsets without an id. The metadata
    # names no changelogs that are still missing, and the first commit of a worker names them.
    changelogs = {topic.name for sub in plan.subtopologies for topic in sub.changelog_topics.values()}
    ids = ids_of(admin_of(plan.config), {tp.topic for tp in there} | (changelogs & existing.keys()))
    resume = Resume(_changelogs(kafka, found, existing, committed, notes), metadata, ids)
    found = replace(found, resume=resume)
    if note is not None and note.job != found.job:
        raise ConfigError(
            f"a backfill of {plan.application_id} with another topology or other topics has begun and not ended. "
            f"Repeat it with that topology and those topics; or {_BEGIN_ANEW}"
        )
    if note is None and found.records:
        found.notes(
            int(time.time() * 1000)
        )  # a lack of room ends the backfill here, and not after the computation
    return found


def _sources(plan: Plan, topics: Collection[str]) -> list[str]:
    """The topics that the sub-topologies read, as far as they are among ``topics``."""
    inside = {topic.name for topic in plan.internal_topics}
    outside = [topic for topic in topics if topic not in inside]
    read = (topic for sub in plan.subtopologies for topic in topics_of(sub, outside))
    return [topic for topic in dict.fromkeys(read) if topic in topics]


def _check_no_more_partitions(
    plan: Plan, there: Collection[TopicPartition], notes: Mapping[TopicPartition, Progress]
) -> None:
    """Raises `ConfigError` if a topic has got partitions since an interrupted backfill has begun."""
    noted = {tp.topic for tp in notes}
    added = [tp for tp in there if tp.topic in noted and tp not in notes]
    if added:
        raise ConfigError(
            f"{added[0].topic} has more partitions than when the interrupted backfill of {plan.application_id} began: "
            f"{added[0]} is new. This backfill cannot be completed: {_BEGIN_ANEW}"
        )


def _check_not_anew(plan: Plan, committed: Mapping[TopicPartition, tuple[int, str]], begun: bool) -> None:
    """Refuses offsets that belong to an earlier topic of the same name.

    Raises `ConfigError` for such offsets if ``begun`` is true (a backfill was interrupted), otherwise `TopologyError`.
    """
    admin = admin_of(plan.config)
    if not begun:
        check_not_anew(plan.application_id, admin, committed)
        return
    for tp in sorted(committed_in_others(admin, committed)):
        raise ConfigError(
            f"the topic {tp.topic} was deleted and created anew since the interrupted backfill of "
            f"{plan.application_id} began. This backfill cannot be completed: {_BEGIN_ANEW}"
        )


def _check_still_there(plan: Plan, kafka: KafkaRange, ranges: Ranges, history: Ranges) -> None:
    """Raises `ConfigError` if neither Kafka nor files have all records of an interrupted backfill."""
    for tp, (first, _) in kafka.committed([tp for tp, span in ranges.items() if span[0] < span[1]]).items():
        start, end = ranges[tp]
        if start >= first:
            continue
        earliest, after = history.get(tp, (first, first))
        if earliest > start or after < min(first, end):
            raise ConfigError(
                f"the interrupted backfill of {plan.application_id} reads {tp} from offset {start} on, but Kafka "
                f"keeps it from {first} on, and no files have all records between. Give the same --files as before, "
                f"or files with the records that Kafka has deleted since; or {_BEGIN_ANEW}"
            )


def _with_ends(
    notes: Mapping[TopicPartition, Progress], global_ends: Mapping[str, list[int]]
) -> dict[TopicPartition, Progress]:
    """The notes, with the ends of all partitions of the global topics. Each note takes as many ends as it has room for,
    and the next note goes on. Raises `TopologyError` if all notes together have too little room."""
    left = deque((topic, end) for topic, ends in global_ends.items() for end in ends)
    found = {}
    for tp, note in sorted(notes.items(), key=lambda item: item[0]):
        room = note.room - len(',"global_ends":{}')
        part: dict[str, list[int]] = {}
        while left:
            topic, end = left[0]
            room -= len(f"{end},") + (0 if topic in part else len(f'"{topic}":[],'))
            if room < 0:
                break
            part.setdefault(topic, []).append(end)
            left.popleft()
        found[tp] = msgspec.structs.replace(note, global_ends=part)
    if left:
        ends = sum(map(len, global_ends.values()))
        raise TopologyError(
            f"the global topics {', '.join(global_ends)} have {counted(ends, 'partition')}, too many for a backfill. "
            f"The backfill notes the end of each one in the offsets' metadata, and {len(left)} find no room there. "
            "Copy the global topics to topics with fewer partitions, and read these"
        )
    return found


def _joined(notes: Mapping[TopicPartition, Progress]) -> dict[str, list[int]]:
    """The ends of the global topics, from the parts that the notes have."""
    found: dict[str, list[int]] = {}
    for tp in sorted(notes):
        for topic, ends in notes[tp].global_ends.items():
            found.setdefault(topic, []).extend(ends)
    return found


def _global_ends(plan: Plan, kafka: KafkaRange, existing: Mapping[str, int]) -> dict[str, list[int]]:
    topics = [store.topic for store in plan.global_stores]
    spans = kafka.resolve(KafkaSource(), _existing(existing, topics))
    return {topic: [spans[TopicPartition(topic, p)][1] for p in range(existing[topic])] for topic in topics}


def read_topics(plan: Plan, existing: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """The partition counts of all inputs and internal topics, and the counts with which missing internal topics must be
    created.

    Raises `TopologyError` for a source, output or dead-letter topic that does not exist, or an internal topic with a
    wrong number of partitions. Raises `AuthorizationError` for topics that brokers hide from this client.
    """
    inside = {topic.name for topic in plan.internal_topics}
    named = plan.written_topics.union(plan.source_topics)
    check_shown(admin_of(plan.config), (named | inside) - existing.keys(), _RIGHTS, seconds=TIMEOUT_SECONDS)
    absent = sorted(named - inside - existing.keys())
    if absent:
        raise TopologyError(
            f"{', '.join(absent)} {'do' if len(absent) > 1 else 'does'} not exist on {plan.config.bootstrap_servers}: "
            "first create all topics that the application reads and writes"
        )
    plan.check_patterns(existing)
    counts = plan.partition_counts(existing)
    partitions = {**{t: existing[t] for t in plan.source_topics}, **counts}
    for sub in plan.subtopologies:
        if any(source.pattern for source in sub.sources):
            topics = topics_of(sub, [t for t in existing if t not in inside])
            partitions |= {t: existing[t] for t in topics if t in existing}
            tasks = max(partitions[t] for t in topics)
            partitions |= {t.name: tasks for t in sub.changelog_topics.values() if t.name in counts}
    for topic in sorted(inside & existing.keys()):
        if existing[topic] != partitions[topic]:
            raise TopologyError(
                f"the internal topic {topic} has {counted(existing[topic], 'partition')}, but the application needs "
                f"{partitions[topic]}. Give the input as many partitions as before; or {_BEGIN_ANEW}"
            )
    return partitions, {t: n for t, n in partitions.items() if t in inside and t not in existing}


def _existing(existing: Mapping[str, int], topics: Iterable[str]) -> list[TopicPartition]:
    return [TopicPartition(topic, p) for topic in topics for p in range(existing.get(topic, 0))]


def _settle(kafka: KafkaRange, partitions: Collection[TopicPartition]) -> None:
    """Waits until all records that the last workers committed can be read."""
    if open_ := kafka.settle(partitions, OPEN_SECONDS):
        raise BrokerError(
            f"transactions in {', '.join(map(str, sorted(open_)))} have not ended within {OPEN_SECONDS:g} s, so these "
            "partitions are not complete. Kafka ends the transactions of a killed worker after its "
            "transaction_timeout_ms; kafka-transactions.sh find-hanging finds other open transactions. Run this again "
            "when all transactions have ended"
        )


def _check_no_detour(plan: Plan, partitions: Mapping[str, int]) -> None:
    inside = {topic.name for topic in plan.internal_topics}
    both = sorted({*plan.sink_topics} & partitions.keys() - inside)
    if both:
        raise UnsupportedOperation(
            f"topic {both[0]}",
            "Spark in a backfill",
            "the application writes this topic and reads it, and other producers may write to it meanwhile, "
            "so there is no offset to hand over",
            "Put repartition() in the place of the topic",
        )


def _check_fingerprint(
    plan: Plan, committed: Mapping[TopicPartition, Position], inputs: Collection[TopicPartition]
) -> None:
    """Raises `ConfigError` if the state at these offsets comes from another topology."""
    # The read comes first: a missing right to the group ends the backfill here, and not after hours of computation.
    left = fingerprint_group(plan).read(inputs)
    if not committed:
        return
    known = {entry.metadata for entry in left.values()}
    known.add(known_fingerprint(plan.config.state_dir, plan.application_id) or plan.fingerprint)
    if known != {plan.fingerprint}:
        raise ConfigError(
            f"the state of {plan.application_id} was made by a topology whose stores or internal topics were "
            "different. Run the backfill with that topology, or set another application_id. To begin anew, delete the "
            f"internal topics, the consumer groups {plan.application_id} and {plan.backfill_group}, and the "
            "state folders"
        )


def _ranges(
    kafka: KafkaRange,
    inputs: list[TopicPartition],
    committed: Mapping[TopicPartition, Position],
    until: Bound,
    history: Ranges,
) -> Ranges:
    there = kafka.committed(inputs)
    cuts = kafka.resolve(KafkaSource(until=until), inputs)
    found: Ranges = {}
    for tp, (first, end) in there.items():
        earliest, after = history.get(tp, (first, first))
        start = committed[tp].offset if tp in committed else min(earliest, first)
        check_within(tp, start, end)
        if earliest > max(start, first):
            raise ConfigError(
                f"the files have {tp} only from offset {earliest} on, but Kafka keeps it from {first} on. The records "
                "before the files would be left out: add files that have these records, or give no files for this topic"
            )
        if after < first and start < first:
            raise ConfigError(
                f"the files have {tp} up to offset {after}, but Kafka keeps it from {first} on: the records between "
                "are missing. Add files that have these records"
            )
        if after > end:
            raise ConfigError(
                f"the files have {tp} up to offset {after}, but the topic ends at {end}. So the files belong to "
                "another topic, or to an earlier topic of this name: give files with the offsets of this topic"
            )
        if start < earliest:
            raise ConfigError(
                f"the group stands at offset {start} of {tp}, but the partition now begins with {earliest}. Read the "
                "missing records from files; or, to go on without them, set the group's offset"
            )
        found[tp] = (start, max(start, cuts[tp][1]))
    return found


def _drained(
    plan: Plan,
    kafka: KafkaRange,
    inputs: list[TopicPartition],
    committed: Mapping[TopicPartition, Position],
    existing: Mapping[str, int],
) -> Ranges:
    """The ranges of the repartition topics, which must have no unprocessed records.

    Raises `ConfigError` if the workers have stopped before they had processed all records there.
    """
    there = kafka.committed([tp for tp in inputs if tp.topic in existing])
    found = dict.fromkeys(inputs, (0, 0))
    for tp, (first, end) in there.items():
        start = committed[tp].offset if tp in committed else first
        check_within(tp, start, end)
        found[tp] = (start, max(start, end))
    for tp in _with_records(plan, {tp: found[tp][0] for tp in there}):
        raise ConfigError(
            f"{tp} has records from offset {found[tp][0]} on that no worker has processed. Let workers run until they "
            "are done, stop them with SIGTERM, and run this again"
        )
    return found


def _changelogs(
    kafka: KafkaRange,
    found: Survey,
    existing: Mapping[str, int],
    committed: Mapping[TopicPartition, Position],
    notes: Mapping[TopicPartition, Progress],
) -> Ranges:
    """The ranges of the changelogs. Each ends where the state fits the group's committed offsets.

    Raises `ConfigError` for state without offsets, and for offsets without state.
    """
    logs = _existing(existing, [t.name for t in found.plan.internal_topics if t.kind == "changelog"])
    spans = kafka.committed({*logs, *(tp for tp in found.ranges if tp.topic in existing)})
    with_rows = set() if notes else {*_with_records(found.plan, {tp: spans[tp][0] for tp in logs})}
    ranges: Ranges = {}
    for sub in found.plan.subtopologies:
        for task in range(found.tasks(sub)):
            inputs = found.inputs(sub, task)
            began = [tp for tp in inputs if tp in committed]
            for store, topic in sub.changelog_topics.items():
                tp = TopicPartition(topic.name, task)
                if topic.name in sub.source_topics:
                    if tp in found.ranges:
                        first = spans[tp][0]
                        ranges[tp] = (first, max(first, found.ranges[tp][0]))
                    continue
                if notes:
                    end = notes[inputs[0]].logs.get(store, 0)
                    if end:
                        ranges[tp] = (spans[tp][0], end)
                elif topic.name not in existing:
                    if began:
                        raise ConfigError(
                            f"the store {store} is new: its changelog {topic.name} does not exist. But the group "
                            f"stands at offset {committed[began[0]].offset} of {began[0]}, so the store would lack "
                            "the records before. Set another application_id to compute everything anew"
                        )
                elif tp in with_rows:
                    if not began:
                        raise ConfigError(
                            f"{tp} has state, but the group {found.plan.application_id} has no offsets for this state: "
                            "they expired, or were deleted. Delete the application's internal topics to begin anew"
                        )
                    ranges[tp] = spans[tp]
    return ranges


def _with_records(plan: Plan, starts: Mapping[TopicPartition, int]) -> Iterator[TopicPartition]:
    """The partitions with committed records, and not only markers of transactions, from these offsets on."""
    return with_records(_reader_of(plan), admin_of(plan.config), starts, TIMEOUT_SECONDS)


def _reader_of(plan: Plan) -> dict[str, Any]:
    """The settings of a client for `with_records`."""
    return {**client_of(plan.config), "group.id": READERS}


def offset_check(plan: Plan, group: Group) -> OffsetCheck:
    """The check that the rows of tables belong to the offsets of the group."""
    return OffsetCheck(plan, admin_of(plan.config), _reader_of(plan), TIMEOUT_SECONDS, group.read)
