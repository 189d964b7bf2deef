"""What all stores have in common: writes wait in memory until the commit, reads see them first.

The life of a store between two commits:

    put ...            rows gather in `_dirty`; with `log_each_write` each goes to the changelog at once
    flush()            a store with a record cache (`cache.py`) tells its listener what changed
    log_dirty()        what is dirty is encoded, once, and sent to the changelog: the last row per key
    drain(write_set)   after the commit: the encoded rows join the write set; what was put since stays dirty
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Protocol

from streamapp.records import NO_HEADERS, Headers, RecordBatch
from streamapp.state.backend import OrderedBytes, WriteSet
from streamapp.state.formats import LONG, Codec
from streamapp.state.spec import StoreSpec

__all__ = [
    "CACHED_ROWS",
    "MISSING",
    "ChangelogFn",
    "FlushListener",
    "Fold",
    "Row",
    "Store",
    "StoreContext",
    "WriteBehindStore",
]

CACHED_ROWS = 100_000
"""How many clean rows of a store may be kept in memory at least; at most twice as many are."""

Row = tuple[Any, int]
"""The kept form of a value (None: deleted) and its timestamp."""

Fold = Callable[[Any, Any, Any, int], tuple[Any, Any, int]]
"""Folds a value into a row: takes the row's key in memory, key, value and timestamp in ms; returns new value, old value and the
row's timestamp. The old value of a new row is the initializer's."""

FlushListener = Callable[[Any, Any, Any, int, Headers], None]
"""Hears of an update that leaves a record cache: key, new value, old value, timestamp in ms, headers."""

ChangelogFn = Callable[[str, bytes, "bytes | None", "int | None", Headers], None]
"""Sends one record of a store: store, key, value, timestamp in ms, headers."""

MISSING: Row = (None, -1)
_ROW_OVERHEAD = 200  # bytes of a dictionary entry with its tuple and boxed parts, roughly


class StoreContext(Protocol):
    """What a store needs of its task; `streamapp.engine.operator.TaskContext` describes the attributes."""

    partition: int
    topic: str | None
    offset: int
    timestamp: int
    headers: Headers
    batch: RecordBatch | None
    log_each_write: bool

    def log(
        self, store: str, key: bytes, value: bytes | None, timestamp: int | None, headers: Headers
    ) -> None: ...

    def drop(self, count: int = 1) -> None: ...


class Store:
    """One state store of one task. See the subclasses for its reads and writes."""

    cached = False
    versioned = False

    def __init__(self, spec: StoreSpec, table: OrderedBytes, task: StoreContext) -> None:
        self.spec = spec
        self.name = spec.name
        self.kind = spec.kind
        self._table = table
        self._task = task
        self._log_each = spec.logged and task.log_each_write
        self._log_at_commit = spec.logged and not task.log_each_write

    @property
    def below_cache(self) -> Any:
        """The store as queries by range and window see it (KIP-796): without what only its record cache knows."""
        return self

    def set_flush_listener(self, listener: FlushListener) -> None:
        """Has no effect: without a record cache, whoever writes forwards the update itself."""

    def flush(self) -> None:
        """Hands on what a record cache holds back."""

    def flush_key(self, key: Any) -> None:
        """Hands on what a record cache holds back of one row; the key is as a flush listener hears it."""

    def log_dirty(self) -> None:
        """Sends the changelog what was written since the last commit, and marks it to be drained."""
        raise NotImplementedError

    def drain(self, write_set: WriteSet) -> None:
        """Moves what the last `log_dirty` marked into the write set; without one, everything dirty."""
        raise NotImplementedError

    def restore(self, batch: RecordBatch, write_set: WriteSet) -> None:
        """Adds changelog records to the write set, which the caller writes before anybody reads the store."""
        raise NotImplementedError

    @property
    def dirty_bytes(self) -> int:
        """Roughly the memory that waits for the commit."""
        raise NotImplementedError

    def close(self) -> None:
        """Gives back what the store holds beside its own memory."""

    def approximate_num_entries(self) -> int:
        """Roughly how many rows the store holds, without counting them: exact in memory, on disk RocksDB's estimate, which
        takes rows that were written often for several."""
        raise NotImplementedError


class WriteBehindStore(Store):
    """Rows by key over an `OrderedBytes`.

    A subclass chooses what a row's key is in memory, and says by `_row_bytes` what it is in the changelog and
    by `_local_key` what it is in the backend.
    """

    def __init__(
        self, spec: StoreSpec, table: OrderedBytes, task: StoreContext, *, timestamped: bool, cached_rows: int
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
        self._timestamped = timestamped
        self._cached_rows = cached_rows
        self._dirty: dict[Any, Row] = {}
        self._sealed: dict[Any, Row] | None = None
        self._batch: list[tuple[bytes, bytes | None]] = []
        # Of rows that wait for the changelog with headers, which few do.
        self._log_headers: dict[Any, Headers] = {}
        # Clean rows, in two generations: when the young one is full it becomes the old one, the old one goes.
        self._young: dict[Any, Row] = {}
        # Rows as `TimestampedKeyValueStore.reader` has shown them, until they are written.
        self._known: dict[Any, tuple[Any, int]] = {}
        self._old: dict[Any, Row] = {}
        self._order: list[tuple[Any, ...]] = []
        self._row_size = 64

    def _value_codec(self) -> Codec:
        return Codec(self.spec.value_serde, self.name, "value")

    def _logger(self) -> ChangelogFn:
        """What sends a record to the changelog; it gets the value as the codec gives it."""
        return self._task.log

    def log_headers_of_deletions(self) -> None:
        """Tombstones in the changelog carry the headers of the records that caused them (`StoreSpec.headers_format`)."""
        put_row, task = self.put_row, self._task

        def put_and_note(row_key: Any, row: Row) -> None:
            if row[0] is None and task.headers:
                self._log_headers[row_key] = task.headers
            elif self._log_headers:
                self._log_headers.pop(row_key, None)
            put_row(row_key, row)

        self.put_row = put_and_note  # type: ignore[method-assign]

    def _row_bytes(self, row_key: Any) -> bytes:
        """The key in the changelog."""
        raise NotImplementedError

    def _local_key(self, row_key: Any, row_bytes: bytes) -> bytes:
        """The key in the backend."""
        return row_bytes

    def _encoder(self) -> Callable[[Any], tuple[bytes, bytes | None]]:
        """What gives a row's changelog key and local key; None for the latter if the row has expired."""
        row_bytes = self._row_bytes

        def encode(row_key: Any) -> tuple[bytes, bytes | None]:
            key = row_bytes(row_key)
            return key, key

        return encode

    def row(self, row_key: Any) -> Row:
        """The current row of a key in its kept form; its value is None if there is none."""
        return self._dirty.get(row_key) or self._read(row_key)

    def put_row(self, row_key: Any, row: Row) -> None:
        """The one way in which a row is written."""
        self._dirty[row_key] = row
        if self._known:
            self._known.pop(row_key, None)
        if self._log_each:
            self._log(row_key, row)

    def _folder(self, initializer: Callable[[], Any], aggregator: Callable[[Any, Any, Any], Any]) -> Fold:
        """What an aggregation does with each record, in one call. A row's timestamp is the largest that went in; a result of None deletes the
        row, at the record's own time."""
        row_of, put_row = self._rows_to_fold(), self.put_row
        show, keep, value_class, sound = (
            self._values.show,
            self._keep_value,
            self._value_class,
            self._sound_value,
        )
        # `row` and `put_row` where they are those of this class: two calls less for each record.
        rows: dict[Any, Row] = {}
        if getattr(row_of, "__func__", None) is WriteBehindStore.row:
            rows, row_of = self._dirty, self._read
        plain = getattr(put_row, "__func__", None) is WriteBehindStore.put_row and not self._log_each
        dirty, known = self._dirty, self._known

        def fold(row_key: Any, key: Any, value: Any, timestamp: int) -> tuple[Any, Any, int]:
            kept, latest = rows.get(row_key) or row_of(row_key)
            if kept is None:
                old, latest = initializer(), timestamp
            else:
                old = show(kept)
                if timestamp > latest:
                    latest = timestamp
            new = kept = aggregator(key, value, old)
            if new is None:
                put_row(row_key, (None, timestamp))
            else:
                if new.__class__ is not value_class or not sound(new):
                    kept = keep(new)
                if plain and not known:
                    dirty[row_key] = kept, latest
                else:
                    put_row(row_key, (kept, latest))
            return new, old, latest

        return fold

    def _rows_to_fold(self) -> Callable[[Any], Row]:
        """What gives the row of a key with the timestamp that readers see."""
        return self.row

    def _read(self, row_key: Any) -> Row:
        """The row of a key that is not dirty."""
        row = self._young.get(row_key)
        if row is None:
            row = self._old.get(row_key)
            if row is None:
                data = self._table.get(self._local_key(row_key, self._row_bytes(row_key)))
                row = MISSING if data is None else self._unpack(data)
            self._young[row_key] = row
            if len(self._young) > self._cached_rows:
                self._old, self._young = self._young, {}
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
        sealed = self._sealed = dict(self._dirty)
        batch: list[tuple[bytes, bytes | None]] = []
        add, log, name = batch.append, self._logger(), self.name
        encode, to_bytes = self._encoder(), self._values.to_bytes
        log_headers, self._log_headers = self._log_headers, {}
        pack = LONG.pack if self._timestamped else None
        size = 0
        for row_key, (value, timestamp) in sealed.items():
            key, local = encode(row_key)
            data = None if value is None else to_bytes(value)
            if logged:
                log(name, key, data, timestamp, log_headers.get(row_key, NO_HEADERS))
            if local is not None:
                size += len(local)
                if data is not None:
                    size += len(data)
                    if pack is not None:
                        data = pack(timestamp) + data
                add((local, data))
        self._batch = batch
        if batch:
            self._row_size = size // len(batch)

    def drain(self, write_set: WriteSet) -> None:
        if self._sealed is None:
            self._seal(False)
        sealed, self._sealed = self._sealed, None
        if sealed:
            if self._batch:
                write_set.puts.setdefault(self.name, []).extend(self._batch)
            self._batch = []
            left = {key: row for key, row in self._dirty.items() if sealed.get(key) is not row}
            self._dirty.clear()
            self._dirty.update(left)
            self._order.clear()
            self._young.update(sealed)
            if len(self._young) > self._cached_rows:
                self._old, self._young = self._young, {}

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
        self._forget_clean()

    def _forget_clean(self) -> None:
        self._young.clear()
        self._old.clear()
        self._known.clear()

    @property
    def dirty_bytes(self) -> int:
        return len(self._dirty) * (self._row_size + _ROW_OVERHEAD)

    def approximate_num_entries(self) -> int:
        get, rows = self._table.get, self._stored_rows()
        for row_key, (value, _) in self._dirty.items():
            stored = get(self._local_key(row_key, self._row_bytes(row_key))) is not None
            rows += (value is not None) - stored
        return max(0, rows)

    def _stored_rows(self) -> int:
        """Roughly how many rows the backend holds."""
        return self._table.approximate_count()

    def _dirty_between(self, start: bytes | None, end: bytes | None) -> list[tuple[bytes, Row]]:
        """The dirty rows whose local keys lie in [start, end), in order."""
        order, dirty = self._order, self._dirty
        new = len(dirty) - len(order)
        if new:
            # Rows leave `_dirty` only in `drain`, so what is new stands at the end of the dict.
            added = [
                (self._local_key(row_key, self._row_bytes(row_key)), row_key)
                for row_key in islice(reversed(dirty), new)
            ]
            if new > 16:
                order.extend(added)
                order.sort()
            else:
                for entry in added:
                    insort(order, entry)
        low = 0 if start is None else bisect_left(order, (start,))
        high = len(order) if end is None else bisect_left(order, (end,))
        return [(key, dirty[row_key]) for key, row_key in order[low:high]]

    def _merged(
        self, start: bytes | None, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Row]]:
        """All rows with local keys in [start, end), dirty ones over those of the backend; no deleted ones."""
        dirty = self._dirty_between(start, end)
        if reverse:
            dirty.reverse()
        unpack = self._unpack
        at, count = 0, len(dirty)
        for key, data in self._table.range(start, end, reverse):
            while at < count and (dirty[at][0] > key if reverse else dirty[at][0] < key):
                if dirty[at][1][0] is not None:
                    yield dirty[at]
                at += 1
            if at < count and dirty[at][0] == key:
                if dirty[at][1][0] is not None:
                    yield dirty[at]
                at += 1
            else:
                yield key, unpack(data)
        for entry in dirty[at:]:
            if entry[1][0] is not None:
                yield entry
