"""How far behind an input is, and what happens when nothing arrives of it; without a broker."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamapp._base.offset_reset import OffsetReset
from streamapp.broker.consumer import ConsumerEvent
from streamapp.broker.lasting_consumer import LastingConsumer
from streamapp.broker.leader_epochs import FetchedBatch, ReadEnd
from streamapp.broker.requests import NO_TIMEOUT
from streamapp.config import StreamsConfig
from streamapp.engine.metadata import decode_metadata, encode_metadata
from streamapp.engine.runner_ports import Position
from streamapp.errors import BrokerError, TaskCorruptedError
from streamapp.records import RecordBatch, TopicPartition
from streamapp.runners.worker import clients, fetch
from streamapp.runners.worker.fetch import Fetcher
from streamapp.runners.worker.membership import StaleMemberError

from ..broker.test_consumer import cut_off

ONE, TWO = (TopicPartition("in", p) for p in range(2))


class Brokers:
    """The admin client and the consumer of a fetcher, and the clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.ends = {ONE: 0, TWO: 0}
        self.stale = False
        self.answer = True
        self.asked = 0
        self.open = 1
        self.errors: list[int] = []
        self.arrived: list[tuple[TopicPartition, RecordBatch]] = []
        self.events: list[ConsumerEvent] = []
        self.offsets: dict[TopicPartition, tuple[int, str]] = {}
        self.restarted: list[dict[TopicPartition, int]] = []

    def list_offsets(
        self, wanted: dict[Any, Any], *, request_timeout: float, **_: Any
    ) -> dict[Any, Future[Any]]:
        assert request_timeout == NO_TIMEOUT
        self.asked += 1
        futures: dict[Any, Future[Any]] = {tp: Future() for tp in wanted}
        for tp, future in futures.items():
            if self.answer:
                future.set_result(SimpleNamespace(offset=self.ends[TopicPartition(tp.topic, tp.partition)]))
            else:
                future.set_exception(KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE)))
        return futures

    def list_topics(self, topic: str, timeout: float, *, keep: bool) -> None: ...

    def confirm(self) -> None:
        if self.stale:
            raise StaleMemberError("others have the tasks")

    def poll(self, most: int, timeout: float) -> tuple[list[Any], list[Any]]:
        arrived, self.arrived = self.arrived, []
        events, self.events = self.events, []
        return arrived, events

    def assign(self, *started: dict[TopicPartition, int]) -> None:
        self.started = started

    def remove(self, partitions: list[TopicPartition]) -> None: ...
    def pause(self, tp: TopicPartition) -> None: ...
    def resume(self, tp: TopicPartition) -> None: ...

    def take_lost(self) -> bool:
        return False

    def add(self, positions: dict[TopicPartition, int], epochs: object) -> None:
        self.restarted.append(positions)

    def committed(
        self, partitions: list[TopicPartition], timeout: float
    ) -> dict[TopicPartition, tuple[int, str]]:
        if self.errors:
            raise KafkaException(KafkaError(self.errors.pop(0)))
        return dict.fromkeys(partitions, (0, "")) | self.offsets

    def close(self) -> None:
        self.open -= 1

    def end(self, tp: TopicPartition) -> int:
        return -1  # it has not fetched yet


def earliest(topic: str) -> OffsetReset:
    return "earliest"


def no_tables(found: Mapping[TopicPartition, tuple[int, str]]) -> Collection[TopicPartition]:
    return ()


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    brokers = Brokers()
    monkeypatch.setattr(
        fetch,
        "open_consumer",
        lambda settings, ends: LastingConsumer(lambda: brokers, ends=ends),  # type: ignore[arg-type, return-value]
    )
    monkeypatch.setattr(time, "monotonic", lambda: brokers.now)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    return brokers


@pytest.fixture
def fetcher(brokers: Brokers) -> Fetcher:
    fetcher = Fetcher(StreamsConfig("app"), brokers, brokers.confirm, earliest, {}, no_tables)  # type: ignore[arg-type]
    live: Any = SimpleNamespace(
        inputs=(ONE, TWO), starts={ONE: 0, TWO: 0}, task=SimpleNamespace(enqueue=lambda tp, batch: None)
    )
    fetcher.assign([live])
    return fetcher


