"""Versioned key-value stores (KIP-889): for each key, the present value and earlier values with their times."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from streamapp.records import NO_HEADERS, RecordBatch
from streamapp.state.backend import OrderedBytes, WriteSet
from streamapp.state.formats import LONG, Codec, sized
from streamapp.state.row_memory import Generations, RowMemory, kept_size
from streamapp.state.spec import StoreSpec
from streamapp.state.store import Store, StoreContext

__all__ = ["NOT_PUT", "VersionedStore"]

NOT_PUT = -(2**63)
"""The result of `VersionedStore.put` for a version that is older than the history retention."""

_META = b"\xff"  # the local key of the observed stream time; local keys of rows begin with 0
_KEY_BYTES, _VERSION_BYTES = 300, 120
"""The estimated memory of a key, and of a version, in addition to their own bytes."""
_Versions = list[tuple[int, Any]]  # (timestamp, kept value or None: deleted), oldest first


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

    The observed stream time is the largest timestamp of all puts. A version that ended longer ago than the history
    retention cannot be read. The latest version of a key never expires.
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
        self._dirty: dict[Any, _Versions] = {}
        self._dirty_bytes = 0
        self._clean: Generations[_Versions] = Generations(memory or RowMemory())
        self._sealed: dict[Any, _Versions] = {}
        self._unlogged: list[_Put] = []
        self._last_puts: dict[Any, _Put] = {}
        """The last entry of each key in `_unlogged`."""
        self._batch: list[tuple[bytes, bytes | None]] | None = None
        meta = table.get(_META)
        self._observed = -1 if meta is None else int.from_bytes(meta, "big")

    def put(self, key: Any, value: Any, timestamp: int) -> int | None:
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
            # Each version is part of the state, so each is logged. The order of the puts matters, because the effect of
            # a deletion depends on the version before it. Only a value (or a deletion) that the key's next put replaces
            # is left out.
            last = self._last_puts.get(kept_key)
            if last is not None and last.timestamp == timestamp and (last.value is None) == (kept is None):
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
        """The function with which a table reads the row that it writes next, here simply `get`."""
        return self.get

    def reader(self) -> Callable[[Any], tuple[Any, int, int | None] | None]:
        """The function with which a join reads rows, here simply `get`."""
        return self.get

    def get(self, key: Any, as_of: int | None = None) -> tuple[Any, int, int | None] | None:
        versions = self._versions(self._keys.keep(key))
        if not versions:
            return None
        at = len(versions) - 1
        if as_of is not None and versions[at][0] > as_of:
            if as_of < self._observed - self._retention:
                return None
            at = bisect_left(versions, (as_of + 1,)) - 1
            if at < 0:
                return None
        timestamp, value = versions[at]
        valid_to = versions[at + 1][0] if at + 1 < len(versions) else None
        return None if value is None else (self._values.show(value), timestamp, valid_to)

    def history(
        self, key: Any, time_from: int | None = None, time_to: int | None = None, ascending: bool = True
    ) -> Iterator[tuple[Any, int, int | None]]:
        versions = self._versions(self._keys.keep(key))
        found = [
            (value, timestamp, valid_to)
            for value, timestamp, valid_to in self._live(versions)
            if (time_to is None or timestamp <= time_to)
            and (time_from is None or valid_to is None or valid_to > time_from)
            and (time_to is None or valid_to is None or time_to >= self._observed - self._retention)
        ]
        return iter(found) if ascending else reversed(found)

    def all(self) -> Iterator[tuple[Any, Any, int, int | None]]:
        rows = {key[1:]: self._unpack(data) for key, data in self._table.range(b"\0", b"\1")}
        for buffer in (self._sealed, self._dirty):
            rows.update((self._keys.to_bytes(key), versions) for key, versions in buffer.items())
        for key in sorted(rows):
            for value, timestamp, valid_to in self._live(rows[key]):
                yield self._keys.show(self._keys.from_bytes(key)), value, timestamp, valid_to

    def _live(self, versions: _Versions) -> Iterator[tuple[Any, int, int | None]]:
        floor = self._floor()
        for at, (timestamp, value) in enumerate(versions):
            valid_to = versions[at + 1][0] if at + 1 < len(versions) else None
            if value is not None and (valid_to is None or valid_to >= floor):
                yield self._values.show(value), timestamp, valid_to

    def _floor(self) -> int:
        """The start of the oldest segment that is kept. A version that ended before this time has expired."""
        return max(0, self._observed - self._retention) // self.segment_ms * self.segment_ms

    def _apply(self, key: Any, value: Any, timestamp: int) -> int | None:
        self._observed = max(self._observed, timestamp)
        versions = self._dirty.get(key)
        if versions is None:
            versions = self._dirty[key] = list(self._versions(key))
            self._dirty_bytes += _size(key, versions)
        self._dirty_bytes += _VERSION_BYTES + kept_size(value)
        floor = self._floor()
        while len(versions) > 1 and versions[1][0] < floor:
            del versions[0]
        at = bisect_left(versions, (timestamp,))
        if at < len(versions) and versions[at][0] == timestamp:
            latest, before = at + 1 == len(versions), versions[at - 1][1] if at else None
            if value is None and versions[at][1] is not None and latest and before is None:
                # Kafka Streams stores such a deletion as the end of the value before it. Without a value before it,
                # Kafka Streams stores nothing.
                del versions[at]
            else:
                versions[at] = (timestamp, value)
        else:
            versions.insert(at, (timestamp, value))
        return versions[at + 1][0] if at + 1 < len(versions) else None

    def _versions(self, key: Any) -> _Versions:
        versions = self._dirty.get(key)
        if versions is None:
            versions = self._sealed.get(key)
        if versions is None:
            versions = self._clean.young.get(key)
            if versions is None:
                versions = self._clean.old.pop(key, None)
                if versions is None:
                    data = self._table.get(b"\0" + self._keys.to_bytes(key))
                    versions = [] if data is None else self._unpack(data)
                self._clean.keep(key, versions, _size(key, versions))
        return versions

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
        for key, versions in self._dirty.items():
            gone = not versions or (len(versions) == 1 and versions[0][1] is None and versions[0][0] < floor)
            batch.append((b"\0" + self._keys.to_bytes(key), None if gone else self._pack(versions)))
        if self._dirty:
            batch.append((_META, LONG.pack(self._observed)))
        self._sealed.update(self._dirty)
        self._dirty, self._dirty_bytes = {}, 0

    def drain(self, write_set: WriteSet) -> None:
        if self._batch is None:
            self._seal()
        if self._batch:
            write_set.puts.setdefault(self.name, []).extend(self._batch)
        self._batch = None
        for key, versions in self._sealed.items():
            self._clean.keep(key, versions, _size(key, versions))
        self._sealed = {}

    def restore(self, batch: RecordBatch, write_set: WriteSet) -> None:
        key_of, value_of = self._keys.from_bytes, self._values.from_bytes
        for key, value, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True):
            if key is not None and timestamp >= self._observed - self._retention:
                self._apply(key_of(key), None if value is None else value_of(value), timestamp)
        self.drain(write_set)

    @property
    def dirty_bytes(self) -> int:
        return self._dirty_bytes

    def _pack(self, versions: _Versions) -> bytes:
        to_bytes = self._values.to_bytes
        return b"".join(
            LONG.pack(timestamp) + sized(None if value is None else to_bytes(value))
            for timestamp, value in versions
        )

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
                versions.append((timestamp, self._values.from_bytes(data[at : at + length])))
                at += length
        return versions


def _size(key: Any, versions: _Versions) -> int:
    """An estimate of the memory in bytes that a key takes with its versions."""
    return _KEY_BYTES + kept_size(key) + sum(_VERSION_BYTES + kept_size(value) for _, value in versions)
