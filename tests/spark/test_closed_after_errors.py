"""Sockets and clients of the driver are closed after an error, too."""

from __future__ import annotations

from typing import Any

import pytest

from streamapp.broker.settings import KafkaSettings
from streamapp.errors import BrokerError
from streamapp.records import TopicPartition
from streamapp.runners.spark import kafka_sink
from streamapp.runners.spark.handover_topics import first_times
from streamapp.runners.spark.progress import records_bar

pytestmark = pytest.mark.spark

FLIGHTS = TopicPartition("flights", 0)


class Unread:
    """A part of a topic that cannot be read."""

    size = 1

    def __init__(self) -> None:
        self.closed = 0

    def open(self, partition: TopicPartition) -> Unread:
        return self

    def read(self) -> Any:
        raise BrokerError("no answer")

    def close(self) -> None:
        self.closed += 1


class Session:
    """Has the settings of a Spark session, and nothing else."""

    @property
    def conf(self) -> dict[str, str]:
        return {"spark.driver.host": "localhost"}


def test_a_bar_over_a_job_that_fails_closes_its_socket() -> None:
    session: Any = Session()
    with pytest.raises(BrokerError), records_bar(session, 0, "delays", 5) as listener:
        raise BrokerError("no answer")
    assert listener._socket.fileno() == -1


def test_a_range_that_cannot_be_read_is_closed() -> None:
    part = Unread()
    with pytest.raises(BrokerError):
        first_times({FLIGHTS: part})
    assert part.closed == 1


def test_a_sink_that_cannot_begin_closes_its_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ledger(Unread):
        def begin(self, topics: Any, tasks: int) -> Any:
            raise BrokerError("no answer")

    ledger = Ledger()
    monkeypatch.setattr(kafka_sink, "_Ledger", lambda kafka, job: ledger)
    monkeypatch.setattr(kafka_sink, "_check", lambda frame, topics: None)
    nothing: Any = None
    with pytest.raises(BrokerError):
        kafka_sink.publish(nothing, nothing, job="delays", topics=["flights"])
    assert ledger.closed == 1


def test_a_ledger_that_cannot_be_read_is_a_broker_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group has lost its coordinator after the job has begun."""
    monkeypatch.setattr(kafka_sink, "TIMEOUT_SECONDS", 0.1)
    ledger = kafka_sink._Ledger(KafkaSettings(bootstrap_servers="localhost:1"), "delays")
    with pytest.raises(BrokerError, match=r"progress of job 'delays' .* Then run the job again"):
        ledger.read([FLIGHTS])
    ledger.close()
