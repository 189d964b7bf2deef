"""Standbys, restores and purges: how far changelogs are read, and what is asked of the group; no broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamapp.broker import lasting_consumer
from streamapp.broker.consumer import ConsumerEvent
from streamapp.broker.lasting_consumer import LastingConsumer
from streamapp.broker.requests import NO_TIMEOUT
from streamapp.config import StreamsConfig
from streamapp.dsl import Materialized, StreamsBuilder
from streamapp.engine.collector import NoWayOut
from streamapp.engine.runner_ports import InMemory, TaskEnvironment
from streamapp.errors import BrokerError, TaskCorruptedError
from streamapp.records import RecordBatch, TopicPartition
from streamapp.runners import purge
from streamapp.runners.purge import Purge
from streamapp.runners.worker import restore, standby
from streamapp.runners.worker.listener_calls import ListenerCalls
from streamapp.runners.worker.livetask import LiveTask
from streamapp.runners.worker.placement import TaskId
from streamapp.runners.worker.restore import Restorer
from streamapp.runners.worker.standby import Standbys
from streamapp.serdes import StringSerde

from ..broker.test_consumer import cut_off

TEXT = StringSerde()
HOME = TaskId(0, 0)


class Broker:
    """What the clients see: records by partition, ends, committed offsets; and a consumer in assign mode."""

    def __init__(self) -> None:
        self.arriving: list[tuple[TopicPartition, RecordBatch]] = []
        self.ends: dict[TopicPartition, int] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.assigned: dict[TopicPartition, int] = {}
        self.added: list[dict[TopicPartition, int]] = []
        self.unled: set[TopicPartition] = set()
        """The partitions without a leader."""
        self.events: list[ConsumerEvent] = []
        self.last_fetch: dict[TopicPartition, int] | None = None
        """The ends that the consumer knows. None: they are those of the brokers."""

    def list_offsets(self, wanted: dict[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        futures: dict[Any, Future[Any]] = {tp: Future() for tp in wanted}
        for tp, future in futures.items():
            future.set_result(SimpleNamespace(offset=self.ends[TopicPartition(tp.topic, tp.partition)]))
        return futures

    def resume(self, tp: TopicPartition) -> None: ...

    def add(self, positions: dict[TopicPartition, int], epochs: object) -> None:
        self.assigned.update(positions)
        self.added.append(positions)

    def remove(self, partitions: list[TopicPartition]) -> None:
        for tp in partitions:
            del self.assigned[tp]

    def poll(self, most: int, timeout: float) -> tuple[list[tuple[TopicPartition, RecordBatch]], list[Any]]:
        arrived, self.arriving = self.arriving, []
        events, self.events = self.events, []
        return arrived, events

    def end(self, tp: TopicPartition) -> int:
        return (self.ends if self.last_fetch is None else self.last_fetch)[tp]

    def take_lost(self) -> bool:
        return False

    def close(self) -> None: ...

    def send(self, tp: TopicPartition, *offsets: int) -> None:
        keys = [f"k{offset}".encode() for offset in offsets]
        self.arriving.append((tp, RecordBatch(keys, [b"v"] * len(keys), [1] * len(keys), list(offsets))))


class Folder(InMemory):
    def place(self, task: str) -> str:
        return f"the folder {task}"


class World:
    """A task with one table, whose changelog is a topic of its own or, if ``optimized``, its source."""

    def __init__(self, broker: Broker, *, optimized: bool = False) -> None:
        config = StreamsConfig(
            "app", acceptable_recovery_lag=2, topology_optimization="all" if optimized else "none"
        )
        builder = StreamsBuilder(config)
        builder.table("rows", key_serde=TEXT, value_serde=TEXT, materialized=Materialized("rows-table"))
        self.plan = builder.build().plan(config)
        self.broker, self.config = broker, config
        (changelog,) = self.plan.subtopologies[0].changelog_topics.values()
        self.changelog = TopicPartition(changelog.name, 0)
        self.moves = 0
        self.closed: list[TaskId] = []
        self.standbys = Standbys(
            config,
            broker,
            ListenerCalls(),
            self.open,
            lambda live: self.closed.append(live.id),
            self.on_caught_up,
        )

    def on_caught_up(self) -> None:
        self.moves += 1

    def open(self, id: TaskId) -> LiveTask:
        sub, source = self.plan.subtopologies[0], TopicPartition("rows", id.partition)
        environment = TaskEnvironment(self.plan, NoWayOut("a copy"), wall_clock_ms=lambda: 0)
        return LiveTask(environment, sub, id, Folder(), [source])

    def keys(self, live: LiveTask) -> list[str]:
        return [key for key, _ in live.task.store("rows-table").all()]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    monkeypatch.setattr(
        restore, "open_consumer", lambda settings, ends: LastingConsumer(lambda: broker, ends=ends)
    )  # type: ignore[arg-type, return-value]

    def list_offsets(
        admin: Any, partitions: Any, *, latest: bool, leaderless: set[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        assert leaderless is not None or not broker.unled
        return {tp: broker.ends[tp] if latest else 0 for tp in partitions if tp not in broker.unled}

    monkeypatch.setattr(restore, "list_offsets", list_offsets)
    monkeypatch.setattr(restore, "_LEADER_SECONDS", -1.0)
    monkeypatch.setattr(restore, "_LOOKS_APART", 0)
    monkeypatch.setattr(
        standby,
        "committed_offsets",
        lambda config, wanted, seconds, known: {tp: broker.committed[tp] for tp in wanted},
    )
    monkeypatch.setattr(standby, "_IDLE_SECONDS", -1.0)
    monkeypatch.setattr(standby, "_REFRESH_SECONDS", -1.0)
    return broker


def test_a_copy_follows_the_changelog_and_asks_to_take_over_when_it_is_warm(broker: Broker) -> None:
    world = World(broker)
    broker.ends[world.changelog] = 10
    world.standbys.assign({HOME: True})
    assert broker.assigned == {world.changelog: 0}
    broker.send(world.changelog, *range(5))
    world.standbys.poll()
    assert (world.standbys.warm(), world.moves) == (set(), 0)
    broker.send(world.changelog, 5, 6, 7)
    world.standbys.poll()
    assert (world.standbys.warm(), world.moves) == ({HOME}, 1)
    broker.ends[world.changelog] = 1_000
    world.standbys.poll()
    assert (world.standbys.warm(), world.moves) == (set(), 1)  # it asks once
    live = world.standbys.take(HOME)
    assert live is not None
    assert len(world.keys(live)) == 8
    assert live.state_offset == 8
    assert broker.assigned == {}
    assert world.standbys.tasks == {}
    assert world.closed == []


def test_a_copy_that_is_not_wanted_any_more_is_closed(broker: Broker) -> None:
    world = World(broker)
    broker.ends[world.changelog] = 0
    world.standbys.assign({HOME: False})
    world.standbys.assign({HOME: False})
    assert world.closed == []
    world.standbys.assign({})
    assert (world.closed, broker.assigned) == ([HOME], {})


def test_a_table_is_not_ahead_of_what_was_processed_of_its_topic(broker: Broker) -> None:
    world = World(broker, optimized=True)
    assert world.changelog.topic == "rows"
    broker.ends[world.changelog], broker.committed[world.changelog] = 100, 3
    world.standbys.assign({HOME: False})
    broker.send(world.changelog, 0, 1, 2, 3, 4)
    world.standbys.poll()
    live = world.standbys.tasks[HOME]
    assert world.keys(live) == ["k0", "k1", "k2"]
    broker.committed[world.changelog] = 5
    world.standbys.poll()
    assert broker.assigned == {world.changelog: 3}  # read again from there
    broker.send(world.changelog, 3, 4, 5)
    world.standbys.poll()
    assert world.keys(live) == ["k0", "k1", "k2", "k3", "k4"]


def test_the_consumer_that_asks_for_committed_offsets_is_opened_anew_after_an_outage(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing polled this consumer, so librdkafka could not reach brokers any more, and each look took 10 seconds."""

    class Lost(Broker):
        def assign(self, positions: dict[TopicPartition, int], epochs: object) -> None: ...

        def take_lost(self) -> bool:
            return True

    opened: list[Lost] = []

    def open_client() -> Any:
        opened.append(Lost())
        return opened[-1]

    monkeypatch.setattr(standby, "open_consumer", lambda settings: LastingConsumer(open_client))
    monkeypatch.setattr(lasting_consumer, "REOPEN_SECONDS", 0.0)
    world = World(broker, optimized=True)
    broker.ends[world.changelog], broker.committed[world.changelog] = 100, 3
    world.standbys.assign({HOME: False})
    before = len(opened)
    world.standbys.poll()
    assert len(opened) == before + 1