def wait(fetcher: Fetcher, brokers: Brokers, seconds: int, *, poll: bool = True) -> None:
    for _ in range(seconds):
        brokers.now += 1
        if poll:
            fetcher.poll(0)
        fetcher.refresh_ends()


def test_the_end_of_a_log_is_known_also_when_nothing_is_fetched(fetcher: Fetcher, brokers: Brokers) -> None:
    brokers.ends = {ONE: 50, TWO: 7}
    wait(fetcher, brokers, 7, poll=False)
    assert fetcher.ends == {ONE: 50, TWO: 7}
    assert brokers.asked == 1
    brokers.answer = False
    wait(fetcher, brokers, 20, poll=False)
    assert fetcher.ends == {ONE: 50, TWO: 7}
    assert brokers.asked > 2


def test_another_thread_may_ask_for_the_ends_of_the_logs(fetcher: Fetcher, brokers: Brokers) -> None:
    wait(fetcher, brokers, 7)
    brokers.ends = {ONE: 50, TWO: 7}
    brokers.arrived = [(ONE, RecordBatch([b"k"], [b"v"], [1], [0]))]
    for _ in range(200):  # the data plane is held up, and asks for nothing
        brokers.now += 1
        fetcher.refresh_ends_beside()
    assert fetcher.ends == {ONE: 50, TWO: 7}
    assert brokers.asked <= 2 + 200 / 5
    assert brokers.arrived  # it has not polled
    assert brokers.restarted == []


@pytest.mark.parametrize("beside", [False, True])
def test_the_lag_grows_during_a_rebalance(fetcher: Fetcher, brokers: Brokers, beside: bool) -> None:
    wait(fetcher, brokers, 7)
    fetcher.assign([])  # the tasks stay, but nothing is read
    brokers.ends = {ONE: 50, TWO: 7}
    for _ in range(12):
        brokers.now += 1
        if beside:
            fetcher.refresh_ends_beside()
        else:
            fetcher.refresh_ends()
    assert fetcher.ends == {ONE: 50, TWO: 7}
    asked = brokers.asked
    fetcher.forget([SimpleNamespace(inputs=(ONE, TWO))])  # type: ignore[list-item]
    wait(fetcher, brokers, 20, poll=False)
    assert brokers.asked == asked


def test_an_input_of_which_nothing_arrives_is_fetched_anew(fetcher: Fetcher, brokers: Brokers) -> None:
    brokers.ends = {ONE: 50, TWO: 7}
    brokers.arrived = [(TWO, RecordBatch([b"k"], [b"v"], [1], [6]))]
    wait(fetcher, brokers, 50)
    assert brokers.restarted == []
    wait(fetcher, brokers, 30)
    assert brokers.restarted == [{ONE: 0}]
    brokers.arrived = [(ONE, RecordBatch([b"k"], [b"v"], [1], [49]))]
    wait(fetcher, brokers, 200)
    assert brokers.restarted == [{ONE: 0}]


def test_an_input_is_at_its_end_only_if_no_record_came_behind_the_end(
    fetcher: Fetcher, brokers: Brokers
) -> None:
    """A poll may have an end of the log, and records behind it. While the log may have more, other inputs wait."""
    live: Any = SimpleNamespace(inputs=(ONE, TWO))
    end = KafkaError(KafkaError._PARTITION_EOF)
    brokers.arrived = [(ONE, RecordBatch([b"k"], [b"v"], [1], [5]))]
    brokers.events = [ConsumerEvent(ONE, 5, end), ConsumerEvent(TWO, 0, end)]
    fetcher.poll(0)
    assert fetcher.caught_up(live) == {TWO}
    brokers.events = [ConsumerEvent(ONE, 7, end)]  # behind the marker of a transaction
    fetcher.poll(0)
    assert fetcher.caught_up(live) == {ONE, TWO}
    assert fetcher.read_up_to(ONE) == 7


