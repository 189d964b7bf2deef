"""Letters with schemas on a real cluster with a registry, as a user types it: shown, edited, tried and replayed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer

from streamapp.broker import KafkaAdmin, KafkaSettings, LocalKafka, TopicSpec
from streamapp.registry import ConfluentSchemaRegistry
from streamapp.registry.apicurio import LocalRegistry
from streamapp.runners.last_records import last_records
from streamapp.serdes import AvroSerde, ProtobufSerde
from streamapp.testing import WorkerProcess
from tests.processes import free_port, run_streamapp, until

pytestmark = pytest.mark.broker

APP = "tests.registry.letters_app"


class Ride(msgspec.Struct):
    km: int
    city: str = ""
    tip: float | None = None


class Order(msgspec.Struct):
    item: str
    pieces: int = 1


def test_letters_are_shown_as_json_and_edited_with_their_schema(
    local: LocalRegistry, registry: ConfluentSchemaRegistry, kafka: LocalKafka, topic: str, tmp_path: Path
) -> None:
    settings = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)
    names = {each: f"{topic}-{each}" for each in ("rides", "prices", "orders", "dead")}
    KafkaAdmin(settings).ensure_topics([TopicSpec(name, 1) for name in names.values()])
    rides = AvroSerde[Any](type=Ride, registry=registry).bind(names["rides"], False)
    orders = ProtobufSerde[Any](type=Order, registry=registry).bind(names["orders"], False)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(names["rides"], rides.serialize(Ride(-3, "Zürich", 0.5)), "r-1")
    producer.produce(names["rides"], b'{"km": 3}', "r-2")
    producer.produce(names["orders"], orders.serialize(Order("cup", 999)), "o-1")
    assert producer.flush(60) == 0
    environ = {
        "STREAMAPP_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "STREAMAPP_SCHEMA_REGISTRY_URL": local.url,
        "LETTERS_NAME": topic,
        "LETTERS_DATADIR": str(tmp_path / "worker"),
        "LETTERS_WEB_PORT": str(free_port()),
        "COLUMNS": "250",
    }

    def run(command: str, *arguments: str, code: int = 0, typed: bytes = b"") -> str:
        done = run_streamapp("dlq", command, APP, *arguments, env=os.environ | environ, typed=typed)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def letters() -> dict[bytes | None, str]:
        found = last_records(settings, names["dead"], 10)
        return {each.key: f"{each.partition}-{each.offset}" for each in found}

    log = tmp_path / "worker.log"
    port = int(environ["LETTERS_WEB_PORT"])
    with WorkerProcess(APP, web_port=port, log=log, environ=environ) as worker:
        worker.wait_until_ready()
        until(lambda: len(letters()) == 3, 90, log.read_text)
        ride, undecodable, order = (letters()[key] for key in (b"r-1", b"r-2", b"o-1"))

        shown = run("show", ride)
        assert 'value         {"km": -3, "city": "Zürich", "tip": 0.5}\n' in shown
        assert f"value as      avro, id {int.from_bytes(rides.serialize(Ride(1))[1:5], 'big')}\n" in shown
        assert "key as        string\n" in shown
        assert worker.get(f"/dlq/{ride}")["value"] == '{"km": -3, "city": "Zürich", "tip": 0.5}'
        refused = run("edit", ride, "--value", '{"km": "far", "city": ""}', code=1)
        assert "is no avro, id " in refused
        assert "km" in refused
        run("edit", ride, "--value", '{"km": 3, "city": "Zürich", "tip": 0.5}')
        assert '"km": 3' in run("show", ride)
        assert "6 CHF in Zürich" in run("try", ride)

        shown = run("show", undecodable)
        assert 'value         {"km": 3}\n' in shown
        assert "value problem SerializationError: cannot read Ride" in shown
        run("edit", undecodable, "--value", '{"km": 3, "city": "Bern"}')
        assert "6 CHF in Bern" in run("try", undecodable)

        assert 'value         {"item": "cup", "pieces": 999}\n' in run("show", order)
        run("edit", order, "--value", "-", typed=b"cup", code=1)
        run("edit", order, "--value", "-", typed=orders.serialize(Order("cup", 9)))
        assert '{"item": "cup", "pieces": 9}' in run("show", order)
        assert "3 letters replayed" in run("replay", "--all")
        until(lambda: len(list(last_records(settings, names["prices"], 10))) == 2, 60, log.read_text)
    values = {each.key: each.value for each in last_records(settings, names["prices"], 10)}
    assert values == {b"r-1": "6 CHF in Zürich".encode(), b"r-2": b"6 CHF in Bern"}
    replayed = {each.key: each.value for each in last_records(settings, names["rides"], 10)}
    assert rides.deserialize(replayed[b"r-1"] or b"") == Ride(3, "Zürich", 0.5)
