"""`StateBackend`: the interface through which stores read and write their bytes, and its implementation in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from streamapp.errors import ProcessorStateError
from streamapp.state.sorted_entries import SortedEntries

__all__ = ["STATE_FORMAT", "MemoryBackend", "OrderedBytes", "StateBackend", "StateDamagedError", "WriteSet"]

STATE_FORMAT = 2
"""The version of the format of local state. A release that changes the format increases this number, so that state of
another format is refused and not read wrongly."""


class StateDamagedError(ProcessorStateError):
    """The state on disk is damaged. The remedy is to delete the state and to restore it from the changelogs."""


class OrderedBytes(Protocol):
    """The keys and values of one store, as bytes, in the order of the keys."""

    def get(self, key: bytes, /) -> bytes | None: ...

    def range(
        self, start: bytes | None, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values from ``start`` (inclusive) to ``end`` (exclusive); None means no bound.

        The iterator stays usable after a `StateBackend.write`. The entries that follow may show all, some or none of
        the changes of this write.
        """
        ...

    def approximate_count(self) -> int:
        """An estimate of the number of keys, which needs no scan."""
        ...


@dataclass(slots=True)
class WriteSet:
    """The changes to one or several stores of a task, which a `StateBackend` writes all together or not at all.

    ``puts`` has (key, new value) pairs by store. The value None deletes a key. If a key comes twice, the last entry
    counts. ``range_deletes`` has (start, end) pairs by store, end exclusive. A write applies ``range_deletes`` before
    ``puts``. ``offsets`` has, by store, the changelog offset from which a restore goes on.
    """

    puts: dict[str, list[tuple[bytes, bytes | None]]] = field(default_factory=dict)
    range_deletes: dict[str, list[tuple[bytes, bytes]]] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)


class StateBackend(Protocol):
    """The local state of one task: an `OrderedBytes` for each store. Only `write` changes the state."""

    def table(self, store: str) -> OrderedBytes: ...

    def offsets(self) -> dict[str, int]:
        """The next changelog offset of each store, from the last write that had one for this store."""
        ...

    def write(self, batch: WriteSet) -> None:
        """Writes the whole batch together with its offsets, or, after a crash, nothing of it."""
        ...

    def close(self) -> None: ...


class MemoryBackend:
    """A `StateBackend` of dictionaries, for in-memory stores and tests.

    >>> backend = MemoryBackend()
    >>> backend.write(WriteSet(puts={"counts": [(b"b", b"2"), (b"a", b"1")]}, offsets={"counts": 2}))
    >>> list(backend.table("counts").range(None, None))
    [(b'a', b'1'), (b'b', b'2')]
    """

    def __init__(self) -> None:
        self._tables: dict[str, _MemoryTable] = {}
        self._offsets: dict[str, int] = {}

    def table(self, store: str) -> OrderedBytes:
        return self._table(store)

    def offsets(self) -> dict[str, int]:
        return dict(self._offsets)

    def write(self, batch: WriteSet) -> None:
        for store, ranges in batch.range_deletes.items():
            self._table(store).delete_ranges(ranges)
        for store, puts in batch.puts.items():
            self._table(store).apply(puts)
        self._offsets.update(batch.offsets)

    def _table(self, store: str) -> _MemoryTable:
        return self._tables.setdefault(store, _MemoryTable())

    def close(self) -> None:
        self._tables.clear()
        self._offsets.clear()


class _MemoryTable:
    """A dict, with its keys in order for scans and range deletes. Only these two order the keys that have changed
    meanwhile."""

    __slots__ = ("_added", "_data", "_keys", "_removed", "get")

    def __init__(self) -> None:
        self._data: dict[bytes, bytes] = {}
        self._keys = SortedEntries()
        self._added: set[bytes] = set()
        self._removed: set[bytes] = set()
        self.get = self._data.get

    def range(
        self, start: bytes | None, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        get = self.get
        keys = self._ordered().between(start, end, reverse)
        # A scan under way goes on over a write, and leaves out the keys that were deleted.
        return ((key, value) for key in keys if (value := get(key)) is not None)

    def approximate_count(self) -> int:
        return len(self._data)

    def apply(self, puts: list[tuple[bytes, bytes | None]]) -> None:
        data, added, removed = self._data, self._added, self._removed
        for key, value in puts:
            if value is not None:
                if key not in data:
                    if key in removed:
                        removed.remove(key)
                    else:
                        added.add(key)
                data[key] = value
            elif data.pop(key, None) is not None:
                if key in added:
                    added.remove(key)
                else:
                    removed.add(key)

    def delete_ranges(self, ranges: list[tuple[bytes, bytes]]) -> None:
        keys = self._ordered()
        for start, end in ranges:
            for key in keys.between(start, end):
                if self._data.pop(key, None) is not None:
                    self._removed.add(key)

    def _ordered(self) -> SortedEntries:
        if self._added or self._removed:
            self._keys.update(self._added, self._removed)
            self._added.clear()
            self._removed.clear()
        return self._keys