def test_an_input_that_is_read_again_is_not_at_its_end(fetcher: Fetcher, brokers: Brokers) -> None:
    live: Any = SimpleNamespace(inputs=(ONE, TWO))
    brokers.events = [ConsumerEvent(ONE, 0, KafkaError(KafkaError._PARTITION_EOF))]
    fetcher.poll(0)
    assert fetcher.caught_up(live) == {ONE}
    brokers.events = [ConsumerEvent(ONE, 0, KafkaError(KafkaError._AUTO_OFFSET_RESET))]
    fetcher.poll(0)
    assert fetcher.caught_up(live) == set()
    assert brokers.restarted == [{ONE: 0}]


def test_an_input_that_goes_on_or_is_not_read_does_not_stall(fetcher: Fetcher, brokers: Brokers) -> None:
    brokers.ends = {ONE: 1_000, TWO: 0}
    wait(fetcher, brokers, 200, poll=False)  # the worker is paused, or busy
    for offset in range(5):
        brokers.arrived = [(ONE, RecordBatch([b"k"], [b"v"], [1], [offset]))]
        wait(fetcher, brokers, 50)
    assert brokers.restarted == []


def test_a_coordinator_that_is_silent_is_asked_by_another_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Brokers(), Brokers()
    consumers = [first, second]
    monkeypatch.setattr(fetch, "open_consumer", lambda settings, ends: consumers.pop(0))
    monkeypatch.setattr(clients, "open_consumer", lambda settings: consumers.pop(0))
    monkeypatch.setattr(clients.time, "sleep", lambda seconds: None)
    first.errors = [KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError._TIMED_OUT]
    fetcher = Fetcher(StreamsConfig("app"), first, first.confirm, earliest, {}, no_tables)  # type: ignore[arg-type]
    assert fetcher.committed([ONE])[ONE].offset == 0
    assert (first.errors, consumers, first.open, second.open) == ([], [], 1, 0)


class _Holding:
    """A task of two inputs that waits for one of them, and its place in the worker."""

    holds_back = True
    inputs = (ONE, TWO)

    def __init__(self) -> None:
        self.task, self.starts = self, {ONE: 0, TWO: 0}
        self.buffered = {ONE: 0, TWO: 0}
        self.buffered_bytes = {ONE: 0, TWO: 0}


