"""Records that wait for a retry, in lanes. A lane is a queue: its first record is tried again first.

With `Retry.by_key` each key has a lane, and so has each record without a key. With `Retry.in_place`, and for a retry
topic, the task has a single lane. The records are in a store with a changelog, as JSON that `streamapp topic read`
shows. Order and next attempt of each lane are in memory, too, and are read from the store when the task starts.

The JSON has the bytes of the record and of its source in base64. So a row is up to three times as long as the record.
Brokers would refuse the row of a large record in the changelog. Every worker that takes the task would then end. So a
long row is cut into parts, each with a row of its own.
"""

from __future__ import annotations

import base64
import heapq
import json
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from streamapp.errors import ProcessorStateError
from streamapp.records import Headers, RecordContext

__all__ = ["Lane", "ParkedRecord", "ParkedRecords", "begins_record"]

_LENGTH = struct.Struct(">I")
_SEQUENCE = struct.Struct(">Q")
_PART = struct.Struct(">I")
_PART_BYTES = 500_000
"""The most bytes of a part. Brokers and the client take 1,000,000 bytes in a message, unless they are set otherwise."""


@dataclass(slots=True)
class ParkedRecord:
    """A waiting record: key, value, timestamp and headers as the operator got them, and the source of the record.

    Times are ms since the epoch.
    """

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers
    source: RecordContext
    since: int
    """The time at which the record began to wait."""
    attempts: int = 0
    due: int = 0
    """The time of the next attempt; only of interest for the first record of a lane."""
    error: str = ""

    def encode(self) -> bytes:
        """The row of the store."""
        fields = asdict(self) | {
            "key": _text(self.key),
            "value": _text(self.value),
            "headers": _headers(self.headers),
            "source": [
                *self.source[:4],
                _headers(self.source.headers),
                *map(_text, self.source[5:]),
            ],
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, row: bytes) -> ParkedRecord:
        """The record of a row of the store. Raises `ProcessorStateError` if the row cannot be read."""
        try:
            fields = json.loads(row)
            topic, partition, offset, timestamp, headers, key, value = fields["source"]
            fields |= {
                "key": _bytes(fields["key"]),
                "value": _bytes(fields["value"]),
                "headers": _pairs(fields["headers"]),
                "source": RecordContext(
                    topic, partition, offset, timestamp, _pairs(headers), _bytes(key), _bytes(value)
                ),
            }
            return cls(**fields)
        except (ValueError, KeyError, TypeError) as error:
            raise ProcessorStateError(
                f"a row of parked records cannot be read: {error}: {row[:200]!r}"
            ) from error


@dataclass(slots=True)
class Lane:
    """One lane: sequence number and size of each record, oldest first, and the first record (the head) itself."""

    name: bytes
    rows: deque[tuple[int, int]]
    head: ParkedRecord

    @property
    def due(self) -> int:
        return self.head.due


