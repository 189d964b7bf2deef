"""Records that wait for a retry, in lanes. A lane is a queue: its first record is tried again first.

With `Retry.by_key` each key has a lane, and so has each record without a key. With `Retry.in_place`, and for a retry
topic, the task has a single lane. The records are in a store with a changelog, as JSON that `streamapp topic read`
shows. Order and next attempt of each lane are in memory, too, and are read from the store when the task starts.

The JSON has the bytes of the record and of its source in base64. So a row is up to three times as long as the record.
Brokers would refuse the row of a large record in the changelog. Every worker that takes the task would then end. So a
long row is cut: rows of their own, the parts, have the fields that never change. The first row has the other fields and
the number of parts. With at_least_once, a crash may leave some rows of a commit in the changelog, in their order. So
parts are written before their first row, and deleted after it. Parts without a first row count for nothing.
"""

from __future__ import annotations

import base64
import heapq
import json
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from streamapp.errors import ProcessorStateError
from streamapp.records import Headers, RecordContext

__all__ = ["Lane", "ParkedRecord", "ParkedRecords", "begins_record"]

_LENGTH = struct.Struct(">I")
_SEQUENCE = struct.Struct(">Q")
_PART = struct.Struct(">I")
_WHOLE_BYTES = 900_000
"""The most bytes of a row that is not cut, with its key. Brokers and the client take 1,000,000 bytes in a message,
unless they are set otherwise. An earlier release can read rows that are not cut."""
_PART_BYTES = 500_000
"""The most bytes of a part."""
_CUT = b'{"parts":'
"""The beginning of the first row of a record with parts."""


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
        """The row of the store, if it is not cut."""
        lasting, changing = map(_json, self._halves())
        return b"%s,%s" % (lasting[:-1], changing[1:])

    def rows(self, key: bytes) -> list[bytes]:
        """The first row of the store, whose key is ``key``, and the parts of a record that is too long for one row."""
        lasting, changing = self._halves()
        data = _json(lasting)
        if len(key) + len(data) <= _WHOLE_BYTES:
            return [b"%s,%s" % (data[:-1], _json(changing)[1:])]
        parts = [data[at : at + _PART_BYTES] for at in range(0, len(data), _PART_BYTES)]
        return [_json({"parts": len(parts)} | changing), *parts]

    @classmethod
    def decode(cls, row: bytes, parts: bytes = b"") -> ParkedRecord:
        """The record of a row of the store, and of its parts. Raises `ProcessorStateError` if they cannot be read."""
        try:
            fields = json.loads(row)
            if row.startswith(_CUT):
                del fields["parts"]
                fields |= json.loads(parts)
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

    def _halves(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The fields that never change, and those that each attempt changes."""
        changing = {"attempts": self.attempts, "due": self.due, "error": self.error}
        lasting = {
            "key": _text(self.key),
            "value": _text(self.value),
            "timestamp": self.timestamp,
            "headers": _headers(self.headers),
            "source": [
                *self.source[:4],
                _headers(self.source.headers),
                *map(_text, self.source[5:]),
            ],
            "since": self.since,
        }
        return lasting, changing


@dataclass(slots=True)
class Lane:
    """One lane: sequence number, size and number of parts of each record, oldest first, and the first record (the
    head) itself."""

    name: bytes
    rows: deque[tuple[int, int, int]]
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
        self._left: list[bytes] = []
        """The keys of parts that a crash has left without a first row, until they are deleted."""
        for first, row, parts in self._whole_rows(store.all()):
            name, number = first[_LENGTH.size : -_SEQUENCE.size], int.from_bytes(first[-_SEQUENCE.size :])
            lane = self.lanes.get(name)
            if lane is None:
                lane = self.lanes[name] = Lane(name, deque(), ParkedRecord.decode(row, b"".join(parts)))
                heapq.heappush(self._due, (lane.due, name))
            self._count(lane, number, [row, *parts])

    def park(self, name: bytes, record: ParkedRecord) -> None:
        """Puts a record at the end of a lane."""
        for key in self._left:
            self._store.put(key, None)
        self._left.clear()
        number = self.next_number
        lane = self.lanes.get(name)
        if lane is None:
            lane = self.lanes[name] = Lane(name, deque(), record)
            heapq.heappush(self._due, (lane.due, name))
        first = _first_key(name, number)
        rows = record.rows(first)
        self._write(first, rows)
        self._count(lane, number, rows)

    def postpone(self, lane: Lane) -> None:
        """Writes the head of a lane to the store again, because its attempts or its next time have changed."""
        number, size, count = lane.rows[0]
        first = _first_key(lane.name, number)
        rows = lane.head.rows(first)
        new_size = sum(map(len, rows))
        lane.rows[0] = number, new_size, len(rows) - 1
        self.bytes += new_size - size
        self._write(first, rows if count != len(rows) - 1 else rows[:1])  # parts never change
        heapq.heappush(self._due, (lane.due, lane.name))

    def remove_head(self, lane: Lane) -> bool:
        """Deletes the head of a lane, which needs no further attempt. Returns True if the lane has another record."""
        number, size, count = lane.rows.popleft()
        first = _first_key(lane.name, number)
        for key in [first, *_part_keys(first, count)]:
            self._store.put(key, None)
        self.records -= 1
        self.bytes -= size
        if not lane.rows:
            del self.lanes[lane.name]
            return False
        number, _, count = lane.rows[0]
        first = _first_key(lane.name, number)
        parts = b"".join(map(self._store.get, _part_keys(first, count)))
        lane.head = ParkedRecord.decode(self._store.get(first), parts)
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

    def hurry(self, latest: int) -> None:
        """Makes no lane wait beyond ``latest`` (ms). Only a clock that was set back gives a lane such a time."""
        for lane in self:
            if lane.due > latest:
                self.make_due(lane, latest)

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

    def _write(self, first: bytes, rows: list[bytes]) -> None:
        """Writes the rows of a record, the first row last."""
        for key, row in zip(_part_keys(first, len(rows) - 1), rows[1:], strict=True):
            self._store.put(key, row)
        self._store.put(first, rows[0])

    def _count(self, lane: Lane, number: int, rows: list[bytes]) -> None:
        size = sum(map(len, rows))
        lane.rows.append((number, size, len(rows) - 1))
        self.records += 1
        self.bytes += size
        self.next_number = max(self.next_number, number + 1)

    def _whole_rows(self, rows: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes, list[bytes]]]:
        """Key, first row and parts of each record. In the order of keys, the parts come after their first row."""
        first, row, parts, count = b"", b"", list[bytes](), 0
        for key, data in rows:
            if begins_record(key):
                if first:
                    yield first, row, parts
                first, row, parts = key, data, []
                count = json.loads(data)["parts"] if data.startswith(_CUT) else 0
            elif len(parts) < count and key.startswith(first):
                parts.append(data)
            else:
                self._left.append(key)
        if first:
            yield first, row, parts


def begins_record(key: bytes) -> bool:
    """True if the row with this key has a record or its first part, False if the row has a further part."""
    length = int.from_bytes(key[: _LENGTH.size])
    return len(key) <= _LENGTH.size + length + _SEQUENCE.size


def _first_key(lane: bytes, number: int) -> bytes:
    return _LENGTH.pack(len(lane)) + lane + _SEQUENCE.pack(number)


def _part_keys(first: bytes, count: int) -> list[bytes]:
    return [first + _PART.pack(part) for part in range(count)]


def _json(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _headers(headers: Headers) -> list[tuple[str, str | None]]:
    return [(name, _text(value)) for name, value in headers]


def _pairs(headers: list[list[Any]]) -> Headers:
    return tuple((name, _bytes(value)) for name, value in headers)