def test_an_input_is_paused_by_the_bytes_that_wait_but_never_the_one_that_is_waited_for(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused: set[TopicPartition] = set()
    monkeypatch.setattr(brokers, "pause", paused.add, raising=False)
    monkeypatch.setattr(brokers, "resume", paused.discard, raising=False)
    config = StreamsConfig("app", state_memory_bytes=32 << 20)
    fetcher = Fetcher(config, brokers, lambda: None, earliest, {}, no_tables)  # type: ignore[arg-type]
    task = _Holding()
    fetcher.assign([task])  # type: ignore[list-item]
    task.buffered[ONE], task.buffered_bytes[ONE] = 5, config.memory.waiting
    fetcher.apply_back_pressure([task])
    assert paused == set()
    task.buffered[ONE], task.buffered_bytes[ONE] = 6, config.memory.waiting + 400_000
    fetcher.apply_back_pressure([task])
    assert paused == {ONE}
    task.buffered[TWO], task.buffered_bytes[TWO] = 1, 400_000
    fetcher.apply_back_pressure([task])
    assert paused == {ONE, TWO}
    task.buffered[TWO], task.buffered_bytes[TWO] = 0, 0
    fetcher.apply_back_pressure([task])
    assert paused == {ONE}
    task.buffered[ONE], task.buffered_bytes[ONE] = 1, 400_000
    fetcher.apply_back_pressure([task])
    assert paused == set()


def test_a_member_of_a_new_group_begins_at_the_end_also_if_another_member_was_first(
    monkeypatch: pytest.MonkeyPatch, brokers: Brokers
) -> None:
    """Once the first member had committed the begin of its partitions, the others read theirs from the first record."""
    monkeypatch.setattr(fetch, "open_consumer", lambda settings, ends: brokers)
    brokers.committed = lambda partitions, timeout: {  # type: ignore[method-assign]
        tp: (3, "") if tp == ONE else (-1001, "") for tp in partitions
    }
    topic = SimpleNamespace(partitions={0: None, 1: None})
    brokers.list_topics = lambda timeout: SimpleNamespace(topics={"in": topic})  # type: ignore[attr-defined]
    monkeypatch.setattr(
        fetch,
        "list_offsets",
        lambda admin, tps, latest, stable=False, **_: dict.fromkeys(tps, 50 if stable else 60 * latest),
    )
    fetcher = Fetcher(
        StreamsConfig("app"), brokers, brokers.confirm, lambda topic: "latest", {"in": 2}, no_tables
    )  # type: ignore[arg-type]
    assert fetcher.committed([TWO])[TWO].offset == 50
    assert fetcher.to_commit == {TWO}


class Unled:
    """`list_offsets` of logs from 0 to 60, of which some have no leader."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *partitions: TopicPartition) -> None:
        self.partitions = set(partitions)
        monkeypatch.setattr(fetch, "list_offsets", self._list)

    def _list(
        self, admin: Any, tps: Any, *, latest: bool, leaderless: set[TopicPartition], **_: Any
    ) -> dict[TopicPartition, int]:
        leaderless |= self.partitions.intersection(tps)
        return {tp: 60 * latest for tp in tps if tp not in self.partitions}


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_only_an_input_without_a_leader_and_without_an_offset_has_no_begin(
    monkeypatch: pytest.MonkeyPatch, brokers: Brokers, reset: OffsetReset
) -> None:
    """The look-up waited for the leader, and no task of the worker went on."""
    three = TopicPartition("in", 2)
    unled = Unled(monkeypatch, TWO, three)
    brokers.ends |= {three: -1}
    offsets = {ONE: (-1001, ""), TWO: (5, "note"), three: (-1001, "")}
    brokers.committed = lambda tps, timeout: {tp: offsets[tp] for tp in tps}  # type: ignore[method-assign]
    fetcher = Fetcher(StreamsConfig("app"), brokers, brokers.confirm, lambda topic: reset, {}, no_tables)  # type: ignore[arg-type]
    begin = 60 if reset == "latest" else 0
    assert fetcher.committed([ONE, TWO, three]) == {ONE: Position(begin), TWO: Position(5, "note")}
    wait(fetcher, brokers, 9, poll=False)
    assert not fetcher.placeable(three)
    assert fetcher.leaderless == {three}
    brokers.ends[three] = 60
    unled.partitions.clear()
    wait(fetcher, brokers, 3, poll=False)
    assert fetcher.placeable(three)
    assert fetcher.leaderless == set()
    assert fetcher.committed([three]) == {three: Position(begin)}


def test_a_begin_that_was_chosen_before_needs_no_leader(
    monkeypatch: pytest.MonkeyPatch, brokers: Brokers
) -> None:
    unled = Unled(monkeypatch)
    brokers.committed = lambda tps, timeout: dict.fromkeys(tps, (-1001, ""))  # type: ignore[method-assign]
    fetcher = Fetcher(StreamsConfig("app"), brokers, brokers.confirm, lambda topic: "latest", {}, no_tables)  # type: ignore[arg-type]
    fetcher.committed([ONE])
    unled.partitions.add(ONE)
    assert fetcher.committed([ONE]) == {ONE: Position(60)}
    assert fetcher.to_commit == {ONE}


def test_a_position_that_the_log_lacks_stays_until_there_is_a_leader(
    monkeypatch: pytest.MonkeyPatch, fetcher: Fetcher, brokers: Brokers
) -> None:
    unled = Unled(monkeypatch, ONE)
    gone = KafkaError(KafkaError._AUTO_OFFSET_RESET)
    fetcher._next[ONE] = 90
    fetcher._on_event((ONE, 90, gone))
    assert brokers.restarted == [{ONE: 90}]
    unled.partitions.clear()
    with pytest.raises(TaskCorruptedError, match="in-0 is 90, but the topic ends at 60"):
        fetcher._on_event((ONE, 90, gone))


def test_the_records_before_a_committed_offset_are_compared_with_the_log(
    fetcher: Fetcher, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an unclean election while the worker was stopped, new records before the offset were passed over."""
    brokers.arrived = [(ONE, FetchedBatch.of([(0, 3)], [b"k"] * 2, [b"v"] * 2, [1, 1], [0, 6]))]
    fetcher.poll(0)
    committed = {
        tp: fetcher.with_epoch(tp, Position(9, encode_metadata(5, {"store": 7}))) for tp in (ONE, TWO)
    }
    assert decode_metadata(committed[ONE].metadata)[1].keys() == {"store", "leader epoch"}
    assert committed[TWO].metadata == encode_metadata(5, {"store": 7})  # no record was read

    brokers.offsets = {tp: (position.offset, position.metadata) for tp, position in committed.items()}
    live: Any = SimpleNamespace(inputs=(ONE, TWO), starts={ONE: 9, TWO: 9})
    asked: list[Mapping[TopicPartition, ReadEnd]] = []
    monkeypatch.setattr(fetch, "check_read_records", lambda config, ends: asked.append(ends))
    fetcher.forget([live])
    monkeypatch.setattr(
        fetch, "list_offsets", lambda admin, tps, latest, **_: dict.fromkeys(tps, 60 * latest)
    )
    fetcher.committed((ONE, TWO))
    assert asked == [{ONE: ReadEnd(7, 3)}]
    fetcher.assign([live])
    assert brokers.started == ({ONE: 7, TWO: 9}, {ONE: 3})
    assert (
        fetcher.with_epoch(ONE, Position(9, "")).metadata == ""
    )  # the offset of another tool has no metadata
    again = fetcher.with_epoch(ONE, Position(9, encode_metadata(5, {"store": 7})))
    assert again == committed[ONE]  # a commit without a new record


def test_an_input_that_has_lost_records_and_grown_again_ends_the_worker(
    fetcher: Fetcher, brokers: Brokers
) -> None:
    """After an unclean election, later records had the offsets of lost ones, and were passed over."""
    fetcher._next[ONE] = 50
    with pytest.raises(TaskCorruptedError, match="in-0 has lost the records from offset 30 on"):
        fetcher._on_event((ONE, 50, cut_off(50, 30)))
    brokers.stale = True
    with pytest.raises(StaleMemberError):
        fetcher._on_event((ONE, 50, cut_off(50, 30)))


@pytest.mark.parametrize("may_go", [True, False])
def test_a_deleted_topic_does_not_end_a_worker_that_reads_it_by_a_pattern(
    monkeypatch: pytest.MonkeyPatch, brokers: Brokers, may_go: bool
) -> None:
    """The deletion made a commit or a rebalance open the task anew. Then the worker waited for the topic, and ended."""
    gone = TopicPartition("gone", 0)
    monkeypatch.setattr(time, "sleep", lambda seconds: setattr(brokers, "now", brokers.now + 1))
    known = brokers.list_offsets

    def list_offsets(wanted: dict[Any, Any], **options: Any) -> dict[Any, Future[Any]]:
        futures: dict[Any, Future[Any]] = known(
            {tp: s for tp, s in wanted.items() if tp.topic == "in"}, **options
        )
        for tp in wanted.keys() - futures.keys():
            futures[tp] = Future()
            futures[tp].set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        return futures

    brokers.list_offsets = list_offsets  # type: ignore[method-assign]
    topics = {"in": SimpleNamespace(partitions={0: None, 1: None})}
    brokers.list_topics = lambda timeout: SimpleNamespace(topics=topics)  # type: ignore[attr-defined]
    brokers.committed = lambda tps, timeout: {tp: (-1001 if tp == gone else 0, "") for tp in tps}  # type: ignore[method-assign]
    fetcher = Fetcher(
        StreamsConfig("app"),
        brokers,  # type: ignore[arg-type]
        brokers.confirm,
        lambda topic: "latest",
        {},
        no_tables,
        may_go=lambda topic: may_go and topic == "gone",
    )
    unknown = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    if may_go:
        positions = fetcher.committed([ONE, gone])
        assert {tp: position.offset for tp, position in positions.items()} == {ONE: 0, gone: 0}
        assert gone not in fetcher.to_commit
        fetcher._on_event((gone, -1, unknown))
    else:
        with pytest.raises(BrokerError, match="gone-0 are not known"):
            fetcher.committed([ONE, gone])
        with pytest.raises(BrokerError, match="gone-0 cannot be read"):
            fetcher._on_event((gone, -1, unknown))