class ParkedRecords:
    """All lanes of one operator in one task, with their store (kind ``key_value``, of bytes)."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.lanes: dict[bytes, Lane] = {}
        self.records: int = 0
        self.bytes: int = 0
        self.next_number: int = 0
        """The sequence number for the next record."""
        self._due: list[tuple[int, bytes]] = []
        """A heap of (time of the next attempt, name of the lane). An entry whose lane has another time is ignored."""
        for name, number, row in _whole_rows(store.all()):
            lane = self.lanes.get(name)
            if lane is None:
                lane = self.lanes[name] = Lane(name, deque(), ParkedRecord.decode(row))
                heapq.heappush(self._due, (lane.due, name))
            self._count(lane, number, row)

    def park(self, name: bytes, record: ParkedRecord) -> None:
        """Puts a record at the end of a lane."""
        row, number = record.encode(), self.next_number
        lane = self.lanes.get(name)
        if lane is None:
            lane = self.lanes[name] = Lane(name, deque(), record)
            heapq.heappush(self._due, (lane.due, name))
        self._write(name, number, row, 0)
        self._count(lane, number, row)

    def postpone(self, lane: Lane) -> None:
        """Writes the head of a lane to the store again, because its attempts or its next time have changed."""
        number, size = lane.rows[0]
        row = lane.head.encode()
        lane.rows[0] = number, len(row)
        self.bytes += len(row) - size
        self._write(lane.name, number, row, size)
        heapq.heappush(self._due, (lane.due, lane.name))

    def remove_head(self, lane: Lane) -> bool:
        """Deletes the head of a lane, which needs no further attempt. Returns True if the lane has another record."""
        number, size = lane.rows.popleft()
        self._write(lane.name, number, b"", size)
        self.records -= 1
        self.bytes -= size
        if not lane.rows:
            del self.lanes[lane.name]
            return False
        number, size = lane.rows[0]
        lane.head = ParkedRecord.decode(b"".join(map(self._store.get, _part_keys(lane.name, number, size))))
        return True

    def take_due(self, now: int) -> Lane | None:
        """The lane that is due first, if its time is ``now`` (ms) or earlier; otherwise None."""
        self._forget_old()
        if self._due and self._due[0][0] <= now:
            return self.lanes[heapq.heappop(self._due)[1]]
        return None

    def make_due(self, lane: Lane, now: int) -> None:
        """Makes the next attempt of a lane due at ``now`` (ms). The row in the store keeps its time."""
        lane.head.due = now
        heapq.heappush(self._due, (now, lane.name))

    def __iter__(self) -> Iterator[Lane]:
        return iter(list(self.lanes.values()))

    @property
    def next_due(self) -> int | None:
        """The earliest time of an attempt over all lanes, in ms; None if no record waits."""
        self._forget_old()
        return self._due[0][0] if self._due else None

    def _forget_old(self) -> None:
        while self._due:
            due, name = self._due[0]
            lane = self.lanes.get(name)
            if lane is not None and lane.due == due:
                return
            heapq.heappop(self._due)

    def _write(self, lane: bytes, number: int, row: bytes, size: int) -> None:
        """Writes the parts of a row in place of the parts of an earlier row, which had ``size`` bytes. An empty row
        only deletes the earlier parts."""
        keys = _part_keys(lane, number, len(row))
        for place, key in enumerate(keys):
            self._store.put(key, row[place * _PART_BYTES : (place + 1) * _PART_BYTES])
        for key in _part_keys(lane, number, size)[len(keys) :]:
            self._store.put(key, None)

    def _count(self, lane: Lane, number: int, row: bytes) -> None:
        lane.rows.append((number, len(row)))
        self.records += 1
        self.bytes += len(row)
        self.next_number = max(self.next_number, number + 1)


def begins_record(key: bytes) -> bool:
    """True if the row with this key has a record or its first part, False if the row has a further part."""
    length = int.from_bytes(key[: _LENGTH.size])
    return len(key) <= _LENGTH.size + length + _SEQUENCE.size


def _part_keys(lane: bytes, number: int, size: int) -> list[bytes]:
    """The keys of a record's parts. The first part has the key that a record of one part has."""
    first = _LENGTH.pack(len(lane)) + lane + _SEQUENCE.pack(number)
    parts = -(-size // _PART_BYTES)
    return [first + _PART.pack(part) if part else first for part in range(parts)]


def _whole_rows(rows: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, int, bytes]]:
    """Lane, number and row of each record. The parts of a record follow each other in the order of keys."""
    parts: list[bytes] = []
    name, number = b"", 0
    for key, row in rows:
        if begins_record(key):
            if parts:
                yield name, number, b"".join(parts)
            name, parts = key[_LENGTH.size : -_SEQUENCE.size], []
            (number,) = _SEQUENCE.unpack(key[-_SEQUENCE.size :])
        parts.append(row)
    if parts:
        yield name, number, b"".join(parts)


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _headers(headers: Headers) -> list[tuple[str, str | None]]:
    return [(name, _text(value)) for name, value in headers]


def _pairs(headers: list[list[Any]]) -> Headers:
    return tuple((name, _bytes(value)) for name, value in headers)
