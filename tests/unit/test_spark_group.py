"""The group's offsets, as Spark reads them: an error of the coordinator is no group without offsets."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.protocol.commit import OffsetFetchResponse_v3
from aiokafka.protocol.coordination import FindCoordinatorResponse_v0

from streamapp import StreamsConfig
from streamapp.engine.runner_ports import Position
from streamapp.errors import BrokerError
from streamapp.records import TopicPartition
from streamapp.runners.spark import handover_group
from streamapp.runners.spark.handover_group import Group

from .broker.scripted import FIND_COORDINATOR, ScriptedBroker

FLIGHTS = TopicPartition("flights", 0)
FETCH = 9
LOADS, FORBIDDEN, TOPIC_FORBIDDEN = 14, 30, 29


def fetched(offset: int = 7, *, error: int = 0, of_partition: int = 0) -> Any:
    topics = [("flights", [(0, offset, "", of_partition)])] if not error else []
    return OffsetFetchResponse_v3(0, topics, error)


def coordinated(*answers: Any) -> ScriptedBroker:
    return ScriptedBroker(
        {FIND_COORDINATOR: [FindCoordinatorResponse_v0(0, 0, "127.0.0.1", 1)], FETCH: answers},
        {FIND_COORDINATOR: 0, FETCH: 3},
    )


def read(kafka: ScriptedBroker) -> dict[TopicPartition, Position]:
    return Group(StreamsConfig("flights-app", bootstrap_servers=kafka.address)).read([FLIGHTS])


def test_a_coordinator_that_loads_the_group_is_asked_again() -> None:
    with coordinated(fetched(error=LOADS), fetched(-1, of_partition=LOADS), fetched()) as kafka:
        assert read(kafka) == {FLIGHTS: Position(7)}
        assert kafka.asked[FETCH] == 3


@pytest.mark.parametrize("answer", [fetched(error=FORBIDDEN), fetched(-1, of_partition=TOPIC_FORBIDDEN)])
def test_a_refusal_is_an_error(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover_group, "TIMEOUT_SECONDS", 1.0)
    with (
        coordinated(answer) as kafka,
        pytest.raises(BrokerError, match="committed offsets.*(GroupAuthorization|TopicAuthorization)"),
    ):
        read(kafka)


def test_a_group_without_offsets_has_none() -> None:
    with coordinated(fetched(-1)) as kafka:
        assert read(kafka) == {}


def test_a_client_that_finds_no_broker_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    made, closed = [], []

    class Counted(handover_group.AIOKafkaClient):  # type: ignore[misc]
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            made.append(self)

        async def close(self) -> None:
            closed.append(self)
            await super().close()

    monkeypatch.setattr(handover_group, "AIOKafkaClient", Counted)
    monkeypatch.setattr(handover_group, "TIMEOUT_SECONDS", 0.5)
    with pytest.raises(BrokerError):
        Group(StreamsConfig("flights-app", bootstrap_servers="127.0.0.1:1")).read([FLIGHTS])
    assert made == closed != []


async def test_a_notebook_reads_offsets_while_its_event_loop_runs() -> None:
    """`live_tables` reads the group, and was an error in notebooks."""
    with coordinated(fetched()) as kafka:
        assert read(kafka) == {FLIGHTS: Position(7)}
