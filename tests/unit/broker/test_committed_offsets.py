"""Requests for committed offsets of a group, by a client that never joins the group."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from streamapp.broker import requests
from streamapp.broker.requests import committed_of_stranger
from streamapp.records import TopicPartition


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError._WAIT_COORD, KafkaError.NOT_COORDINATOR])
def test_a_coordinator_may_take_longer_than_the_first_look_for_a_missing_right(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(requests, "SOON_SECONDS", 0.05)
    asked: list[float] = []

    class Group:
        def committed(self, partitions: list[KafkaPartition], timeout: float) -> list[KafkaPartition]:
            asked.append(timeout)
            if timeout < 1:
                raise KafkaException(KafkaError(code))
            return partitions

        def consume(self, most: int, timeout: float) -> list[Any]:
            return []

    found = committed_of_stranger(cast(Consumer, Group()), [TopicPartition("orders", 0)], seconds=5)
    assert [each.topic for each in found] == ["orders"]
    assert asked[-1] == pytest.approx(4.95)
