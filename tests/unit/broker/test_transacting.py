"""Calls into a transactional producer: how long each may take, and which are repeated."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamapp.broker.transacting import retrying


def test_the_last_call_gets_a_second_too(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    asked: list[float] = []

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    def call(seconds: float) -> None:
        asked.append(seconds)
        sleep(seconds - 0.001)  # librdkafka waits for a whole number of ms
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "later", retriable=True))

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "sleep", sleep)
    with pytest.raises(KafkaException):
        retrying(call, 5.0)
    assert asked == [5.0, 1.0]


def test_an_error_that_is_not_retriable_is_raised_at_once() -> None:
    asked: list[float] = []

    def call(seconds: float) -> None:
        asked.append(seconds)
        raise KafkaException(KafkaError(KafkaError._FENCED))

    with pytest.raises(KafkaException):
        retrying(call, 60.0)
    assert len(asked) == 1
