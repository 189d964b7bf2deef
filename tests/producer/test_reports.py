"""Reports run code of the application, which may call the producer again."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamapp.producer import DeliveryError, SyncReliableProducer, plain_client

from ..processes import until

OUTAGE = """
import time
from streamapp.producer import DeliveryError, SyncReliableProducer

with SyncReliableProducer("orders", bootstrap_servers="127.0.0.1:9", delivery_timeout_ms=300) as producer:
    reports = [producer.send_soon("orders", value=b"v") for _ in range(5)]
    seen = []
    for report in reports:
        report.add_done_callback(lambda done: seen.append(producer.flush(0.01)))
    for report in reports:
        assert isinstance(report.exception(30), DeliveryError)
    while len(seen) < 5:
        time.sleep(0.01)
    print(producer.metrics.failed, "failed")
"""


def test_records_that_fail_together_do_not_end_the_process() -> None:
    """A process of its own, because confluent-kafka ended it: librdkafka's callbacks asked for the names of topics."""
    done = subprocess.run([sys.executable, "-c", OUTAGE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "5 failed\n"


class Scripted:
    """librdkafka's producer with a rare order of callbacks, which no broker can bring about at will.

    The first client sends a record, the connection fails without an answer, and the client ends for another reason. The
    client gives the record back before it tells of the failed connection.
    """

    clients: ClassVar[list[Scripted]] = []

    def __init__(self, settings: dict[str, Any]) -> None:
        self._tell_failure = settings["error_cb"]
        self.reports: list[Callable[..., None]] = []
        self._polls = repeat(None) if self.clients else self._first()
        self.clients.append(self)

    def produce(
        self, topic: str, value: bytes, key: bytes, partition: int, report: Callable[..., None], **_: Any
    ) -> None:
        self.reports.append(report)

    def _first(self) -> Iterator[KafkaError | None]:
        while not self.reports:
            yield None
        yield KafkaError(KafkaError._GAPLESS_GUARANTEE, "the client ends", fatal=True)
        self.reports[0](KafkaError(KafkaError._PURGE_QUEUE), SimpleNamespace(partition=lambda: 0))
        yield None
        timed_out = "1 request(s) timed out: disconnect (after 402ms in state UP)"
        self._tell_failure(KafkaError(KafkaError._TIMED_OUT, timed_out))
        yield from repeat(None)

    def poll(self, seconds: float) -> None:
        time.sleep(0.001)
        if error := next(self._polls):
            raise KafkaException(error)

    flush = poll

    def purge(self, in_queue: bool = True, in_flight: bool = True) -> None:
        pass


def test_a_record_that_may_be_written_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scripted, "clients", [])
    monkeypatch.setattr(plain_client, "Producer", Scripted)
    with SyncReliableProducer("orders", bootstrap_servers="127.0.0.1:9") as producer:
        failed = producer.send_soon("orders", value=b"v").exception(30)
        assert isinstance(failed, DeliveryError)
        assert failed.written is None
        until(lambda: len(Scripted.clients) == 2, 30, lambda: Scripted.clients)
    assert not Scripted.clients[1].reports
