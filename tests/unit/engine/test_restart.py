"""A restart between two records changes nothing: state comes back from the changelogs, times from the metadata of
the committed offsets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamapp import (
    BufferConfig,
    JoinWindows,
    KStream,
    LongSerde,
    Materialized,
    ProcessorContext,
    PunctuationType,
    Record,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimeWindows,
)
from streamapp.engine.runner_ports import InMemory, Position, TaskEnvironment, TaskRules
from streamapp.engine.task_session import TaskSession
from streamapp.records import RecordBatch, TopicPartition
from streamapp.serdes import SessionWindowedSerde, TimeWindowedSerde
from tests.unit.engine.support import TEXT, TEXTS, Sent, commit, feed, task_of

CONFIG = StreamsConfig("app", statestore_cache_max_bytes=0)
COUNTS: Any = Materialized("counts", key_serde=TEXT, value_serde=LongSerde())
MS = timedelta(milliseconds=1)


def joined(how: str) -> Callable[[KStream[Any, Any], KStream[Any, Any]], None]:
    def describe(left: KStream[Any, Any], right: KStream[Any, Any]) -> None:
        windows = JoinWindows.of_time_difference_and_grace(5 * MS, 10 * MS)
        result = getattr(left, how)(right, lambda a, b: f"{a}+{b}", windows)
        result.to("out", **TEXTS)

    return describe


def final_hours(left: KStream[Any, Any], right: KStream[Any, Any]) -> None:
    windows = (
        left.merge(right).group_by_key(**TEXTS).windowed_by(TimeWindows.of_size_and_grace(10 * MS, 5 * MS))
    )
    final = windows.count(materialized=COUNTS).suppress(
        Suppressed.until_window_closes(BufferConfig.unbounded())
    )
    final.to_stream().to("out", key_serde=TimeWindowedSerde(TEXT, 10), value_serde=LongSerde())


def sessions(left: KStream[Any, Any], right: KStream[Any, Any]) -> None:
    gap = SessionWindows.of_inactivity_gap_and_grace(4 * MS, 6 * MS)
    counts = left.merge(right).group_by_key(**TEXTS).windowed_by(gap).count(materialized=COUNTS)
    counts.to_stream().to("out", key_serde=SessionWindowedSerde(TEXT), value_serde=LongSerde())


def sliding(left: KStream[Any, Any], right: KStream[Any, Any]) -> None:
    windows = SlidingWindows.of_time_difference_and_grace(6 * MS, 8 * MS)
    counts = left.merge(right).group_by_key(**TEXTS).windowed_by(windows).count(materialized=COUNTS)
    counts.to_stream().to("out", key_serde=TimeWindowedSerde(TEXT, 6), value_serde=LongSerde())


TOPOLOGIES = {
    "join": joined("join"),
    "left join": joined("left_join"),
    "outer join": joined("outer_join"),
    "suppress": final_hours,
    "sessions": sessions,
    "sliding": sliding,
}

Sides = list[tuple[str, str, int]]
STEPS = st.tuples(st.sampled_from(["left", "right"]), st.sampled_from("ab"), st.integers(-4, 9))
EVENTS = st.lists(STEPS, max_size=40)
"""Time goes on by the last number: most records are in order, some are late."""


@pytest.mark.parametrize("name", TOPOLOGIES)
@settings(max_examples=50)
@given(events=EVENTS, cuts=st.sets(st.integers(1, 39), max_size=3))
def test_a_restart_changes_no_output(name: str, events: Sides, cuts: set[int]) -> None:
    assert outputs(name, events, cuts, restart=True) == outputs(name, events, cuts, restart=False)


def outputs(name: str, events: Sides, cuts: set[int], *, restart: bool) -> list[Any]:
    """What goes out when everything is committed at each cut, and, with ``restart``, a new task goes on."""
    builder = StreamsBuilder(CONFIG)
    TOPOLOGIES[name](builder.stream("left", **TEXTS), builder.stream("right", **TEXTS))
    topology, sent = builder.build(), Sent()
    task, _ = task_of(topology, config=CONFIG, collector=sent)
    offsets = {"left": 0, "right": 0}
    timestamp = 0
    for number, (topic, key, step) in enumerate(events):
        timestamp = max(0, timestamp + step)
        if number in cuts:
            commit(task)
            if restart:
                metadata = task.commit_metadata
                task, _ = task_of(topology, config=CONFIG, collector=sent, init=False)
                for store, changelog in task.subtopology.changelog_topics.items():
                    task.restore(store, logged(sent, changelog.name))
                task.continue_from(metadata)
                task.init()
        feed(task, topic, [(key, f"{number}", timestamp)], offset=offsets[topic])
        offsets[topic] += 1
        task.process()
    return [r for r in sent.records if r.topic == "out"]


def test_the_next_look_for_unmatched_records_is_that_of_the_last_commit() -> None:
    """An input without a record since the restart had kept the time of an earlier commit, which was larger."""
    builder = StreamsBuilder(CONFIG)
    joined("left_join")(builder.stream("left", **TEXTS), builder.stream("right", **TEXTS))
    topology, sent = builder.build(), Sent()
    committed: dict[TopicPartition, Position] = {}
    starts = {TopicPartition(topic, 0): 0 for topic in ("left", "right")}
    for commits in ([("left", "a", 100), ("right", "b", 101)], [("left", "c", 97)], [("left", "d", 113)]):
        plan = topology.plan(CONFIG)
        session = TaskSession(
            TaskEnvironment(plan, sent, wall_clock_ms=lambda: 0), plan.subtopologies[0], 0, InMemory()
        )
        starts |= {tp: position.offset for tp, position in committed.items()}
        session.continue_from({tp: position.metadata for tp, position in committed.items()}, starts)
        for tp, store in session.changelogs.items():
            session.restore(store, logged(sent, tp.topic))
        session.start()
        for topic, key, time in commits:
            feed(session.task, topic, [(key, key, time)], offset=starts[TopicPartition(topic, 0)])
            session.task.process()
        session.commit_alone()
        committed |= session.commit_positions()
    assert sent.to("out") == [("c", "c+None", 97)]


def logged(sent: Sent, changelog: str) -> RecordBatch:
    log = [r for r in sent.records if r.topic == changelog]
    return RecordBatch(
        [r.key for r in log],
        [r.value for r in log],
        [r.timestamp or 0 for r in log],
        range(len(log)),
        [r.headers for r in log],
    )


class Ticking:
    """Sends the time at each call of its two punctuators."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        self.context = context
        context.schedule(10, PunctuationType.STREAM_TIME, lambda time: self.tick("ten", time))
        context.schedule(7, PunctuationType.STREAM_TIME, lambda time: self.tick("seven", time), start_time=7)

    def process(self, record: Record[str, str]) -> None:
        pass

    def tick(self, key: str, time: int) -> None:
        self.context.forward(Record(key, str(time), time))

    def close(self) -> None:
        pass


