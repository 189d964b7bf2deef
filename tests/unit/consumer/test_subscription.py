"""A member of a group on the broker that librdkafka brings along for tests."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TopicPartition as KafkaPartition

from streamapp import StreamsConfig
from streamapp.broker import log_ends
from streamapp.broker.certificates import CertificateFiles
from streamapp.consumer import subscription as consumer_subscription
from streamapp.consumer.consuming import Consuming
from streamapp.consumer.dispatcher import Dispatcher
from streamapp.consumer.lanes import Unit
from streamapp.consumer.subscription import Subscription
from streamapp.consumer.verdicts import Settled
from streamapp.records import TopicPartition

from ...processes import until
from ..broker.test_certificates import properties
from ..broker.test_consumer import MockKafka, cut_off
from .test_dispatcher import options


def without_ids(subscription: Subscription, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker of the tests does not describe topics."""
    topics = SimpleNamespace(ids_at_assignment=lambda *_: {}, check_ids=lambda: None)
    monkeypatch.setattr(subscription, "_topics", topics)


def next_unit(subscription: Subscription, dispatcher: Dispatcher) -> Unit | None:
    """Polls, and takes the next records for the handler; None if there are none."""
    subscription.poll()
    with dispatcher.changed:
        return dispatcher.next_unit()


class Polling:
    """A client with another `poll`."""

    def __init__(self, client: Any, poll: Callable[[float], Any]) -> None:
        self._client, self.poll = client, poll

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def test_a_partition_that_was_paused_is_read_when_it_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka keeps the pause: a partition with a full buffer stood still for good after a rebalance."""
    broker = MockKafka()
    for number in range(20):
        broker.write(0, b"k", str(number).encode(), 1)
    config = StreamsConfig("flights", bootstrap_servers=broker.settings["bootstrap.servers"])
    given = options(
        name="flights", topics=("delays",), config=config, buffer_records=4, revoke_timeout_ms=100
    )
    dispatcher = Dispatcher(given)
    subscription = Subscription(given, dispatcher, None, None)
    without_ids(subscription, monkeypatch)

    found: list[int] = []

    def arrived() -> bool:
        if (unit := next_unit(subscription, dispatcher)) is not None:
            found.append(unit.items[0].offset)
        return bool(found)

    until(lambda: arrived() and bool(dispatcher.paused), 60, lambda: "the buffer is not full")
    sources = list(dispatcher.sources)
    partitions = [KafkaPartition(*source) for source in sources]
    subscription._give_back(subscription._client, partitions, sources)
    subscription._on_assign(subscription._client, partitions)
    found.clear()
    until(arrived, 20, lambda: "nothing arrives after the rebalance")
    assert found == [0]
    subscription.close()


def test_changed_certificates_repeat_and_lose_no_record(
    pems: tuple[Path, Path], mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = MockKafka()
    for number in range(3):
        broker.write(0, b"k", str(number).encode(), 1)
    config = StreamsConfig(
        "flights",
        bootstrap_servers=broker.settings["bootstrap.servers"],
        session_timeout_ms=6_000,  # this broker does not notice that a member leaves
    )
    given = options(name="flights", topics=("delays",), config=config)
    dispatcher = Dispatcher(given)
    subscription = Subscription(given, dispatcher, None, None)
    without_ids(subscription, monkeypatch)
    subscription._files = CertificateFiles(properties(mine))  # the broker of the tests has no TLS
    clients, taken = [subscription._client], list[int]()

    def take() -> Unit | None:
        if (unit := next_unit(subscription, dispatcher)) is not None:
            taken.append(unit.items[0].offset)
        return unit

    def handled(count: int) -> bool:
        if (unit := take()) is not None:
            dispatcher.finished(unit, Settled(done=unit.items), 0.01, 1)
        return len(taken) >= count

    until(lambda: handled(2), 60, lambda: f"only {taken} came")
    under_way = take()
    assert under_way is not None
    for file in ("client.crt", "client.key"):
        shutil.copy(pems[1] / file, mine)
    threading.Timer(
        0.3, dispatcher.finished, [under_way, Settled(done=under_way.items), 0.01, 1]
    ).start()  # the call ends while the old client still has the partition
    subscription.poll()
    clients.append(subscription._client)
    assert clients[0] is not clients[1]
    broker.write(0, b"k", b"3", 1)
    until(lambda: handled(4), 60, lambda: f"only {taken} came")
    assert taken == [0, 1, 2, 3]
    assert subscription._client is clients[1]
    subscription.close()


def test_a_member_that_polls_late_goes_on_although_records_never_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a late poll, the handler waited for a poll that found nothing. With many records, no such poll came until
    the buffer was full."""
    broker = MockKafka()
    broker.write(0, b"k", b"0", 1)
    config = StreamsConfig("flights", bootstrap_servers=broker.settings["bootstrap.servers"])
    given = options(name="flights", topics=("delays",), config=config)
    dispatcher = Dispatcher(given)
    subscription = Subscription(given, dispatcher, None, None)
    without_ids(subscription, monkeypatch)
    taken, written = list[int](), [1]

    def take() -> bool:
        if (unit := next_unit(subscription, dispatcher)) is not None:
            taken.append(unit.items[0].offset)
            dispatcher.finished(unit, Settled(done=unit.items), 0.01, 1)
        return unit is not None

    until(take, 60, lambda: "nothing arrives")
    poll = subscription._client.poll

    def poll_and_more(seconds: float) -> Any:
        broker.write(0, b"k", b"more", 1)
        written[0] += 1
        return poll(20)

    monkeypatch.setattr(subscription, "_client", Polling(subscription._client, poll_and_more))
    dispatcher.confirm(-1.0)  # the last poll was too long ago
    until(take, 60, lambda: f"{written} records were written, none was taken")
    assert written[0] < 500
    subscription._client.close()


