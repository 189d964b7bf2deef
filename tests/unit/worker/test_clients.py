"""The offsets of logs, asked of brokers whose leaders move."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, OFFSET_INVALID, KafkaError, KafkaException
from confluent_kafka.admin import OffsetSpec

from streamapp.broker import requests
from streamapp.broker.lasting_consumer import open_consumer
from streamapp.config import StreamsConfig
from streamapp.errors import BrokerError, ConfigError
from streamapp.records import TopicPartition
from streamapp.runners.worker import clients
from streamapp.runners.worker.clients import (
    admin_client,
    consumer_settings,
    list_offsets,
    pass_over,
    producer_settings,
)
from streamapp.runners.worker.sender import open_sender

EVENTS = [TopicPartition("events", 0), TopicPartition("events", 1)]


class FakeAdmin:
    """Answers with what ``answers`` has for a partition: offsets, or the code of an error, one after the other."""

    def __init__(
        self, answers: dict[int, list[int | KafkaError]], leaders: Mapping[int, int] = MappingProxyType({})
    ) -> None:
        self.answers = answers
        self.leaders = leaders
        self.asked: list[list[int]] = []

    def list_offsets(self, partitions: Any, **_: Any) -> dict[Any, Future[Any]]:
        self.asked.append([tp.partition for tp in partitions])
        return {tp: self._answer(self.answers[tp.partition].pop(0)) for tp in partitions}

    def list_topics(self, **_: Any) -> Any:
        """Leaders are looked up anew before partitions are asked for again."""
        partitions = {number: SimpleNamespace(leader=self.leaders.get(number, 1)) for number in self.answers}
        return SimpleNamespace(topics={"events": SimpleNamespace(partitions=partitions)})

    @staticmethod
    def _answer(answer: int | KafkaError) -> Future[Any]:
        future: Future[Any] = Future()
        if isinstance(answer, int):
            future.set_result(SimpleNamespace(offset=answer))
        else:
            future.set_exception(KafkaException(answer))
        return future


def test_partitions_without_a_leader_are_left_out_if_nobody_waits_for_them() -> None:
    gone = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
    admin: Any = FakeAdmin({0: [7], 1: [gone]}, leaders={0: 1, 1: -1})
    leaderless: set[TopicPartition] = set()
    assert list_offsets(admin, EVENTS, latest=True, leaderless=leaderless) == {EVENTS[0]: 7}
    assert leaderless == {EVENTS[1]}
    moving: Any = FakeAdmin({0: [7], 1: [gone, 9]}, leaders={0: 1, 1: 2})
    leaderless.clear()
    assert list_offsets(moving, EVENTS, latest=True, leaderless=leaderless) == {EVENTS[0]: 7, EVENTS[1]: 9}
    assert leaderless == set()


def test_partitions_that_are_asked_for_again_for_long_are_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker waited for minutes for the leader of one changelog, and nothing named the partition."""
    monkeypatch.setattr(requests, "_SAY_SECONDS", 0.0)
    leaderless = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
    admin: Any = FakeAdmin({0: [7], 1: [leaderless, leaderless, 9]})
    assert list_offsets(admin, EVENTS, latest=True) == {EVENTS[0]: 7, EVENTS[1]: 9}
    assert caplog.messages == [
        f"the offsets of events-1 are not known yet: {leaderless.str()}. The request is repeated"
    ]


def test_a_partition_without_leader_is_asked_for_again() -> None:
    admin: Any = FakeAdmin({0: [7], 1: [KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION), 9]})
    assert list_offsets(admin, EVENTS, latest=True) == {EVENTS[0]: 7, EVENTS[1]: 9}
    assert admin.asked == [[0, 1], [1]]


def test_an_error_that_stays_is_named_with_its_partition() -> None:
    admin: Any = FakeAdmin({0: [7], 1: [KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)]})
    with pytest.raises(BrokerError, match="events-1"):
        list_offsets(admin, EVENTS, latest=True)


def test_a_topic_that_is_deleted_while_a_worker_runs_is_named_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clients, "_UNKNOWN_SECONDS", -1.0)
    admin: Any = FakeAdmin({0: [7], 1: [KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)]})
    with pytest.raises(BrokerError, match=r"events-1 .*The topic was deleted\. Restore .*`streamapp reset`"):
        list_offsets(admin, EVENTS, latest=True)


def test_no_answer_in_time_is_an_error() -> None:
    admin: Any = FakeAdmin({0: [7], 1: [KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)]})
    with pytest.raises(BrokerError, match="events-1"):
        list_offsets(admin, EVENTS, latest=True, timeout=-1)


@pytest.mark.parametrize("answer", [OFFSET_INVALID, OFFSET_END])
def test_what_is_no_offset_is_asked_for_again(answer: int) -> None:
    admin: Any = FakeAdmin({0: [7], 1: [answer, 9]})
    assert list_offsets(admin, EVENTS, latest=True) == {EVENTS[0]: 7, EVENTS[1]: 9}


def test_behind_the_last_time_there_is_no_record() -> None:
    admin: Any = FakeAdmin({0: [OFFSET_END], 1: [OFFSET_INVALID, 9]})
    found = requests.list_offsets(admin, EVENTS, OffsetSpec.for_timestamp(1), seconds=30)
    assert found == {EVENTS[0]: OFFSET_END, EVENTS[1]: 9}


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"linger.mss": "5"}, "linger.mss"),
        ({"security.protocol": "SSL", "ssl.crl.location": "/nowhere.pem"}, "ssl.crl.location"),  # fits, alone
        ({"error_cb": print, "linger.mss": "5"}, "linger.mss"),  # not for the clients in C
    ],
)
@pytest.mark.parametrize(
    "open_client",
    [
        admin_client,
        lambda config: open_consumer(consumer_settings(config)),
        lambda config: open_sender(producer_settings(config), print),
    ],
    ids=["admin", "consumer", "producer"],
)
def test_properties_that_librdkafka_refuses_are_named(
    open_client: Any, properties: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError, match=rf"client_properties\): .*{named}"):
        open_client(StreamsConfig("app", client_properties=properties))


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "Grant this client READ on the topic: `streamapp acls`"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "The topic was deleted. Restore the topic.*`streamapp reset`"),
        (KafkaError._UNKNOWN_PARTITION, "an input has got more partitions.*Restart the workers"),
        (KafkaError._BAD_MSG, "The logs of the brokers may say more"),
    ],
)
def test_an_error_of_a_consumer_that_stays_says_what_to_do(code: int, remedy: str) -> None:
    with pytest.raises(BrokerError, match=rf"the changelog events-0 cannot be read: .*{remedy}"):
        pass_over(KafkaError(code), EVENTS[0], "the changelog")


def test_an_error_of_the_client_itself_names_no_partition() -> None:
    """The error was "the input -0 cannot be read" if an answer was larger than receive.message.max.bytes."""
    with pytest.raises(BrokerError, match=r"the answers of brokers cannot be read: .*The log lines above"):
        pass_over(KafkaError(KafkaError._BAD_MSG), TopicPartition("", 0))


def test_an_error_of_a_consumer_that_goes_away_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    pass_over(KafkaError(KafkaError._TRANSPORT, "a broker is away"), EVENTS[0])
    assert "events-0: a broker is away" in caplog.text
    with pytest.raises(BrokerError):
        pass_over(KafkaError(KafkaError._FATAL, "fenced", fatal=True), EVENTS[0])