@pytest.mark.parametrize("go_on", [True, False])
def test_punctuators_go_on_only_if_the_rules_of_the_runner_say_so(go_on: bool) -> None:
    """A runner that opens a task for each few records would call each punctuator for each few records."""
    builder = StreamsBuilder(CONFIG)
    builder.stream("in", **TEXTS).process(Ticking).to("out", **TEXTS)
    topology, sent, rules = builder.build(), Sent(), TaskRules(punctuators_go_on=go_on)
    metadata: Any = {}
    for time in range(1, 31):
        task, _ = task_of(topology, config=CONFIG, collector=sent, init=False, rules=rules)
        task.continue_from(metadata)
        task.init()
        feed(task, "in", [("a", "b", time)], offset=time)
        task.process()
        commit(task)
        metadata = task.commit_metadata
    times = {key: [at for k, _, at in sent.to("out") if k == key] for key in ("ten", "seven")}
    if go_on:
        assert times == {"ten": [1, 10, 20, 30], "seven": [7, 14, 21, 28]}
    else:
        assert times["ten"] == list(range(1, 31))


class Once(Ticking):
    """Sends the time at one call, or at none if the key of the first record is "stop"."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        self.context = context
        self.once = context.schedule(10, PunctuationType.STREAM_TIME, lambda time: self.tick("once", time))
        self.never = context.schedule(
            10, PunctuationType.STREAM_TIME, lambda time: self.tick("never", time), start_time=20
        )

    def process(self, record: Record[str, str]) -> None:
        if record.key == "stop":
            self.never.cancel()

    def tick(self, key: str, time: int) -> None:
        super().tick(key, time)
        self.once.cancel()


def test_a_cancelled_punctuator_stays_cancelled_if_punctuators_go_on() -> None:
    builder = StreamsBuilder(CONFIG)
    builder.stream("in", **TEXTS).process(Once).to("out", **TEXTS)
    topology, sent, rules = builder.build(), Sent(), TaskRules(punctuators_go_on=True)
    metadata: Any = {}
    for time in range(1, 41):
        task, _ = task_of(topology, config=CONFIG, collector=sent, init=False, rules=rules)
        task.continue_from(metadata)
        task.init()
        feed(task, "in", [("stop" if time == 5 else "go on", "b", time)], offset=time)
        task.process()
        commit(task)
        metadata = task.commit_metadata
    assert [(key, at) for key, _, at in sent.to("out")] == [("once", 1)]


def test_a_record_that_cannot_be_read_moves_no_time() -> None:
    """Otherwise the stream time after a restart is larger than without it."""
    config = CONFIG.replace(deserialization_exception_handler="continue")
    builder = StreamsBuilder(config)
    builder.stream("in", **TEXTS).to("out", **TEXTS)
    topology = builder.build()
    task, _ = task_of(topology, config=config)
    feed(task, "in", [("a", "b", 5), ("a", b"\xff", 900), ("a", "b", 7)])
    task.process()
    commit(task)
    after, _ = task_of(topology, config=config, init=False)
    after.continue_from(task.commit_metadata)
    assert after.stream_time == task.stream_time == 7