def test_no_call_begins_before_the_begin_of_its_partition_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a kill, the next start would choose a later begin, and leave out records between the calls."""
    broker = MockKafka()
    broker.write(0, b"k", b"before", 1)
    config = StreamsConfig(
        "flights", bootstrap_servers=broker.settings["bootstrap.servers"], auto_offset_reset="latest"
    )
    given = options(name="flights", topics=("delays",), config=config, commit_interval_ms=600_000)
    dispatcher = Dispatcher(given)
    subscription = Subscription(given, dispatcher, None, None)
    without_ids(subscription, monkeypatch)
    monkeypatch.setattr(
        subscription, "_first_offsets", replace(subscription._first_offsets, first_new={"delays": 9})
    )
    commit, tries = subscription.commits.commit, list[Any]()

    def fails(sources: Any = None) -> bool:
        tries.append(sources)
        return False

    def next_offset() -> int | None:
        unit = next_unit(subscription, dispatcher)
        return None if unit is None else unit.items[0].offset

    monkeypatch.setattr(subscription.commits, "commit", fails)
    offsets = list[int | None]()
    until(lambda: offsets.append(next_offset()) or bool(dispatcher.sources), 60, lambda: "no partition came")
    broker.write(0, b"k", b"behind", 1)
    until(lambda: offsets.append(next_offset()) or len(tries) > 3, 60, lambda: tries)
    assert dispatcher.look()[0].taken == 1
    assert {*offsets} == {None}
    monkeypatch.setattr(subscription.commits, "commit", commit)
    until(lambda: next_offset() == 1, 60, lambda: "the record does not come after the commit")
    subscription._client.close()


def test_a_partition_without_a_leader_begins_later_and_others_go_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The begin of the partition was asked for until the consumer ended, and all partitions waited."""
    broker = MockKafka()
    zero, one = (TopicPartition("delays", number) for number in range(2))
    broker.write(0, b"k", b"before", 1)
    broker.write(1, b"k", b"before", 1)
    config = StreamsConfig(
        "flights", bootstrap_servers=broker.settings["bootstrap.servers"], auto_offset_reset="latest"
    )
    given = options(name="flights", topics=("delays",), config=config, commit_interval_ms=600_000)
    dispatcher = Dispatcher(given)
    subscription = Subscription(given, dispatcher, None, None)
    without_ids(subscription, monkeypatch)
    unled, ask = {one}, consumer_subscription.list_offsets

    def list_offsets(
        admin: Any, sources: Any, spec: Any, *, leaderless: set[TopicPartition], **limits: Any
    ) -> Any:
        leaderless |= unled
        return ask(admin, [source for source in sources if source not in unled], spec, **limits)

    monkeypatch.setattr(consumer_subscription, "list_offsets", list_offsets)
    monkeypatch.setattr(log_ends, "_ASK_SECONDS", 0.1)
    found: list[tuple[TopicPartition, int]] = []

    def arrived(count: int) -> bool:
        if (unit := next_unit(subscription, dispatcher)) is not None:
            found.append((unit.partition.source, unit.items[0].offset))
            dispatcher.finished(unit, Settled(done=unit.items), 0.01, 1)
        return len(found) >= count

    until(lambda: arrived(0) and bool(dispatcher.sources), 60, lambda: "no partition came")
    for number in (1, 0):
        broker.write(number, b"k", b"v", 1)
    until(lambda: arrived(1), 60, lambda: "nothing arrives of the other partition")
    assert found == [(zero, 1)]
    consuming = Consuming(given)
    consuming._dispatcher = dispatcher
    assert consuming.status().reason == "waits for a leader of delays-1"
    unled.clear()
    until(lambda: arrived(0) and not subscription._unled, 60, lambda: "the leader is not found")
    broker.write(1, b"k", b"v", 1)
    until(lambda: arrived(2), 60, lambda: "nothing arrives of the partition")
    assert found == [(zero, 1), (one, 2)]
    assert consuming.status().reason is None
    subscription.close()


