"""The life of a task: each step in its place, and what a failing step leaves."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest

from streamapp import (
    BufferConfig,
    EmitStrategy,
    Materialized,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    Suppressed,
    TimeWindows,
    TopicPartition,
)
from streamapp.engine import task_session
from streamapp.engine.feed import Feed
from streamapp.engine.metadata import encode_metadata
from streamapp.engine.runner_ports import InMemory, Position, StateHome, TaskEnvironment
from streamapp.engine.task_session import Restoration, TaskSession, commit
from streamapp.engine.topic_notes import note_of_topics, noted_by_task, noted_topics
from streamapp.errors import BrokerError, TaskCorruptedError, TopologyError
from streamapp.records import RecordBatch
from streamapp.serdes import LongSerde
from streamapp.state.backend import MemoryBackend, StateBackend, StateDamagedError
from streamapp.topology.plan import Plan
from tests.unit.engine.support import TEXT, TEXTS, Sent

IN, OTHER = TopicPartition("in", 0), TopicPartition("other", 0)
LOG = TopicPartition("app-counts-changelog", 0)


class Disk(InMemory):
    """Damaged as often as it is told; counts the states that were closed."""

    def __init__(self, damaged: int = 0) -> None:
        self.damaged, self.wiped, self.closed = damaged, 0, 0

    def open(self, task: str, stores: Collection[str]) -> StateBackend:
        if self.damaged:
            self.damaged -= 1
            raise StateDamagedError(f"{task} has other bytes than were written")
        return Backend(self)

    def wipe(self, task: str) -> None:
        self.wiped += 1


class Backend(MemoryBackend):
    def __init__(self, disk: Disk) -> None:
        super().__init__()
        self._disk = disk

    def close(self) -> None:
        self._disk.closed += 1


def counting(*, logged: bool = True, optimized: bool = False, persistent: bool = True) -> Plan:
    config = StreamsConfig("app", topology_optimization="all" if optimized else "none")
    builder = StreamsBuilder(config)
    options: Any = {"logging": logged, "store_type": "rocksdb" if persistent else "in_memory"}
    if optimized:
        builder.table("in", **TEXTS, materialized=Materialized("counts", **options))
    else:
        counts = Materialized("counts", key_serde=TEXT, value_serde=LongSerde(), **options)
        builder.stream("in", **TEXTS).group_by_key(**TEXTS).count(materialized=counts)
    return builder.build().plan(config)


def session_of(plan: Plan, home: StateHome | None = None, sent: Sent | None = None) -> TaskSession:
    environment = TaskEnvironment(plan, sent or Sent(), wall_clock_ms=lambda: 0)
    return TaskSession(environment, plan.subtopologies[0], 0, home or InMemory())


def records(*offsets: int, value: bytes = b"v") -> RecordBatch:
    return RecordBatch([b"k"] * len(offsets), [value] * len(offsets), [*offsets], [*offsets])


class Steps:
    """A transaction that notes its steps, and what the task has sent by then; fails in one of them."""

    def __init__(self, sent: Sent, fails_in: str = "") -> None:
        self.sent, self.fails_in = sent, fails_in
        self.taken: list[tuple[Any, ...]] = []

    def step(self, name: str, *more: Any) -> None:
        self.taken.append((name, len(self.sent.records), *more))
        if name == self.fails_in:
            raise BrokerError(name)

    def begin(self) -> None:
        self.step("begin")

    def acknowledge(self) -> None:
        self.step("acknowledge")

    def changelog_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self.step("changelog_ends", *partitions)
        return {LOG: 7}

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        self.step("commit", {tp: at.offset for tp, at in positions.items()})


def worked(sent: Sent) -> TaskSession:
    session = session_of(counting(), Disk(), sent)
    session.start()
    session.task.enqueue(IN, records(0, 1))
    session.task.process()
    return session


def test_the_steps_of_a_commit() -> None:
    sent = Sent()
    session, steps = worked(sent), Steps(sent)
    heard: list[Any] = []
    commit([session], steps, heard.append)
    assert heard == [session, None]
    assert steps.taken == [
        ("begin", 0),
        ("acknowledge", 1),
        ("changelog_ends", 1, LOG),
        ("commit", 1, {IN: 2}),
    ]
    assert session.task.changelog_offsets == {"counts": 7}
    assert session.state_offset == 7
    assert not session.task.commit_needed
    assert session.close() == 7


@pytest.mark.parametrize("step", ["begin", "acknowledge", "changelog_ends", "commit"])
def test_a_commit_that_fails_leaves_the_state_where_the_last_one_did(step: str) -> None:
    sent = Sent()
    session = worked(sent)
    with pytest.raises(BrokerError, match=step):
        commit([session], Steps(sent, step))
    assert session.task.changelog_offsets == {}
    assert session.task.commit_needed


def test_a_commit_of_very_many_inputs_leaves_out_the_notes_about_stores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Brokers refuse a commit of more than 1 MiB, so a worker with many inputs and many stores could not commit."""
    monkeypatch.setattr(task_session, "MOST_METADATA", 100)
    sent = Sent()
    session = worked(sent)
    (position,) = session.commit_positions().values()
    assert len(position.metadata) > 100
    (committed,) = commit([session], Steps(sent)).values()
    assert committed == Position(2, encode_metadata(1, {"some stores": 0}))


