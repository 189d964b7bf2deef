"""`PartitionLanes`: the records of one partition that wait, by key or in one lane, and which of them may go next.

A lane is worked on by one unit at a time, so its records keep their order. Lanes do not wait for each other. No clock,
no I/O: the dispatcher holds a lock around every call.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from streamapp.consumer.done_offsets import MOST_AHEAD, DoneOffsets
from streamapp.records import Headers, TopicPartition, payload_bytes

__all__ = ["Item", "Lane", "PartitionLanes", "Unit"]

_OVERHEAD = 200
"""The bytes of a record beside its key, value and headers."""


@dataclass(slots=True, eq=False)
class Item:
    """One record on its way to the handler."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    attempts: int = 0
    """Calls of the handler that have failed for it."""
    since: float | None = None
    """When it failed first, in seconds of the dispatcher's clock."""
    alone: bool = False
    """True after a batch with this record has failed: the record gets a call of its own."""
    unsure: bool = False
    """A transaction with it may have been committed."""

    @property
    def size(self) -> int:
        return _OVERHEAD + payload_bytes(self.key, self.value, self.headers)


@dataclass(slots=True, eq=False)
class Lane:
    """Records of one key, in order."""

    name: object
    items: deque[Item] = field(default_factory=deque)
    busy: bool = False
    due: float | None = None
    """A record has failed, and the lane waits for this time. None: it does not wait."""


@dataclass(slots=True, eq=False)
class Unit:
    """The records of one call of the handler: one, or a batch of one partition."""

    partition: PartitionLanes
    parts: tuple[tuple[Lane, list[Item]], ...]
    probe: bool = False
    """True for the unit that asks a service that has failed."""
    no_room: bool = False
    """The handler is not called: as many records as `Retry` allows already wait behind a failed record."""

    @property
    def items(self) -> list[Item]:
        """The records by offset."""
        return sorted((item for _, items in self.parts for item in items), key=lambda item: item.offset)


