"""Local state on disk: each task has a RocksDB database, in which each store has a column family."""

from __future__ import annotations

import logging
import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from rocksdict import (
    AccessType,
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
)

from streamapp.errors import LockError, ProcessorStateError
from streamapp.state.directory import state_error

if TYPE_CHECKING:
    from rocksdict import ColumnFamily

    from streamapp.state import _row_cache
    from streamapp.state.backend import WriteSet
else:
    try:
        from streamapp.state import _row_cache
    except ImportError:  # the C files are not compiled (hatch_build.py)
        _row_cache = None

__all__ = ["RocksBackend", "RocksMemory", "offsets_in", "written_at"]

logger: logging.Logger = logging.getLogger(__name__)

_MIB = 1024 * 1024
_STORE = "store:"  # the prefix of stores' column families; the family "default" has the offsets
_OFFSET = struct.Struct(">q")
_key = itemgetter(0)
_WRITTEN = "written-at"
"""The file with the time of the last write in ms. RocksDB leaves files alone whose names it does not know."""

_WRITE_BUFFER_BYTES = 16 * _MIB
_FILTER_PART = 0.01
_FILTER_BYTES = int(_WRITE_BUFFER_BYTES * _FILTER_PART)
_LARGE_BUFFER_BYTES = 2 * _MIB
_MANY_ROWS = 1_000


class RocksMemory:
    """The memory for rows on disk, which all tasks of a process share.

    The parts are a block cache, write buffers with a limit, and a row cache. All sizes are in bytes.

    RocksDB takes no memory besides block cache and write buffers, for any number of tasks and stores. Index and filter
    blocks are in the block cache, too. Near the limit for write buffers, RocksDB starts to write them to disk in the
    background. If the disk is too slow, the buffers grow further. At one and a half times the limit, a write waits
    until the write buffers of its task are on disk.

    The row cache has the bytes of small rows (key and value: up to 234 bytes) that were read. Written rows come in,
    too, if their store has at least one read for 16 writes. If a row needs room, other rows leave at random. A look-up
    there takes a tenth of the time of a look-up in RocksDB. Installations without compiled C files have no row cache.

    A bloom filter in the write buffer of a store saves most searches for rows that the buffer does not have. A filter
    takes all its memory as soon as the buffer has a row. So stores with small buffers get none, and all filters
    together take at most a sixteenth of the limit for write buffers.
    """

    def __init__(
        self,
        block_cache_bytes: int = 128 * _MIB,
        write_buffer_bytes: int = 64 * _MIB,
        row_cache_bytes: int = 16 * _MIB,
    ) -> None:
        self.cache: Cache = Cache(block_cache_bytes)
        # False: RocksDB's own stall of writes could wait for ever, if no database has a reason to flush.
        self.write_buffers: WriteBufferManager = WriteBufferManager(write_buffer_bytes, False)
        self.rows: _row_cache.RowCache | None = (
            None if _row_cache is None else _row_cache.RowCache(row_cache_bytes)
        )
        self._most = write_buffer_bytes * 3 // 2
        self.filters: int = write_buffer_bytes // 16 // _FILTER_BYTES
        """The number of further stores that may have a filter in their write buffers."""

    @property
    def overfull(self) -> bool:
        """True if the write buffers take more than one and a half times their limit."""
        return int(self.write_buffers.get_usage()) > self._most

    @property
    def used_bytes(self) -> int:
        """The bytes in use by block cache and write buffers."""
        return int(self.cache.get_usage() + self.write_buffers.get_usage())