def test_the_first_inputs_of_very_many_keep_their_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    """All inputs lost their notes, so a topic without offsets was not noticed afterwards."""
    text = encode_metadata(1, {"all stores": 0, note_of_topics(["in", "other"], ["in", "other"]): 0})
    positions = {
        TopicPartition(topic, number): Position(2, text) for topic in ("in", "other") for number in (0, 1)
    }
    short = Position(2, encode_metadata(1, {"some stores": 0}))
    monkeypatch.setattr(task_session, "MOST_METADATA", 4 * len(text) - 1)
    others = [TopicPartition("other", number) for number in (0, 1)]
    assert task_session._bounded(positions) == positions | {others[1]: short}
    monkeypatch.setattr(task_session, "MOST_METADATA", 2 * len(text) + 2 * len(short.metadata))
    assert task_session._bounded(positions) == positions | dict.fromkeys(others, short)


def versions(*stores: str) -> Plan:
    """An application with two inputs and these stores."""
    builder = StreamsBuilder()
    grouped = builder.stream(["in", "other"], **TEXTS).group_by_key(**TEXTS)
    for store in stores:
        grouped.count(materialized=Materialized(store, key_serde=TEXT, value_serde=LongSerde()))
    return builder.build().plan(StreamsConfig("app"))


@pytest.mark.parametrize("without", [("one",), ()])
def test_a_store_that_comes_back_is_noticed_although_an_input_is_idle(without: tuple[str, ...]) -> None:
    """The offset of the idle input kept the notes of the first version. So the third one took the rows of the first,
    and its table silently lacked the records of the second."""
    committed = {IN: "", OTHER: ""}
    for offset, stores in enumerate([("one", "two"), without]):
        session = session_of(versions(*stores))
        session.continue_from(committed, dict.fromkeys(committed, offset))
        session.start()
        for tp in [IN, OTHER] if offset == 0 else [IN]:
            session.task.enqueue(tp, records(offset))
        session.task.process()
        positions = session.commit_positions()
        committed |= {tp: position.metadata for tp, position in positions.items()}
    assert positions[OTHER].offset == 1

    back = session_of(versions("one", "two"))
    back.continue_from(committed, {IN: 2, OTHER: 1})
    with pytest.raises(
        TopologyError, match="the last commit of the group is of a version without the store two"
    ):
        back.restore("two", records(0))


def test_a_task_that_has_read_nothing_commits_where_it_began() -> None:
    """A worker that slept while others had its tasks was not refused: it took the ends of their changelogs for its own."""
    sent = Sent()
    session, steps = session_of(counting(), Disk(), sent), Steps(sent, "commit")
    session.continue_from({IN: encode_metadata(5, {})}, {IN: 4})
    session.start()
    session.task.commit_needed = True  # as after a punctuator of wall-clock time
    about_store = ["store counts: values by key, StringSerde/LongSerde", "all stores"]
    notes = dict.fromkeys([*about_store, note_of_topics(["in"], ["in"])], 5)
    assert session.commit_positions() == {IN: Position(4, encode_metadata(5, notes))}
    with pytest.raises(BrokerError):
        commit([session], steps)
    assert steps.taken[-1] == ("commit", 0, {IN: 4})
    assert session.task.changelog_offsets == {}


def test_damaged_state_is_deleted_and_restored_if_a_changelog_has_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = Disk(damaged=1)
    session_of(counting(), disk)
    assert disk.wiped == 1
    assert "task 0_0: its local state is damaged and is restored anew" in caplog.text


