"""The local log of a producer: records that wait on disk until brokers take them."""

from __future__ import annotations

import os
import struct
import uuid
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
from rocksdict import Options, Rdict, ReadOptions, WriteBatch, WriteOptions

from streamapp.errors import ConfigError, LockError
from streamapp.producer.parcel import Batched, record_bytes
from streamapp.records import OutputRecord
from streamapp.state.directory import state_error

__all__ = ["LoggedParcel", "RefusedParcel", "SpillLog"]

_FORMAT = b"1"
_NUMBER = struct.Struct(">Q")
_NAME, _ID, _NEXT, _VERSION = b"name", b"id", b"next", b"format"
_WAITING, _REFUSED, _REASON = b"r", b"x", b"y"
_BLOCK = 1_000_000
"""Numbers are reserved on disk in blocks of this size. The next process begins after the last reserved block, so that
no two parcels get the same number."""

_decode = msgspec.msgpack.Decoder(tuple[OutputRecord, ...]).decode
_encode = msgspec.msgpack.Encoder().encode


class LoggedParcel(NamedTuple):
    """A parcel of the log."""

    number: int
    records: tuple[OutputRecord, ...]


class RefusedParcel(NamedTuple):
    """A parcel that brokers refuse for good, and their reason."""

    number: int
    records: tuple[OutputRecord, ...]
    reason: str


