"""Scans that go on while their store is written and committed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from store_harness import Life, RowsTaken

from streamapp.state import dirty_rows, write_behind
from streamapp.state.cache import RecordCache
from streamapp.state.dirty_rows import DirtyOrder

KEYS = st.integers(0, 20).map("{:02}".format)
BOUNDS = st.one_of(st.none(), KEYS)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["put", "fold"]), st.lists(st.tuples(KEYS, st.integers(1, 9)), max_size=20)
        ),
        st.tuples(st.just("delete"), st.lists(KEYS, max_size=10)),
        st.tuples(st.just("open"), BOUNDS, BOUNDS, st.booleans()),
        st.tuples(st.just("take"), st.integers(1, 12)),
        st.tuples(st.sampled_from(["drop", "count"])),
        st.tuples(st.sampled_from(["log", "persist", "commit"])),
    ),
    max_size=40,
)


class SnapshotTable:
    """A table whose iterators show the rows as they are at their first step, as those of RocksDB."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self.get, self.approximate_count = table.get, table.approximate_count

    def range(self, start: bytes | None, end: bytes | None, reverse: bool = False) -> Iterator[Any]:
        yield from list(self._table.range(start, end, reverse))


class SnapshotLife(Life):
    def reopen(self) -> None:
        table = SnapshotTable(self.backend.table("s"))
        with mock.patch.object(self.backend, "table", return_value=table):
            super().reopen()


@pytest.mark.parametrize("spec", [{}, {"cached": True}, {"expires_after_ms": 1000}], ids=str)
@example(
    steps=[
        ("put", [("00", 1), ("01", 1)]),
        ("persist",),
        ("put", [("00", 1), ("01", 1)]),
        ("log",),
        ("commit",),
        ("count",),
    ]
)
@given(steps=STEPS)
def test_a_scan_shows_the_rows_as_they_are_at_its_first_step(spec, steps):
    with (
        mock.patch.multiple(dirty_rows, _FIRST_PIECE=2, _LAST_PIECE=4),
        mock.patch.object(write_behind, "_MANY_DELETED", 2),
    ):
        life = SnapshotLife(kind="timestamped", cache=RecordCache(300), **spec)
        fold = life.store.folder(lambda: 0, lambda key, value, total: total + value)
        model: dict[str, tuple[int, int]] = {}
        scans: list[tuple[Iterator[Any], Iterator[Any]]] = []
        for at, (step, *args) in enumerate(steps):
            if step == "put":
                for key, value in args[0]:
                    life.store.put(key, value, at)
                    model[key] = (value, at)
            elif step == "delete":
                for key in args[0]:
                    life.store.put(key, None, at)
                    model.pop(key, None)
            elif step == "fold":
                for key, value in args[0]:
                    fold(key, value, at)
                    model[key] = (model.get(key, (0, 0))[0] + value, at)
            elif step == "open":
                low, high, reverse = args
                expected = [
                    (key, row)
                    for key, row in sorted(model.items(), reverse=reverse)
                    if (low is None or low <= key) and (high is None or key <= high)
                ]
                scan = life.store.range(low, high, reverse)
                assert next(scan, None) == next(iter(expected), None)
                scans.append((scan, iter(expected[1:])))
            elif step == "take":
                for scan, rest in scans:
                    assert list(islice(scan, args[0])) == list(islice(rest, args[0]))
            elif step == "drop":
                scan = None
                scans.clear()
                assert len(life.store._order.watches) <= 2  # those of the count and of the gap
            elif step == "count":
                assert life.store.approximate_num_entries() == len(model)
            else:
                life.go_on(step)
        for scan, rest in scans:
            assert list(scan) == list(rest)
        assert list(life.store.all()) == sorted(model.items())


class CountingDict(dict[str, Any]):
    def __init__(self, rows: dict[str, Any]) -> None:
        super().__init__(rows)
        self.read = 0

    def __getitem__(self, key: str) -> Any:
        self.read += 1
        return super().__getitem__(key)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_reads_few_of_many_dirty_rows_for_a_caller_that_takes_one(reverse):
    rows = CountingDict({f"{number:05}": (number, 0) for number in range(10_000)})
    order = DirtyOrder(rows, str.encode)
    first = next(order.between(None, b"07000", reverse))
    assert first == ((b"06999", (6999, 0)) if reverse else (b"00000", (0, 0)))
    assert rows.read <= 16
    assert not order.watches


