"""A worker waits for brokers at its start, with a topology and without."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamapp import app as app_module
from streamapp.app import App
from streamapp.config import StreamsConfig
from streamapp.errors import BrokerError
from streamapp.runners.worker import clients
from streamapp.runners.worker.clients import await_brokers

CONFIG = StreamsConfig("orders", bootstrap_servers="localhost:1")


class Brokers:
    """Brokers that answer the request with the number ``answers_at``; 0: never."""

    def __init__(self, answers_at: int = 0) -> None:
        self.asked, self.answers_at = 0, answers_at

    def list_topics(self, topic: None, timeout: float) -> None:
        self.asked += 1
        if self.asked != self.answers_at:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))


def test_a_worker_waits_for_brokers_that_start_after_it(caplog: pytest.LogCaptureFixture) -> None:
    brokers: Any = Brokers(answers_at=3)
    with caplog.at_level(logging.WARNING):
        asyncio.run(await_brokers(CONFIG, brokers))
    assert brokers.asked == 3
    (line,) = caplog.messages
    assert "localhost:1" in line
    assert "Trying again for 60 s" in line


def test_a_worker_without_a_topology_says_that_it_has_found_no_brokers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A worker with agents only ended at once, with a traceback."""
    monkeypatch.setattr(clients, "_START_SECONDS", 0.0)
    brokers = Brokers()
    monkeypatch.setattr(app_module, "admin_client", lambda config: brokers)
    app = App("orders", bootstrap_servers="localhost:1", datadir=tmp_path)
    with pytest.raises(BrokerError, match="Kafka cannot be reached at localhost:1"):
        asyncio.run(app.on_start())
    assert brokers.asked > 0