class SpillLog:
    """Parcels on disk, ordered by their numbers. One process at a time may open the folder, and one thread at a time
    may call the methods.

    ``name`` is the producer's name; None opens an existing log of any producer. When `append` returns, the records are
    on disk (fsync), so a power cut does not lose them.

    Raises `LockError` for a folder that another process has, and `ConfigError` for the log of another producer. A disk
    that is full or broken raises `ProcessorStateError`.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> log = SpillLog(folder, "orders-service", most_bytes=1_000)
    >>> log.append([LoggedParcel(log.take_number(), (OutputRecord("orders", b"o1", b"paid", 500),))])
    >>> log.close()
    >>> SpillLog(folder, "orders-service", most_bytes=1_000).head(10, 1_000)[0].records[0].value
    b'paid'
    """

    def __init__(self, path: str | os.PathLike[str], name: str | None, *, most_bytes: int) -> None:
        self.path: str = os.path.abspath(path)
        if name is None and not os.path.exists(os.path.join(self.path, "CURRENT")):
            raise ConfigError(f"there is no spill log in {self.path}: name the spill_dir of a producer")
        self.most_bytes = most_bytes
        self._synced = WriteOptions()
        self._synced.sync = True
        try:
            os.makedirs(self.path, exist_ok=True)
            self._rows = Rdict(self.path, Options(raw_mode=True))
        except Exception as error:
            if "LOCK" in str(error):
                raise LockError(
                    f"the spill log {self.path} is open in another process: give every process a spill_dir of its own"
                ) from error
            raise state_error(self.path, error) from error
        owner = (self._rows.get(_NAME) or (name or "").encode()).decode()
        if not owner or owner != (name or owner):
            self._rows.close()
            whose = (
                f"belongs to the producer {owner}, not to {name}"
                if owner
                else "is no spill log of a producer"
            )
            raise ConfigError(f"the folder {self.path} {whose}: give every producer a spill_dir of its own")
        self.name: str = owner
        """The producer's name."""
        self.transactional_id: str = (
            self._rows.get(_ID) or f"{owner}-{uuid.uuid4().hex[:12]}".encode()
        ).decode()
        self._next = self._reserved = int(self._rows.get(_NEXT) or 1)
        self._write(
            {_NAME: owner.encode(), _ID: self.transactional_id.encode(), _VERSION: _FORMAT}, (), synced=True
        )
        self.records: int = 0
        self.bytes: int = 0
        """The bytes of the records that wait; ``records`` is their number."""
        for parcel in self._parcels(_WAITING, 0):
            self._count(parcel.records, 1)
        self._first = 0
        """The number from which reads begin: all waiting parcels have this number or a larger one."""

    @property
    def full(self) -> bool:
        """True if the log takes no more records, because it has reached its limit."""
        return self.bytes >= self.most_bytes

    @property
    def next_number(self) -> int:
        """The number that the next parcel gets; all parcels have smaller numbers."""
        return self._next

    def take_number(self) -> int:
        """Takes the next number, which is larger than all numbers that any process of this log has taken."""
        if self._next == self._reserved:
            self._reserved += _BLOCK
            self._write({_NEXT: str(self._reserved).encode()}, (), synced=True)
        self._next += 1
        return self._next - 1

    def append(self, parcels: Sequence[Batched]) -> None:
        """Writes parcels, all or none."""
        rows = {_key(_WAITING, each.number): _encode(each.records) for each in parcels}
        self._write(rows, (), synced=True)
        for each in parcels:
            self._count(each.records, 1)

    def head(self, most_parcels: int, most_bytes: int) -> list[LoggedParcel]:
        """The first waiting parcels, within these limits, but at least one if there is any."""
        found: list[LoggedParcel] = []
        size = 0
        for parcel in self._parcels(_WAITING, self._first):
            size += sum(map(record_bytes, parcel.records))
            if found and (size > most_bytes or len(found) >= most_parcels):
                break
            found.append(parcel)
        return found

    def remove_through(self, number: int) -> int:
        """Removes the waiting parcels with this number or a smaller one, because brokers have these parcels.

        Returns the number of removed records.
        """
        gone, records = [], 0
        for parcel in self._parcels(_WAITING, self._first):
            if parcel.number > number:
                break
            gone.append(_key(_WAITING, parcel.number))
            records += len(parcel.records)
            self.bytes -= sum(map(record_bytes, parcel.records))
        if gone:
            # Not synced: if a power cut undoes the removal, the bookmark still says that brokers have the parcels.
            self._write({}, gone, synced=False)
            self._first = number + 1
            self.records -= records
        return records

    def refuse(self, number: int, reason: str) -> int:
        """Sets a parcel aside that brokers refuse for good, so that later parcels are sent.

        Returns the number of the parcel's records.
        """
        key = _key(_WAITING, number)
        row = self._rows.get(key)
        if row is None:
            return 0
        self._write(
            {_key(_REFUSED, number): row, _key(_REASON, number): reason.encode()}, (key,), synced=True
        )
        self._count(_decode(row), -1)
        return len(_decode(row))

    def refused(self) -> Iterator[RefusedParcel]:
        """The parcels that were set aside."""
        for parcel in self._parcels(_REFUSED, 0):
            reason = self._rows.get(_key(_REASON, parcel.number)) or b""
            yield RefusedParcel(*parcel, reason.decode())

    def retry(self, parcel: RefusedParcel) -> None:
        """Puts a refused parcel, whose records are sent together, behind all waiting parcels, to be sent again.

        The order changes: records that were sent after the parcel may already be in the topic.
        """
        # A new number, because the bookmark is past the old one: the parcel would count as sent.
        row = {_key(_WAITING, self.take_number()): _encode(parcel.records)}
        self._write(row, _refused_keys(parcel.number), synced=True)
        self._count(parcel.records, 1)

    def discard(self, parcel: RefusedParcel) -> None:
        """Deletes a refused parcel for good."""
        self._write({}, _refused_keys(parcel.number), synced=True)

    def close(self) -> None:
        """Closes the folder, so that another process can open it. The records stay on disk."""
        self._rows.close()

    def _count(self, records: Sequence[OutputRecord], sign: int) -> None:
        self.records += sign * len(records)
        self.bytes += sign * sum(map(record_bytes, records))

    def _parcels(self, kind: bytes, first: int) -> Iterator[LoggedParcel]:
        options = ReadOptions()
        options.set_iterate_upper_bound(bytes([kind[0] + 1]))
        rows = self._rows.iter(options)
        rows.seek(_key(kind, first))
        while rows.valid():
            yield LoggedParcel(_NUMBER.unpack(rows.key()[1:])[0], _decode(rows.value()))
            rows.next()
        try:
            rows.status()
        except Exception as error:
            raise state_error(self.path, error) from error

    def _write(self, puts: dict[bytes, bytes], deletes: Sequence[bytes], *, synced: bool) -> None:
        batch = WriteBatch(raw_mode=True)
        for key, value in puts.items():
            batch.put(key, value)
        for key in deletes:
            batch.delete(key)
        try:
            self._rows.write(batch, self._synced if synced else WriteOptions())
        except Exception as error:
            raise state_error(self.path, error) from error


def _key(kind: bytes, number: int) -> bytes:
    return kind + _NUMBER.pack(number)


def _refused_keys(number: int) -> tuple[bytes, bytes]:
    return _key(_REFUSED, number), _key(_REASON, number)
