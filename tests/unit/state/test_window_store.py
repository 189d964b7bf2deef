from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from store_harness import (
    IMAGE_LIMITS,
    INDEX_PARTS,
    ROW_LIMITS,
    Life,
    TaggedSerde,
    images_of,
    index_parts_of,
)

from streamapp.records import Windowed
from streamapp.state.row_memory import RowMemory

KEYS = st.sampled_from(["", "a", "a\0\0", "ab", "b"])
TIMES = st.integers(0, 400)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, TIMES, st.one_of(st.none(), st.integers(0, 9))),
        st.tuples(st.sampled_from(["commit", "log", "persist", "reopen"])),
        st.tuples(st.just("get"), KEYS, TIMES),
        st.tuples(st.sampled_from(["fetch", "reverse_fetch"]), KEYS, TIMES, TIMES),
        st.tuples(st.sampled_from(["all", "range"]), KEYS, KEYS, TIMES, TIMES),
        st.tuples(st.just("close"), st.integers(1, 60)),
    ),
    max_size=50,
)
RETENTION, SEGMENT, SIZE = 100, 30, 10


class Model:
    """All rows ever put, and the rules of visibility written down plainly."""

    def __init__(self, persistent: bool, time_ordered: bool, duplicates: bool) -> None:
        self.persistent, self.time_ordered, self.duplicates = persistent, time_ordered, duplicates
        self.rows: dict[tuple[str, int, int], tuple[int, int]] = {}
        self.observed, self.sequence, self.dropped = -1, 0, 0

    def put(self, key, start, value, timestamp):
        if self.duplicates:
            self.sequence += 1
            if value is None and self.persistent:
                return
        self.observed = max(self.observed, start)
        oldest = self.observed - RETENTION
        live = start // SEGMENT >= oldest // SEGMENT if self.persistent else start > oldest
        if not live:
            self.dropped += 1
        elif value is None:
            self.rows.pop((key, start, self.sequence), None)
        else:
            self.rows[key, start, self.sequence] = (value, timestamp)

    def visible(self):
        oldest = self.observed - RETENTION
        by_segment = self.persistent and not self.time_ordered
        rows = [
            (key, start, row)
            for (key, start, sequence), row in sorted(
                self.rows.items(),
                key=lambda entry: (
                    entry[0][1] // SEGMENT if by_segment else entry[0][1],
                    entry[0][0].encode() + entry[0][1].to_bytes(8, "big") + entry[0][2].to_bytes(4, "big"),
                ),
            )
        ]
        inclusive = self.persistent and self.time_ordered
        return [row for row in rows if row[1] > oldest or (inclusive and row[1] == oldest)]


@example(
    [("put", "", 0, 0), ("log",), ("put", "", 130, None), ("persist",)],
    False,
    "persistent",
    False,
    0,
    1,
    1,
    1,
)
@given(
    STEPS,
    st.booleans(),
    st.sampled_from(["persistent", "in_memory", "time_ordered"]),
    st.booleans(),
    st.sampled_from([0, 5]),
    ROW_LIMITS,
    IMAGE_LIMITS,
    INDEX_PARTS,
)
def test_a_window_store_is_its_model_through_any_life(
    steps, log_each, flavour, duplicates, advance, row_bytes, image_rows, part
):
    with images_of(image_rows), index_parts_of(part):
        compare_with_model(steps, log_each, flavour, duplicates, advance, row_bytes)


def compare_with_model(steps, log_each, flavour, duplicates, advance, row_bytes):
    life = Life(
        log_each,
        memory=RowMemory(row_bytes),
        kind="timestamped_window",
        persistent=flavour != "in_memory",
        time_ordered=flavour == "time_ordered",
        retention_ms=RETENTION,
        segment_interval_ms=SEGMENT,
        size_ms=SIZE,
        advance_ms=advance,
        retain_duplicates=duplicates,
    )
    closed_to = -1
    model = Model(flavour != "in_memory", flavour == "time_ordered", duplicates)
    for at, (step, *args) in enumerate(steps):
        store = life.store
        if step == "put":
            key, start, value = args
            store.put(key, value, start, at)
            model.put(key, start, value, at)
        elif step == "get":
            key, start = args
            if not duplicates:
                expected = [row for k, s, row in model.visible() if (k, s) == (key, start)]
                assert store.get(key, start) == (expected[0] if expected else None)
        elif step in ("fetch", "reverse_fetch"):
            key, low, high = args
            expected = [(s, *row) for k, s, row in model.visible() if k == key and low <= s <= high]
            if step == "reverse_fetch":
                expected.reverse()
            assert list(store.fetch(key, low, high, reverse=step == "reverse_fetch")) == expected
        elif step == "close":
            low, closed_to = closed_to + 1, closed_to + args[0]
            assert list(store.find_closed(low, closed_to)) == [
                (Windowed(k, s, s + SIZE), *row) for k, s, row in model.visible() if low <= s <= closed_to
            ]
        elif step in ("all", "range"):
            first, last, low, high = args
            expected = [
                (Windowed(k, s, s + SIZE), *row)
                for k, s, row in model.visible()
                if low <= s <= high and (step == "all" or first.encode() <= k.encode() <= last.encode())
            ]
            if step == "all":
                assert list(store.fetch_all(low, high)) == expected
                assert list(store.fetch_all(low, high, reverse=True)) == expected[::-1]
            else:
                assert list(store.fetch_range(first, last, low, high)) == expected
        else:
            life.go_on(step)
    expected = [(Windowed(k, s, s + SIZE), *row) for k, s, row in model.visible()]
    assert list(life.store.all()) == expected
    assert list(life.store.all(reverse=True)) == expected[::-1]
    assert life.task.dropped == model.dropped
    life.commit()
    life.persist()
    if log_each:
        assert list(life.restored().all()) == expected
    oldest = max(0, model.observed - RETENTION) // SEGMENT * SEGMENT
    life.commit()
    starts = [int.from_bytes(key[-12:-4], "big") for key, _ in life.backend.table("s").range(None, b"\x80")]
    if flavour == "time_ordered" and not advance:
        indexed = life.backend.table("s").range(b"\x80", b"\xff")
        assert [key[1:9] for key, _ in indexed] == sorted(start.to_bytes(8, "big") for start in starts)
    assert all(start >= oldest for start in starts)


