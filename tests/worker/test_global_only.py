"""A topology with global tables only, which has no tasks (Kafka Streams: GlobalKTableIntegrationTest)."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from streamapp import App, ConfigError, StreamsBuilder, StreamsConfig, StringSerde

from ..processes import free_port, until
from .conftest import Cluster

TEXT = StringSerde()


def rates(builder: StreamsBuilder) -> None:
    builder.global_table("rates", key_serde=TEXT, value_serde=TEXT)


def test_each_worker_has_the_table_and_is_ready(cluster: Cluster) -> None:
    def answer(port: int, path: str) -> Any:
        try:
            with urllib.request.urlopen(f"http://localhost:{port}{path}", timeout=10) as response:
                return json.load(response)
        except OSError:
            return {}

    def put(value: str) -> None:
        cluster.producer.produce(cluster.source, value, "eur")
        assert cluster.producer.flush(30) == 0

    def until_all_have(value: str) -> None:
        for port in ports:
            until(
                lambda port=port: answer(port, "/tables/rates/eur").get("value") == value, 60, cluster.story
            )  # type: ignore[misc]

    put("1.1")
    ports = [free_port(), free_port()]
    workers = [
        cluster.start(name, app="global_only_app", WEB_PORT=str(port))
        for name, port in zip("ab", ports, strict=True)
    ]
    until_all_have("1.1")
    put("1.2")
    until_all_have("1.2")
    for port in ports:
        until(lambda port=port: answer(port, "/health/ready").get("ready"), 60, cluster.story)  # type: ignore[misc]
        status = answer(port, "/status")
        assert (status["tasks"], status["findings"]) == ([], [])
    until(lambda: any("leads" in worker.text() for worker in workers), 60, cluster.story)
    first, second = sorted(workers, key=lambda worker: "leads" not in worker.text())
    assert "leads" not in second.text()
    assert first.terminate() == 0
    second.wait_for("leads")
    assert second.terminate() == 0


def test_dead_letters_that_nobody_would_write_are_refused() -> None:
    config = StreamsConfig(
        "rates", dead_letter_queue_topic="dead", deserialization_exception_handler="continue"
    )
    drops = StreamsConfig("rates", dead_letter_queue_topic="dead", dead_letter_drops=("null_key",))
    for refused, cause in ((config, '"continue"'), (drops, "dead_letter_drops is")):
        with pytest.raises(ConfigError, match=f'{cause}.*global tables only.* on_error="skip"'):
            App("rates", topology=rates, config=refused)
    # A function may make no letter; if it makes one, the worker ends.
    asked = StreamsConfig("rates", deserialization_exception_handler=lambda context, error: "continue")
    App("rates", topology=rates, config=asked)

    def skipping(builder: StreamsBuilder) -> None:
        builder.global_table("rates", key_serde=TEXT, value_serde=TEXT, on_error="skip")

    def with_a_task(builder: StreamsBuilder) -> None:
        rates(builder)
        builder.stream("orders", key_serde=TEXT, value_serde=TEXT).foreach(print)

    for describe in (skipping, with_a_task):
        App("rates", topology=describe, config=config)
