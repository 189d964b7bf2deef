"""Requests that no client library has: refusals of brokers are no empty answers, and no client stays open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka.client import AIOKafkaClient

from streamapp.broker import protocol
from streamapp.broker.protocol import feature_levels, open_transactions_of
from streamapp.broker.settings import KafkaSettings
from streamapp.errors import BrokerError
from streamapp.records import TopicPartition

from .scripted import ScriptedBroker

LIST, DESCRIBE, FEATURES = 66, 65, 18
LOADS, MOVED, FORBIDDEN, GONE, UNKNOWN_VERSION = 14, 16, 53, 105, 35


def listed(*names: str, error: int = 0) -> Any:
    return protocol._ListTransactionsAnswer(0, error, [], [(name, 1, "Ongoing", {}) for name in names], {})


def described(name: str, error: int = 0) -> tuple[Any, ...]:
    topics: list[Any] = [] if error else [("flights", [0], {})]
    return (error, name, "Ongoing" if not error else "", 60_000, 5, 1, 0, topics, {})


def broker(lists: Sequence[Any], *descriptions: Sequence[tuple[Any, ...]]) -> ScriptedBroker:
    answers = [protocol._DescribeTransactionsAnswer(0, [*each], {}) for each in descriptions]
    return ScriptedBroker({LIST: lists, DESCRIBE: answers}, {LIST: 0, DESCRIBE: 0}, flexible=(LIST, DESCRIBE))


def names(kafka: ScriptedBroker, seconds: float = 10.0) -> list[str]:
    found = open_transactions_of(KafkaSettings(bootstrap_servers=kafka.address), seconds=seconds)
    assert all(each.partitions == (TopicPartition("flights", 0),) for each in found)
    return [each.transactional_id for each in found]


def test_a_coordinator_that_loads_is_asked_again() -> None:
    with broker([listed(error=LOADS), listed("a")], [described("a")]) as kafka:
        assert names(kafka) == ["a"]
        assert kafka.asked == {LIST: 2, DESCRIBE: 1}


def test_a_transaction_whose_coordinator_moves_is_looked_for_again() -> None:
    with broker([listed("a", "b")], [described("a"), described("b", MOVED)], [described("b")]) as kafka:
        assert names(kafka) == ["b"]
        assert kafka.asked == {LIST: 2, DESCRIBE: 2}


def test_a_transaction_that_is_gone_is_left_out() -> None:
    with broker([listed("a", "b")], [described("a", GONE), described("b")]) as kafka:
        assert names(kafka) == ["b"]


@pytest.mark.parametrize(
    ("lists", "descriptions"),
    [([listed(error=FORBIDDEN)], [[]]), ([listed("a")], [[described("a", FORBIDDEN)]])],
    ids=["all", "one"],
)
def test_a_refusal_says_what_to_do(lists: list[Any], descriptions: Any) -> None:
    with (
        broker(lists, *descriptions) as kafka,
        pytest.raises(BrokerError, match=r"open transactions.*authorization failed.*DESCRIBE"),
    ):
        names(kafka)


def test_a_coordinator_that_loads_for_ever_is_an_error() -> None:
    with (
        broker([listed(error=LOADS)], []) as kafka,
        pytest.raises(BrokerError, match=r"open transactions.*load in progress.*again"),
    ):
        names(kafka, seconds=0.5)


def test_refused_feature_levels_are_an_error() -> None:
    with (
        ScriptedBroker({FEATURES: [protocol._FeaturesAnswer(UNKNOWN_VERSION, [], 0, {})]}, {}) as kafka,
        pytest.raises(BrokerError, match=r"feature levels.*version not supported"),
    ):
        feature_levels(KafkaSettings(bootstrap_servers=kafka.address))


def test_a_client_that_finds_no_broker_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    class Counted(AIOKafkaClient):  # type: ignore[misc]
        async def close(self) -> None:
            closed.append(self)
            await super().close()

    monkeypatch.setattr(protocol, "AIOKafkaClient", Counted)
    with pytest.raises(BrokerError, match="does not answer"):
        feature_levels(KafkaSettings(bootstrap_servers="127.0.0.1:1"), seconds=1)
    assert len(closed) == 1