class PartitionLanes:
    """The records that one partition has for the handler."""

    def __init__(self, source: TopicPartition, done: DoneOffsets, *, by_key: bool) -> None:
        self.source: TopicPartition = source
        self.done: DoneOffsets = done
        self._by_key = by_key
        self._lanes: dict[object, Lane] = {}
        self._ready: dict[Lane, None] = {}
        self._parked: dict[Lane, None] = {}
        self.holding: Lane | None = None
        """The lane of the record for which the whole partition waits (`Retry.in_place`)."""
        self.waiting: int = 0
        """Records that wait, those behind a failed record included."""
        self.waiting_bytes: int = 0
        self.parked: int = 0
        """Records of lanes that wait for another attempt."""
        self.parked_bytes: int = 0
        self.in_work: int = 0
        self.start: tuple[int, Collection[int]] | None = None
        """The position at which this member began, and the records behind the position that were done."""
        self.held_until: float = 0.0
        """Brokers refuse an output: nothing is committed before this time of the dispatcher's clock."""
        self.repeats: set[int] = set()
        """Records of batches with a refused output: the partition begins anew when nothing is in work."""
        self.suspects: frozenset[int] = frozenset()
        """``repeats`` of the partition before it began anew; each of these records gets a call of its own."""
        self.fence: int = 0
        """The claim on the row of the partition, where a database takes the offsets."""
        self.saving: threading.Lock = threading.Lock()
        """Held from the moment a transaction computes the position until it is committed."""
        self.saved: tuple[int, str] | None = None
        """The position that the database has."""
        self.closed: bool = False
        """The partition goes to another member: no further record goes to the handler."""
        self.lost: bool = False
        """The partition belongs to another member: nothing is committed any more."""

    def lane_name(self, item: Item) -> object:
        """The lane of a record. A record without key waits for no other, and no other for it."""
        if not self._by_key:
            return None
        return item.offset if item.key is None else item.key

    def is_parked(self, item: Item) -> bool:
        """The record would wait behind one that has failed."""
        lane = self._lanes.get(self.lane_name(item))
        return lane is not None and lane.due is not None

    def add(self, item: Item) -> None:
        """A record has come."""
        name = self.lane_name(item)
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = Lane(name)
        self._count(lane, [item], 1)
        lane.items.append(item)
        self._settle(lane)

    def turn_away(self, item: Item) -> Unit:
        """A unit for a record of a lane that may not hold more waiting records."""
        self.in_work += 1
        return Unit(self, ((Lane(object(), busy=True), [item]),), no_room=True)

    def take(self, most: int, most_bytes: int, now: float) -> Unit | None:
        """The next records for one call, at most so many, and at least one. None: nothing may go."""
        if self.closed:
            return None
        parts: list[tuple[Lane, list[Item]]] = []
        room, left = most_bytes, most
        for lane in self._may_go(now):
            items = self._head(lane, left, room, first=not parts)
            if not items:
                break
            parts.append((lane, items))
            room -= sum(item.size for item in items)
            left -= len(items)
            if items[-1].alone or room <= 0 or left <= 0:
                break
        for lane, items in parts:
            self._take(lane, items)
        return Unit(self, tuple(parts)) if parts else None

    def _may_go(self, now: float) -> Iterator[Lane]:
        if self.holding is not None:
            held = self.holding
            if not held.busy and held.due is not None and held.due <= now:
                yield held
            return
        for lane in self._parked:
            if not lane.busy and lane.due is not None and lane.due <= now:
                yield lane
        limit = self._limit
        for lane in self._ready:
            if lane.items[0].offset < limit:
                yield lane

    @property
    def _limit(self) -> int:
        """The first offset that is too far ahead to be listed in a commit's metadata."""
        return (self.done.position or 0) + MOST_AHEAD

    def _head(self, lane: Lane, most: int, room: int, *, first: bool) -> list[Item]:
        """The records of a lane that may go in one call with what was taken before."""
        found: list[Item] = []
        limit = self._limit
        for item in lane.items:
            room -= item.size
            too_much = len(found) >= most or (room < 0 and not (first and not found))
            if too_much or item.offset >= limit or (item.alone and (found or not first)):
                break
            found.append(item)
            if item.alone:
                break
        return found

    def _take(self, lane: Lane, items: list[Item]) -> None:
        self._count(lane, items, -1)
        for _ in items:
            lane.items.popleft()
        lane.busy = True
        self.in_work += len(items)
        self._ready.pop(lane, None)

    def finished(self, unit: Unit) -> None:
        """Nothing of a unit is in work any more; all of its records are done with."""
        for lane, items in unit.parts:
            self._release(lane, items)
            self._recovered(lane)
            self._settle(lane)

    def put_back(self, unit: Unit, left: Iterable[Item], due: float | None = None) -> None:
        """A unit is over, and these records of it are not done with. They are the first of their lanes again.

        ``due`` is when the lanes of these records may go; None: now.
        """
        kept = set(left)
        for lane, items in unit.parts:
            self._release(lane, items)
            self._recovered(lane)
            back = [item for item in items if item in kept]
            lane.items.extendleft(reversed(back))
            self._count(lane, back, 1)
            if back and due is not None:
                lane.due = due
                self._parked[lane] = None
                self.parked += len(lane.items)
                self.parked_bytes += sum(item.size for item in lane.items)
            self._settle(lane)

    def next_due(self) -> float | None:
        """When the next lane that waits may go."""
        return min(
            (lane.due for lane in self._parked if lane.due is not None and not lane.busy), default=None
        )

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    @property
    def parked_keys(self) -> int:
        return len(self._parked)

    def drop_waiting(self) -> int:
        """Forgets what waits; returns how many records that were."""
        dropped = self.waiting
        for lane in self._lanes.values():
            lane.items.clear()
            lane.due = None
        self._lanes = {name: lane for name, lane in self._lanes.items() if lane.busy}
        self._ready.clear()
        self._parked.clear()
        self.holding = None
        self.waiting = self.waiting_bytes = self.parked = self.parked_bytes = 0
        return dropped

    def _release(self, lane: Lane, items: list[Item]) -> None:
        lane.busy = False
        self.in_work -= len(items)

    def _recovered(self, lane: Lane) -> None:
        if lane.due is not None:
            lane.due = None
            del self._parked[lane]
            self.parked -= len(lane.items)
            self.parked_bytes -= sum(item.size for item in lane.items)
        if self.holding is lane:
            self.holding = None

    def _settle(self, lane: Lane) -> None:
        if lane.busy or lane.due is not None:
            return
        if lane.items:
            self._ready[lane] = None
        else:
            self._lanes.pop(lane.name, None)

    def _count(self, lane: Lane, items: list[Item], sign: int) -> None:
        size = sum(item.size for item in items)
        self.waiting += sign * len(items)
        self.waiting_bytes += sign * size
        if lane.due is not None:
            self.parked += sign * len(items)
            self.parked_bytes += sign * size
