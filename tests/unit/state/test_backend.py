"""The contract of a `StateBackend`, on every implementation, against a plain dict."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamapp.state.backend import MemoryBackend, StateBackend, WriteSet
from streamapp.state.rocks import RocksBackend, RocksMemory

Make = Callable[[], StateBackend]

keys = st.binary(max_size=3)
writes = st.lists(
    st.tuples(
        st.lists(st.tuples(keys, st.none() | st.binary(max_size=4)), max_size=12),
        st.lists(st.tuples(keys, keys), max_size=2),
    ),
    max_size=6,
)
bounds = st.none() | keys
scans = st.lists(st.tuples(bounds, bounds, st.booleans()), min_size=1, max_size=4)


@pytest.fixture(params=["memory", "rocksdb"], scope="module")
def make(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    opened: list[StateBackend] = []
    memory = RocksMemory()

    def new() -> StateBackend:
        if request.param == "memory":
            opened.append(MemoryBackend())
        else:
            opened.append(RocksBackend(tmp_path_factory.mktemp("rocks"), memory))
        return opened[-1]

    yield new
    for backend in opened:
        backend.close()


@pytest.fixture
def backend(make: Make) -> StateBackend:
    return make()


@settings(max_examples=40, deadline=None)
@given(writes=writes, scans=scans)
def test_behaves_like_a_dict_with_sorted_keys(make: Make, writes: list, scans: list) -> None:
    backend = make()
    expected: dict[bytes, bytes] = {}
    table = backend.table("s")
    for puts, ranges in writes:
        backend.write(WriteSet(puts={"s": puts}, range_deletes={"s": ranges}))
        for start, end in ranges:
            expected = {key: value for key, value in expected.items() if not start <= key < end}
        for key, value in puts:
            if value is None:
                expected.pop(key, None)
            else:
                expected[key] = value
        for start, end, reverse in scans:
            rows = [
                (key, value)
                for key, value in sorted(expected.items(), reverse=reverse)
                if (start is None or start <= key) and (end is None or key < end)
            ]
            assert list(table.range(start, end, reverse)) == rows
        assert {key: table.get(key) for key, _ in puts} == {key: expected.get(key) for key, _ in puts}
    backend.close()


def test_a_store_that_nothing_was_written_to_is_empty(backend: StateBackend) -> None:
    assert backend.table("s").get(b"k") is None
    assert list(backend.table("s").range(None, None)) == []
    assert backend.offsets() == {}


def test_stores_are_apart(backend: StateBackend) -> None:
    backend.write(
        WriteSet(puts={"default": [(b"k", b"1")], "offsets": [(b"k", b"2")]}, offsets={"default": 7})
    )

    assert backend.table("default").get(b"k") == b"1"
    assert backend.table("offsets").get(b"k") == b"2"
    assert backend.table("other").get(b"k") is None
    assert backend.offsets() == {"default": 7}


def test_offsets_stay_until_the_store_has_a_newer_one(backend: StateBackend) -> None:
    backend.write(WriteSet(offsets={"a": 1, "b": 5}))
    backend.write(WriteSet(offsets={"a": 2**40}))

    assert backend.offsets() == {"a": 2**40, "b": 5}


def test_range_deletes_come_before_the_puts_of_the_same_set(backend: StateBackend) -> None:
    backend.write(WriteSet(puts={"s": [(b"a", b"old"), (b"b", b"old"), (b"c", b"old")]}))
    backend.write(WriteSet(puts={"s": [(b"b", b"new")]}, range_deletes={"s": [(b"a", b"c")]}))

    assert list(backend.table("s").range(None, None)) == [(b"b", b"new"), (b"c", b"old")]


def test_the_last_entry_of_a_key_wins(backend: StateBackend) -> None:
    backend.write(
        WriteSet(puts={"s": [(b"a", b"1"), (b"a", None), (b"a", b"2"), (b"b", b"1"), (b"b", None)]})
    )

    assert list(backend.table("s").range(None, None)) == [(b"a", b"2")]


def test_a_table_sees_writes_made_after_it_was_asked_for(backend: StateBackend) -> None:
    table = backend.table("s")
    backend.write(WriteSet(puts={"s": [(b"k", b"")]}))

    assert table.get(b"k") == b""


def test_a_scan_reads_only_what_is_taken_from_it(backend: StateBackend) -> None:
    backend.write(WriteSet(puts={"s": [(bytes([n]), b"v") for n in range(200)]}))

    scan = backend.table("s").range(b"\x05", None)

    assert [next(scan)[0], next(scan)[0]] == [b"\x05", b"\x06"]


def test_a_scan_goes_on_over_a_write(backend: StateBackend) -> None:
    backend.write(WriteSet(puts={"s": [(bytes([n]), b"v") for n in range(200)]}))
    scan = backend.table("s").range(None, None)
    assert next(scan) == (b"\x00", b"v")

    backend.write(WriteSet(puts={"s": [(b"\x07", None), (b"\x08new", b"v")]}))

    assert {key[0] for key, _ in scan} | {7} == set(range(1, 200))
    assert (b"\x08new", b"v") in list(backend.table("s").range(None, None))


class ComparedKey(bytes):
    compared = 0

    def __lt__(self, other: bytes) -> bool:
        ComparedKey.compared += 1
        return super().__lt__(other)


def test_in_memory_a_scan_after_a_small_write_does_not_sort_all_keys() -> None:
    backend = MemoryBackend()
    table = backend.table("s")
    backend.write(WriteSet(puts={"s": [(ComparedKey(b"%05d" % n), b"v") for n in range(10_000)]}))
    assert next(table.range(b"05000", None)) == (b"05000", b"v")
    ComparedKey.compared = 0
    backend.write(WriteSet(puts={"s": [(ComparedKey(b"05000+"), b"v"), (ComparedKey(b"05000"), None)]}))
    assert next(table.range(b"05000", None)) == (b"05000+", b"v")
    assert 0 < ComparedKey.compared < 200