PUTS = st.lists(st.tuples(KEYS, TIMES, st.one_of(st.none(), st.integers(0, 9))), max_size=10)


@example([("", 0, 1)], [("a", 5, 1)], [("b", 130, 1)], False)
@given(PUTS, PUTS, PUTS, st.booleans())
def test_what_comes_between_the_log_and_the_disk_expires_nothing_yet(committed, logged, later, time_ordered):
    life = Life(
        kind="window",
        time_ordered=time_ordered,
        retention_ms=RETENTION,
        segment_interval_ms=SEGMENT,
        size_ms=SIZE,
    )
    for key, start, value in committed:
        life.store.put(key, value, start)
    life.commit()
    for key, start, value in logged:
        life.store.put(key, value, start)
    life.store.log_dirty()
    expected = list(life.store.all())
    for key, start, value in later:
        life.store.put(key, value, start)
    life.persist()
    life.reopen()
    assert list(life.store.all()) == expected


@given(STEPS)
def test_a_window_store_restored_from_the_changelog_of_its_commits_is_the_same(steps):
    life = Life(kind="window", retention_ms=RETENTION, segment_interval_ms=SEGMENT, size_ms=SIZE)
    for step, *args in steps:
        if step == "put":
            key, start, value = args
            life.store.put(key, value, start)
        elif step == "commit":
            life.commit()
    life.commit()
    assert list(life.restored().all()) == list(life.store.all())


def test_the_changelog_key_is_key_start_and_sequence_number():
    life = Life(True, kind="timestamped_window", retention_ms=100, size_ms=10)
    life.store.put("a", 1, 20, 25)
    assert life.task.logged == [
        (b"a" + bytes.fromhex("000000000000001400000000"), bytes(7) + b"\1", 25, ()),
    ]
    life = Life(True, kind="window", retention_ms=100, size_ms=10, retain_duplicates=True)
    life.task.timestamp = 9
    life.store.put("k", None, 2)
    life.store.put("k", 1, 2, headers=(("h", b"x"),))
    assert life.task.logged == [
        (b"k" + bytes.fromhex("000000000000000200000001"), None, 9, ()),
        (b"k" + bytes.fromhex("000000000000000200000002"), bytes(7) + b"\1", 9, (("h", b"x"),)),
    ]


def test_headers_reach_the_changelog_of_a_commit_too():
    life = Life(kind="window", retention_ms=100, size_ms=10, retain_duplicates=True)
    life.store.put("k", 1, 2, 3, (("h", b"x"),))
    life.store.put("k", 2, 2, 4)
    life.commit()
    assert [(timestamp, headers) for _, _, timestamp, headers in life.task.logged] == [
        (3, (("h", b"x"),)),
        (4, ()),
    ]


def test_what_is_dropped_for_being_late_is_counted_and_still_logged():
    life = Life(True, kind="window", retention_ms=100, size_ms=10, persistent=False)
    life.store.put("a", 1, 100)
    life.store.put("a", 1, 0)
    assert life.task.dropped == 1
    assert len(life.task.logged) == 2
    assert list(life.store.all()) == [(Windowed("a", 100, 110), 1)]


def test_duplicates_stay_apart_after_a_restart():
    life = Life(kind="window", retention_ms=100, size_ms=10, retain_duplicates=True)
    life.store.put("a", 1, 5)
    life.commit()
    life.reopen()
    life.store.put("a", 2, 5)
    assert list(life.store.fetch("a", 0, 10)) == [(5, 1), (5, 2)]
    life.commit()
    restored = life.restored()
    restored.put("a", 3, 5)
    assert list(restored.fetch("a", 0, 10)) == [(5, 1), (5, 2), (5, 3)]


