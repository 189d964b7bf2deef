"""`PartitionLanes`: the waiting records of one partition, and which of them may go to the handler next.

Records wait in lanes: one lane for each key, or one for the whole partition. A lane has one call of the handler at a
time, so its records keep their order, while other lanes go on. The dispatcher holds its lock around every call, so
nothing here waits, reads a clock or does I/O.
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
"""The memory that a record needs beside its key, value and headers, in bytes (an estimate)."""


@dataclass(slots=True, eq=False)
class Item:
    """One record that waits for the handler, or is in a call of the handler."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    attempts: int = 0
    """The number of errors that this record has caused. Failures of a service and of whole batches do not count."""
    since: float | None = None
    """The time of the first error that this record has caused, in milliseconds of the dispatcher's clock."""
    failures: int = 0
    """The number of calls with this record in which a service has failed."""
    alone: bool = False
    """True after a batch with this record has failed, or has given an output that brokers refuse. The record then gets
    a call of its own, which shows if this record is the cause."""
    unsure: bool = False
    """True if nobody knows whether the database has committed a transaction with this record."""

    @property
    def size(self) -> int:
        return _OVERHEAD + payload_bytes(self.key, self.value, self.headers)


@dataclass(slots=True, eq=False)
class Lane:
    """The waiting records of one key (or of the whole partition), in order."""

    name: object
    items: deque[Item] = field(default_factory=deque)
    busy: bool = False
    due: float | None = None
    """The time of the next attempt after an error; until then, the whole lane waits. None: no attempt is planned."""
    parked: bool = False
    """True if the lane waits because of an error of its record. False also if the lane waits for a service: its records
    then count as those of lanes that wait for nothing."""


@dataclass(slots=True, eq=False)
class Unit:
    """The records of one call of the handler: one record, or a batch of one partition."""

    partition: PartitionLanes
    parts: tuple[tuple[Lane, list[Item]], ...]
    probe: bool = False
    """True if this unit is a trial call, which finds out whether a failed service answers again."""
    no_room: bool = False
    """True if the handler is not called, because the records that wait for a retry have reached the limit of
    `Retry`."""

    @property
    def items(self) -> list[Item]:
        """The records, ordered by offset."""
        return sorted((item for _, items in self.parts for item in items), key=lambda item: item.offset)


class PartitionLanes:
    """The records of one partition that wait for the handler, in lanes."""

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
        """The number of records that wait, also behind a failed record."""
        self.waiting_bytes: int = 0
        self.parked: int = 0
        """The number of records in lanes that wait for another attempt."""
        self.parked_bytes: int = 0
        self.in_work: int = 0
        self.new_begin: bool = False
        """True until the begin of the partition is committed, if a later start would choose another one. Until then, no
        record goes to the handler."""
        self.start: tuple[int, Collection[int]] | None = None
        """The position at which this member began, and the records behind the position that were done."""
        self.held_until: float = 0.0
        """Brokers refuse an output: until this time of the dispatcher's clock, nothing of the partition is
        committed."""
        self.repeats: set[int] = set()
        """The records of batches with a refused output. The partition begins anew as soon as no call of the handler is
        open."""
        self.suspects: frozenset[int] = frozenset()
        """All ``repeats`` of the partition before it began anew; each of these records gets a call of its own."""
        self.fence: int = 0
        """If a database saves the offsets: the number that its row for the partition has for this owner
        (`SavedOffset`)."""
        self.saving: threading.Lock = threading.Lock()
        """A lock for transactions of the database. A transaction holds the lock from the computation of its position to
        its commit."""
        self.saved: tuple[int, str] | None = None
        """The last position that this member has saved in the database; None before the first one."""
        self.closed: bool = False
        """True if no further record of the partition goes to the handler, for example because the group gives the
        partition to another member."""
        self.lost: bool = False
        """True after `Dispatcher.forget`: nothing of the partition is committed any more, for example because another
        member owns it."""

    def lane_name(self, item: Item) -> object:
        """The lane of a record.

        With ``ordered_by="key"``, a record without a key has a lane of its own, because no other record has to wait for
        the record.
        """
        if not self._by_key:
            return None
        return item.offset if item.key is None else item.key

    def is_parked(self, item: Item) -> bool:
        """True if this record would have to wait behind a failed record, because both belong to the same lane."""
        lane = self._lanes.get(self.lane_name(item))
        return lane is not None and lane.parked

    def add(self, item: Item) -> None:
        """Adds a record at the end of its lane."""
        name = self.lane_name(item)
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = Lane(name)
        self._count(lane, [item], 1)
        lane.items.append(item)
        self._settle(lane)

    def turn_away(self, item: Item) -> Unit:
        """A unit for a record that cannot wait, because the records that wait for a retry have reached the limit of
        `Retry`."""
        self.in_work += 1
        return Unit(self, ((Lane(object(), busy=True), [item]),), no_room=True)

    def take(self, most: int, most_bytes: int, now: float) -> Unit | None:
        """The next unit: at most ``most`` records with together ``most_bytes`` bytes, but at least one record.

        None if no record may go to the handler now.
        """
        if self.closed or self.new_begin:
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
        """The first offset whose record has to wait, because the metadata of a commit would have no space for it
        (`MOST_AHEAD`)."""
        return (self.done.position or 0) + MOST_AHEAD

    def _head(self, lane: Lane, most: int, room: int, *, first: bool) -> list[Item]:
        """The first records of a lane, as many as fit into the next call of the handler. ``first`` is true if this call
        has no records yet.
        """
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
        """Notes that the call of a unit is over, and that none of its records needs another call."""
        for lane, items in unit.parts:
            self._release(lane, items)
            self._recovered(lane)
            self._settle(lane)

    def put_back(
        self, unit: Unit, left: Iterable[Item], due: float | None = None, *, parked: bool = True
    ) -> None:
        """Notes that the handler's call for a unit (the records of one call) is over.

        The records ``left``, which need another call, return to the front of their lanes.

        ``due`` is the time from which these lanes may go on; None means at once. ``parked`` is False if the lanes wait
        for a service, and not because of an error of their records.
        """
        kept = set(left)
        for lane, items in unit.parts:
            self._release(lane, items)
            self._recovered(lane)
            back = [item for item in items if item in kept]
            lane.items.extendleft(reversed(back))
            self._count(lane, back, 1)
            if back and due is not None:
                lane.due, lane.parked = due, parked
                self._parked[lane] = None
                if parked:
                    self.parked += len(lane.items)
                    self.parked_bytes += sum(item.size for item in lane.items)
            self._settle(lane)

    def next_due(self) -> float | None:
        """The time of the next retry, or None if no lane waits for one."""
        return min(
            (lane.due for lane in self._parked if lane.due is not None and not lane.busy), default=None
        )

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    @property
    def delayed(self) -> bool:
        """True if a lane waits for the next attempt, after an error of its record or a failure of a service."""
        return bool(self._parked)

    def drop_waiting(self) -> int:
        """Drops all waiting records, and returns their number. Records in calls of the handler are not touched."""
        dropped = self.waiting
        for lane in self._lanes.values():
            lane.items.clear()
            lane.due, lane.parked = None, False
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
            del self._parked[lane]
            if lane.parked:
                self.parked -= len(lane.items)
                self.parked_bytes -= sum(item.size for item in lane.items)
            lane.due, lane.parked = None, False
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
        if lane.parked:
            self.parked += sign * len(items)
            self.parked_bytes += sign * size
