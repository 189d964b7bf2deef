"""What only the backend on disk has to keep: durability, atomicity, locks, errors."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streamapp.errors import LockError, ProcessorStateError
from streamapp.state.backend import StateDamagedError, WriteSet
from streamapp.state.directory import DiskFullError, state_error
from streamapp.state.rocks import RocksBackend, RocksMemory, offsets_in

# Writes batch n into two stores and the offsets of both, forever; n is told once it is written.
WRITER = """
import sys
from streamapp.state.backend import WriteSet
from streamapp.state.rocks import RocksBackend, RocksMemory

backend = RocksBackend(sys.argv[1], RocksMemory(8 << 20, int(sys.argv[2])))
n = backend.offsets().get("a", 0)
while True:
    n += 1
    value = n.to_bytes(8, "big")
    rows = [(b"%d-%d" % (n % 50, i), value * 40) for i in range(50)]
    backend.write(WriteSet(
        puts={"a": [(b"n", value), *rows], "b": [(b"n", value), (b"gone", None)]},
        range_deletes={"b": [(b"0", b"9")]},
        offsets={"a": n, "b": n},
    ))
    print(n, flush=True)
"""


@pytest.mark.parametrize("write_buffer_bytes", [64 << 20, 256 << 10], ids=["only the log", "with flushes"])
def test_after_kill_9_state_and_offsets_are_of_the_same_write(
    tmp_path: Path, write_buffer_bytes: int
) -> None:
    acknowledged = 0
    for round_ in range(3):
        command = [sys.executable, "-c", WRITER, str(tmp_path / "db"), str(write_buffer_bytes)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for line in child.stdout:
                acknowledged = int(line)
                if acknowledged >= 150 * (round_ + 1) + 17 * round_:
                    break
            child.send_signal(signal.SIGKILL)
            written = [int(line) for line in child.stdout if line.endswith("\n")]
        acknowledged = max([acknowledged, *written])

        backend = RocksBackend(tmp_path / "db")
        offsets = backend.offsets()
        marks = {store: int.from_bytes(backend.table(store).get(b"n") or b"", "big") for store in "ab"}
        rows = list(backend.table("a").range(b"%d-" % (marks["a"] % 50), b"%d." % (marks["a"] % 50)))
        backend.close()

        assert marks == offsets
        assert offsets["a"] == offsets["b"] >= acknowledged
        assert {value[:8] for _, value in rows} == {marks["a"].to_bytes(8, "big")}
        assert len(rows) == 50


def test_what_was_written_is_there_after_opening_again(tmp_path: Path) -> None:
    backend = RocksBackend(tmp_path)
    backend.write(WriteSet(puts={"s": [(b"k", b"v")]}, offsets={"s": 3}))
    backend.close()
    backend.close()

    backend = RocksBackend(tmp_path)
    assert (backend.table("s").get(b"k"), backend.offsets()) == (b"v", {"s": 3})
    backend.close()


def test_stores_that_are_named_at_the_opening_cost_no_further_file(tmp_path: Path) -> None:
    def settings() -> set[str]:
        """RocksDB writes and syncs a file of settings with each store that it makes later."""
        return {path.name for path in tmp_path.glob("OPTIONS-*")}

    backend = RocksBackend(tmp_path, stores=["a", "b"])
    opened = settings()
    backend.table("a"), backend.table("b")
    assert settings() == opened
    backend.table("c")
    assert settings() != opened
    backend.write(WriteSet(puts={store: [(b"k", store.encode())] for store in "abc"}))
    backend.close()

    backend = RocksBackend(tmp_path, stores=["b", "d"])
    assert [backend.table(store).get(b"k") for store in "abcd"] == [b"a", b"b", b"c", None]
    backend.close()


def test_the_offsets_are_read_without_a_write_of_rocksdb(tmp_path: Path) -> None:
    def files() -> dict[str, int]:
        """RocksDB's files. The settings of rocksdict are not RocksDB's, and nobody waits for them."""
        return {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir() if path.suffix != ".json"}

    assert offsets_in(tmp_path) == {}
    assert files() == {}
    backend = RocksBackend(tmp_path, stores=["s"])
    backend.write(WriteSet(puts={"s": [(b"k", b"v")]}, offsets={"s": 3}))
    assert offsets_in(tmp_path) == {"s": 3}, "from the log, beside the owner"
    backend.close()
    before = files()
    assert offsets_in(tmp_path) == {"s": 3}
    assert files() == before
    for table in tmp_path.glob("*.sst"):
        table.unlink()
    with pytest.raises(ProcessorStateError, match="delete this"):
        offsets_in(tmp_path)


def test_a_second_opening_is_refused(tmp_path: Path) -> None:
    backend = RocksBackend(tmp_path)
    with pytest.raises(LockError, match="open already"):
        RocksBackend(tmp_path)
    backend.close()
    RocksBackend(tmp_path).close()


def test_backends_share_their_memory(tmp_path: Path) -> None:
    memory = RocksMemory(block_cache_bytes=4 << 20, write_buffer_bytes=1 << 20)
    backends = [RocksBackend(tmp_path / str(n), memory) for n in range(4)]
    for n in range(15):
        puts = [(b"%d-%d" % (n, i), bytes(1000)) for i in range(100)]
        for backend in backends:
            backend.write(WriteSet(puts={"s": puts}))
        assert memory.write_buffers.get_usage() <= 2 << 20
    assert 0 < memory.used_bytes < 8 << 20  # 6 MB were written, a cache of 4 MB
    for backend in backends:
        backend.close()


@pytest.mark.parametrize("damaged", ["CURRENT", "MANIFEST-*"])
def test_a_damaged_database_is_refused_with_a_remedy(tmp_path: Path, damaged: str) -> None:
    _written(tmp_path)
    for path in tmp_path.glob(damaged):
        path.write_bytes(b"damaged\n")

    with pytest.raises(ProcessorStateError, match=f"(?s){tmp_path}.*delete this folder"):
        RocksBackend(tmp_path)


def test_a_missing_current_file_is_not_taken_for_a_new_database(tmp_path: Path) -> None:
    _written(tmp_path)
    (tmp_path / "CURRENT").unlink()

    with pytest.raises(ProcessorStateError, match="CURRENT is missing"):
        RocksBackend(tmp_path)


def test_a_damaged_table_file_fails_the_read_of_it(tmp_path: Path) -> None:
    memory = RocksMemory(8 << 20, 64 << 10)  # so small that what is written soon goes to a file
    backend = RocksBackend(tmp_path, memory)
    for n in range(200):
        backend.write(WriteSet(puts={"s": [(b"%d-%d" % (n, i), b"%d" % (n * i) * 30) for i in range(20)]}))
    backend.close()
    for path in tmp_path.glob("*.sst"):
        data = bytearray(path.read_bytes())
        data[20:60] = bytes(40)
        path.write_bytes(data)

    backend = RocksBackend(tmp_path)
    with pytest.raises(ProcessorStateError, match="delete this folder"):
        list(backend.table("s").range(None, None))
    with pytest.raises(ProcessorStateError, match="delete this folder"):
        backend.table("s").get(b"0-0")
    backend.close()


def test_a_failing_disk_does_not_keep_the_database_open(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backend = RocksBackend(tmp_path / "0_0")
    backend.write(WriteSet(puts={"s": [(b"k", b"v")], "t": [(b"k", b"v")]}, offsets={"s": 3}))
    shutil.rmtree(tmp_path / "0_0")

    backend.close()  # cannot write its buffers any more

    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert str(tmp_path / "0_0") in caplog.text
    again = RocksBackend(tmp_path / "0_0")
    assert again.offsets() == {}
    again.close()


def test_a_full_disk_is_named() -> None:
    error = state_error("/state/0_1", Exception("IO error: No space left on device: While appending to file"))

    assert isinstance(error, DiskFullError)
    assert "state_dir" in str(error)


def _written(path: Path) -> None:
    backend = RocksBackend(path)
    backend.write(WriteSet(puts={"s": [(b"k", b"v")]}, offsets={"s": 3}))
    backend.close()


def test_too_few_files_are_no_damage() -> None:
    for error in (
        Exception("IO error: While open a file: Too many open files"),
        OSError(24, "Too many open files"),
    ):
        said = state_error("/state/0_1", error)
        assert "ulimit -n" in str(said)
        assert "32 for each task" in str(said)
        assert "delete" not in str(said)
        assert not isinstance(said, StateDamagedError)


@pytest.mark.parametrize("why", ["Permission denied", "Read-only file system"])
def test_files_without_rights_are_no_damage(why: str) -> None:
    """The error told the user to delete the folder."""
    said = state_error("/state/0_1", Exception(f"IO error: While open a file: /state/0_1/000014.log: {why}"))
    assert "Check its permissions" in str(said)
    assert "delete" not in str(said)
    assert not isinstance(said, StateDamagedError)


def test_only_so_many_large_write_buffers_as_the_memory_allows_have_a_filter(tmp_path: Path) -> None:
    memory = RocksMemory(block_cache_bytes=4 << 20, write_buffer_bytes=8 << 20)
    allowed = memory.filters
    assert allowed == 3
    backend = RocksBackend(tmp_path / "a", memory)
    small = [(b"%d" % i, bytes(100)) for i in range(2_000)]
    backend.write(WriteSet(puts={"small": small}))
    for name in ("s0", "s1", "s2", "s3"):
        backend.write(WriteSet(puts={name: [(b"%d" % i, bytes(1_000)) for i in range(2_500)]}))
    filtered = [name for name in ("small", "s0", "s1", "s2", "s3") if backend.table(name).filtered]
    assert filtered == ["s0", "s1", "s2"]
    sizes = {}
    for name in ("small", "s0", "s3"):
        table = backend.table(name)
        table.flush()
        backend.write(WriteSet(puts={name: [(b"first", b"row")]}))
        sizes[name] = table._rows.property_int_value("rocksdb.cur-size-active-mem-table")
    assert sizes["s0"] - sizes["s3"] > 100_000  # the filter is as large for one row as for many
    assert sizes["small"] == sizes["s3"]
    assert backend.table("s0").get(b"7") == bytes(1_000)
    assert backend.table("s0").get(b"x") is None
    backend.close()
    assert memory.filters == allowed