@pytest.mark.parametrize("committed", [0, 500])
def test_a_queue_does_not_pass_over_all_rows_that_it_has_deleted(committed):
    life = Life(kind="key_value")
    for number in range(committed):
        life.store.put(f"{number:04}", number)
    life.commit()
    taken = []
    with RowsTaken() as dirty:
        for number in range(committed, committed + 500):
            life.store.put(f"{number:04}", number)
            first, value = next(life.store.all())
            life.store.delete(first)
            taken.append(value)
    assert taken == list(range(500))
    assert dirty.rows < 500 * 17
    life.store.put("0001", -1)
    assert next(life.store.all()) == ("0001", -1)


def test_a_scan_that_writes_ahead_of_itself_ends():
    life = Life(kind="key_value")
    for number in range(100):
        life.store.put(f"{number:03}", number)
    for key, number in life.store.all():
        life.store.put(key + "+", number)
        life.store.put(f"{number + 1:03}", -1)
    assert life.store.approximate_num_entries() == 201
    assert life.store.get("100") == -1


def test_a_scan_shows_no_aggregate_of_a_later_record():
    life = Life(kind="timestamped")
    fold = life.store.folder(lambda: 0, lambda key, value, total: total + value)
    for _ in range(2):
        scan = life.store.all()
        for number in range(100):
            fold(f"{number:03}", 1, 0)
        before = life.store.get("099")
        next(scan)
        fold("099", 1, 0)
        assert list(scan)[-1] == ("099", before)
        assert life.store.get("099") == (before[0] + 1, 0)


def test_a_scan_of_cached_windows_shows_no_aggregate_of_a_later_record():
    life = Life(
        kind="timestamped_window", retention_ms=10_000, size_ms=1_000, segment_interval_ms=10_000, cached=True
    )
    fold = life.store.folder(lambda: 0, lambda key, value, total: total + value)
    for number in range(100):
        fold(f"{number:03}", 0, 1, 0)
    scan = life.store.fetch_all(0, 0)
    next(scan)
    fold("099", 0, 1, 0)
    assert list(scan)[-1][1:] == (1, 0)
    assert life.store.get("099", 0) == (2, 0)


def test_a_scan_of_a_cached_store_encodes_only_new_deletions():
    life = Life(kind="key_value", cached=True, cache=RecordCache(10**6))
    for number in range(1_000):
        life.store.put(f"{number:04}", 1)
        life.store.delete(f"{number:04}")
    keys = life.store._keys
    for encoded in (1_000, 1):
        with mock.patch.object(keys, "to_bytes", side_effect=keys.to_bytes) as to_bytes:
            assert list(life.store.prefix_scan(b"05")) == []
        assert to_bytes.call_count == encoded
        life.store.delete("1000")


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["put", "delete"]), KEYS),
            st.tuples(st.just("flush")),
            st.tuples(st.just("scan"), BOUNDS, BOUNDS, st.booleans()),
        ),
        max_size=60,
    )
)
def test_a_scan_of_a_cached_store_uses_the_entries_of_its_range_in_order(steps):
    life = Life(kind="timestamped", cached=True, cache=RecordCache(10**6))
    for step, *args in steps:
        if step == "put":
            life.store.put(args[0], 1)
        elif step == "delete":
            life.store.put(args[0], None)
        elif step == "flush":
            life.store.flush()
        else:
            low, high, reverse = args
            before = life.store._use()
            rows = list(life.store.range(low, high, reverse))
            held = life.store._held
            used = sorted((entry.used, key) for key, entry in held.items() if entry.used > before)
            within = [key for key in held if (low is None or low <= key) and (high is None or key <= high)]
            assert [key for _, key in used] == sorted(within, reverse=reverse)
            assert {key for key, _ in rows} == {key for key in within if held[key].row[0] is not None}
