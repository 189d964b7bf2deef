"""Lanes: records of a key keep their order, whatever else fails, waits or hangs."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streamapp.consumer.done_offsets import MOST_AHEAD, DoneOffsets
from streamapp.consumer.lanes import Item, PartitionLanes, Unit
from streamapp.records import TopicPartition

_SOURCE = TopicPartition("orders", 0)


def item(offset: int, key: bytes | None = b"k", value: bytes = b"") -> Item:
    return Item(offset, 0, key, value, ())


def lanes(*, by_key: bool = True) -> PartitionLanes:
    return PartitionLanes(_SOURCE, DoneOffsets(), by_key=by_key)


def add(partition: PartitionLanes, *items: Item) -> None:
    for each in items:
        partition.done.take(each.offset)
        partition.add(each)


@dataclass
class _Model:
    """What every user may expect, in the simplest form."""

    arrived: dict[object, list[int]] = field(default_factory=dict)
    handled: dict[object, list[int]] = field(default_factory=dict)
    running: list[Unit] = field(default_factory=list)


class LanesMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.partition = lanes(by_key=self.by_key)
        self.model, self.next, self.now = _Model(), 0, 0.0

    by_key = True

    def _name(self, each: Item) -> object:
        return self.partition.lane_name(each)

    @rule(key=st.sampled_from([b"a", b"b", b"c", None]), gap=st.integers(0, 3))
    def arrive(self, key: bytes | None, gap: int) -> None:
        self.next += gap
        each = item(self.next, key)
        self.model.arrived.setdefault(self._name(each), []).append(self.next)
        add(self.partition, each)
        self.next += 1

    @rule(most=st.integers(1, 5))
    def hand_out(self, most: int) -> None:
        unit = self.partition.take(most, 1 << 20, self.now)
        if unit is None:
            return
        assert 1 <= len(unit.items) <= most
        busy = {self._name(each) for other in self.model.running for each in other.items}
        assert not busy & {self._name(each) for each in unit.items}, "a lane is worked on once at a time"
        assert not any(each.alone for each in unit.items) or len(unit.items) == 1
        self.model.running.append(unit)

    @precondition(lambda self: self.model.running)
    @rule(data=st.data())
    def succeed(self, data: st.DataObject) -> None:
        unit = self._ended(data)
        for each in unit.items:
            self.model.handled.setdefault(self._name(each), []).append(each.offset)
        self.partition.done.finish(each.offset for each in unit.items)
        self.partition.finished(unit)

    @precondition(lambda self: self.model.running)
    @rule(data=st.data(), wait=st.sampled_from([None, 0.5, 2.0]), hold=st.booleans())
    def fail(self, data: st.DataObject, wait: float | None, hold: bool) -> None:
        unit = self._ended(data)
        for each in unit.items:
            each.alone = True
        self.partition.put_back(unit, unit.items, None if wait is None else self.now + wait)
        if wait is not None and hold and self.partition.holding is None:
            self.partition.holding = unit.parts[0][0]

    @rule()
    def time_goes_on(self) -> None:
        self.now += 1.0

    def _ended(self, data: st.DataObject) -> Unit:
        return self.model.running.pop(data.draw(st.integers(0, len(self.model.running) - 1)))

    @invariant()
    def every_lane_is_handled_in_order(self) -> None:
        for name, handled in self.model.handled.items():
            assert handled == self.model.arrived[name][: len(handled)]

    @invariant()
    def the_numbers_add_up(self) -> None:
        arrived = sum(map(len, self.model.arrived.values()))
        handled = sum(map(len, self.model.handled.values()))
        assert arrived == handled + self.partition.in_work + self.partition.waiting
        assert 0 <= self.partition.parked <= self.partition.waiting
        assert (self.partition.parked_bytes == 0) == (self.partition.parked == 0)

    def teardown(self) -> None:
        """Everything comes to its end: nothing is stuck."""
        for unit in self.model.running:
            self.partition.put_back(unit, unit.items)
        self.model.running.clear()
        for _ in range(10_000):
            self.now += 10.0
            unit = self.partition.take(3, 1 << 20, self.now)
            if unit is None:
                break
            self.partition.done.finish(each.offset for each in unit.items)
            self.partition.finished(unit)
        assert self.partition.waiting == self.partition.in_work == self.partition.parked == 0
        assert not self.partition.has_ready


class PartitionMachine(LanesMachine):
    by_key = False


TestLanesByKey = LanesMachine.TestCase
TestLanesByPartition = PartitionMachine.TestCase
TestLanesByKey.settings = TestLanesByPartition.settings = settings(max_examples=60, stateful_step_count=40)


def test_a_batch_has_records_of_several_keys_in_the_order_of_the_partition() -> None:
    partition = lanes()
    add(partition, item(0, b"a"), item(1, b"b"), item(2, b"a"), item(3, b"b"))
    unit = partition.take(4, 1 << 20, 0.0)
    assert unit is not None
    assert [each.offset for each in unit.items] == [0, 1, 2, 3]


def test_a_batch_is_bounded_by_bytes_but_has_a_record() -> None:
    partition = lanes()
    add(partition, item(0, b"a", b"x" * 1_000), item(1, b"b", b"x" * 1_000))
    unit = partition.take(10, 100, 0.0)
    assert unit is not None
    assert [each.offset for each in unit.items] == [0]


def test_a_key_that_hangs_stops_its_partition_only_when_the_metadata_has_no_room() -> None:
    partition = lanes()
    add(partition, item(0, b"hangs"), item(MOST_AHEAD - 1, b"a"), item(MOST_AHEAD, b"b"))
    hangs = partition.take(1, 1 << 20, 0.0)
    assert hangs is not None
    other = partition.take(5, 1 << 20, 0.0)
    assert other is not None
    assert [each.offset for each in other.items] == [MOST_AHEAD - 1]
    assert partition.take(5, 1 << 20, 0.0) is None
    partition.done.finish([0])
    partition.finished(hangs)
    last = partition.take(5, 1 << 20, 0.0)
    assert last is not None
    assert [each.offset for each in last.items] == [MOST_AHEAD]


def test_records_without_a_key_wait_for_nobody() -> None:
    partition = lanes()
    add(partition, item(0, None), item(1, None))
    assert partition.take(1, 1 << 20, 0.0) is not None
    assert partition.take(1, 1 << 20, 0.0) is not None


def test_what_waits_is_dropped_while_what_is_in_work_goes_on() -> None:
    partition = lanes()
    add(partition, item(0), item(1), item(2, b"other"))
    unit = partition.take(1, 1 << 20, 0.0)
    assert unit is not None
    assert partition.drop_waiting() == 2
    assert (partition.waiting, partition.in_work) == (0, 1)
    partition.finished(unit)
    assert partition.in_work == 0