def test_duplicates_stay_apart_if_the_changelog_is_in_the_order_of_keys():
    """As a backfill writes it. A later row took the number, and so the place, of an earlier row of the same time."""
    life = Life(kind="window", retention_ms=100, size_ms=10, retain_duplicates=True)
    for key, value in [("b", 0), ("a", 1), ("a", 2), ("b", 3), ("a", 4)]:
        life.store.put(key, value, 5)
    life.commit()
    life.task.logged.sort(key=lambda record: record[0])
    restored = life.restored()
    restored.put("a", 5, 5)
    assert list(restored.fetch("a", 0, 10)) == [(5, 1), (5, 2), (5, 4), (5, 5)]


def test_values_of_a_window_may_be_changed_by_whoever_gets_them():
    life = Life(kind="window", value_serde=TaggedSerde(), retention_ms=100, size_ms=10)
    life.store.put("a", ["x"], 5)
    life.store.get("a", 5).append("y")
    for _, value in life.store.fetch("a", 0, 10):
        value.append("z")
    assert life.store.get("a", 5) == ["x"]


@pytest.mark.parametrize("time_ordered", [False, True])
def test_a_scan_by_time_reads_only_the_buckets_of_that_time(time_ordered):
    life = Life(
        kind="window",
        retention_ms=10_000,
        size_ms=10,
        segment_interval_ms=1_000,
        time_ordered=time_ordered,
        advance_ms=10,
    )
    for start in range(0, 5_000, 10):
        life.store.put("a", 1, start)
    life.commit()
    read = life.rows_read()
    assert [key.start for key, _ in life.store.fetch_all(2_500, 2_520)] == [2_500, 2_510, 2_520]
    assert len(read) == (3 if time_ordered else 100)


@pytest.mark.parametrize("log_each", [False, True])
def test_a_restore_knows_the_time_to_which_a_value_of_none_has_moved_a_store_in_memory(log_each):
    windows = {"retention_ms": 100, "size_ms": 10, "retain_duplicates": True}
    life = Life(log_each, kind="window", persistent=False, **windows)
    life.store.put("a", 1, 0)
    life.store.put("b", None, 200)
    assert list(life.store.fetch("a", 0, 300)) == []
    life.commit()
    assert list(life.restored().fetch("a", 0, 300)) == []


def test_a_narrow_read_of_old_windows_reads_few_of_the_later_ones():
    life = Life(kind="window", retention_ms=10**9, size_ms=10)
    for number in range(1_000):
        for key in ("a", "b"):
            life.store.put(key, number, 10 * number)
    life.commit()
    read = life.rows_read()
    assert list(life.store.fetch("a", 20, 49)) == [(20, 2), (30, 3), (40, 4)]
    assert len(read) <= 15
    assert list(life.store.fetch("b", 9_000, 9_990))[-1] == (9_990, 999)
    assert len(read) <= 120
    life.store.put("a", 7, 9_990)
    assert list(life.store.fetch("a", 9_970, 9_990)) == [(9_970, 997), (9_980, 998), (9_990, 7)]


def test_narrow_reads_that_go_forward_in_time_load_few_images():
    life = Life(kind="window", retention_ms=10**9, size_ms=10)
    for number in range(1_000):
        life.store.put("a", number, 10 * number)
    life.commit()
    read = life.rows_read()
    for number in range(1_000):
        assert list(life.store.fetch("a", 10 * number, 10 * number)) == [(10 * number, number)]
    assert len(read) < 5_000


@pytest.mark.parametrize("kind", ["window", "timestamped_window", "session"])
@pytest.mark.parametrize("after", [{"retention_ms": 200_000}, {"time_ordered": True, "advance_ms": 20_000}])
def test_rows_on_disk_are_found_after_a_change_of_retention_or_results(kind, after):
    """The sizes of segments and buckets follow from these settings, and a row's place on disk from the bucket."""
    windows = {"retention_ms": 400_000, "size_ms": 60_000}
    life = Life(kind=kind, **windows)
    times = [
        (start, start + 5) if kind == "session" else (start,) for start in range(300_000, 420_000, 20_000)
    ]
    for place in times:
        life.store.put("a", *([*place, 1] if kind == "session" else [1, *place]))
    life.commit()
    before = list(life.store.all())
    if kind == "session":
        after = {"retention_ms": 200_000}  # final results of sessions have another layout
    changed = Life(kind=kind, **{**windows, **after})
    changed.backend = life.backend
    changed.reopen()
    assert list(changed.store.all()) == before
    for place in times:
        row = life.store.get("a", *place)
        assert row is not None
        assert changed.store.get("a", *place) == row


@pytest.mark.parametrize("first", ["fetch", "log"])
def test_a_first_look_up_during_a_commit_hides_no_row_of_the_commit(first):
    life = Life(kind="window", size_ms=10, retention_ms=10**6, memory=RowMemory(0))
    life.store.put("a", 1, 5)
    if first == "fetch":
        assert list(life.store.fetch("b", 0, 10)) == []
    life.store.log_dirty()
    assert list(life.store.fetch("a", 0, 10)) == [(5, 1)]
    life.persist()
    assert list(life.store.fetch("a", 0, 10)) == [(5, 1)]