class RocksBackend:
    """A `StateBackend` in the folder ``path``, which is created if needed.

    ``stores`` are the stores that the backend will have. A store that comes later costs further syncs of the disk.

    Each `WriteSet` is a single RocksDB write, which goes to the write-ahead log without fsync. So after a crash of the
    process, state and offsets are those of the last write. After a power failure some writes may be lost. State and
    offsets are then those of the same earlier write, so the changelog has the rest.

    >>> import tempfile
    >>> from streamapp.state.backend import WriteSet
    >>> backend = RocksBackend(tempfile.mkdtemp())
    >>> backend.write(WriteSet(puts={"counts": [(b"b", b"2"), (b"a", b"1")]}, offsets={"counts": 2}))
    >>> list(backend.table("counts").range(None, b"b")), backend.offsets()
    ([(b'a', b'1')], {'counts': 2})
    >>> backend.close()
    """

    def __init__(
        self, path: str | os.PathLike[str], memory: RocksMemory | None = None, stores: Iterable[str] = ()
    ) -> None:
        self.path: str = os.fspath(path)
        self._memory = memory or RocksMemory()
        self._options = _options(self._memory)
        self._tables: dict[str, _RocksTable] = {}
        self._closed = False
        try:
            os.makedirs(self.path, exist_ok=True)
            known = ["default"]
            if _exists(self.path):
                known = Rdict.list_cf(self.path, self._options)
                _keep_time(self.path)
            names = dict.fromkeys([*known, *(_STORE + store for store in stores)], self._options)
            self._db = Rdict(self.path, self._options, column_families=names)
        except Exception as error:
            if "/LOCK: " in str(error):
                raise LockError(
                    f"The state in {self.path} is open already ({error}). Close the task that has it, or "
                    "give every process its own state_dir."
                ) from error
            raise state_error(self.path, error) from error
        self._offsets = _RocksTable(self.path, self._db)
        for name in names:
            if name.startswith(_STORE):
                self._open(name.removeprefix(_STORE), self._db.get_column_family(name))

    def table(self, store: str) -> _RocksTable:
        table = self._tables.get(store)
        if table is None:
            try:
                table = self._open(store, self._db.create_column_family(_STORE + store, self._options))
            except Exception as error:
                raise state_error(self.path, error) from error
        return table

    def offsets(self) -> dict[str, int]:
        return _decoded(self._offsets)

    def write(self, batch: WriteSet) -> None:
        writes = WriteBatch(raw_mode=True)
        for store, ranges in batch.range_deletes.items():
            family = self.table(store).family
            for start, end in ranges:
                if start < end:
                    writes.delete_range(start, end, family)
        put, delete = writes.put, writes.delete
        for store, puts in batch.puts.items():
            family = self.table(store).family
            # RocksDB inserts keys in order a quarter faster. The sort is stable: the last write of a key still wins.
            for key, value in sorted(puts, key=_key):
                if value is None:
                    delete(key, family)
                else:
                    put(key, value, family)
        for store, offset in batch.offsets.items():
            put(store.encode(), _OFFSET.pack(offset))  # into the column family "default"
        try:
            self._db.write(writes)
            if any(batch.offsets.values()):  # the offset 0 belongs to a store without rows
                _note_time(self.path, time.time())
            self._remember(batch)
            for store, puts in batch.puts.items():
                if len(puts) >= _MANY_ROWS:
                    self.table(store).filter_large_buffer(self._memory)
            if self._memory.overfull:
                for table in [*self._tables.values(), self._offsets]:
                    table.flush()
        except Exception as error:
            raise state_error(self.path, error) from error

    def _remember(self, batch: WriteSet) -> None:
        """Takes written rows into the row cache."""
        for store, ranges in batch.range_deletes.items():
            if ranges:
                self.table(store).forget()
        for store, puts in batch.puts.items():
            self.table(store).remember(puts)

    def close(self) -> None:
        """Closes the database and releases its folder. A second call does nothing.

        RocksDB writes its buffers to files here. An error of the disk is only logged, because the next opening finds
        the rows in the write-ahead log, or else in the changelog.
        """
        if self._closed:
            return
        self._closed = True
        failures = []
        for table in [*self._tables.values(), self._offsets]:
            self._memory.filters += table.filtered
            try:
                table.close()
            except Exception as error:
                failures.append(error)
        if failures:
            logger.warning("%s", state_error(self.path, failures[0]))

    def _open(self, store: str, rows: Rdict) -> _RocksTable:
        family = self._db.get_column_family_handle(_STORE + store)
        cached = None if self._memory.rows is None else self._memory.rows.table()
        table = self._tables[store] = _RocksTable(f"{self.path} (store {store})", rows, family, cached)
        return table


