"""Two versions of an application on one cluster: newer records, and rows of a store that an older version has written."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer

from streamapp.broker import KafkaAdmin, KafkaSettings, LocalKafka, TopicSpec
from streamapp.errors import StreamsError
from streamapp.registry import ConfluentSchemaRegistry
from streamapp.registry.apicurio import LocalRegistry
from streamapp.serdes import AvroSerde
from streamapp.testing import WorkerProcess
from tables.schemas import FLIGHT_SCHEMA, Flight
from tests.processes import free_port, run_streamapp, until

pytestmark = pytest.mark.broker

OLD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "cents", "type": "long", "default": 0}]}
SECONDS = 120.0
MILLISECONDS = 1_372_636_800_000


def test_versions_follow_each_other_while_records_come(
    local: LocalRegistry, registry: ConfluentSchemaRegistry, kafka: LocalKafka, topic: str, tmp_path: Path
) -> None:
    names = [f"{topic}-in", f"{topic}-out", f"{topic}-sums"]
    admin = KafkaAdmin(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers))
    admin.ensure_topics([TopicSpec(name, 1) for name in names])
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})

    def write(schema: Any, key: str, value: Any) -> None:
        serde = AvroSerde[Any](schema, registry=registry).bind(f"{topic}-in", False)
        producer.produce(f"{topic}-in", serde.serialize(value), key)
        assert producer.flush(60) == 0

    def worker(change: str) -> WorkerProcess:
        port = free_port()
        environ = {
            "STREAMAPP_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
            "STREAMAPP_SCHEMA_REGISTRY_URL": local.url,
            "ORDERS_NAME": topic,
            "ORDERS_CHANGE": change,
            "ORDERS_DATADIR": str(tmp_path / f"worker-{change}"),
            "ORDERS_WEB_PORT": str(port),
            "PYTHONPATH": os.getcwd(),
        }
        log = tmp_path / f"worker-{change}.log"
        return WorkerProcess("tests.registry.orders_app", web_port=port, log=log, environ=environ)

    def latest(running: WorkerProcess, key: str) -> Any:
        running.check()
        try:
            return running.get(f"/tables/latest/{key}")["value"]
        except (OSError, StreamsError, KeyError):
            return None

    with ExitStack() as stack:
        first = stack.enter_context(worker(""))
        first.wait_until_ready()
        write(OLD, "a", {"id": "1"})
        until(lambda: latest(first, "a") == {"id": "1"}, SECONDS, first.log.read_text)

        # A producer is ahead of the worker: its newer id is resolved in mid-stream.
        write(NEW, "b", {"id": "2", "cents": 5})
        until(lambda: latest(first, "b") == {"id": "2"}, SECONDS, first.log.read_text)

        # The new version starts beside the old one, takes over, and reads the rows that the old one has written.
        second = stack.enter_context(worker("compatible"))
        second.wait_until_ready()
        first.stop()
        until(lambda: latest(second, "a") == {"id": "1", "cents": 0}, SECONDS, second.log.read_text)
        write(NEW, "c", {"id": "3", "cents": 7})
        until(lambda: latest(second, "c") == {"id": "3", "cents": 7}, SECONDS, second.log.read_text)
        assert latest(second, "b") == {
            "id": "2",
            "cents": 0,
        }  # the old version has written the row without cents


def test_a_worker_survives_a_registry_that_is_away(
    local: LocalRegistry, registry: ConfluentSchemaRegistry, kafka: LocalKafka, topic: str, tmp_path: Path
) -> None:
    """A worker that starts again while nobody answers works on with the schemas in its state folder."""
    names = [f"{topic}-in", f"{topic}-out", f"{topic}-sums"]
    admin = KafkaAdmin(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers))
    admin.ensure_topics([TopicSpec(name, 1) for name in names])
    serde = AvroSerde[Any](OLD, registry=registry).bind(f"{topic}-in", False)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})
    own = LocalRegistry(tmp_path / "own", port=0)
    environ = {
        "STREAMAPP_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "ORDERS_NAME": topic,
        "ORDERS_DATADIR": str(tmp_path / "worker"),
        "PYTHONPATH": os.getcwd(),
    }

    def run(key: str, name: str) -> None:
        port = free_port()
        producer.produce(f"{topic}-in", serde.serialize({"id": key}), key)
        assert producer.flush(60) == 0
        settings = {**environ, "ORDERS_WEB_PORT": str(port), "STREAMAPP_SCHEMA_REGISTRY_URL": own.url}
        log = tmp_path / f"{name}.log"
        with WorkerProcess("tests.registry.orders_app", web_port=port, log=log, environ=settings) as worker:
            worker.wait_until_ready()

            def there() -> bool:
                worker.check()
                try:
                    return bool(worker.get(f"/tables/latest/{key}")["value"] == {"id": key})
                except (OSError, StreamsError, KeyError):
                    return False

            until(there, SECONDS, log.read_text)

    with own:
        serde = AvroSerde[Any](OLD, registry=ConfluentSchemaRegistry(own.url)).bind(f"{topic}-in", False)
        run("a", "with")
    run("b", "without")
    assert "going on with its earlier answer" in (tmp_path / "without.log").read_text()


def flight(number: int, delay: int) -> dict[str, Any]:
    value = Flight("UA", number, "JFK", "IAH", MILLISECONDS, 1_400, "N1", delay)
    return msgspec.structs.asdict(value)


def test_the_reference_application_upgrades_its_delays(
    local: LocalRegistry, registry: ConfluentSchemaRegistry, kafka: LocalKafka, tmp_path: Path
) -> None:
    """`Delays` gains a field while flights come, and so do flights; a change that no row survives is refused by the registry."""
    sources = ["flights", "weather", "planes", "airports"]
    outputs = ["late-departures", "late-carriers", "flights-dead", "maintenance-tickets"]
    admin = KafkaAdmin(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers))
    admin.ensure_topics([TopicSpec(name, 1) for name in [*sources, *outputs]])
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})
    newer = {
        **FLIGHT_SCHEMA,
        "fields": [*FLIGHT_SCHEMA["fields"], {"name": "gate", "type": "string", "default": "?"}],
    }
    strange = {**FLIGHT_SCHEMA, "fields": [{"name": "carrier", "type": {"type": "array", "items": "int"}}]}

    def write(value: Any, schema: Any = FLIGHT_SCHEMA, subject: str | None = None) -> None:
        serde = AvroSerde[Any](schema, registry=registry, subject=subject)
        data = (serde if subject else serde.bind("flights", False)).serialize(value)
        producer.produce("flights", data, "N1", timestamp=MILLISECONDS)
        assert producer.flush(60) == 0

    def environ(change: str, port: int) -> dict[str, str]:
        return {
            "STREAMAPP_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
            "STREAMAPP_SCHEMA_REGISTRY_URL": local.url,
            "DELAYS_CHANGE": change,
            "FLIGHTS_DATADIR": str(tmp_path / f"flights-{change}"),
            "FLIGHTS_WEB_PORT": str(port),
            "PYTHONPATH": os.getcwd(),
        }

    def worker(change: str) -> WorkerProcess:
        port = free_port()
        log = tmp_path / f"flights-{change}.log"
        return WorkerProcess(
            "tests.registry.delays_app", web_port=port, log=log, environ=environ(change, port)
        )

    def delays(running: WorkerProcess) -> Any:
        running.check()
        try:
            return running.get("/tables/weather-delays/unknown")["value"]
        except (OSError, StreamsError, KeyError):
            return None

    with ExitStack() as stack:
        first = stack.enter_context(worker(""))
        first.wait_until_ready()
        write(flight(1, 10))
        write({**flight(2, 5), "gate": "B7"}, newer)  # a newer id in mid-stream
        until(
            lambda: delays(first) == {"flights": 2, "cancelled": 0, "minutes": 15},
            SECONDS,
            first.log.read_text,
        )

        second = stack.enter_context(worker("compatible"))
        second.wait_until_ready()
        first.stop()
        kept = {"flights": 2, "cancelled": 0, "minutes": 15, "longest": 0}
        until(lambda: delays(second) == kept, SECONDS, second.log.read_text)
        write(flight(3, 30))
        kept = {"flights": 3, "cancelled": 0, "minutes": 45, "longest": 30}
        until(lambda: delays(second) == kept, SECONDS, second.log.read_text)

        # The registry has both versions; the check before a deployment refuses the third.
        subject = "flights-weather-delays-changelog-value"
        assert registry.version_of(subject).version == 2
        checked = run_streamapp(
            "schema",
            "check",
            "tests.registry.delays_app",
            env=os.environ | environ("incompatible", free_port()),
        )
        assert checked.returncode == 1, checked.stdout + checked.stderr
        assert f"{subject}: writes, incompatible with version 2 (id " in checked.stdout
        assert "fields.flights.type: 'long' becomes 'string'" in checked.stdout

        # A record that cannot be resolved: the handler ends the worker, with both schemas and their difference.
        write({"carrier": [1]}, strange, subject="strange")
        until(lambda: not second.running, SECONDS, second.log.read_text)
        log = second.log.read_text()
        assert "they were written with the schema of id" in log
        assert "Flight here differs from it: fields.carrier.type: " in log
