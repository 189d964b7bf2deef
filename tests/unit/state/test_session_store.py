from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_harness import IMAGE_LIMITS, INDEX_PARTS, ROW_LIMITS, Life, images_of, index_parts_of

from streamapp.records import Windowed
from streamapp.state.row_memory import RowMemory

KEYS = st.sampled_from(["", "a", "a\0\0", "b"])
TIMES = st.integers(0, 400)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, TIMES, st.integers(0, 40), st.integers(0, 9)),
        st.tuples(st.just("remove"), KEYS),
        st.tuples(st.sampled_from(["commit", "log", "persist", "reopen"])),
        st.tuples(st.sampled_from(["find", "find_range", "closed"]), KEYS, TIMES, TIMES),
        st.tuples(st.just("close"), st.integers(1, 60)),
    ),
    max_size=50,
)
RETENTION, SEGMENT = 100, 30


class Model:
    def __init__(self, persistent: bool) -> None:
        self.persistent = persistent
        self.rows: dict[tuple[str, int, int], int] = {}
        self.observed, self.dropped = -1, 0

    def put(self, key, start, end, value):
        self.observed = max(self.observed, end)
        oldest = self.observed - RETENTION
        if end // SEGMENT >= oldest // SEGMENT if self.persistent else end > oldest:
            self.rows[key, start, end] = value
        else:
            self.dropped += 1

    def visible(self, live_segments: bool = False):
        oldest = self.observed - RETENTION
        if self.persistent:
            rows = sorted(
                self.rows.items(),
                key=lambda row: (
                    row[0][2] // SEGMENT,
                    row[0][0].encode() + row[0][2].to_bytes(8, "big") + row[0][1].to_bytes(8, "big"),
                ),
            )
        else:
            rows = sorted(self.rows.items(), key=lambda row: (row[0][2], row[0][0].encode(), -row[0][1]))
        if live_segments and self.persistent:
            return [row for row in rows if row[0][2] // SEGMENT >= oldest // SEGMENT]
        return [row for row in rows if row[0][2] > oldest]


@given(STEPS, st.booleans(), st.booleans(), st.booleans(), ROW_LIMITS, IMAGE_LIMITS, INDEX_PARTS)
def test_a_session_store_is_its_model_through_any_life(
    steps, log_each, persistent, time_ordered, row_bytes, image_rows, part
):
    with images_of(image_rows), index_parts_of(part):
        compare_with_model(steps, log_each, persistent, time_ordered, row_bytes)


def compare_with_model(steps, log_each, persistent, time_ordered, row_bytes):
    life = Life(
        log_each,
        memory=RowMemory(row_bytes),
        kind="session",
        persistent=persistent,
        retention_ms=RETENTION,
        segment_interval_ms=SEGMENT,
        time_ordered=time_ordered,
    )
    model, closed_to = Model(persistent), -1
    for step, *args in steps:
        store = life.store
        if step == "put":
            key, start, length, value = args
            store.put(key, start, start + length, value)
            model.put(key, start, start + length, value)
        elif step == "remove":
            for (key, start, end), value in model.visible()[:1]:
                assert store.get(key, start, end) == value
                store.remove(key, start, end)
                del model.rows[key, start, end]
                assert store.get(key, start, end) is None
        elif step == "find":
            key, earliest, latest = args
            found = [
                (s, e, v) for (k, s, e), v in model.visible() if k == key and e >= earliest and s <= latest
            ]
            assert list(store.find_sessions(key, earliest, latest)) == found
            assert list(store.find_sessions(key, earliest, latest, reverse=True)) == found[::-1]
        elif step == "find_range":
            key, earliest, latest = args
            found = [
                (Windowed(*row), v)
                for row, v in model.visible()
                if row[0].encode() >= key.encode() and row[2] >= earliest and row[1] <= latest
            ]
            assert list(store.find_sessions_range(key, None, earliest, latest)) == found
        elif step in ("close", "closed"):
            low, high = args[1:] if step == "closed" else (closed_to + 1, closed_to + args[0])
            if step == "close":
                closed_to = high
            found = [(Windowed(*row), v) for row, v in model.visible(True) if low <= row[2] <= high]
            if persistent:
                found.sort(key=lambda row: (row[0].end, row[0].start, row[0].key.encode()))
            assert list(store.find_closed(low, high)) == found
        else:
            life.go_on(step)
    rows = [(Windowed(*row), value) for row, value in model.visible()]
    assert list(life.store.all()) == rows
    assert list(life.store.all(reverse=True)) == rows[::-1]
    assert life.task.dropped == model.dropped
    if log_each:
        assert list(life.restored().all()) == rows


def test_a_look_up_reads_only_the_sessions_it_asks_for():
    life = Life(kind="session", retention_ms=10**9, memory=RowMemory(0))
    for end in range(0, 100_000, 100):
        life.store.put("a", end, end, 1)
    life.commit()
    read = life.rows_read()
    assert [start for start, _, _ in life.store.find_sessions("a", 99_750, 100_000)] == [99_800, 99_900]
    assert len(read) == 3  # the third row tells the buckets that have rows


def test_final_results_read_each_session_once():
    life = Life(kind="session", retention_ms=10**9, time_ordered=True)
    for end in range(20_000):
        life.store.put(str(end), end, end, 1)
    life.commit()
    life.reopen()
    read, found = life.rows_read(), 0
    for now in range(10_000):
        found += len(list(life.store.find_closed(now, now)))
    assert found == 10_000
    assert len(read) < 10_600


def test_final_results_need_no_scan_while_the_index_in_memory_is_complete():
    life = Life(kind="session", retention_ms=10**9, time_ordered=True)
    read = life.rows_read()
    for now in range(800):
        life.store.put("a", now, now, 1)
        life.commit()
        assert len(list(life.store.find_closed(now, now))) == 1
    assert len(read) == 1  # the first look


def test_sessions_that_grow_leave_no_times_in_the_index():
    life = Life(kind="session", retention_ms=10**9, time_ordered=True)
    for end in range(1, 9_000):
        life.store.remove("a", 0, end - 1)
        life.store.put("a", 0, end, 1)
        if end % 300 == 0:
            life.commit()
            assert len(life.store._time_index._times) <= 1_300
    assert list(life.store.find_closed(0, 9_000)) == [(Windowed("a", 0, 8_999), 1)]


def test_many_sessions_that_end_together_leave_memory_after_a_commit():
    life = Life(kind="session", retention_ms=10**9, time_ordered=True)
    for number in range(5_000):
        life.store.put(str(number), number, 9_000, 1)
    life.commit()
    assert sum(map(len, life.store._time_index._rows_at.values())) <= 1_000
    assert len(list(life.store.find_closed(0, 9_000))) == 5_000


def test_a_caller_that_failed_gets_the_same_sessions_again():
    life = Life(kind="session", retention_ms=10**9, time_ordered=True)
    for end in (10, 20, 30):
        life.store.put("a", end, end, end)
    life.commit()
    life.store.put("a", 25, 25, 25)
    first = next(life.store.find_closed(0, 25))
    again = list(life.store.find_closed(0, 25))
    assert again[0] == first
    assert [value for _, value in again] == [10, 20, 25]
    assert [value for _, value in life.store.find_closed(26, 99)] == [30]


def test_look_ups_that_go_back_in_time_load_few_images():
    life = Life(kind="session", retention_ms=10**9)
    for end in range(1_000):
        life.store.put("a", end, end, 1)
    life.commit()
    loads, load = [], life.store._load

    def counted(*arguments, **further):
        loads.append(further)
        return load(*arguments, **further)

    life.store._load = counted
    for end in range(999, -1, -1):
        assert next(life.store.find_sessions("a", end, end)) == (end, end, 1)
    assert len(loads) < 15


def test_the_changelog_key_is_key_end_and_start():
    life = Life(True, kind="session", retention_ms=100)
    life.task.timestamp = 30
    life.store.put("a", 10, 20, 1)
    life.store.remove("a", 10, 20)
    key = b"a" + bytes.fromhex("0000000000000014000000000000000a")
    assert life.task.logged == [(key, bytes(7) + b"\1", 30, ()), (key, None, 30, ())]


def test_a_removed_session_stays_away_from_the_closed_ones_after_a_commit():
    life = Life(kind="session", retention_ms=1, time_ordered=True)
    life.store.put("a", 9, 9, 1)
    life.commit()
    life.store.remove("a", 9, 9)
    life.store.put("a", 9, 20, 2)
    life.commit()
    assert list(life.store.find_closed(0, 30)) == [(Windowed("a", 9, 20), 2)]


@pytest.mark.parametrize("persistent", [True, False])
def test_a_session_put_as_none_is_too_late_in_memory_while_a_removal_never_is(persistent):
    life = Life(True, kind="session", retention_ms=10, persistent=persistent)
    life.store.put("a", 100, 100, 1)
    life.store.put("a", 50, 50, None)
    assert life.task.dropped == (0 if persistent else 1)
    life.store.remove("a", 50, 50)
    assert life.task.dropped == (0 if persistent else 1)
    assert len(life.task.logged) == 3


@pytest.mark.parametrize("newest", range(365, 375))
def test_closed_sessions_are_the_same_before_and_after_a_commit_at_the_edge_of_a_segment(newest):
    """The segment of the oldest millisecond within the retention lives (Kafka Streams' AbstractSegments)."""
    life = Life(True, kind="session", retention_ms=RETENTION, segment_interval_ms=SEGMENT)
    life.store.put("a", 200, 240, 1)
    life.store.put("a", 329, newest, 2)
    expected = [(Windowed("a", 200, 240), 1)] * (newest - RETENTION < 270)
    assert list(life.store.find_closed(0, 240)) == expected
    life.commit()
    assert list(life.store.find_closed(0, 240)) == expected
    life.persist()
    life.reopen()
    assert list(life.store.find_closed(0, 240)) == expected
    assert list(life.restored().find_closed(0, 240)) == expected