def offsets_in(path: str | os.PathLike[str]) -> dict[str, int]:
    """The changelog offsets in the RocksDB database of a folder, which may be open elsewhere.

    Raises `ProcessorStateError` if the files cannot be read.

    The database is opened for reads only, because an opening for writes would write and sync several files.
    """
    path = os.fspath(path)
    try:
        if not _exists(path):
            return {}
        options = _options(RocksMemory())
        families = dict.fromkeys(Rdict.list_cf(path, options), options)
        access = AccessType.read_only(False)
        table = _RocksTable(path, Rdict(path, options, column_families=families, access_type=access))
    except Exception as error:
        raise state_error(path, error) from error
    try:
        return _decoded(table)
    finally:
        table.close()


def written_at(path: str | os.PathLike[str]) -> float | None:
    """The time of the last write with changelog offsets to the RocksDB database of a folder, in seconds since 1970.

    None: nothing tells the time. An opening is no write: an opening makes new files, but keeps the note of the time. A
    note that cannot be read counts as very old. Without a note, as in state of earlier releases, the files tell.
    """
    try:
        return int(Path(path, _WRITTEN).read_bytes()) / 1000
    except FileNotFoundError:
        return _file_time(path)
    except (OSError, ValueError):
        return 0.0


def _file_time(path: str | os.PathLike[str]) -> float | None:
    times: list[float] = []
    with suppress(OSError), os.scandir(path) as files:
        times = [file.stat().st_mtime for file in files if file.name.endswith((".log", ".sst"))]
    return max(times, default=None)


