"""Versioned key-value stores (KIP-889): for each key, the present value and earlier values with their times.

A row in the backend has only some versions of a key (`_ROW_VERSIONS`). So a write, and a read of one version, take
about the same time for any number of versions. The *latest row* of a key has its newest versions. An *earlier row* has
versions before them, and ends at the time of the version that follows its last one:

| row | key in the backend | value |
| --- | --- | --- |
| latest | 0, key | if earlier rows exist: the end of the oldest one (8 bytes), -2 (4 bytes); then versions, oldest first |
| earlier | 1, length of the key (4 bytes), key, end (8 bytes) | versions, oldest first |
| observed stream time | 255 | time (8 bytes) |

A version is its timestamp (8 bytes), the length of its value (4 bytes; -1 for a deletion), and the value. A time before
the latest row belongs to the first earlier row that ends after this time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any, TypeVar

from streamapp.records import MAX_LONG, NO_HEADERS, RecordBatch, check_timestamp
from streamapp.state.backend import OrderedBytes, WriteSet
from streamapp.state.formats import LONG, Codec, sized
from streamapp.state.row_memory import Generations, RowMemory, kept_size
from streamapp.state.sorted_entries import SortedEntries
from streamapp.state.spec import StoreSpec
from streamapp.state.store import Store, StoreContext

__all__ = ["NOT_PUT", "VersionedStore"]

NOT_PUT = -(2**63)
"""The result of `VersionedStore.put` for a version that is older than the history retention."""

T = TypeVar("T")
K = TypeVar("K", int, bytes)

_META = b"\xff"
_LATEST, _EARLIER = b"\0", b"\1"
_HAS_EARLIER = b"\xff\xff\xff\xfe"
_ROW_VERSIONS = 16
"""The number of versions in a new earlier row. A row with more than twice this number is cut before it is written."""
_KEY_BYTES, _VERSION_BYTES = 300, 120
"""The estimated memory of a key, and of a version, in addition to their own bytes."""
_Versions = list[tuple[int, Any]]  # (timestamp, kept value, `_Undecoded` or None: deleted), oldest first


@dataclass(frozen=True, slots=True)
class _Undecoded:
    """The bytes of a value that the serde refuses, in place of the value's kept form.

    A row has several versions. A read decodes all of them, but only a read of this version raises the serde's error.
    """

    data: bytes


@dataclass(slots=True)
class _History:
    """The versions of a key as far as they are in memory."""

    latest: _Versions
    """The versions of the latest row."""
    oldest: int | None
    """No earlier row ends before this time; None: no earlier row exists."""
    size: int = 0
    """The bytes of the latest row in memory, estimated when the row was last read or sealed."""
    waiting: dict[int, _Versions | None] = field(default_factory=dict)
    """The earlier rows that wait for the commit, each by its end. None: the row is deleted."""
    order: SortedEntries | None = None
    """The ends of the waiting rows, as far as a look-up has needed their order."""

    def copy(self) -> _History:
        return _History([*self.latest], self.oldest, self.size, {**self.waiting})

    def waiting_after(self, time: int) -> Iterator[int]:
        """The ends of the waiting rows that end after a time, in order."""
        if not self.waiting:
            return iter(())
        if self.order is None:
            self.order = SortedEntries()
        new = len(self.waiting) - len(self.order)
        if new:
            # Rows leave `waiting` only together, so new rows are at the end of the dict.
            self.order.update(islice(reversed(self.waiting), new))
        return self.order.between(time + 1, None)

    def written(self) -> None:
        """Called when no row waits any more."""
        self.waiting, self.order = {}, None

    def cut(self) -> None:
        """Cuts rows that have too many versions."""
        for end, versions in [*self.waiting.items()]:
            if versions is not None:
                self.waiting[end] = self._cut(versions)
        self.latest = self._cut(self.latest)

    def _cut(self, versions: _Versions) -> _Versions:
        """Makes earlier rows of the older versions of a row, and returns the rest."""
        starts = range(0, len(versions) - 2 * _ROW_VERSIONS, _ROW_VERSIONS)
        for start in starts:
            rest = start + _ROW_VERSIONS
            end = versions[rest][0]
            self.waiting[end] = versions[start:rest]
            self.oldest = end if self.oldest is None else min(self.oldest, end)
        return versions[len(starts) * _ROW_VERSIONS :]


@dataclass(slots=True)
class _Put:
    """A put that the next commit logs. ``value`` is in its kept form; None: a deletion."""

    key: Any
    timestamp: int
    value: Any


class VersionedStore(Store):
    """Values by key and time.

    - ``put(key, value, timestamp)``: adds a version, or replaces the version with this timestamp. With the value None
      the key has no value from this time on. Returns None if the version is the latest, otherwise the time until which
      it is valid. A version older than the history retention is dropped and counted; the result is `NOT_PUT`.
    - ``delete(key, timestamp)``: puts None. Returns the version that was valid at this time.
    - ``get(key, as_of=None)``: (value, timestamp, valid_to) of the latest version, or of the version that was valid at
      the time ``as_of``. None if there is none. The latest version has None as valid_to.
    - ``history(key, time_from=None, time_to=None, ascending=True)``: (value, timestamp, valid_to) of all versions that
      are valid at any time between two times. Bounds are inclusive, and None means no bound.
    - ``all()``: (key, value, timestamp, valid_to) of all versions, ordered by key bytes, then time.

    The observed stream time is the largest timestamp of all puts. `get` gives no earlier version for a time that is
    further back than the history retention, and `history` none for a ``time_to`` that is. Otherwise `history` and `all`
    give an earlier version until its segment expires. The latest version of a key never expires.
    """

    versioned = True

    def __init__(
        self,
        spec: StoreSpec,
        table: OrderedBytes,
        task: StoreContext,
        memory: RowMemory | None = None,
        *,
        retention_ms: int,
        segment_ms: int,
    ) -> None:
        super().__init__(spec, table, task)
        self._keys = Codec(spec.key_serde, spec.name, "key")
        self._values = Codec(spec.value_serde, spec.name, "value")
        self._retention = retention_ms
        self.segment_ms = segment_ms
        self._dirty: dict[Any, _History] = {}
        self._dirty_bytes = 0
        self._clean: Generations[_History] = Generations(memory or RowMemory())
        self._sealed: dict[Any, _History] = {}
        self._unlogged: list[_Put] = []
        self._last_puts: dict[Any, _Put] = {}
        """The last entry of each key in `_unlogged`."""
        self._batch: list[tuple[bytes, bytes | None]] | None = None
        meta = table.get(_META)
        self._observed = -1 if meta is None else int.from_bytes(meta, "big")

    def put(self, key: Any, value: Any, timestamp: int) -> int | None:
        if timestamp.__class__ is not int or timestamp > MAX_LONG:
            check_timestamp(timestamp)
        if timestamp < 0:
            raise ValueError(f"store {self.name}: a version cannot have the timestamp {timestamp}")
        kept_key, kept = self._keys.keep(key), None if value is None else self._values.keep(value)
        if timestamp < self._observed - self._retention:
            self._task.drop(1, self.name, "late")
            valid_to: int | None = NOT_PUT
        else:
            valid_to = self._apply(kept_key, kept, timestamp)
        if self._log_each:
            data = None if kept is None else self._values.to_bytes(kept)
            self._task.log(self.name, self._keys.to_bytes(kept_key), data, timestamp, NO_HEADERS)
        elif self._log_at_commit and valid_to != NOT_PUT:
            # Each version is part of the state, so each is logged. The order and the number of the puts matter, because
            # the effect of a deletion depends on the version before it. So the second of two equal deletions may leave
            # a version, and the first one none. Only a value is left out, if the key's next put replaces the value by
            # another value with the same timestamp.
            last = self._last_puts.get(kept_key)
            values = kept is not None and last is not None and last.value is not None
            if last is not None and values and last.timestamp == timestamp:
                last.value = kept
            else:
                self._last_puts[kept_key] = put = _Put(kept_key, timestamp, kept)
                self._unlogged.append(put)
        return valid_to

    def delete(self, key: Any, timestamp: int) -> tuple[Any, int, int | None] | None:
        existing = None if timestamp < self._observed - self._retention else self.get(key, timestamp)
        self.put(key, None, timestamp)
        return existing

    def reader_before_put(self) -> Callable[[Any], tuple[Any, int, int | None] | None]:
        """The function with which a table reads the present row of a key before a write, here simply `get`."""
        return self.get

    def reader(self) -> Callable[[Any], tuple[Any, int, int | None] | None]:
        """The function with which a join reads rows, here simply `get`."""
        return self.get

    def get(self, key: Any, as_of: int | None = None) -> tuple[Any, int, int | None] | None:
        kept_key = self._keys.keep(key)
        history = self._history(kept_key)
        versions, end = history.latest, None
        if not versions:
            return None
        at = len(versions) - 1
        if as_of is not None and versions[at][0] > as_of:
            if as_of < self._observed - self._retention:
                return None
            if versions[0][0] > as_of:
                end, versions = next(self._earlier(kept_key, history, as_of), (None, []))
            at = bisect_left(versions, (as_of + 1,)) - 1
            if at < 0:
                return None
        timestamp, value = versions[at]
        valid_to = versions[at + 1][0] if at + 1 < len(versions) else end
        return None if value is None else (self._shown(value), timestamp, valid_to)

    def history(
        self, key: Any, time_from: int | None = None, time_to: int | None = None, ascending: bool = True
    ) -> Iterator[tuple[Any, int, int | None]]:
        kept_key = self._keys.keep(key)
        versions = self._versions(kept_key, self._history(kept_key), time_from, time_to)
        found = [
            (kept, timestamp, valid_to)
            for kept, timestamp, valid_to in self._live(versions)
            if (time_to is None or timestamp <= time_to)
            and (time_from is None or valid_to is None or valid_to > time_from)
            and (time_to is None or valid_to is None or time_to >= self._observed - self._retention)
        ]
        ordered = found if ascending else reversed(found)
        return ((self._shown(kept), timestamp, valid_to) for kept, timestamp, valid_to in ordered)

    def all(self) -> Iterator[tuple[Any, Any, int, int | None]]:
        stored = ((local[1:], data) for local, data in self._table.range(_LATEST, _EARLIER))
        waiting = {
            self._keys.to_bytes(key): history
            for buffer in (self._sealed, self._dirty)
            for key, history in buffer.items()
        }
        for data, history in _overlaid(stored, iter(sorted(waiting)), waiting, self._unpack_latest):
            key = self._keys.from_bytes(data)
            for kept, timestamp, valid_to in self._live(self._versions(key, history)):
                yield self._keys.show(key), self._shown(kept), timestamp, valid_to

    def _versions(
        self, key: Any, history: _History, time_from: int | None = None, time_to: int | None = None
    ) -> _Versions:
        """The versions of a key that have not expired, at least those that are valid between the two times and the
        version that follows them."""
        since = self._floor() - 1
        versions: _Versions = []
        for _, row in self._earlier(key, history, since if time_from is None else max(since, time_from)):
            versions += row
            if time_to is not None and row[-1][0] > time_to:
                return versions
        return versions + history.latest

    def _live(self, versions: _Versions) -> Iterator[tuple[Any, int, int | None]]:
        """The versions that have not expired and are no deletions: kept value, timestamp, valid_to."""
        floor = self._floor()
        for at, (timestamp, kept) in enumerate(versions):
            valid_to = versions[at + 1][0] if at + 1 < len(versions) else None
            if kept is not None and (valid_to is None or valid_to >= floor):
                yield kept, timestamp, valid_to

    def _floor(self) -> int:
        """The start of the oldest segment that is kept. A version that ended before this time has expired."""
        return max(0, self._observed - self._retention) // self.segment_ms * self.segment_ms

    def _apply(self, key: Any, value: Any, timestamp: int) -> int | None:
        self._observed = max(self._observed, timestamp)
        history = self._dirty.get(key)
        if history is None:
            clean = self._clean
            known = self._sealed.get(key) or clean.young.get(key) or clean.old.get(key)
            history = self._dirty[key] = self._read(key) if known is None else known.copy()
            self._dirty_bytes += history.size
        self._dirty_bytes += _VERSION_BYTES + kept_size(value)
        versions, end = history.latest, None
        if versions and timestamp < versions[0][0]:
            end, versions = next(self._earlier(key, history, timestamp), (None, versions))
            if end is not None and history.waiting.get(end) is not versions:
                history.waiting[end] = versions
                self._dirty_bytes += _size(key, versions)
        floor = self._floor()
        while len(versions) > 1 and versions[1][0] < floor:
            del versions[0]
        at = bisect_left(versions, (timestamp,))
        if at < len(versions) and versions[at][0] == timestamp:
            latest = end is None and at + 1 == len(versions)
            if value is None and versions[at][1] is not None and latest:
                if at == 0:
                    at = self._join_earlier(key, history)
                before = versions[at - 1][1] if at else None
                if before is None:
                    # Kafka Streams stores such a deletion as the end of the value before it. Without a value before
                    # it, Kafka Streams stores nothing.
                    del versions[at]
                    return None
            versions[at] = (timestamp, value)
        else:
            versions.insert(at, (timestamp, value))
        return versions[at + 1][0] if at + 1 < len(versions) else end

    def _join_earlier(self, key: Any, history: _History) -> int:
        """Moves the versions of the last earlier row to the latest row, and returns their number."""
        end, versions = next(self._earlier(key, history, history.latest[0][0] - 1), (None, []))
        if end is not None:
            history.waiting[end] = None
            history.latest[:0] = versions
            self._dirty_bytes += _size(key, versions)
        return len(versions)

    def _history(self, key: Any) -> _History:
        history = self._dirty.get(key)
        if history is None:
            history = self._sealed.get(key)
        if history is None:
            history = self._clean.young.get(key)
            if history is None:
                history = self._clean.old.pop(key, None)
                if history is None:
                    history = self._read(key)
                self._clean.keep(key, history, history.size)
        return history

    def _read(self, key: Any) -> _History:
        data = self._table.get(_LATEST + self._keys.to_bytes(key))
        history = _History([], None) if data is None else self._unpack_latest(data)
        history.size = _size(key, history.latest)
        return history

    def _earlier(self, key: Any, history: _History, time: int) -> Iterator[tuple[int, _Versions]]:
        """The earlier rows of a key that end after a time: end and versions of each, oldest first."""
        if history.oldest is None:
            return
        start = self._earlier_key(key, max(time, -1) + 1)
        stored = (
            (int.from_bytes(local[-8:], "big"), data)
            for local, data in self._table.range(start, start[:-8] + b"\xff")
        )
        ends = history.waiting_after(time)
        for end, versions in _overlaid(stored, ends, history.waiting, self._unpack):
            if versions is not None:
                yield end, versions

    def _earlier_key(self, key: Any, end: int) -> bytes:
        return _EARLIER + sized(self._keys.to_bytes(key)) + LONG.pack(end)

    def log_dirty(self) -> None:
        for put in self._unlogged:
            data = None if put.value is None else self._values.to_bytes(put.value)
            self._task.log(self.name, self._keys.to_bytes(put.key), data, put.timestamp, NO_HEADERS)
        self._unlogged.clear()
        self._last_puts.clear()
        self._seal()

    def _seal(self) -> None:
        # The rows are encoded at the flush, so that later puts do not become part of this commit.
        floor = self._floor()
        batch = self._batch = self._batch or []
        for key, history in self._dirty.items():
            history.cut()
            if history.oldest is not None and history.oldest < floor:
                self._expire(key, history, floor)
            for end, versions in history.waiting.items():
                batch.append(
                    (self._earlier_key(key, end), None if versions is None else self._pack(versions))
                )
            versions, oldest = history.latest, history.oldest
            history.size = _size(key, versions)
            gone = not versions or (len(versions) == 1 and versions[0][1] is None and versions[0][0] < floor)
            head = b"" if oldest is None else LONG.pack(oldest) + _HAS_EARLIER
            batch.append((_LATEST + self._keys.to_bytes(key), None if gone else head + self._pack(versions)))
        if self._dirty:
            batch.append((_META, LONG.pack(self._observed)))
        self._sealed.update(self._dirty)
        self._dirty, self._dirty_bytes = {}, 0

    def _expire(self, key: Any, history: _History, floor: int) -> None:
        """Deletes the earlier rows of a key that ended before a time."""
        start, end = self._earlier_key(key, history.oldest or 0), self._earlier_key(key, floor)
        expired = [int.from_bytes(local[-8:], "big") for local, _ in self._table.range(start, end)]
        expired += [end for end in history.waiting if end < floor]
        history.waiting.update(dict.fromkeys(expired))
        history.oldest = next((end for end, _ in self._earlier(key, history, floor - 1)), None)

    def drain(self, write_set: WriteSet) -> None:
        if self._batch is None:
            self._seal()
        if self._batch:
            write_set.puts.setdefault(self.name, []).extend(self._batch)
        self._batch = None
        for key, history in self._sealed.items():
            history.written()
            self._clean.keep(key, history, history.size)
        self._sealed = {}

    def restore(self, batch: RecordBatch, write_set: WriteSet) -> None:
        key_of, value_of = self._keys.from_bytes, self._kept
        for key, value, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True):
            if key is not None and timestamp >= self._observed - self._retention:
                self._apply(key_of(key), None if value is None else value_of(value), timestamp)
        self.drain(write_set)

    def forget_read(self) -> None:
        self._clean.clear()

    @property
    def dirty_bytes(self) -> int:
        return self._dirty_bytes

    def _kept(self, data: bytes) -> Any:
        """The kept form of a value."""
        try:
            return self._values.from_bytes(data)
        except Exception:  # a serde may raise anything for the stored bytes
            return _Undecoded(data)

    def _shown(self, kept: Any) -> Any:
        """The value of a kept form. If the serde refuses the bytes of the value, its error is raised."""
        values = self._values
        return values.show(values.from_bytes(kept.data) if kept.__class__ is _Undecoded else kept)

    def _pack(self, versions: _Versions) -> bytes:
        to_bytes = self._values.to_bytes

        def packed(value: Any) -> bytes:
            if value is None:
                return sized(None)
            return sized(value.data if value.__class__ is _Undecoded else to_bytes(value))

        return b"".join(LONG.pack(timestamp) + packed(value) for timestamp, value in versions)

    def _unpack_latest(self, data: bytes) -> _History:
        if data[8:12] == _HAS_EARLIER:
            return _History(self._unpack(data[12:]), int.from_bytes(data[:8], "big"))
        return _History(self._unpack(data), None)

    def _unpack(self, data: bytes) -> _Versions:
        versions: _Versions = []
        at = 0
        while at < len(data):
            timestamp = int.from_bytes(data[at : at + 8], "big")
            length = int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
            at += 12
            if length < 0:
                versions.append((timestamp, None))
            else:
                versions.append((timestamp, self._kept(data[at : at + length])))
                at += length
        return versions


def _size(key: Any, versions: _Versions) -> int:
    """An estimate of the memory in bytes that a key takes with its versions."""
    return _KEY_BYTES + kept_size(key) + sum(_VERSION_BYTES + kept_size(value) for _, value in versions)


def _overlaid(
    stored: Iterator[tuple[K, bytes]],
    order: Iterator[K],
    waiting: Mapping[K, T],
    unpack: Callable[[bytes], T],
) -> Iterator[tuple[K, T]]:
    """The rows of the backend and those that wait for the commit, in order. A waiting row replaces the stored one.

    ``order`` has the keys of the waiting rows.
    """
    last: K | None = None
    for key, data in merge(((key, b"") for key in order), stored, key=itemgetter(0)):
        if key != last:
            last = key
            yield key, waiting[key] if key in waiting else unpack(data)