def test_a_log_that_has_lost_records_and_grown_again_is_read_on_where_it_was_cut_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """librdkafka's event of an unclean election has no offset, and the consumer ended with a TypeError."""
    broker = MockKafka()
    for number in range(8):
        broker.write(0, b"k", str(number).encode(), 1)
    config = StreamsConfig("flights", bootstrap_servers=broker.settings["bootstrap.servers"])
    given = options(name="flights", topics=("delays",), config=config)
    dispatcher = Dispatcher(given)
    subscription = Subscription(given, dispatcher, None, None)
    without_ids(subscription, monkeypatch)
    found: list[int] = []

    def arrived(count: int) -> bool:
        if (unit := next_unit(subscription, dispatcher)) is not None:
            found.append(unit.items[0].offset)
            dispatcher.finished(unit, Settled(done=unit.items), 0.01, 1)
        return len(found) >= count

    until(lambda: arrived(8), 60, lambda: found)
    error = cut_off(8, 5)
    event = SimpleNamespace(
        topic=lambda: "delays", partition=lambda: 0, offset=lambda: None, error=lambda: error
    )
    subscription._check(event)  # type: ignore[arg-type]
    until(lambda: arrived(11), 60, lambda: found)
    assert found[8:] == [5, 6, 7]
    assert "delays-0 has lost records 5 to 7, which were read" in caplog.text
    subscription.close()


def test_new_partitions_are_noticed_as_soon_as_by_workers() -> None:
    """Records of new partitions waited for up to five minutes, while the consumer was ready."""
    assert options().client()["topic.metadata.refresh.interval.ms"] == 60_000
    slow = StreamsConfig(
        "payments",
        dead_letter_queue_topic="dead",
        client_properties={"topic.metadata.refresh.interval.ms": "600000"},
    )
    assert options(config=slow).client()["topic.metadata.refresh.interval.ms"] == "600000"


def test_a_member_of_a_new_group_begins_at_the_end_also_if_another_member_was_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once the first member had committed the begin of its partitions, the others read theirs from the first record."""
    broker = MockKafka()
    broker.write(1, b"k", b"v", 1)
    servers = broker.settings["bootstrap.servers"]
    config = StreamsConfig("flights", bootstrap_servers=servers, auto_offset_reset="latest")
    subscription = Subscription(
        given := options(topics=("delays",), config=config), Dispatcher(given), None, None
    )
    offsets = {0: -1001}

    def committed(client: Any, sources: Iterable[TopicPartition], *, seconds: float) -> list[KafkaPartition]:
        return [KafkaPartition(*source, offsets.get(source.partition, -1001)) for source in sources]

    monkeypatch.setattr(consumer_subscription, "committed", committed)
    subscription.check_topics()
    offsets[0] = 7  # the other member was first
    one = TopicPartition("delays", 1)
    assert subscription._begins([one]) == {one: 1}
    subscription.close()
