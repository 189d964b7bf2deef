"""Requests of admin clients, which must never run out inside librdkafka."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from streamapp.broker.requests import NO_TIMEOUT, ask, unreachable


def test_what_is_not_answered_in_time_is_a_kafka_error_and_the_rest_is_there() -> None:
    given: dict[str, Any] = {}

    def request(what: list[str], **options: Any) -> dict[str, Future[int]]:
        given.update(options)
        answers: dict[str, Future[int]] = {name: Future() for name in what}
        answers["fast"].set_result(7)
        return answers

    answers = ask(request, ["fast", "slow"], seconds=0.01, isolation_level=1)
    assert given == {"request_timeout": NO_TIMEOUT, "isolation_level": 1}
    assert answers["fast"].result() == 7
    with pytest.raises(KafkaException) as raised:
        answers["slow"].result()
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT


def test_a_client_may_go_while_its_request_is_under_way() -> None:
    client = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    (answer,) = ask(client.describe_consumer_groups, ["flights"], seconds=0.1).values()
    del client
    assert answer.exception() is not None


def test_a_certificate_that_cannot_be_verified_has_other_causes_than_the_authority() -> None:
    """librdkafka names only the authority, also for a certificate that has expired, or of another host."""
    text = (
        "SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: verify ssl.ca.location"
    )
    said = str(unreachable({"bootstrap.servers": "kafka:9093"}, KafkaError(KafkaError._SSL, text)))
    assert "has not expired" in said
    assert "has the host name of the address" in said
