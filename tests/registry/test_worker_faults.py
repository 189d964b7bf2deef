"""A running worker and a registry in trouble: each record with a new id is processed once, in its place."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from streamapp.broker import KafkaAdmin, KafkaSettings, LocalKafka, TopicSpec
from streamapp.registry import ConfluentSchemaRegistry
from streamapp.runners.last_records import last_records
from streamapp.serdes import AvroSerde
from streamapp.testing import WorkerProcess
from tests.processes import free_port, until
from tests.unit.registry.scripted import Refused, ScriptedRegistry

pytestmark = pytest.mark.broker

SECONDS = 120.0
AGAIN = "asking again for"


@pytest.fixture
def server() -> Iterator[ScriptedRegistry]:
    registry = ScriptedRegistry()
    yield registry
    registry.stop()


def order(number: int) -> dict[str, Any]:
    """The schema of one more writer: each has an id of its own."""
    extra = {"name": f"extra{number}", "type": "long", "default": 0}
    return {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}, extra]}


def test_no_record_is_lost_or_skipped(
    server: ScriptedRegistry, kafka: LocalKafka, topic: str, tmp_path: Path
) -> None:
    settings = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)
    names = [f"{topic}-in", f"{topic}-out", f"{topic}-sums"]
    KafkaAdmin(settings).ensure_topics([TopicSpec(name, 1) for name in names])
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})
    sent: list[str] = []

    def encoded(number: int) -> bytes:
        registry = ConfluentSchemaRegistry(server.url)
        serde = AvroSerde[Any](order(number), registry=registry).bind(f"{topic}-in", False)
        sent.append(f"order-{number}")
        return serde.serialize({"id": sent[-1], f"extra{number}": 1})

    def write(*values: bytes) -> None:
        for value in values:
            producer.produce(f"{topic}-in", value, "k")
        assert producer.flush(60) == 0

    def worker(name: str) -> WorkerProcess:
        port = free_port()
        environ = {
            "STREAMAPP_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
            "STREAMAPP_SCHEMA_REGISTRY_URL": server.url,
            "STREAMAPP_SCHEMA_REGISTRY_REQUEST_TIMEOUT_MS": "300",
            "STREAMAPP_SCHEMA_REGISTRY_PATIENCE_MS": "6000",
            "ORDERS_NAME": topic,
            "ORDERS_DATADIR": str(tmp_path / "worker"),
            "ORDERS_WEB_PORT": str(port),
            "PYTHONPATH": os.getcwd(),
        }
        log = tmp_path / f"{name}.log"
        return WorkerProcess("tests.registry.orders_app", web_port=port, log=log, environ=environ)

    def wait_for_all(running: WorkerProcess) -> None:
        def there() -> bool:
            running.check()
            return len(ids_in(settings, f"{topic}-out")) >= len(sent)

        until(there, SECONDS, running.log.read_text)

    released = threading.Event()

    def slow(number: int) -> None:
        released.wait(30)

    def troubled(number: int) -> None:
        raise Refused(503, 50302, "the leader is not known")

    def well(number: int) -> None: ...

    def with_fault(fault: Callable[[int], None]) -> tuple[Callable[[], None], Callable[[], None]]:
        def begin() -> None:
            server.fault = fault

        def end() -> None:
            server.fault = well
            released.set()

        return begin, end

    with ExitStack() as stack:
        first = stack.enter_context(worker("first"))
        first.wait_until_ready()
        known = encoded(0)
        write(known)
        wait_for_all(first)
        faults = [(server.stop, server.start), with_fault(slow), with_fault(troubled)]
        for number, (begin, end) in enumerate(faults, 1):
            new = encoded(number)
            begin()
            warned = first.log.read_text().count(AGAIN)
            write(new, known)
            sent.append(sent[0])
            until(lambda n=warned: first.log.read_text().count(AGAIN) > n, SECONDS, first.log.read_text)
            end()
            wait_for_all(first)

        new = encoded(9)
        server.stop()
        write(known, new, known)
        sent[-1:] = [sent[0], sent[-1], sent[0]]
        until(lambda: not first.running, SECONDS, first.log.read_text)
        assert f"the schema registry {server.url} does not answer" in first.log.read_text()
        server.start()
        second = stack.enter_context(worker("second"))
        second.wait_until_ready()
        wait_for_all(second)
        # A record that the first worker has written behind its last commit comes twice.
        out = ids_in(settings, f"{topic}-out")
        again = len(out) - len(sent)
        assert out[: len(out) - 3 - again] + out[-3:] == sent
        assert again in (0, 1)


def ids_in(settings: KafkaSettings, topic: str) -> list[str]:
    """The orders' ids: behind the frame of 5 bytes and the length of the text."""
    return [record.value[6:].decode() for record in last_records(settings, topic, 100) if record.value]
