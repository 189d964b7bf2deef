"""Records that wait for a retry, in lanes. A lane is a queue: its first record is tried again first.

With `Retry.by_key` each key has a lane, and so has each record without a key. With `Retry.in_place`, and for a retry
topic, the task has a single lane. The records are in a store with a changelog, as JSON that `streamapp topic read`
shows. Order and next attempt of each lane are in memory, too, and are read from the store when the task starts.
"""

from __future__ import annotations

import base64
import heapq
import json
import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from streamapp.errors import ProcessorStateError
from streamapp.records import Headers, RecordContext

__all__ = ["Lane", "ParkedRecord", "ParkedRecords"]

_LENGTH = struct.Struct(">I")
_SEQUENCE = struct.Struct(">Q")


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
        for key, row in store.all():
            name, number = _parse(key)
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
        self._store.put(_row_key(name, number), row)
        self._count(lane, number, row)

    def postpone(self, lane: Lane) -> None:
        """Writes the head of a lane to the store again, because its attempts or its next time have changed."""
        number, size = lane.rows[0]
        row = lane.head.encode()
        lane.rows[0] = number, len(row)
        self.bytes += len(row) - size
        self._store.put(_row_key(lane.name, number), row)
        heapq.heappush(self._due, (lane.due, lane.name))

    def remove_head(self, lane: Lane) -> bool:
        """Deletes the head of a lane, which needs no further attempt. Returns True if the lane has another record."""
        number, size = lane.rows.popleft()
        self._store.put(_row_key(lane.name, number), None)
        self.records -= 1
        self.bytes -= size
        if not lane.rows:
            del self.lanes[lane.name]
            return False
        lane.head = ParkedRecord.decode(self._store.get(_row_key(lane.name, lane.rows[0][0])))
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

    def _count(self, lane: Lane, number: int, row: bytes) -> None:
        lane.rows.append((number, len(row)))
        self.records += 1
        self.bytes += len(row)
        self.next_number = max(self.next_number, number + 1)


def _row_key(lane: bytes, number: int) -> bytes:
    return _LENGTH.pack(len(lane)) + lane + _SEQUENCE.pack(number)


def _parse(key: bytes) -> tuple[bytes, int]:
    (length,) = _LENGTH.unpack_from(key)
    (number,) = _SEQUENCE.unpack_from(key, _LENGTH.size + length)
    return key[_LENGTH.size : _LENGTH.size + length], number


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _headers(headers: Headers) -> list[tuple[str, str | None]]:
    return [(name, _text(value)) for name, value in headers]


def _pairs(headers: list[list[Any]]) -> Headers:
    return tuple((name, _bytes(value)) for name, value in headers)
