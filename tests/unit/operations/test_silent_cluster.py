"""Commands over a cluster that does not answer."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamapp.broker.requests import REQUEST_SECONDS
from streamapp.errors import BrokerError
from streamapp.operations.doctor.checks import ALL
from streamapp.operations.doctor.registry import examine
from streamapp.operations.doctor.survey import Survey
from streamapp.operations.offsets import subject
from streamapp.operations.offsets.subject import Subject


def test_the_doctor_waits_for_one_request_only(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, waited = [0.0], list[float]()
    monkeypatch.setattr("streamapp.broker.requests.time.monotonic", lambda: clock[0])

    class Silent:
        def list_topics(self, timeout: float, *, keep: bool = False) -> Any:
            waited.append(timeout)
            clock[0] += timeout
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(subject, "LastingAdmin", lambda settings: Silent())
    with pytest.raises(BrokerError, match="cannot be reached at localhost:9092"):
        examine(Survey(Subject("shop", {"bootstrap.servers": "localhost:9092"})), ALL)
    assert sum(waited) == REQUEST_SECONDS
