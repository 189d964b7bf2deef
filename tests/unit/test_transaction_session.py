"""A transaction of a producer with records that brokers refuse, without a broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamapp.producer import session
from streamapp.producer.session import RecordsRefused, TransactionSession, UnknownTopics, Unsettled
from streamapp.records import OutputRecord


class Client:
    """Refuses each record, and answers each abort with an error."""

    def __init__(self, error: KafkaError) -> None:
        self._error = error
        self._reports: list[Callable[..., None]] = []

    def init_transactions(self, timeout: float) -> None: ...

    def begin_transaction(self) -> None: ...

    def produce(self, topic: str, value: Any, key: Any, *rest: Any, **more: Any) -> None:
        self._reports += [each for each in (*rest, *more.values()) if callable(each)]

    def flush(self, timeout: float) -> int:
        while self._reports:
            self._reports.pop()(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), None)
        return 0

    def abort_transaction(self, timeout: float) -> None:
        raise KafkaException(self._error)


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (KafkaError(KafkaError._TIMED_OUT, "1 message(s) remaining", retriable=True), RecordsRefused),
        (KafkaError(KafkaError._FENCED, "fenced", fatal=True), Unsettled),
    ],
)
def test_a_refusal_is_told_although_the_abort_takes_too_long(
    monkeypatch: pytest.MonkeyPatch, error: KafkaError, raised: type[Exception]
) -> None:
    """The answer for the refused record was lost, and its transaction was tried again."""
    monkeypatch.setattr(session, "Producer", lambda settings: Client(error))
    made = TransactionSession("app", {}, seconds=0.0, transaction_timeout_ms=10_000, unknown=UnknownTopics())
    with pytest.raises(raised):
        made.commit([OutputRecord("out", b"k", b"v", None)], [], None, 0.0)


class Late(Client):
    """Refuses the first record at once. The report of the second record comes while the session is given up."""

    def __init__(self) -> None:
        super().__init__(KafkaError(KafkaError._TIMED_OUT, retriable=True))
        self._aborts = 0

    def flush(self, timeout: float) -> int:
        self._reports.pop(0)(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), None)
        return 1

    def abort_transaction(self, timeout: float) -> None:
        self._aborts += 1
        if self._aborts == 2:
            self._reports.pop(0)(KafkaError(KafkaError._PURGE_QUEUE), None)


def test_a_record_behind_a_refused_one_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its outputs were lost: the consumer dropped it together with the refused record."""
    monkeypatch.setattr(session, "Producer", lambda settings: Late())
    made = TransactionSession("app", {}, seconds=9.0, transaction_timeout_ms=10_000, unknown=UnknownTopics())
    with pytest.raises(RecordsRefused) as raised:
        made.commit([OutputRecord("out", b"k", value, None) for value in (b"1", b"2")], [], None, 9.0)
    assert list(raised.value.errors) == [0]