def test_a_restore_ends_where_the_changelog_ended_when_it_began(broker: Broker) -> None:
    world = World(broker)
    broker.ends[world.changelog] = 4
    live = world.open(HOME)
    restorer = Restorer(world.config, broker, ListenerCalls())  # type: ignore[arg-type]
    restorer.add([live])
    assert live in restorer.restoring
    broker.send(world.changelog, 0, 2)
    restorer.poll(0)
    (progress,) = restorer.progress
    assert (progress.position, progress.remaining, progress.records) == (3, 1, 2)
    broker.send(world.changelog, 5, 6)  # offset 3 was a marker
    restorer.poll(0)
    assert live not in restorer.restoring
    assert restorer.finished(live) == 2
    assert world.keys(live) == ["k0", "k2"]
    assert broker.assigned == {}


def test_a_restore_tells_the_log_how_far_it_is(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    now = [100.0]
    monkeypatch.setattr(restore.time, "monotonic", lambda: now[0])
    world = World(broker)
    broker.ends[world.changelog] = 1_000
    restorer = Restorer(world.config, broker, ListenerCalls())  # type: ignore[arg-type]
    restorer.add([world.open(HOME)])
    assert caplog.messages[-1] == "restoring 1 store from 1,000 changelog offsets"
    broker.send(world.changelog, *range(400))
    now[0] += 10
    restorer.poll(0)
    assert caplog.messages[-1] == "restoring: 1 store, 40.0 %, 40 records/s, about 15 s left"


def test_state_that_is_ahead_of_its_changelog_is_refused(broker: Broker) -> None:
    world = World(broker)
    broker.ends[world.changelog] = 4
    live = world.open(HOME)
    live.task.restore("rows-table", RecordBatch([b"k"], [b"v"], [1], [9]))
    with pytest.raises(TaskCorruptedError, match="streamapp reset.*Without the folder 0_0"):
        Restorer(world.config, broker, ListenerCalls()).add([live])  # type: ignore[arg-type]


def test_a_copy_of_a_changelog_that_has_lost_records_and_grown_again_is_refused(broker: Broker) -> None:
    """After an unclean election, later records had the offsets of lost ones, and the copy went on behind them."""
    world = World(broker)
    broker.ends[world.changelog] = 60
    world.standbys.assign({HOME: False})
    broker.send(world.changelog, *range(50))
    broker.events = [ConsumerEvent(world.changelog, 50, cut_off(50, 30))]
    with pytest.raises(
        TaskCorruptedError,
        match="is at offset 50 of .*, which lacks the records that the state has from offset 30 on",
    ):
        world.standbys.poll()


class Purger:
    """An admin client that answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[dict[tuple[str, int], int]] = []
        self.futures: list[Future[Any]] = []

    def delete_records(self, partitions: list[Any], *, request_timeout: float) -> dict[Any, Future[Any]]:
        assert request_timeout == NO_TIMEOUT
        self.asked.append({(tp.topic, tp.partition): tp.offset for tp in partitions})
        self.futures = [Future() for _ in partitions]
        return dict(zip(partitions, self.futures, strict=True))

    def answer(self, low: int) -> None:
        for future in self.futures:
            future.set_result(SimpleNamespace(low_watermark=low))


def test_purges_what_no_task_needs_once_in_an_interval_and_not_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(purge.time, "monotonic", lambda: now[0])
    admin = Purger()
    purger = Purge(admin, 1_000)  # type: ignore[arg-type]
    tp = TopicPartition("app-x-repartition", 0)

    def committed(offset: int) -> None:
        purger.note({tp: offset})
        purger.ask_if_due()

    committed(5)
    assert admin.asked == []
    now[0] = 1.5
    committed(8)
    assert admin.asked == [{tp: 8}]
    now[0] = 3.0
    committed(9)
    assert len(admin.asked) == 1  # the first answer is not there yet
    admin.answer(8)
    committed(9)
    assert admin.asked[1:] == [{tp: 9}]
    admin.answer(9)
    now[0] = 5.0
    committed(9)
    assert len(admin.asked) == 2
    now[0] = 7.0
    committed(10)
    now[0] = 70.0
    committed(11)
    assert admin.asked[2:] == [{tp: 10}, {tp: 11}]  # the third was never answered


def test_a_purge_that_brokers_refuse_is_tried_again_and_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    monkeypatch.setattr(purge.time, "monotonic", lambda: now[0])
    admin = Purger()
    purger = Purge(admin, 1_000)  # type: ignore[arg-type]
    tp = TopicPartition("app-windows-changelog", 0)
    purger.note({tp: 5})
    for second in range(2, 8, 2):
        now[0] = second
        purger.ask_if_due()
        for future in admin.futures:
            future.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
    assert admin.asked == [{tp: 5}] * 3
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "records of app-windows-changelog that are not needed any more could not be deleted"
    ]
    assert caplog.records[0].getMessage().endswith("Grant this client DELETE on the topic")


def test_a_task_after_another_is_restored_the_shortest_first(broker: Broker) -> None:
    world = World(broker)
    restorer = Restorer(world.config, broker, ListenerCalls())  # type: ignore[arg-type]
    tasks = []
    for number, length in enumerate((9, 2, 7, 3, 5)):
        live = world.open(TaskId(0, number))
        tp = TopicPartition(world.changelog.topic, number)
        live.changelogs = {tp: "rows-table"}
        broker.ends[tp] = length
        tasks.append(live)
    restorer.add(tasks)
    assert [partition for _, partition in broker.assigned] == [1, 3, 4]
    assert sum(each.end for each in restorer.progress) == 26
    assert restorer.restoring == set(tasks)
    broker.send(TopicPartition(world.changelog.topic, 3), 0, 1, 2)
    restorer.poll(0)
    assert tasks[3] not in restorer.restoring
    assert [partition for _, partition in broker.assigned] == [1, 4, 2]
    restorer.drop([tasks[1], tasks[2]])
    assert [partition for _, partition in broker.assigned] == [4, 0]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], None]], None]:
    """Lets seconds pass, with a call in each second."""
    now = [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def wait(seconds: int, call: Callable[[], None]) -> None:
        for _ in range(seconds):
            now[0] += 1
            call()

    return wait


def test_a_restore_of_which_nothing_arrives_is_fetched_anew(broker: Broker, clock: Any) -> None:
    world = World(broker)
    broker.ends[world.changelog] = 10
    restorer = Restorer(world.config, broker, ListenerCalls())  # type: ignore[arg-type]
    live = world.open(HOME)
    restorer.add([live])
    broker.send(world.changelog, 0, 1)
    clock(60, lambda: restorer.poll(0))
    assert broker.added == [{world.changelog: 0}]
    clock(20, lambda: restorer.poll(0))
    assert broker.added == [{world.changelog: 0}, {world.changelog: 2}]
    broker.send(world.changelog, *range(2, 10))
    restorer.poll(0)
    assert live not in restorer.restoring


def test_only_the_task_of_a_changelog_without_a_leader_waits(broker: Broker, clock: Any) -> None:
    """The look-up of the ends waited for the leader, and no task of the worker went on."""
    world = World(broker)
    led, unled = world.open(HOME), world.open(TaskId(0, 1))
    ((first,), (second,)) = led.changelogs, unled.changelogs
    broker.ends = {first: 5, second: 5}
    broker.unled = {second}
    restorer = Restorer(world.config, broker, ListenerCalls())  # type: ignore[arg-type]
    restorer.add([unled, led])
    assert broker.assigned == {first: 0}
    assert restorer.restoring == {led, unled}
    assert restorer.leaderless == f"task 0_1 waits for a leader of {second}"
    clock(300, restorer.look_for_leaders)
    assert broker.assigned == {first: 0}
    with pytest.raises(BrokerError, match=f"{second} has had no leader for 301 s"):
        clock(1, restorer.look_for_leaders)
    broker.unled.clear()
    restorer.look_for_leaders()
    assert broker.assigned == {first: 0, second: 0}
    assert restorer.leaderless is None


def test_a_task_that_leaves_waits_for_no_leader(broker: Broker) -> None:
    world = World(broker)
    live = world.open(HOME)
    broker.unled = set(live.changelogs)
    restorer = Restorer(world.config, broker, ListenerCalls())  # type: ignore[arg-type]
    restorer.add([live])
    restorer.drop([live])
    assert (restorer.restoring, restorer.leaderless) == (set(), None)


def test_a_copy_without_a_leader_of_its_changelog_follows_later(broker: Broker) -> None:
    world = World(broker)
    broker.ends[world.changelog] = 5
    broker.unled = {world.changelog}
    world.standbys.assign({HOME: True})
    world.standbys.poll()
    assert (broker.assigned, world.standbys.warm()) == ({}, set())
    broker.unled.clear()
    world.standbys.poll()
    assert broker.assigned == {world.changelog: 0}


def test_a_copy_whose_changelogs_are_looked_up_is_not_warm(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The member of the group tells the leader about warm copies in a thread of its own, at any time."""
    world = World(broker)
    broker.ends[world.changelog] = 10
    list_offsets, told = restore.list_offsets, []

    def while_others_ask(
        admin: Any, partitions: Any, *, latest: bool, leaderless: set[TopicPartition]
    ) -> Any:
        told.append(world.standbys.warm())
        return list_offsets(admin, partitions, latest=latest, leaderless=leaderless)

    monkeypatch.setattr(restore, "list_offsets", while_others_ask)
    world.standbys.assign({HOME: True})
    assert told == [set(), set()]


def test_a_copy_of_which_nothing_arrives_is_fetched_anew_and_knows_its_lag(
    broker: Broker, clock: Any
) -> None:
    """The consumer knows the end of the log from its last fetch: a copy that stood still had no lag, and was warm."""
    world = World(broker)
    broker.ends[world.changelog] = 5
    broker.last_fetch = {world.changelog: 5}
    world.standbys.assign({HOME: True})
    broker.send(world.changelog, *range(5))
    clock(1, world.standbys.poll)
    assert world.standbys.warm() == {HOME}
    broker.ends[world.changelog] = 1_000
    clock(20, world.standbys.poll)
    assert [each.remaining for each in world.standbys.progress] == [995]
    assert world.standbys.warm() == set()
    assert broker.added == [{world.changelog: 0}]
    clock(60, world.standbys.poll)
    assert broker.added == [{world.changelog: 0}, {world.changelog: 5}]
