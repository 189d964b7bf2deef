"""Beyond Kafka Streams: what windowed operators drop as late comes out as a stream, where it is asked for."""

from __future__ import annotations

import pytest

from streamapp import (
    JoinWindows,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    TimeWindows,
    TopologyError,
    TopologyTestDriver,
)

TEXT = {"key_serde": StringSerde(), "value_serde": StringSerde()}


def late_of(windows, records, *, config=None, rekeyed=False):
    """The late records of a count, and how many records it dropped."""
    builder = StreamsBuilder(config)
    stream = builder.stream("in", **TEXT)
    grouped = stream.group_by(lambda k, v: k, **TEXT) if rekeyed else stream.group_by_key()
    grouped.windowed_by(windows).count().late_records().to("late")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", StringSerde(), StringSerde())
        for key, value, timestamp in records:
            topic.pipe_input(key, value, timestamp, (("h", b"1"),))
        late = driver.create_output_topic("late", StringSerde(), StringSerde()).read_records()
        assert all(record.headers == (("h", b"1"),) for record in late)
        return [(r.key, r.value, r.timestamp) for r in late], driver.dropped_records


def test_a_late_record_comes_out_as_it_went_in():
    windows = TimeWindows.of_size_and_grace(10, 5)
    records = [("a", "1", 5), ("b", "2", 30), ("a", "late", 14), ("a", "in time", 25)]
    assert late_of(windows, records) == ([("a", "late", 14)], 1)


def test_a_record_comes_out_once_though_several_windows_are_closed():
    windows = TimeWindows.of_size_with_no_grace(10).advance_by(5)
    assert late_of(windows, [("a", "1", 30), ("a", "both", 12), ("a", "one of two", 27)]) == (
        [("a", "both", 12), ("a", "one of two", 27)],
        3,
    )


def test_null_keys_are_dropped_and_not_late_and_null_values_can_be_late():
    windows = TimeWindows.of_size_with_no_grace(10)
    assert late_of(windows, [("a", "1", 30), (None, "x", 1), ("a", None, 1)]) == ([("a", None, 1)], 2)


def test_sessions():
    windows = SessionWindows.of_inactivity_gap_and_grace(5, 5)
    records = [("a", "1", 30), ("a", "just in time", 20), ("a", "late", 14)]
    assert late_of(windows, records) == ([("a", "late", 14)], 1)


def test_sliding_windows():
    windows = SlidingWindows.of_time_difference_with_no_grace(10)
    got, _ = late_of(windows, [("a", "1", 100), ("a", "far too late", 50), ("a", "partly", 95)])
    assert got == [("a", "far too late", 50), ("a", "partly", 95)] or got == [("a", "far too late", 50)]


def test_behind_a_repartition_topic():
    windows = TimeWindows.of_size_with_no_grace(10)
    assert late_of(windows, [("a", "1", 30), ("a", "late", 1)], rekeyed=True) == ([("a", "late", 1)], 1)


def test_with_and_without_cache_alike():
    windows = TimeWindows.of_size_with_no_grace(10)
    records = [("a", "1", 30), ("a", "late", 1)]
    uncached = late_of(windows, records, config=StreamsConfig(statestore_cache_max_bytes=0))
    assert uncached == late_of(windows, records)


def test_cogrouped_streams_give_their_late_records_together():
    builder = StreamsBuilder()
    one, two = (builder.stream(t, **TEXT).group_by_key() for t in ("one", "two"))
    cogrouped = one.cogroup(lambda k, v, a: a + v).cogroup(two, lambda k, v, a: a + v)
    table = cogrouped.windowed_by(TimeWindows.of_size_with_no_grace(10)).aggregate(
        str, materialized=Materialized("s", value_serde=StringSerde())
    )
    table.late_records(name="late").to("late", **TEXT)
    with TopologyTestDriver(builder.build()) as driver:
        inputs = {t: driver.create_input_topic(t, StringSerde(), StringSerde()) for t in ("one", "two")}
        for topic in inputs.values():
            topic.pipe_input("a", "x", 30)
        inputs["one"].pipe_input("a", "first", 1)
        inputs["two"].pipe_input("a", "second", 1)
        late = driver.create_output_topic("late", StringSerde(), StringSerde())
        assert late.read_values() == ["first", "second"]


@pytest.mark.parametrize("kind", ["join", "left_join", "outer_join"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_stream_joins_by_side(kind, side):
    builder = StreamsBuilder(StreamsConfig(topology_optimization="all"))
    left, right = builder.stream("left", **TEXT), builder.stream("right", **TEXT)
    windows = JoinWindows.of_time_difference_and_grace(10, 5)
    getattr(left, kind)(right, "{}{}".format, windows).late_records(side).to("late")
    other = {"left": "right", "right": "left"}[side]
    with TopologyTestDriver(builder.build()) as driver:
        inputs = {t: driver.create_input_topic(t, StringSerde(), StringSerde()) for t in ("left", "right")}
        inputs[other].pipe_input("k", "x", 100)
        inputs[side].pipe_input("k", "in time", 85)
        inputs[side].pipe_input("k", "late", 84)
        inputs[side].pipe_input(None, "no key", 84)
        inputs[other].pipe_input("k", "of the other side", 1)
        late = driver.create_output_topic("late", StringSerde(), StringSerde())
        assert late.read_values() == ["late"]


def test_a_self_join_keeps_its_two_sides_when_late_records_are_asked_for():
    builder = StreamsBuilder(StreamsConfig(topology_optimization="all"))
    stream = builder.stream("in", **TEXT)
    joined = stream.join(stream, "{}{}".format, JoinWindows.of_time_difference_with_no_grace(5))
    joined.late_records("right").to("late")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", StringSerde(), StringSerde())
        topic.pipe_input("k", "a", 100)
        topic.pipe_input("k", "b", 1)
        assert driver.create_output_topic("late", StringSerde(), StringSerde()).read_values() == ["b"]


def test_the_result_does_not_carry_late_records():
    builder = StreamsBuilder()
    counts = (
        builder.stream("in", **TEXT).group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10)).count()
    )
    counts.late_records().to("late")
    seen = []
    counts.to_stream().foreach(lambda window, count: seen.append((window.start, count)))
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", StringSerde(), StringSerde())
        topic.pipe_input("a", "1", 30)
        topic.pipe_input("a", "late", 1)
    assert seen == [(30, 1)]


def test_one_stream_of_late_records_for_each_operator():
    table = (
        StreamsBuilder()
        .stream("in", **TEXT)
        .group_by_key()
        .windowed_by(TimeWindows.of_size_with_no_grace(10))
        .count()
    )
    table.late_records(name="late")
    with pytest.raises(TopologyError, match="a stream already, late; keep it"):
        table.late_records()


def test_asking_for_late_records_renames_nothing_before_it():
    def describe(ask):
        builder = StreamsBuilder()
        table = (
            builder.stream("in", **TEXT)
            .group_by_key()
            .windowed_by(TimeWindows.of_size_with_no_grace(10))
            .count()
        )
        if ask:
            table.late_records(name="late")
        return builder.build()

    assert set(describe(True).nodes) - set(describe(False).nodes) == {"late"}
    assert list(describe(True).stores) == list(describe(False).stores)