def test_damaged_state_without_a_changelog_is_kept_for_its_owner() -> None:
    disk = Disk(damaged=1)
    with pytest.raises(StateDamagedError):
        session_of(counting(logged=False), disk)
    assert disk.wiped == 0


def test_state_that_a_task_cannot_use_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise StreamsError("no such store")

    monkeypatch.setattr("streamapp.engine.task_stores.open_store", refuse)
    disk = Disk()
    with pytest.raises(StreamsError, match="no such store"):
        session_of(counting(), disk)
    assert disk.closed == 1


def test_stores_in_memory_need_no_home() -> None:
    session_of(counting(persistent=False), Disk(damaged=9))


def test_a_restore_goes_on_where_local_state_ends() -> None:
    session = session_of(counting())
    assert session.restorations({LOG: (0, 9)}) == [Restoration(LOG, "counts", 0, 9)]
    session.restore("counts", records(*range(5), value=b"\0" * 8))
    assert session.restorations({LOG: (0, 9)}) == [Restoration(LOG, "counts", 5, 9)]
    assert session.restorations({LOG: (0, 5)}) == []
    assert session.restorations({}) == []


def test_a_source_topic_is_restored_as_far_as_it_was_processed() -> None:
    session = session_of(counting(optimized=True))
    session.continue_from({}, {IN: 4})
    assert session.restorations({IN: (0, 9)}) == [Restoration(IN, "counts", 0, 4)]


def test_state_that_does_not_fit_its_changelog_is_refused() -> None:
    session = session_of(counting())
    with pytest.raises(TaskCorruptedError, match="begins at offset 3, and the local state of counts is at 0"):
        session.restorations({LOG: (3, 9)})
    session.restore("counts", records(9, value=b"\0" * 8))
    with pytest.raises(
        TaskCorruptedError,
        match="is at offset 10 of .* lacks the records .* from offset 4 on.*streamapp reset.*Without the memory",
    ):
        session.restorations({LOG: (0, 4)})
    # The marker of the last commit lies between.
    assert session.restorations({LOG: (11, 12)}) == [Restoration(LOG, "counts", 11, 12)]


class Reader:
    def __init__(self, *batches: RecordBatch) -> None:
        self._batches = [*batches]
        self.closed = 0

    def read(self) -> RecordBatch | None:
        return self._batches.pop(0) if self._batches else None

    def close(self) -> None:
        self.closed += 1


def test_a_restore_that_fails_closes_its_reader() -> None:
    reader = Reader(records(0, value=b"\0" * 8), records(1, value=b"\0" * 8))

    class Changelogs:
        def spans(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
            return dict.fromkeys(partitions, (0, 2))

        def open(self, partition: TopicPartition, start: int, end: int) -> Reader:
            return reader

    session = session_of(counting())
    session.start()
    with pytest.raises(StreamsError, match="task 0_0 runs already: its stores cannot be restored"):
        session.restore_from(Changelogs())
    assert reader.closed == 1
    assert session_of(counting()).restore_from(Changelogs()) == 1
    with pytest.raises(StreamsError, match="task 0_0 runs already"):
        session.start()


@pytest.mark.parametrize("how", ["emit", "suppress"])
def test_time_that_goes_on_without_a_record_is_committed(how: str) -> None:
    config, final = StreamsConfig("app", statestore_cache_max_bytes=0), list[str]()
    builder = StreamsBuilder(config)
    windows = TimeWindows.of_size_with_no_grace(50)
    windowed = builder.stream("in", **TEXTS).group_by_key(**TEXTS).windowed_by(windows)
    if how == "emit":
        counts = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE, idle_timeout=100).count(name="counts")
    else:
        closed = Suppressed.until_window_closes(BufferConfig.unbounded(), "final", idle_timeout=100)
        counts = windowed.count(name="counts").suppress(closed)
    counts.to_stream().foreach(lambda window, count: final.append(f"{window} {count}"))
    plan, sent, clock = builder.build().plan(config), Sent(), [0]
    committed: dict[TopicPartition, Position] = {IN: Position(0)}

    def session() -> TaskSession:
        environment = TaskEnvironment(plan, sent, wall_clock_ms=lambda: clock[0])
        again = TaskSession(environment, plan.subtopologies[0], 0, InMemory())
        for store, changelog in again.subtopology.changelog_topics.items():
            log = [r for r in sent.records if r.topic == changelog.name]
            keys, values, times = (
                [r.key for r in log],
                [r.value for r in log],
                [r.timestamp or 0 for r in log],
            )
            again.restore(store, RecordBatch(keys, values, times, range(len(log)), [r.headers for r in log]))
        again.continue_from(
            {tp: at.metadata for tp, at in committed.items()}, {tp: at.offset for tp, at in committed.items()}
        )
        again.start()
        return again

    first = session()
    first.task.enqueue(IN, RecordBatch([b"k"], [b"v"], [5], [0]))
    first.task.process()
    committed.update(commit([first], Steps(sent)))
    for _ in range(2):  # the second session finds the window closed
        quiet = session()
        clock[0] += 200
        quiet.task.punctuate_wall_clock(clock[0])
        committed.update(commit([quiet], Steps(sent)))
    last = session()
    last.task.enqueue(IN, RecordBatch([b"k"], [b"late"], [6], [1]))
    last.task.process()
    clock[0] += 200
    last.task.punctuate_wall_clock(clock[0])
    assert last.task.metrics.dropped_records == 1
    assert final == ["[k@0/50] 1"]


