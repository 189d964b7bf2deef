"""Beyond Kafka Streams: windows also close while the input is quiet, by the wall clock."""

from __future__ import annotations

from datetime import timedelta

import pytest

from streamapp import (
    BufferConfig,
    ConfigError,
    EmitStrategy,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    Suppressed,
    TimeWindows,
    TopologyTestDriver,
)

TEXT = {"key_serde": StringSerde(), "value_serde": StringSerde()}
NO_CACHE = StreamsConfig(statestore_cache_max_bytes=0)


class Run:
    """A windowed count whose final results are collected as (window, count, timestamp)."""

    def __init__(self, windows, how, idle_timeout=100, config=NO_CACHE):
        builder = StreamsBuilder(config)
        windowed = builder.stream("in", **TEXT).group_by_key().windowed_by(windows)
        if how == "emit":
            table = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE, idle_timeout=idle_timeout).count(
                name="counts"
            )
        else:
            table = windowed.count(name="counts")
        table.late_records().foreach(lambda key, value: self.late.append(value))
        if how == "suppress":
            table = table.suppress(
                Suppressed.until_window_closes(BufferConfig.unbounded(), "final", idle_timeout=idle_timeout)
            )
        self.results, self.late = [], []
        table.to_stream().foreach(lambda window, count: self.results.append((str(window), count)))
        self.driver = TopologyTestDriver(builder.build())
        self.topic = self.driver.create_input_topic("in", StringSerde(), StringSerde())

    def jump(self, by):
        """Sets the clock of the task, as a worker does that notices the jump."""
        self.driver._wall_clock += by
        self.driver._task.clock_jumped(by)
        self.driver.advance_wall_clock_time(0)

    def pipe(self, *timestamps, key="a"):
        for timestamp in timestamps:
            self.topic.pipe_input(key, str(timestamp), timestamp)


HOWS = pytest.mark.parametrize("how", ["emit", "suppress"])


@HOWS
@pytest.mark.parametrize(
    ("windows", "result"),
    [
        (TimeWindows.of_size_and_grace(50, 10), ("[a@0/50]", 2)),
        (SessionWindows.of_inactivity_gap_and_grace(40, 10), ("[a@5/30]", 2)),
    ],
)
def test_a_window_closes_after_the_wall_clock_has_passed_its_end(windows, result, how):
    run = Run(windows, how)
    run.pipe(5, 30)
    run.driver.advance_wall_clock_time(99)
    assert run.results == []
    run.driver.advance_wall_clock_time(1)
    assert run.results == [result]
    run.driver.advance_wall_clock_time(1000)
    assert run.results == [result]


def test_sliding_windows_close_too():
    run = Run(SlidingWindows.of_time_difference_with_no_grace(50), "emit")
    run.pipe(60)
    run.driver.advance_wall_clock_time(100)
    assert run.results == [("[a@10/60]", 1)]


@HOWS
def test_time_goes_on_from_where_the_records_left_it(how):
    """A long window does not close early: the idle time-out starts the clock, it does not close everything."""
    run = Run(TimeWindows.of_size_with_no_grace(1000), how)
    run.pipe(200)
    for _ in range(7):
        run.driver.advance_wall_clock_time(100)
    assert run.results == []
    run.driver.advance_wall_clock_time(100)
    assert run.results == [("[a@0/1000]", 1)]


@HOWS
def test_a_record_starts_the_waiting_anew(how):
    run = Run(TimeWindows.of_size_with_no_grace(50), how)
    run.pipe(5)
    run.driver.advance_wall_clock_time(90)
    run.pipe(6)
    run.driver.advance_wall_clock_time(90)
    assert run.results == []
    run.driver.advance_wall_clock_time(10)
    assert run.results == [("[a@0/50]", 2)]


@HOWS
def test_a_window_that_was_closed_by_the_clock_stays_closed_and_its_records_are_late(how):
    run = Run(TimeWindows.of_size_with_no_grace(50), how)
    run.pipe(5)
    run.driver.advance_wall_clock_time(100)
    run.pipe(6, 7)
    assert (run.results, run.late, run.driver.dropped_records) == ([("[a@0/50]", 1)], ["6", "7"], 2)
    run.pipe(400)
    run.pipe(460)
    assert run.results == [("[a@0/50]", 1), ("[a@400/450]", 1)]


@HOWS
def test_a_jump_of_the_clock_closes_no_window(how):
    """The clock was set forward by three hours, or the process stood still: records of the next hours were late."""
    run = Run(TimeWindows.of_size_with_no_grace(50), how)
    run.pipe(5)
    run.driver.advance_wall_clock_time(50)
    run.jump(10_800_000)
    run.pipe(6)
    run.jump(-10_800_000)
    run.driver.advance_wall_clock_time(99)
    assert (run.results, run.driver.dropped_records) == ([], 0)
    run.driver.advance_wall_clock_time(1)
    assert run.results == [("[a@0/50]", 2)]


@HOWS
def test_nothing_closes_before_the_first_record(how):
    run = Run(TimeWindows.of_size_with_no_grace(50), how)
    run.driver.advance_wall_clock_time(10_000)
    run.pipe(5)
    assert (run.results, run.driver.dropped_records) == ([], 0)


def test_suppressed_results_of_a_cached_table_come_out_once():
    run = Run(TimeWindows.of_size_with_no_grace(50), "suppress", config=StreamsConfig())
    run.pipe(5, 6)
    run.driver.advance_wall_clock_time(100)
    run.driver.advance_wall_clock_time(100)
    run.pipe(7)
    assert (run.results, run.late) == ([("[a@0/50]", 2)], ["7"])


def test_without_the_option_nothing_asks_for_the_clock():
    run = Run(TimeWindows.of_size_with_no_grace(50), "suppress", idle_timeout=None)
    run.pipe(5)
    run.driver.advance_wall_clock_time(10_000_000)
    assert run.results == []


@pytest.mark.parametrize("timeout", [0, -1, timedelta(0), 1.5, "1s"])
def test_time_outs_that_cannot_be_are_refused(timeout):
    with pytest.raises(ConfigError, match="idle_timeout"):
        Suppressed.until_window_closes(BufferConfig.unbounded(), idle_timeout=timeout)
    with pytest.raises(ConfigError, match="idle_timeout"):
        Run(TimeWindows.of_size_with_no_grace(50), "emit", idle_timeout=timeout)


def test_an_idle_timeout_needs_final_results():
    windowed = (
        StreamsBuilder().stream("in", **TEXT).group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(5))
    )
    with pytest.raises(ConfigError, match="ON_WINDOW_CLOSE"):
        windowed.emit_strategy(EmitStrategy.ON_WINDOW_UPDATE, idle_timeout=5)
