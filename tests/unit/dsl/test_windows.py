from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamapp._base.durations import to_ms
from streamapp.errors import ConfigError, TopologyError
from streamapp.suppressed import BufferConfig, Suppressed
from streamapp.windows import JoinWindows, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows


@given(st.integers(1, 50), st.integers(1, 50), st.integers(0, 1000))
def test_windows_for_are_all_windows_that_hold_the_timestamp(size, advance, timestamp):
    windows = TimeWindows.of_size_with_no_grace(max(size, advance)).advance_by(min(size, advance))
    step = windows.advance_ms
    holding = [start for start in range(0, timestamp + 1, step) if timestamp < start + windows.size_ms]
    assert windows.windows_for(timestamp) == holding


def test_unlimited_windows_ignore_what_is_before_their_start():
    assert UnlimitedWindows.of().start_on(5).windows_for(4) == []
    assert UnlimitedWindows.of().start_on(5).windows_for(5) == [5]


def test_durations_are_timedeltas_or_milliseconds():
    assert TimeWindows.of_size_and_grace(timedelta(seconds=1), 5) == TimeWindows(1000, 1000, 5)
    assert SessionWindows.of_inactivity_gap_with_no_grace(timedelta(minutes=1)) == SessionWindows(60_000, 0)


@pytest.mark.parametrize("bad", [1.5, "1s", True, timedelta(microseconds=1), 2**63])
def test_other_durations_are_refused(bad):
    with pytest.raises(ConfigError, match="the size"):
        to_ms(bad, "the size")


@pytest.mark.parametrize(
    "make",
    [
        lambda: TimeWindows.of_size_with_no_grace(0),
        lambda: TimeWindows.of_size_and_grace(5, -1),
        lambda: TimeWindows.of_size_with_no_grace(5).advance_by(6),
        lambda: TimeWindows.of_size_with_no_grace(5).advance_by(0),
        lambda: SlidingWindows.of_time_difference_with_no_grace(-1),
        lambda: SessionWindows.of_inactivity_gap_with_no_grace(-1),
        lambda: UnlimitedWindows.of().start_on(-1),
        lambda: JoinWindows.of_time_difference_with_no_grace(-1),
        lambda: JoinWindows.of_time_difference_with_no_grace(5).before(-6),
    ],
)
def test_windows_that_cannot_be_are_refused(make):
    with pytest.raises(ConfigError):
        make()


def test_join_windows_may_lie_on_one_side():
    windows = JoinWindows.of_time_difference_with_no_grace(10).after(20).before(-5)
    assert (windows.before_ms, windows.after_ms, windows.size_ms) == (-5, 20, 15)


def test_legacy_join_windows_have_a_day_of_grace_and_may_change_it():
    legacy = JoinWindows.of(1000)
    assert legacy.grace_ms == 24 * 3_600_000 - 2000
    assert legacy.grace(7).grace_ms == 7
    with pytest.raises(TopologyError, match="of_time_difference_and_grace"):
        JoinWindows.of_time_difference_with_no_grace(5).grace(7)


def test_final_results_cannot_be_emitted_early():
    with pytest.raises(ConfigError, match="shut_down"):
        Suppressed.until_window_closes(BufferConfig.bounded(max_records=1))
    assert Suppressed.until_window_closes(BufferConfig.unbounded()).time_limit_ms is None


def test_a_bounded_buffer_needs_a_bound():
    with pytest.raises(ConfigError, match="unbounded"):
        BufferConfig.bounded()
    assert BufferConfig.bounded(max_bytes=1).with_logging_disabled().logging is False


FOREVER = 2**63 - 1


@pytest.mark.parametrize(
    ("windows", "size"),
    [
        (TimeWindows.of_size_and_grace, FOREVER - 5),
        (SlidingWindows.of_time_difference_and_grace, (FOREVER - 5) // 2),
        (SessionWindows.of_inactivity_gap_and_grace, FOREVER - 5),
        (JoinWindows.of_time_difference_and_grace, (FOREVER - 5) // 2),
    ],
)
def test_a_window_with_its_grace_period_fits_in_64_bits(windows, size):
    """As in Kafka Streams, whose sums overflow; some such windows failed at their first record."""
    assert windows(size, 5).grace_ms == 5
    with pytest.raises(ConfigError, match="grace period together have to fit in 64 bits"):
        windows(size, 7)