@pytest.mark.parametrize("goes_on", [True, False])
def test_an_input_that_goes_on_holds_the_others_back(goes_on: bool) -> None:
    builder = StreamsBuilder(StreamsConfig("app"))
    merged = builder.stream("in", **TEXTS).merge(builder.stream("other", **TEXTS))
    merged.to("out", **TEXTS)
    sent = Sent()
    session = session_of(builder.build().plan(), sent=sent)
    session.start()
    here, there = Reader(records(1, 5)), Reader(records(2))
    feed = Feed(session.task, {IN: here, OTHER: there}, goes_on=[OTHER] if goes_on else ())
    feed.run()
    assert [record.timestamp for record in sent.records] == ([1, 2] if goes_on else [1, 2, 5])
    feed.close()
    assert (here.closed, there.closed) == (1, 1)


def of_two_topics(committed: Mapping[TopicPartition, Position], environment: TaskEnvironment) -> TaskSession:
    """A session that goes on from these positions, in a process with this environment."""
    session = TaskSession(environment, environment.plan.subtopologies[0], 0, InMemory())
    texts = {tp: committed[tp].metadata if tp in committed else "" for tp in (IN, OTHER)}
    starts = {tp: committed[tp].offset if tp in committed else 0 for tp in (IN, OTHER)}
    session.continue_from(texts, starts)
    session.start()
    return session


def test_the_offset_of_an_idle_input_notes_the_first_offset_of_another_input() -> None:
    """The offset of the other input was deleted. The offset that was left did not know of it."""
    builder = StreamsBuilder()
    builder.stream(["in", "other"], **TEXTS).group_by_key().count(materialized=Materialized("counts"))
    environment = TaskEnvironment(builder.build().plan(StreamsConfig("app")), Sent(), wall_clock_ms=lambda: 0)
    committed: dict[TopicPartition, Position] = {}
    for tp, noted in ((IN, {IN}), (OTHER, {IN, OTHER})):
        session = of_two_topics(committed, environment)
        session.task.enqueue(tp, records(0))
        session.task.process()
        committed |= commit([session], Steps(Sent()))
        assert noted_by_task({IN: committed[IN].metadata}, [IN, OTHER]) == noted
        session.task.enqueue(tp, records(1))
        session.task.process()
        later = commit([session], Steps(Sent()))
        assert later.keys() == {tp}  # only the first commit has inputs without a record
        session.close()
    assert committed[IN].offset == 1


def test_a_task_notes_the_topics_of_all_tasks_of_its_process() -> None:
    """Before the second start, tasks noted their own topics only."""
    builder = StreamsBuilder()
    for topic in ("in", "other"):
        builder.stream(topic, **TEXTS).group_by_key().count()
    environment = TaskEnvironment(builder.build().plan(StreamsConfig("app")), Sent(), wall_clock_ms=lambda: 0)
    noted = []
    for sub, tp in zip(environment.plan.subtopologies, (IN, OTHER), strict=True):
        session = TaskSession(environment, sub, 0, InMemory())
        session.start()
        session.task.enqueue(tp, records(0))
        session.task.process()
        text = commit([session], Steps(Sent()))[tp].metadata
        noted.append((noted_topics([text], ["in", "other"]), noted_by_task({tp: text}, [IN, OTHER])))
    assert noted == [({"in"}, {IN}), ({"in", "other"}, {OTHER})]