def _note_time(path: str, seconds: float) -> None:
    """Notes the time of a write. Without the note, the state would only look older, so an error of the disk is none."""
    with suppress(OSError):
        file = os.open(os.path.join(path, _WRITTEN), os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.write(
                file, b"%013d" % int(seconds * 1000)
            )  # over the earlier note: a full disk has room for it
        finally:
            os.close(file)


def _keep_time(path: str) -> None:
    """Notes the time of state that an earlier release has written, because an opening makes new files."""
    if not os.path.exists(os.path.join(path, _WRITTEN)) and (written := _file_time(path)) is not None:
        _note_time(path, written)


class _RocksTable:
    """The rows of a column family. ``cached`` is the table's part of the row cache, if it has one."""

    __slots__ = ("_cached", "_path", "_rows", "family", "filtered", "get")

    def __init__(
        self,
        path: str,
        rows: Rdict,
        family: ColumnFamily | None = None,
        cached: _row_cache.Table | None = None,
    ) -> None:
        self.family = family
        self._path = path
        self._rows = rows
        self._cached = cached
        self.get: Callable[[bytes], bytes | None] = _reader(path, rows.get, cached)
        """The value of a key, or None."""
        self.filtered: bool = False
        """True if new write buffers have a bloom filter."""

    def remember(self, rows: list[tuple[bytes, bytes | None]]) -> None:
        """Takes written rows into the row cache. None: the row was deleted."""
        if self._cached is not None:
            self._cached.put_all(rows)

    def forget(self) -> None:
        """Drops all rows from the row cache, because a range of rows was deleted."""
        if self._cached is not None:
            self._cached.clear()

    def range(
        self, start: bytes | None, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        if start is not None and end is not None and start >= end:
            return
        try:
            yield from self._scan(start, end, reverse)
        except Exception as error:
            raise state_error(self._path, error) from error

    def _scan(self, start: bytes | None, end: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        # In rocksdict 0.3.29 items() ends silently at a damaged block, so status() is called at the end.
        # Its set_iterate_lower_bound() sets the upper bound by mistake, so this method applies the start itself.
        options = ReadOptions()
        if end is not None:
            options.set_iterate_upper_bound(end)
        rows = self._rows.iter(options)
        valid, key, value = rows.valid, rows.key, rows.value
        if reverse:
            rows.seek_to_last()
            while valid() and (start is None or key() >= start):
                yield key(), value()
                rows.prev()
        else:
            if start is None:
                rows.seek_to_first()
            else:
                rows.seek(start)
            advance = rows.next
            while valid():
                yield key(), value()
                advance()
        rows.status()

    def approximate_count(self) -> int:
        # Until RocksDB has compacted its files, a key counts once for each of its writes.
        return self._rows.property_int_value("rocksdb.estimate-num-keys") or 0

    def filter_large_buffer(self, memory: RocksMemory) -> None:
        """Gives all later write buffers a bloom filter, if the present buffer is large and ``memory`` has room."""
        if self.filtered or not memory.filters:
            return
        if self._rows.property_int_value("rocksdb.cur-size-active-mem-table") >= _LARGE_BUFFER_BYTES:
            self._rows.set_options(
                {
                    "memtable_prefix_bloom_size_ratio": str(_FILTER_PART),
                    "memtable_whole_key_filtering": "true",
                }
            )
            self._rows.flush(False)  # the filter begins with a new buffer
            self.filtered = True
            memory.filters -= 1

    def flush(self) -> None:
        """Writes the write buffers to a file, and waits for the end."""
        self._rows.flush(True)

    def close(self) -> None:
        self.family = None  # a handle keeps the database open
        self._rows.close()


def _reader(
    path: str, read: Callable[[bytes], bytes | None], cached: _row_cache.Table | None
) -> Callable[[bytes], bytes | None]:
    def get(key: bytes) -> bytes | None:
        try:
            return read(key)
        except Exception as error:
            raise state_error(path, error) from error

    if cached is None:
        return get
    known, keep = cached.get, cached.put

    def get_known(key: bytes) -> bytes | None:
        data = known(key)
        if data is None:
            try:  # not a call of `get`, because each read comes here
                data = read(key)
            except Exception as error:
                raise state_error(path, error) from error
            if data is not None:
                keep(key, data)
        return data

    return get_known


def _decoded(offsets: _RocksTable) -> dict[str, int]:
    return {key.decode(): _OFFSET.unpack(value)[0] for key, value in offsets.range(None, None)}


def _options(memory: RocksMemory) -> Options:
    blocks = BlockBasedOptions()
    blocks.set_block_cache(memory.cache)
    blocks.set_bloom_filter(10, False)
    blocks.set_cache_index_and_filter_blocks(True)
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
    # The filter of a file may be larger than a small cache, and each look-up would read the whole filter. So filters
    # are split into partitions of the size of a block, and the cache keeps only the partitions in use.
    blocks.set_index_type(BlockBasedIndexType.two_level_index_search())
    blocks.set_partition_filters(True)
    blocks.set_metadata_block_size(4096)
    blocks.set_pin_top_level_index_and_filter(True)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_block_based_table_factory(blocks)
    options.set_write_buffer_manager(memory.write_buffers)
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_arena_block_size(_MIB // 16)  # each store of each task takes a block, even without rows
    options.set_compression_type(DBCompressionType.lz4())
    # The offsets never fill their write buffer, so only the limit of the log makes RocksDB write them to a file.
    # RocksDB's default limit is 128 MiB for each store here. A longer log takes more time when the database opens.
    options.set_max_total_wal_size(64 * _MIB)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(_MIB)
    return options


def _exists(path: str) -> bool:
    """True if the folder has a database. Raises `ProcessorStateError` for files of a database without CURRENT."""
    if os.path.exists(os.path.join(path, "CURRENT")):
        return True
    if any(name.startswith("MANIFEST-") or name.endswith(".sst") for name in os.listdir(path)):
        raise ProcessorStateError("its file CURRENT is missing")
    return False
