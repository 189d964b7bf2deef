"""Stores whose writes wait in memory until the commit; reads see waiting rows first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain
from typing import Any

from streamapp.records import NO_HEADERS, Headers, RecordBatch
from streamapp.state.backend import OrderedBytes, WriteSet
from streamapp.state.dirty_rows import DirtyOrder, Row
from streamapp.state.formats import LONG, Codec, as_it_is
from streamapp.state.last_written import LastWritten
from streamapp.state.row_memory import Generations, RowMemory, Shown, kept_size
from streamapp.state.spec import StoreSpec
from streamapp.state.store import ChangelogFn, Store, StoreContext

__all__ = [
    "MISSING",
    "Fold",
    "Row",
    "Write",
    "WriteBehindStore",
]

Fold = Callable[[Any, Any, Any, int], tuple[Any, Any, int]]
"""Adds a value to the aggregate of a row. The arguments are the row's key in memory, key, value and timestamp in ms.
The results are new value, old value and the row's timestamp. If there was no row, the old value is the initializer's
value."""

MISSING: Row = (None, -1)
Write = Callable[[Any, Row], None]
"""Writes the row of a key."""

_MANY_DELETED = 16
"""The number of deleted rows at the front of a scan from which on later scans begin behind them."""


class WriteBehindStore(Store):
    """The base of stores with rows by key. Writes wait in memory until the commit, which writes them to the backend.

    The backend gives the store a sorted map from bytes to bytes (`OrderedBytes`). The key of a row has three forms. A
    subclass chooses the form in memory (``row_key``), for example (key, window start). `_row_bytes` gives the form in
    the changelog, and `_local_key` the form in the backend.
    """

    _ROW_BYTES = 200
    """The estimated bytes in memory of a row besides key and value: an entry of a dictionary, a tuple, a timestamp."""

    put_row: Write
    """The function that writes a row. `open_writes` makes this function, and every write calls it."""

    def __init__(
        self,
        spec: StoreSpec,
        table: OrderedBytes,
        task: StoreContext,
        memory: RowMemory | None = None,
        *,
        timestamped: bool,
    ) -> None:
        super().__init__(spec, table, task)
        self._keys = Codec(spec.key_serde, spec.name, "key")
        self._values = self._value_codec()
        self._key_class = self._keys.kept_class
        self._keep_key = self._keys.keep
        self._sound_key = self._keys.sound
        self._value_class = self._values.kept_class
        self._keep_value = self._values.keep
        self._sound_value = self._values.sound
        self._shown = self._value_class is not None  # the kept form of a value is the value
        self._sized = self._value_class in (None, bytes, str)
        self._timestamped = timestamped
        self._memory = memory or RowMemory()
        self._dirty: dict[Any, Row] = {}
        self._sized_bytes = 0
        """The bytes of the dirty rows. Counted only if values differ in size; otherwise `dirty_bytes` computes them."""
        self._sealed: dict[Any, Row] | None = None
        self._batch: list[tuple[bytes, bytes | None]] = []
        # Headers for the changelog are kept beside the rows, because only few rows need them.
        self._log_headers: dict[Any, Headers] = {}
        self._clean: Generations[Row] = Generations(self._memory)
        self._looked_up = False
        """True if the store has looked for a row by its key in the backend."""
        # The rows that `TimestampedKeyValueStore.reader` has decoded, until the next write of each row.
        self._known_of: Shown[tuple[Any, int]] = Shown(self._memory)
        self._known = self._known_of.rows
        self._weigh = self._weigher()
        self._order = DirtyOrder(
            self._dirty, lambda row_key: self._local_key(row_key, self._row_bytes(row_key))
        )
        self._uncounted: dict[Any, Row | None] | None = None
        """A watch of the dirty rows that have changed since the last count; None before the first count since a
        commit."""
        self._added_rows = 0
        """The rows that the dirty rows add to those in the backend, at the last count."""
        self._row_size = 64
        self._last: LastWritten = LastWritten()

    def _value_codec(self) -> Codec:
        return Codec(self.spec.value_serde, self.name, "value")

    def _logger(self) -> ChangelogFn:
        """The function that sends a record to the changelog. Its value argument has the bytes of the value codec."""
        return self._task.log

    def last_written(self) -> LastWritten | None:
        return None if self._shown else self._last

    def open_writes(self) -> None:
        """Makes `put_row` from the steps of a write. Only this method knows all steps.

        The steps are nested: each step calls the next inner one. The innermost step lets the row wait for the commit.
        Around this step are the steps of `_write_steps`, such as expiry. With `StoreSpec.headers_format`, an outermost
        step notes the headers of a tombstone for its changelog record. A row in memory has no place for headers.
        """
        write = self._remember = self._remembering()
        for step in self._write_steps():
            write = step(write)
        self.put_row = self._noting_headers(write) if self.spec.headers_format else write

    def _write_steps(self) -> list[Callable[[Write], Write]]:
        """The steps of a write around the innermost step, from the inside to the outside."""
        return [self._logging] if self._log_each else []

    def _remembering(self) -> Write:
        dirty, known, weigh = self._dirty, self._known, self._weigh
        watches, note = self._order.watches, self._order.note

        def remember(row_key: Any, row: Row) -> None:
            if watches:
                note(row_key)
            dirty[row_key] = row
            if known:
                known.pop(row_key, None)

        def remember_sized(row_key: Any, row: Row) -> None:
            if watches:
                note(row_key)
            before = dirty.get(row_key)
            if before is None:
                self._sized_bytes += weigh(row_key, row)
            else:
                self._sized_bytes += kept_size(row[0]) - kept_size(before[0])
            dirty[row_key] = row
            if known:
                known.pop(row_key, None)

        return remember_sized if self._sized else remember

    def _logging(self, write: Write) -> Write:
        log = self._log

        def write_and_log(row_key: Any, row: Row) -> None:
            write(row_key, row)
            log(row_key, row)

        return write_and_log

    def _noting_headers(self, write: Write) -> Write:
        task = self._task

        def note_and_write(row_key: Any, row: Row) -> None:
            if row[0] is None or self._log_headers:
                self._note_headers(row_key, task.headers if row[0] is None else NO_HEADERS)
            write(row_key, row)

        return note_and_write

    def _note_headers(self, row_key: Any, headers: Headers) -> None:
        """Notes the headers with which the next write of a row is logged, in place of those of an earlier write."""
        if headers:
            self._log_headers[row_key] = headers
        elif self._log_headers:
            self._log_headers.pop(row_key, None)

    def _row_bytes(self, row_key: Any) -> bytes:
        """A row's key in the changelog."""
        raise NotImplementedError

    def _local_key(self, row_key: Any, row_bytes: bytes) -> bytes:
        """A row's key in the backend."""
        return row_bytes

    def _encoded(self, row_keys: Collection[Any]) -> tuple[list[bytes], Sequence[bytes | None]]:
        """The changelog keys and the local keys of rows.

        The local key is None for an expired row, which is logged but not written to the backend.
        """
        keys = list(map(self._row_bytes, row_keys))
        return keys, keys

    def row(self, row_key: Any) -> Row:
        """The current row of a key: a value in its kept form (`Codec`), and a timestamp.

        The kept form is the value itself, or its bytes. A missing row has the value None.
        """
        return self._dirty.get(row_key) or self._read(row_key)

    def _key_of(self, row_key: Any) -> Any:
        """The key of a row, without times."""
        return row_key

    def _weigher(self) -> Callable[[Any, Row], int]:
        """A function that estimates the memory of a row, in bytes."""
        row_bytes, key_of = self._ROW_BYTES, self._key_of
        return lambda row_key, row: row_bytes + kept_size(key_of(row_key)) + kept_size(row[0])

    def _folder(
        self, initializer: Callable[[], Any], aggregator: Callable[[Any, Any, Any], Any], keep_old: bool
    ) -> Fold:
        """A function for each record of an aggregation: reads the row, calls the aggregator, writes the row.

        One function saves calls. A row's timestamp is the largest timestamp of its records. If the aggregator returns
        None, the row is deleted, with the timestamp of the record.

        The aggregator may change the old value in place. With ``keep_old``, the function therefore returns another
        object as the old value. A record cache has no use for ``keep_old``, because its flush decodes old values.
        """
        (rows, row_of), put_row = self._rows_to_fold(), self.put_row
        show, keep, value_class, sound = (
            self._values.show,
            self._keep_value,
            self._value_class,
            self._sound_value,
        )
        dirty, known, watches, last = self._dirty, self._known, self._order.watches, self._last
        plain = put_row is self._remember and not self._sized  # then fold writes the row itself

        def fold(row_key: Any, key: Any, value: Any, timestamp: int) -> tuple[Any, Any, int]:
            kept, latest = rows.get(row_key) or row_of(row_key)
            if kept is None:
                old, latest = initializer(), timestamp
            else:
                old = show(kept)
                if timestamp > latest:
                    latest = timestamp
            new = aggregator(key, value, old)
            if keep_old:
                old = initializer() if kept is None else show(kept)
            kept = new
            if new is None:
                put_row(row_key, (None, timestamp))
            else:
                if new.__class__ is not value_class or not sound(new):
                    kept = keep(new)
                    last.value, last.data = new, kept
                if plain and not known and not watches:
                    dirty[row_key] = kept, latest
                else:
                    put_row(row_key, (kept, latest))
            return new, old, latest

        return fold

    def _rows_to_fold(self) -> tuple[dict[Any, Row], Callable[[Any], Row]]:
        """A dictionary of rows for `_folder`, and a function that reads the rows that are not in the dictionary.

        The rows have the timestamps that readers see.
        """
        if type(self).row is WriteBehindStore.row:
            return self._dirty, self._read_to_write  # saves a call for each record
        return {}, self.row

    def _read(self, row_key: Any) -> Row:
        """The row of a key without a waiting write: from memory, else from the backend. The store keeps the row in
        memory."""
        row = self._clean.young.get(row_key)
        if row is None:
            row = self._read_to_write(row_key)
            self._clean.keep(row_key, row, self._weigh(row_key, row))
        return row

    def _read_to_write(self, row_key: Any) -> Row:
        """As `_read`, for a caller that writes the row next. Nothing keeps the row, because it is out of date then."""
        clean = self._clean
        row = clean.young.get(row_key)
        if row is None and (row := clean.old.pop(row_key, None)) is None:
            self._looked_up = True
            data = self._table.get(self._local_key(row_key, self._row_bytes(row_key)))
            row = MISSING if data is None else self._unpack(data)
        return row

    def _unpack(self, data: bytes) -> Row:
        if self._timestamped:
            return self._values.from_bytes(data[8:]), int.from_bytes(data[:8], "big", signed=True)
        return self._values.from_bytes(data), 0

    def _log(self, row_key: Any, row: Row) -> None:
        value, timestamp = row
        data = None if value is None else self._values.to_bytes(value)
        headers = self._log_headers.pop(row_key, NO_HEADERS) if self._log_headers else NO_HEADERS
        self._logger()(self.name, self._row_bytes(row_key), data, timestamp, headers)

    def log_dirty(self) -> None:
        self._seal(self._log_at_commit)

    def _seal(self, logged: bool) -> None:
        sealed = self._sealed = self._in_log_order()
        keys, local_keys = self._encoded(sealed)
        to_bytes = self._values.to_bytes
        values: list[bytes | None] = [
            value if value is None or to_bytes is as_it_is else to_bytes(value)
            for value, _ in sealed.values()
        ]
        timestamps = [timestamp for _, timestamp in sealed.values()]
        log_headers, self._log_headers = self._log_headers, {}
        if logged and sealed:
            if log_headers:
                log = self._logger()
                for row_key, key, value, timestamp in zip(sealed, keys, values, timestamps, strict=True):
                    log(self.name, key, value, timestamp, log_headers.get(row_key, NO_HEADERS))
            else:
                self._log_rows(keys, values, timestamps)
        if self._timestamped:
            pack = LONG.pack
            values = [
                None if value is None else pack(timestamp) + value
                for value, timestamp in zip(values, timestamps, strict=True)
            ]
        if local_keys is keys:
            batch = list(zip(keys, values, strict=True))
        else:
            batch = [(key, value) for key, value in zip(local_keys, values, strict=True) if key is not None]
        self._batch = batch
        if batch and not self._sized:
            self._row_size = sum(len(key) + len(value or b"") for key, value in batch) // len(batch)

    def _in_log_order(self) -> dict[Any, Row]:
        """The dirty rows, in the order in which they go to the changelog."""
        return dict(self._dirty)

    def _log_rows(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        """Sends rows without headers to the changelog."""
        self._task.log_rows(self.name, keys, values, timestamps)

    def drain(self, write_set: WriteSet) -> None:
        if self._sealed is None:
            self._seal(False)
        sealed, self._sealed = self._sealed, None
        if sealed:
            if self._batch:
                write_set.puts.setdefault(self.name, []).extend(self._batch)
            self._batch = []
            left = {}
            if self._dirty != sealed:
                left = {key: row for key, row in self._dirty.items() if sealed.get(key) is not row}
            self._keep_written(sealed)
            if self._uncounted is not None:
                self._order.unwatch(self._uncounted)
                self._uncounted = None
            self._order.clear()
            self._dirty.clear()
            self._dirty.update(left)
            self._sized_bytes = sum(self._weigh(*entry) for entry in left.items()) if self._sized else 0

    def _keep_written(self, rows: dict[Any, Row]) -> None:
        """Keeps rows in memory that are now written to the backend, for later reads.

        Without any look-up so far, as in the result table of a join, the memory is left to other stores.
        """
        if not self._looked_up:
            return
        if self._memory.take(self.dirty_bytes):  # the bytes include rows written since the flush
            self._clean.young.update(rows)
        else:
            for row_key, row in rows.items():
                self._clean.keep(row_key, row, self._weigh(row_key, row))

    def restore(self, batch: RecordBatch, write_set: WriteSet) -> None:
        puts = write_set.puts.setdefault(self.name, [])
        keys, values = batch.keys, batch.values
        if self._timestamped:
            pack = LONG.pack
            puts.extend(
                [
                    (key, None if value is None else pack(timestamp) + value)
                    for key, value, timestamp in zip(keys, values, batch.timestamps, strict=True)
                    if key is not None
                ]
            )
        else:
            puts.extend([(key, value) for key, value in zip(keys, values, strict=True) if key is not None])
        self.forget_read()

    def forget_read(self) -> None:
        self._clean.clear()
        self._known.clear()

    @property
    def dirty_bytes(self) -> int:
        return self._sized_bytes if self._sized else len(self._dirty) * (self._row_size + self._ROW_BYTES)

    def approximate_num_entries(self) -> int:
        """An estimate of the number of rows.

        On disk the number is RocksDB's estimate, in which a row that was written several times may count several times.
        """
        changed = self._uncounted
        if changed is None:
            changed = self._uncounted = self._order.watch()
            changed.update(dict.fromkeys(self._dirty))
            self._added_rows = 0
        get = self._table.get
        for row_key, before in changed.items():
            self._added_rows += self._dirty[row_key][0] is not None
            if before is None:
                self._added_rows -= get(self._local_key(row_key, self._row_bytes(row_key))) is not None
            else:
                self._added_rows -= before[0] is not None
        changed.clear()
        return max(0, self._stored_rows() + self._added_rows)

    def _stored_rows(self) -> int:
        """An estimate of the number of rows in the backend."""
        return self._table.approximate_count()

    def _merged(
        self, start: bytes | None, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Row]]:
        """All rows with local keys in [start, end), without deleted rows. A dirty row replaces the backend's row.

        The rows are as they are when the first one is taken, and later writes change nothing. After a commit, a scan on
        disk goes on with the same rows, and a scan in memory may show newer rows of the backend.
        """
        begin = start if reverse else self._order.begin_of(start)
        dirty, rows = self._order.between(begin, end, reverse), self._table.range(begin, end, reverse)
        entry, unpack = next(dirty, None), self._unpack
        if entry is not None and entry[1][0] is None and not reverse:
            entry, rows = self._skip_deleted(start, entry, dirty, rows)
        for key, data in rows:
            while entry is not None and (entry[0] > key if reverse else entry[0] < key):
                if entry[1][0] is not None:
                    yield entry
                entry = next(dirty, None)
            if entry is not None and entry[0] == key:
                if entry[1][0] is not None:
                    yield entry
                entry = next(dirty, None)
            else:
                yield key, unpack(data)
        if entry is not None:
            for last in chain((entry,), dirty):
                if last[1][0] is not None:
                    yield last

    def _skip_deleted(
        self,
        start: bytes | None,
        entry: tuple[bytes, Row] | None,
        dirty: Iterator[tuple[bytes, Row]],
        rows: Iterator[tuple[bytes, bytes]],
    ) -> tuple[tuple[bytes, Row] | None, Iterator[tuple[bytes, bytes]]]:
        """Passes over the deleted rows at the front of a scan. After many of them, later scans begin behind them.

        So a queue, whose user deletes the first row again and again, does not pass over all rows deleted since the
        commit. Returns the first dirty row that is left, and the rows of the backend that are left.
        """
        stored, passed, end = next(rows, None), 0, b""
        while entry is not None and entry[1][0] is None and (stored is None or entry[0] <= stored[0]):
            if stored is not None and stored[0] == entry[0]:
                stored = next(rows, None)
            passed, end = passed + 1, entry[0] + b"\0"
            entry = next(dirty, None)
        if passed >= _MANY_DELETED:
            self._order.note_gap(start, end)
        return entry, rows if stored is None else chain((stored,), rows)
