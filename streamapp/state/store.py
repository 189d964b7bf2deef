"""The base of every state store: its steps between two commits, and the part of a task that stores need.

The life of a store between two commits:

    put ...            the store notes rows; with `log_each_write` most stores send each row to the changelog at once
    flush()            a store with a record cache (`cache.py`) calls its listener for each changed row
    log_dirty()        the last row of each key is encoded, and sent to the changelog unless each write was logged
    drain(write_set)   after the commit: the encoded rows join the write set; rows put after `log_dirty` stay dirty
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from streamapp.records import Headers, RecordBatch, RecordSource
from streamapp.state.backend import OrderedBytes, WriteSet
from streamapp.state.last_written import LastWritten
from streamapp.state.spec import StoreSpec

__all__ = ["ChangelogFn", "FlushListener", "Store", "StoreContext"]

R = TypeVar("R")

FlushListener = Callable[[Any, Any, Any, int, Headers], None]
"""Called for an update that a record cache hands on, with key, new value, old value, timestamp in ms, headers."""

ChangelogFn = Callable[[str, bytes, "bytes | None", "int | None", Headers], None]
"""Sends one record of a store to the changelog. The arguments are store, key, value, timestamp in ms, headers."""


class StoreContext(Protocol):
    """The part of a task that stores need; `streamapp.engine.operator.TaskContext` describes the attributes."""

    partition: int
    topic: str | None
    offset: int
    timestamp: int
    headers: Headers
    log_each_write: bool
    keeps_source_bytes: bool

    def source_bytes(self) -> tuple[bytes | None, bytes | None]: ...

    def log(
        self, store: str, key: bytes, value: bytes | None, timestamp: int | None, headers: Headers
    ) -> None: ...

    def log_rows(
        self, store: str, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None: ...

    def drop(self, count: int, where: str, reason: str) -> None: ...

    def work_through(
        self, held: Iterable[tuple[Any, RecordSource]], call: Callable[[Any, Any], None]
    ) -> None: ...


class Store:
    """One state store of one task. The subclasses have the reads and writes."""

    cached = False
    versioned = False

    def __init__(self, spec: StoreSpec, table: OrderedBytes, task: StoreContext) -> None:
        self.spec = spec
        self.name: str = spec.name
        self._table = table
        self._task = task
        self._log_each = spec.logged and task.log_each_write
        self._log_at_commit = spec.logged and not task.log_each_write

    def last_written(self) -> LastWritten | None:
        """The value that the store has handed on last, with its bytes. None: the store does not note them."""
        return None

    def reader_with_bytes(self, decoded: bool) -> Callable[[Any], tuple[Any, int, bytes] | None] | None:
        """A function that reads a row by key, or None if the store has no such function.

        The function returns the value, the timestamp in ms, and the bytes of the value; None for a row that is missing.
        Without ``decoded``, the caller only needs the bytes, so the value may be None.
        """
        return None

    @property
    def below_cache(self) -> Any:
        """The store that answers queries by range and window (KIP-796). `streamapp.query` says which rows they see."""
        return self

    def ask(self, question: Callable[[Any], R]) -> R:
        """The result of ``question(store)``, for a reader outside of the task, such as a query or a view."""
        return question(self)

    def forget_read(self) -> None:
        """Drops the decoded rows that reads have left in memory; the stored rows stay. The next read of such a row
        decodes its bytes again."""

    def set_flush_listener(self, listener: FlushListener, send_old: bool = True) -> None:
        """Sets the function that a flush of the record cache calls for each update.

        Without ``send_old``, the listener gets None as old value. Without a record cache, the writing operator forwards
        the update itself, and this method has no effect.
        """

    def flush(self) -> None:
        """Hands on the updates that a record cache holds back."""

    def flush_key(self, key: Any) -> None:
        """Hands on the update of one row that a record cache holds back; the key has the form for flush listeners."""

    def log_dirty(self) -> None:
        """Sends the rows since the last commit to the changelog, unless they are there already. Marks the rows for
        `drain`."""
        raise NotImplementedError

    def drain(self, write_set: WriteSet) -> None:
        """Moves the rows that `log_dirty` has marked into the write set.

        Without a call of `log_dirty` since the last `drain`, moves all dirty rows.
        """
        raise NotImplementedError

    def restore(self, batch: RecordBatch, write_set: WriteSet) -> None:
        """Adds changelog records to the write set, which the caller writes before the next read of the store."""
        raise NotImplementedError

    def note_logged(self, end: int, write_set: WriteSet) -> None:
        """Notes ``end``, the next offset of the changelog after all rows that the store has logged or restored.

        `needless_below` needs the note. The note joins the write set, so that a restarted task has the note, too.
        """

    @property
    def needless_below(self) -> int:
        """The offset of the changelog below which each record belongs to a row that has expired and is deleted.

        A restore needs no record below this offset. 0: no such record is known.
        """
        return 0

    @property
    def dirty_bytes(self) -> int:
        """An estimate of the memory of all rows that wait for the commit, in bytes."""
        raise NotImplementedError

    def close(self) -> None:
        """Gives back shared resources, such as a record cache's share of the limit."""
