"""Changelog records of expired rows, which no restore needs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from store_harness import Life

from streamapp.state.backend import WriteSet

RETENTION, SEGMENT = 100, 30
KINDS = {
    "windows": {"kind": "timestamped_window", "size_ms": 10},
    "final windows": {"kind": "timestamped_window", "size_ms": 10, "advance_ms": 5, "time_ordered": True},
    "sliding windows": {"kind": "timestamped_window", "size_ms": 10, "time_ordered": True},
    "a join": {"kind": "window", "size_ms": 10, "retain_duplicates": True},
    "sessions": {"kind": "session"},
}
TIMES = st.integers(0, 600)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["put", "put while a commit is under way"]),
            st.sampled_from("ab"),
            TIMES,
            st.sampled_from([None, 1, 2]),
        ),
        st.tuples(st.sampled_from(["commit", "reopen"])),
    ),
    max_size=40,
)


def opened(of: str, persistent: bool, log_each: bool = False) -> Life:
    return Life(
        log_each, persistent=persistent, retention_ms=RETENTION, segment_interval_ms=SEGMENT, **KINDS[of]
    )


def put(life: Life, key: str, time: int, value: Any) -> None:
    if life.spec.kind.persistent_name == "session":
        life.store.put(key, max(0, time - 7), time, value)
    else:
        life.store.put(key, value, time)


def times_of(life: Life, records: list[Any]) -> list[int]:
    """The times of the rows in records. In a persistent join store, a deletion is no row, and changes no stream time."""
    store = life.store
    rows = [key for key, value, *_ in records if value is not None or store._exact or not store._duplicates]
    return [store._time_of(key) for key in rows]


@given(STEPS, st.sampled_from(list(KINDS)), st.booleans(), st.booleans())
@example(
    [
        ("put", "a", 0, 1),
        ("put while a commit is under way", "a", 30, None),
        ("put", "a", 130, 1),
        ("commit",),
    ],
    "a join",
    True,
    True,
)
def test_a_restore_without_the_needless_records_gives_the_same_store(
    steps: list[Any], of: str, persistent: bool, log_each: bool
) -> None:
    life, before = opened(of, persistent, log_each), 0
    for step, *args in steps:
        if step == "put":
            put(life, *args)
            continue
        if args:
            life.store.log_dirty()
            put(life, *args)
            life.persist()
        else:
            life.go_on(step)
        below = life.store.needless_below
        assert below >= before
        before = below
        if args:
            continue
        assert all(
            time // life.store._bucket < life.store._first_live_bucket()
            for time in times_of(life, life.task.logged[:below])
        )
        assert list(life.restored(below).all()) == list(life.restored().all())
        if not log_each:
            assert list(life.restored(below).all()) == list(life.store.all())


@pytest.mark.parametrize("of", KINDS)
@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("opened_anew", [True, False])
def test_the_needed_records_do_not_become_more(of: str, persistent: bool, opened_anew: bool) -> None:
    """Brokers kept all changes for ever."""
    life = opened(of, persistent)
    for time in range(0, 5_000, 5):
        put(life, "a", time, 1)
        life.commit()
        if opened_anew and persistent and time % 35 == 0:
            life.reopen()
        gone = times_of(life, life.task.logged[: life.store.needless_below])
        assert max(gone, default=-1) < life.store._first_live_bucket() * life.store._bucket
    needed = times_of(life, life.task.logged[life.store.needless_below :])
    assert needed[0] >= 4_995 - RETENTION - 2 * SEGMENT
    assert life.restored()._marks[0][0] > 0
    assert len(life.store._marks) <= RETENTION // SEGMENT + 3


def test_short_segments_make_no_more_marks() -> None:
    """Each commit wrote all marks: with a segment of 1 s and a retention of a day, more than a megabyte."""
    life = Life(
        kind="timestamped_window", size_ms=10, retention_ms=10_000, segment_interval_ms=1, persistent=True
    )
    for time in range(0, 30_000, 20):
        put(life, "a", time, 1)
        life.commit()
        assert len(life.store._marks) <= 35
    needed = times_of(life, life.task.logged[life.store.needless_below :])
    assert needed[0] >= 29_980 - 10_000 - 700


def test_a_restored_store_knows_the_needless_records_of_its_first_batches() -> None:
    life, other = opened("windows", True), opened("windows", True)
    for time in range(0, 1_000, 5):
        put(life, "a", time, 1)
        life.commit()
    records = life.task.changelog()
    for start in range(0, 200, 10):
        part = type(records)(*[column[start : start + 10] for column in records])  # type: ignore[index]

        writes = WriteSet()
        other.store.restore(part, writes)
        other.store.note_logged(start + 10, writes)
        other.backend.write(writes)
    other.commit()
    assert (
        other.store.needless_below == 170
    )  # the rows up to 845 ms; the first bucket that is kept begins at 870 ms


def test_a_table_by_key_needs_every_record() -> None:
    life = Life(kind="timestamped")
    life.store.put("a", 1)
    life.commit()
    assert life.store.needless_below == 0
