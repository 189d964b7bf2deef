"""Windows, sessions and joins against models that are too simple to be wrong (hypothesis)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from streamapp import (
    JoinWindows,
    LongSerde,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    TopologyTestDriver,
)
from tests.unit.engine.support import TEXT, TEXTS

UNCACHED = StreamsConfig(statestore_cache_max_bytes=0)
KEYS = st.sampled_from("ab")
RECORDS = st.lists(st.tuples(KEYS, st.integers(0, 60)), max_size=40)
FOREVER = 10_000
KEPT = 3 * FOREVER


def windows_after(windows: Any, records: list[tuple[str, int]]) -> dict[tuple[str, int, int], int]:
    """(key, start, end) -> count, after all records."""
    builder = StreamsBuilder(UNCACHED)
    grouped = builder.stream("in", **TEXTS).group_by_key(**TEXTS).windowed_by(windows)
    grouped.count(materialized=Materialized("w", key_serde=TEXT, value_serde=LongSerde(), retention=KEPT))
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        for key, timestamp in records:
            topic.pipe_input(key, "v", timestamp)
        rows = driver.store("w").all()
        return {(k.key, k.start, k.end): v[0] for k, *v in rows}


@settings(max_examples=60, deadline=None)
@given(RECORDS, st.integers(1, 15), st.integers(1, 15), st.integers(0, 20))
def test_time_windows_count_what_is_not_late(
    records: list[tuple[str, int]], size: int, advance: int, grace: int
) -> None:
    advance = min(size, advance)
    expected: Counter[tuple[str, int, int]] = Counter()
    stream_time = -1
    for key, timestamp in records:
        stream_time = max(stream_time, timestamp)
        for start in range(0, timestamp + 1, advance):
            if start <= timestamp < start + size and start + size > stream_time - grace:
                expected[key, start, start + size] += 1
    windows = TimeWindows.of_size_and_grace(size, grace).advance_by(advance)
    assert windows_after(windows, records) == expected


@settings(max_examples=60, deadline=None)
@given(RECORDS, st.integers(1, 12))
def test_sliding_windows_are_the_distinct_sets_of_records_within_the_difference(
    records: list[tuple[str, int]], difference: int
) -> None:
    """With unlimited grace: a window ends at each record and starts right after each record, if it holds any."""
    expected: dict[tuple[str, int, int], int] = {}
    for key in "ab":
        times = sorted(t for k, t in records if k == key)
        early = [t for t in times if t <= difference]
        starts = {t - difference for t in times if t >= difference} | {t + 1 for t in times}
        if any(t < difference for t in times):
            starts.add(0)
        for start in starts:
            held = sum(start <= t <= start + difference for t in times)
            if held and not (start == 0 and not early):
                expected[key, start, start + difference] = held
    windows = SlidingWindows.of_time_difference_and_grace(difference, FOREVER)
    assert windows_after(windows, records) == expected


@settings(max_examples=80, deadline=None)
@given(RECORDS, st.integers(0, 12))
def test_sessions_are_runs_of_records_no_further_apart_than_the_gap(
    records: list[tuple[str, int]], gap: int
) -> None:
    expected: dict[tuple[str, int, int], int] = {}
    for key in "ab":
        run: list[int] = []
        for timestamp in sorted(t for k, t in records if k == key):
            if run and timestamp - run[-1] > gap:
                expected[key, run[0], run[-1]] = len(run)
                run = []
            run.append(timestamp)
        if run:
            expected[key, run[0], run[-1]] = len(run)

    builder = StreamsBuilder(UNCACHED)
    windows = SessionWindows.of_inactivity_gap_and_grace(gap, FOREVER)
    grouped = builder.stream("in", **TEXTS).group_by_key(**TEXTS).windowed_by(windows)
    grouped.count(materialized=Materialized("s", key_serde=TEXT, value_serde=LongSerde(), retention=KEPT))
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        for key, timestamp in records:
            topic.pipe_input(key, "v", timestamp)
        assert {(k.key, k.start, k.end): v for k, v in driver.store("s").all()} == expected


SIDES = st.lists(st.tuples(st.sampled_from(["left", "right"]), KEYS, st.integers(0, 40)), max_size=30)


@settings(max_examples=80, deadline=None)
@given(SIDES, st.integers(0, 8), st.integers(0, 8))
def test_an_inner_join_gives_each_pair_within_the_window_once(
    records: list[tuple[str, str, int]], before: int, after: int
) -> None:
    numbered = [(side, key, time, f"{side[0]}{n}") for n, (side, key, time) in enumerate(records)]
    expected = Counter(
        (key, a + b, max(time, other_time))
        for side, key, time, a in numbered
        for other_side, other_key, other_time, b in numbered
        if (side, other_side) == ("left", "right")
        and key == other_key
        and time - before <= other_time <= time + after
    )

    builder = StreamsBuilder(UNCACHED)
    windows = (
        JoinWindows.of_time_difference_and_grace(max(before, after), FOREVER).before(before).after(after)
    )
    left, right = builder.stream("left", **TEXTS), builder.stream("right", **TEXTS)
    left.join(right, lambda a, b: a + b, windows).to("out", **TEXTS)
    with TopologyTestDriver(builder.build()) as driver:
        topics = {side: driver.create_input_topic(side, TEXT, TEXT) for side in ("left", "right")}
        for side, key, time, value in numbered:
            topics[side].pipe_input(key, value, time)
        out = driver.create_output_topic("out", TEXT, TEXT).read_records()
    assert Counter((r.key, r.value, r.timestamp) for r in out) == expected


@settings(max_examples=60, deadline=None)
@given(RECORDS, st.integers(1, 10), st.integers(0, 10))
def test_suppression_gives_one_final_result_per_closed_window_and_none_before(
    records: list[tuple[str, int]], size: int, grace: int
) -> None:
    """Invariant I8."""
    from streamapp import BufferConfig, Suppressed, TimeWindowedSerde

    counts: Counter[tuple[str, int]] = Counter()
    stream_time = -1
    for key, timestamp in records:
        stream_time = max(stream_time, timestamp)
        start = timestamp - timestamp % size
        if start + size > stream_time - grace:
            counts[key, start] += 1
    # A window is handed on when an update of the table, not a dropped record, brings time past its close.
    table_time = -1
    running = -1
    for _, timestamp in records:
        running = max(running, timestamp)
        if timestamp - timestamp % size + size > running - grace:
            table_time = max(table_time, timestamp)
    expected = {(k, s): n for (k, s), n in counts.items() if s + size + grace <= table_time}

    builder = StreamsBuilder(UNCACHED)
    windowed = (
        builder.stream("in", **TEXTS)
        .group_by_key(**TEXTS)
        .windowed_by(TimeWindows.of_size_and_grace(size, grace))
    )
    table = windowed.count(
        materialized=Materialized("w", key_serde=TEXT, value_serde=LongSerde(), retention=KEPT)
    )
    final = table.suppress(Suppressed.until_window_closes(BufferConfig.unbounded())).to_stream()
    key_serde = TimeWindowedSerde(TEXT, size)
    final.to("final", key_serde=key_serde, value_serde=LongSerde())
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        for key, timestamp in records:
            topic.pipe_input(key, "v", timestamp)
        emitted = driver.create_output_topic("final", key_serde, LongSerde()).read_records()
    assert [(r.key.key, r.key.start) for r in emitted] == list(
        dict.fromkeys((r.key.key, r.key.start) for r in emitted)
    )
    assert {(r.key.key, r.key.start): r.value for r in emitted} == expected
