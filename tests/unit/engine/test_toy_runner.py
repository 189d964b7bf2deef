"""Proof by addition: a new runner is one file. This is that file: topics are lists in memory, and a crash takes with it what
was not committed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

import pytest

from streamapp import (
    JoinWindows,
    LongSerde,
    Materialized,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    TimeWindows,
    Topology,
    TopologyTestDriver,
)
from streamapp._base.partitioning import partition_for
from streamapp.engine.feed import Feed
from streamapp.engine.metadata import decode_metadata
from streamapp.engine.runner_ports import Position, TaskEnvironment
from streamapp.engine.task_session import TaskSession, commit
from streamapp.records import Headers, OutputRecord, RecordBatch, TopicPartition
from streamapp.serdes import TimeWindowedSerde
from streamapp.state.backend import MemoryBackend, StateBackend

# ---------------------------------------------------------------------- the runner


class Crash(Exception):
    """The process is gone."""


class KeptBackend(MemoryBackend):
    """State that is still there after its task is closed."""

    def close(self) -> None:
        pass


@dataclass
class Cluster:
    """What outlives a process: logs, committed positions, disks. It is the `StateHome` and the `Changelogs` of the runner."""

    partitions: Mapping[str, int]
    logs: defaultdict[TopicPartition, list[OutputRecord]] = field(default_factory=lambda: defaultdict(list))
    committed: dict[TopicPartition, Position] = field(default_factory=dict)
    disks: defaultdict[str, KeptBackend] = field(default_factory=lambda: defaultdict(KeptBackend))

    def append(self, record: OutputRecord) -> None:
        assert record.partition is not None
        self.logs[TopicPartition(record.topic, record.partition)].append(record)

    # StateHome

    def open(self, task: str, stores: Collection[str]) -> StateBackend:
        return self.disks[task]

    def wipe(self, task: str) -> None:
        del self.disks[task]

    def place(self, task: str) -> str:
        return f"disk {task}"


class ListReader:
    """The `RecordReader` of a list, in small bites."""

    def __init__(self, log: list[OutputRecord], start: int, end: int) -> None:
        self._log, self._next, self._end = log, start, end

    def read(self) -> RecordBatch | None:
        first, self._next = self._next, min(self._next + 3, self._end)
        records = self._log[first : self._next]
        if not records:
            return None
        return RecordBatch(
            [record.key for record in records],
            [record.value for record in records],
            [record.timestamp or 0 for record in records],
            range(first, self._next),
            [record.headers for record in records],
        )

    def close(self) -> None:
        pass


class ListChangelogs:
    def __init__(self, cluster: Cluster) -> None:
        self._logs = cluster.logs

    def spans(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        return {tp: (0, len(self._logs[tp])) for tp in partitions}

    def open(self, partition: TopicPartition, start: int, end: int) -> ListReader:
        return ListReader(self._logs[partition], start, end)


class ListTransaction:
    """The `Collector` and the `Transaction` of all tasks. ``crash`` says which commit the process does not survive, and whether
    its records do."""

    def __init__(self, cluster: Cluster, crash: tuple[int, str] | None) -> None:
        self._cluster, self._crash = cluster, crash
        self._sent: list[OutputRecord] = []
        self._commits = 0

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int | None,
        headers: Headers,
        partition: int | None,
    ) -> None:
        if partition is None:
            partition = partition_for(key or b"?", self.partition_count(topic))
        self._sent.append(OutputRecord(topic, key, value, timestamp, headers, partition))

    def partition_count(self, topic: str) -> int:
        return self._cluster.partitions[topic]

    def begin(self) -> None:
        pass

    def acknowledge(self) -> None:
        pass

    def changelog_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        sent = [TopicPartition(record.topic, record.partition or 0) for record in self._sent]
        return {tp: len(self._cluster.logs[tp]) + sent.count(tp) for tp in partitions}

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        self._commits += 1
        if self._crash == (self._commits, "before"):
            raise Crash
        for record in self._sent:
            self._cluster.append(record)
        self._sent.clear()
        self._cluster.committed.update(positions)
        if self._crash == (self._commits, "after"):
            raise Crash


def run_to_the_end(
    topology: Topology, config: StreamsConfig, cluster: Cluster, crash: tuple[int, str] | None = None
) -> int:
    """Runs all tasks until no topic has anything new; returns how many changelog records were restored."""
    plan = topology.plan(config)
    cluster.partitions = {**cluster.partitions, **plan.partition_counts(cluster.partitions)}
    transaction = ListTransaction(cluster, crash)
    environment = TaskEnvironment(plan, transaction, wall_clock_ms=lambda: 0)
    restored = 0
    with ExitStack() as stack:
        sessions = []
        for sub in plan.subtopologies:
            for partition in range(max(cluster.partitions[topic] for topic in sub.source_topics)):
                session = stack.enter_context(closing(TaskSession(environment, sub, partition, cluster)))
                known = {tp: cluster.committed.get(tp, Position(0)) for tp in session.inputs}
                session.continue_from(
                    {tp: at.metadata for tp, at in known.items()},
                    {tp: at.offset for tp, at in known.items()},
                )
                restored += session.restore_from(ListChangelogs(cluster))
                session.start()
                sessions.append(session)
        while [run_once(session, transaction, cluster) for session in sessions].count(True):
            pass
    return restored


def run_once(session: TaskSession, transaction: ListTransaction, cluster: Cluster) -> bool:
    """Has a task process what its inputs have, and commits it; whether that was anything."""
    ends = {tp: len(cluster.logs[tp]) for tp in session.inputs}
    readers = {
        tp: ListReader(cluster.logs[tp], at, ends[tp])
        for tp, at in session.positions.items()
        if at < ends[tp]
    }
    with closing(Feed(session.task, readers, ended=ends.keys() - readers.keys())) as feed:
        feed.run()
    if session.task.commit_needed:
        commit([session], transaction)
    return bool(readers)


# ---------------------------------------------------------------------- what it is asked

TEXT = StringSerde()
CONFIG = StreamsConfig("toy", statestore_cache_max_bytes=0)
PARTITIONS = {"lines": 3, "authors": 3, "titles": 3, "words": 2, "minutes": 2, "signed": 2, "pairs": 2}
INPUTS = ("lines", "authors", "titles")


def several_of_everything() -> Topology:
    """Repartitioning, stores by key and by window, a table that changes, a join of two streams."""
    builder = StreamsBuilder(CONFIG)
    lines = builder.stream("lines", key_serde=TEXT, value_serde=TEXT)
    titles = builder.stream("titles", key_serde=TEXT, value_serde=TEXT)
    authors = builder.table("authors", key_serde=TEXT, value_serde=TEXT, materialized=Materialized("authors"))
    words = lines.flat_map_values(str.split).group_by(lambda _, word: word, key_serde=TEXT, value_serde=TEXT)
    counts = Materialized("counts", key_serde=TEXT, value_serde=LongSerde())
    words.count(materialized=counts).to_stream().to("words", value_serde=LongSerde())
    (
        words.windowed_by(TimeWindows.of_size_and_grace(10, 1_000))
        .count(materialized=Materialized("minutes", key_serde=TEXT, value_serde=LongSerde()))
        .to_stream()
        .to("minutes", key_serde=TimeWindowedSerde(TEXT, 10), value_serde=LongSerde())
    )
    lines.left_join(authors, lambda line, author: f"{author}: {line}").to("signed", value_serde=TEXT)
    near = JoinWindows.of_time_difference_and_grace(4, 1_000)
    lines.join(titles, lambda line, title: f"{title}/{line}", near).to("pairs", value_serde=TEXT)
    return builder.build()


RECORDS = [
    (INPUTS[number % 3], f"k{number % 4}", f"{'a b' if number % 2 else 'b c d'} n{number % 4}", number)
    for number in range(60)
]
"""Topic, key, value, and time in ms, which is the order of the records."""

Answers = dict[str, dict[bytes | None, list[bytes | None]]]


def by_key(records: Iterable[OutputRecord]) -> Answers:
    """The values of each key of the output topics, in order."""
    found: Answers = defaultdict(lambda: defaultdict(list))
    for record in records:
        if record.topic in ("words", "minutes", "signed", "pairs"):
            found[record.topic][record.key].append(record.value)
    return found


def answers_of_the_test_driver() -> Answers:
    with TopologyTestDriver(several_of_everything(), CONFIG) as driver:
        for topic, key, value, time in RECORDS:
            driver.pipe_raw(topic, key.encode(), value.encode(), time)
    return by_key(record for records in driver.produced.values() for record in records)


def cluster_with(records: Iterable[tuple[str, str, str, int]]) -> Cluster:
    cluster = Cluster(PARTITIONS)
    feed(cluster, records)
    return cluster


def feed(cluster: Cluster, records: Iterable[tuple[str, str, str, int]]) -> None:
    for topic, key, value, time in records:
        partition = partition_for(key.encode(), PARTITIONS[topic])
        cluster.append(OutputRecord(topic, key.encode(), value.encode(), time, (), partition))


def answers_of(cluster: Cluster) -> Answers:
    return by_key(record for log in cluster.logs.values() for record in log)


def test_it_gives_the_answers_of_the_test_driver() -> None:
    cluster = cluster_with(RECORDS)
    assert run_to_the_end(several_of_everything(), CONFIG, cluster) == 0
    answers = answers_of(cluster)
    assert answers == answers_of_the_test_driver()
    assert {topic: bool(keys) for topic, keys in answers.items()} == dict.fromkeys(
        ("words", "minutes", "signed", "pairs"), True
    )
    used = {tp.partition for tp, log in cluster.logs.items() if tp.topic.endswith("-repartition") and log}
    assert used == {0, 1, 2}


@pytest.mark.parametrize("disks", ["kept", "lost"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(1, 7))
def test_a_crash_in_a_commit_changes_no_answer(number: int, when: str, disks: str) -> None:
    """The process ends before its records are committed, or after that and before its state is persisted."""
    half = len(RECORDS) // 2
    cluster = cluster_with(RECORDS[:half])
    assert run_to_the_end(several_of_everything(), CONFIG, cluster) == 0
    feed(cluster, RECORDS[half:])
    with pytest.raises(Crash):
        run_to_the_end(several_of_everything(), CONFIG, cluster, (number, when))
    if disks == "lost":
        cluster.disks.clear()
    logged = sum(len(log) for tp, log in cluster.logs.items() if tp.topic.endswith("-changelog"))
    restored = run_to_the_end(several_of_everything(), CONFIG, cluster)
    # What the disks have is not restored: all but the commit after which the process ended.
    assert restored == logged if disks == "lost" else restored < logged // 4
    assert (restored > 0) == (disks == "lost" or when == "after")
    assert answers_of(cluster) == answers_of_the_test_driver()


def test_times_that_no_changelog_holds_go_on_from_the_committed_positions() -> None:
    cluster = cluster_with(RECORDS)
    run_to_the_end(several_of_everything(), CONFIG, cluster)
    before = dict(cluster.committed)
    late = [("lines", f"k{number}", "late", 0) for number in range(4)]
    feed(cluster, late)
    run_to_the_end(several_of_everything(), CONFIG, cluster)
    moved = [tp for tp, at in cluster.committed.items() if at.offset > before[tp].offset]
    assert {tp.topic for tp in moved} > {"lines"}
    for tp in moved:
        assert decode_metadata(cluster.committed[tp].metadata) == decode_metadata(before[tp].metadata)
