"""State of tasks that may become too large for memory: at first in memory, and beyond a limit in RocksDB on the local
disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from itertools import islice

from streamapp.state.backend import MemoryBackend, OrderedBytes, StateBackend, WriteSet
from streamapp.state.rocks import RocksBackend, RocksMemory

__all__ = ["SpillingBackend", "SpillingHome"]

ENTRY_BYTES = 200
"""The approximate memory of an entry beside its bytes."""
ENTRIES_PER_WRITE = 50_000


class SpillingBackend:
    """A `StateBackend` that is in memory at first, and later moves to a folder on disk.

    The state moves when its rows take about ``limit_bytes``. If rows are overwritten often, the state may move as soon
    as its rows take half of this size. On disk, RocksDB gets ``limit_bytes`` for its caches and write buffers. `close`
    deletes the folder.

    >>> backend = SpillingBackend(limit_bytes=1_000)
    >>> for number in range(100):
    ...     backend.write(WriteSet(puts={"counts": [(b"%d" % number, b"1")]}))
    >>> backend.on_disk, backend.table("counts").get(b"7")
    (True, b'1')
    >>> backend.close()
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._inner: StateBackend = MemoryBackend()
        self._tables: dict[str, _Table] = {}
        self._written = 0
        self._folder: str | None = None

    @property
    def on_disk(self) -> bool:
        return self._folder is not None

    def table(self, store: str) -> OrderedBytes:
        if store not in self._tables:
            self._tables[store] = _Table(self._inner.table(store))
        return self._tables[store]

    def offsets(self) -> dict[str, int]:
        return self._inner.offsets()

    def write(self, batch: WriteSet) -> None:
        for store in batch.puts:
            self.table(store)
        self._inner.write(batch)
        if self._folder is not None:
            return
        for puts in batch.puts.values():
            self._written += sum(len(key) + len(value or b"") + ENTRY_BYTES for key, value in puts)
        if self._written > self._limit:
            # The sum counts an overwritten entry each time, so it may be too large. The tables give the true sum.
            self._written = sum(
                len(key) + len(value) + ENTRY_BYTES
                for table in self._tables.values()
                for key, value in table.range(None, None)
            )
            if self._written > self._limit / 2:
                self._move()

    def close(self) -> None:
        self._inner.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _move(self) -> None:
        # Spark gives Python workers folders for local data, and usually deletes these folders also after a kill.
        places = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir())
        self._folder = tempfile.mkdtemp(prefix="streamapp-state-", dir=places.split(",")[0])
        third = self._limit // 3
        disk = RocksBackend(self._folder, RocksMemory(third, third, third), self._tables)
        disk.write(WriteSet(offsets=self._inner.offsets()))
        for store, table in self._tables.items():
            entries = table.range(None, None)
            while part := list(islice(entries, ENTRIES_PER_WRITE)):
                disk.write(WriteSet(puts={store: [*part]}))
            table.inner = disk.table(store)
        self._inner.close()
        self._inner = disk


class _Table:
    """The sorted map of bytes that a store holds.

    The object stays the same when the backend moves from memory to disk.
    """

    __slots__ = ("inner",)

    def __init__(self, inner: OrderedBytes) -> None:
        self.inner = inner

    def get(self, key: bytes, /) -> bytes | None:
        return self.inner.get(key)

    def range(
        self, start: bytes | None, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        return self.inner.range(start, end, reverse)

    def approximate_count(self) -> int:
        return self.inner.approximate_count()


class SpillingHome:
    """The `StateHome` of tasks whose state is deleted at the end, and may become too large for memory."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes

    def open(self, task: str, stores: Collection[str]) -> StateBackend:
        return SpillingBackend(self._limit)

    def wipe(self, task: str) -> None:
        pass

    def place(self, task: str) -> str:
        return "the memory of the executor"
