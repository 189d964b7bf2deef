"""The row cache gives the bytes that were written last, or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamapp.state import rocks
from streamapp.state.backend import WriteSet
from streamapp.state.rocks import RocksBackend, RocksMemory

row_cache = pytest.importorskip("streamapp.state._row_cache", reason="the C files are not compiled")

keys = st.binary(max_size=4) | st.binary(min_size=200, max_size=260)
values = st.none() | st.binary(max_size=4) | st.binary(max_size=300)
rows = st.lists(st.tuples(keys, values), max_size=30)
steps = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["put", "put_all", "clear"]), rows), max_size=40
)


@pytest.mark.parametrize("size", [0, 1_024, 64 << 10])
@given(steps=steps)
def test_a_row_is_the_last_written_one_or_missing(size: int, steps: list[tuple[int, str, Any]]) -> None:
    cache = row_cache.RowCache(size)
    tables: list[Any] = [cache.table() for _ in range(3)]
    written: list[dict[bytes, bytes | None]] = [{}, {}, {}]
    for number, step, changed in steps:
        if step == "clear":
            tables[number].clear()
            written[number].clear()
        elif step == "put_all":
            tables[number].put_all(changed)
            written[number].update(changed)
        else:
            for key, value in changed:
                tables[number].put(key, value)
                written[number][key] = value
        for table, expected in zip(tables, written, strict=True):
            for key, value in expected.items():
                assert table.get(key) in (value, None)


def read_table(size: int) -> Any:
    """A table that was often read, so that it keeps what it writes."""
    table = row_cache.RowCache(size).table()
    for number in range(1_000):
        table.get(b"%d" % number)
    return table


def test_a_table_that_nobody_reads_takes_no_room_for_its_writes() -> None:
    table = row_cache.RowCache(1 << 20).table()
    rows = [(b"key-%04d" % number, b"value") for number in range(1_000)]
    table.put(b"key-0999", b"before")  # was read
    table.put_all(rows)
    assert table.get(b"key-0999") == b"value"
    assert sum(table.get(key) is not None for key, _ in rows) < 50
    table.put_all(rows)
    assert sum(table.get(key) is not None for key, _ in rows) == 1_000


def test_small_rows_stay_while_there_is_room() -> None:
    table = read_table(1 << 20)
    expected = {b"key-%04d" % number: b"%d" % number for number in range(5_000)}
    table.put_all([*expected.items()])
    assert {key: table.get(key) for key in expected} == expected
    table.put(b"key-0007", b"longer than before")
    table.put(b"key-0008", None)
    assert table.get(b"key-0007") == b"longer than before"
    assert table.get(b"key-0008") is None


def test_a_row_that_grew_too_large_is_not_found_as_it_was() -> None:
    table = row_cache.RowCache(1 << 20).table()
    table.put(b"k", b"small")
    table.put(b"k", bytes(300))
    assert table.get(b"k") is None
    table.put(bytes(70_000), b"")
    assert table.get(bytes(70_000)) is None


def test_more_rows_than_room_leave_some_of_them_however_they_come() -> None:
    table = read_table(64 << 10)  # about 1,800 such rows
    scanned = [b"key-%06d" % number for number in range(2_500)]
    for _ in range(3):
        table.put_all([(key, b"0123456789abcdef") for key in scanned])
    assert 1_000 < sum(table.get(key) is not None for key in scanned) < 2_000


@pytest.mark.parametrize("wrong", [None, [1], [(b"k",)], [("k", b"v")], [(b"k", "v")]])
def test_other_types_are_refused(wrong: Any) -> None:
    table = row_cache.RowCache(1 << 10).table()
    with pytest.raises(TypeError):
        table.put_all(wrong)
    with pytest.raises(TypeError):
        table.get("k")


def test_a_table_outlives_the_name_of_its_cache() -> None:
    table = row_cache.RowCache(1 << 10).table()
    table.put(b"k", b"v")
    assert table.get(b"k") == b"v"


def test_tables_of_two_databases_in_one_memory_do_not_mix(tmp_path: Path) -> None:
    memory = RocksMemory(row_cache_bytes=1 << 20)
    backends = [RocksBackend(tmp_path / name, memory) for name in "ab"]
    for number, backend in enumerate(backends):
        backend.write(WriteSet(puts={"s": [(b"k", b"%d" % number)], "t": [(b"k", b"other")]}))
    assert [backend.table("s").get(b"k") for backend in backends] == [b"0", b"1"]
    for backend in backends:
        backend.close()


def test_rows_that_are_read_are_kept_and_writes_replace_them(tmp_path: Path) -> None:
    backend = RocksBackend(tmp_path / "db")
    backend.write(WriteSet(puts={"s": [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]}))
    backend.close()
    backend = RocksBackend(tmp_path / "db", RocksMemory(row_cache_bytes=1 << 20))
    table = backend.table("s")
    assert [table.get(key) for key in (b"a", b"b", b"c")] == [b"1", b"2", b"3"]
    backend.write(WriteSet(puts={"s": [(b"a", None), (b"b", b"new")]}))
    assert [table.get(key) for key in (b"a", b"b", b"c")] == [None, b"new", b"3"]
    backend.write(WriteSet(range_deletes={"s": [(b"b", b"d")]}))
    assert [table.get(key) for key in (b"a", b"b", b"c")] == [None, None, None]
    backend.close()


def test_without_compiled_files_each_row_comes_from_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocks, "_row_cache", None)
    memory = RocksMemory()
    assert memory.rows is None
    backend = RocksBackend(tmp_path / "db", memory)
    backend.write(WriteSet(puts={"s": [(b"a", b"1"), (b"b", b"2")]}))
    backend.write(WriteSet(puts={"s": [(b"a", b"new")]}, range_deletes={"s": [(b"b", b"c")]}))
    assert [backend.table("s").get(key) for key in (b"a", b"b")] == [b"new", None]
    backend.close()
