"""The ends of logs, from requests whose answers nobody waits for."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamapp.broker import log_ends
from streamapp.broker.log_ends import LogEnds
from streamapp.records import TopicPartition

ORDERS = TopicPartition("orders", 0)


class Admin:
    """Answers each request for ends with the next of ``answers``; None: no answer yet."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[Future[Any]] = []
        self.looked_for: set[str] = set()

    def list_topics(self, topic: str, timeout: float, *, keep: bool) -> None:
        self.looked_for.add(topic)

    def list_offsets(self, partitions: Any, **_: Any) -> dict[Any, Future[Any]]:
        future: Future[Any] = Future()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            future.set_exception(answer)
        elif answer is not None:
            future.set_result(SimpleNamespace(offset=answer))
        self.requests.append(future)
        return dict.fromkeys(partitions, future)


def test_partitions_without_a_leader_are_named_after_two_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that moves to another broker is away for one answer only."""
    monkeypatch.setattr(log_ends, "_ASK_SECONDS", 0.0)
    monkeypatch.setattr(log_ends, "_SOON_SECONDS", 0.0)
    none, all_lack = (
        KafkaException(KafkaError(code)) for code in (KafkaError.LEADER_NOT_AVAILABLE, KafkaError._NOENT)
    )
    admin: Any = Admin(none, 5, all_lack, -1, none, 6, None)
    ends, seen = LogEnds(admin), []
    for _ in range(7):
        seen.append((ends.look([ORDERS]), ends.leaderless == {ORDERS}))
    assert seen == [
        ({}, False),
        ({}, False),
        ({ORDERS: 5}, False),
        ({}, False),
        ({}, True),
        ({}, True),
        ({ORDERS: 6}, False),
    ]
    ends._refresh.join()
    assert admin.looked_for == {"orders"}, "librdkafka looks for a leader only if somebody asks for metadata"


def test_a_partition_that_nobody_asks_for_lacks_no_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_ends, "_ASK_SECONDS", 0.0)
    monkeypatch.setattr(log_ends, "_SOON_SECONDS", 0.0)
    ends = LogEnds(Admin(-1, -1, None))  # type: ignore[arg-type]
    for _ in range(3):
        ends.look([ORDERS])
    assert ends.leaderless == {ORDERS}
    ends.look([])
    assert ends.leaderless == set()


def test_an_error_tells_no_ends_and_the_next_request_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_ends, "_ASK_SECONDS", 0.0)
    admin: Any = Admin(5, KafkaException(KafkaError(KafkaError._FAIL)), None, 9, 9)
    ends = LogEnds(admin)
    assert [ends.look([ORDERS]) for _ in range(5)] == [{}, {ORDERS: 5}, {}, {}, {}]
    assert len(admin.requests) == 3, "no request is sent while one is open"
    admin.requests[-1].set_result(SimpleNamespace(offset=7))
    assert [ends.look([ORDERS]) for _ in range(2)] == [{ORDERS: 7}, {ORDERS: 9}]
