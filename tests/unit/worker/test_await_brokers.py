"""A worker waits for brokers at its start, with a topology and without."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamapp import app as app_module
from streamapp.app import App
from streamapp.config import StreamsConfig
from streamapp.errors import AuthorizationError, BrokerError
from streamapp.records import TopicPartition
from streamapp.runners.worker import clients
from streamapp.runners.worker.clients import await_brokers, find_committed, find_topics

CONFIG = StreamsConfig("orders", bootstrap_servers="localhost:1")


class Brokers:
    """Brokers that answer the request with the number ``answers_at``; 0: never."""

    def __init__(self, answers_at: int = 0) -> None:
        self.asked, self.answers_at = 0, answers_at

    def list_topics(self, timeout: float, *, keep: bool = False) -> str:
        self.asked += 1
        if self.asked != self.answers_at:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return "topics"


def test_a_worker_waits_for_brokers_that_start_after_it(caplog: pytest.LogCaptureFixture) -> None:
    brokers: Any = Brokers(answers_at=3)
    with caplog.at_level(logging.WARNING):
        asyncio.run(await_brokers(CONFIG, brokers))
    assert brokers.asked == 3
    (line,) = caplog.messages
    assert "localhost:1" in line
    assert "Trying again for 60 s" in line


class SlowBrokers:
    """Brokers that need so many seconds for the connections of a client and its first request."""

    def __init__(self, seconds: float, clock: list[float]) -> None:
        self.seconds, self.clock = seconds, clock
        self.spent = 0.0
        """The seconds for which the client has waited."""

    def list_topics(self, timeout: float, *, keep: bool = False) -> str:
        self.clock[0] += timeout
        self.spent += timeout
        if self.spent >= self.seconds:
            return "topics"
        if not keep:
            self.spent = 0.0
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def test_brokers_may_be_slower_than_the_first_request_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt had a new client and 5 s, so a worker never reached brokers that needed 6 s."""
    clock = [0.0]
    monkeypatch.setattr("streamapp.broker.requests.time.monotonic", lambda: clock[0])
    brokers: Any = SlowBrokers(18.0, clock)
    asyncio.run(await_brokers(CONFIG, brokers))
    assert find_topics(CONFIG, brokers, 60.0) == "topics"


def test_a_coordinator_may_be_slower_than_the_first_request_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    class Consumer:
        def committed(self, partitions: Any, timeout: float) -> dict[TopicPartition, tuple[int, str]]:
            if timeout < 15.0:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            return dict.fromkeys(partitions, (7, ""))

        def poll(self, most: int, timeout: float) -> tuple[list[Any], list[Any]]:
            return [], []

        def close(self) -> None: ...

    monkeypatch.setattr(clients, "open_consumer", lambda settings: Consumer())
    tp = TopicPartition("orders", 0)
    assert find_committed(CONFIG, [tp], 300.0) == {tp: (7, "")}


def test_a_group_that_may_not_be_read_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker asked for five minutes, and then advised to look for a transaction that hangs."""
    asked = []

    class Consumer:
        def committed(self, partitions: Any, timeout: float) -> dict[TopicPartition, tuple[int, str]]:
            asked.append(timeout)
            raise KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))

        def poll(self, most: int, timeout: float) -> tuple[list[Any], list[Any]]:
            return [], []

        def close(self) -> None: ...

    monkeypatch.setattr(clients, "open_consumer", lambda settings: Consumer())
    with pytest.raises(AuthorizationError, match="Grant this client READ on the group: `streamapp acls`"):
        find_committed(CONFIG, [TopicPartition("orders", 0)], 5.0)
    assert len(asked) == 1


def test_a_worker_without_a_topology_says_that_it_has_found_no_brokers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A worker with agents only ended at once, with a traceback."""
    monkeypatch.setattr(clients, "_START_SECONDS", 0.0)
    brokers = Brokers()
    monkeypatch.setattr(app_module, "admin_client", lambda config: brokers)
    app = App("orders", bootstrap_servers="localhost:1", datadir=tmp_path)
    with pytest.raises(BrokerError, match="Kafka cannot be reached at localhost:1"):
        asyncio.run(app.on_start())
    assert brokers.asked > 0
