"""The thread that asks brokers for the ends of the logs."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamapp.consumer import log_ends
from streamapp.errors import BrokerError
from streamapp.records import TopicPartition

ORDERS = TopicPartition("orders", 0)


def test_an_error_of_a_client_keeps_the_last_ends_and_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A `KafkaException`, for example of a client that was opened anew, ended the thread, so the lag stood still."""
    seen: list[Any] = []
    answers: list[Any] = [
        {ORDERS: 5},
        KafkaException(KafkaError(KafkaError._FAIL)),
        BrokerError("away"),
        {ORDERS: 9},
    ]
    over = threading.Event()

    def answer(*_: Any, **__: Any) -> Any:
        seen.append(dict(ends.known))
        if not answers:
            over.set()
            return {ORDERS: 9}
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(log_ends, "list_offsets", answer)
    monkeypatch.setattr(log_ends, "_EVERY_SECONDS", 0.001)
    monkeypatch.setattr(log_ends, "_FIRST_SECONDS", 0.001)
    admin: Any = None
    ends = log_ends.LogEnds("orders-service", admin, lambda: [ORDERS])
    ends.start()
    assert over.wait(10)
    ends.stop()
    assert seen[:5] == [{}, {ORDERS: 5}, {ORDERS: 5}, {ORDERS: 5}, {ORDERS: 9}]
