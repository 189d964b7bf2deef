"""A real registry on this machine: started, found, killed, with its subjects kept."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from streamapp.cli import main
from streamapp.errors import BrokerError, SchemaRegistryError, SerializationError
from streamapp.registry import ConfluentSchemaRegistry
from streamapp.registry.apicurio import LocalRegistry
from streamapp.serdes import AvroSerde, JsonSchemaSerde, ProtobufSerde, SchemaReference
from tests.unit.serdes.protos import fleet

pytestmark = pytest.mark.broker

FLIGHT = {"type": "record", "name": "Flight", "fields": [{"name": "delay", "type": "int"}]}
NEWER = {**FLIGHT, "fields": [*FLIGHT["fields"], {"name": "dest", "type": "string", "default": "?"}]}
REFUSED = {**FLIGHT, "fields": [*FLIGHT["fields"], {"name": "dest", "type": "string"}]}


def test_subjects_survive_a_stop_and_a_kill(tmp_path: Path) -> None:
    runner = CliRunner()
    folder = ["--data-dir", str(tmp_path)]
    assert runner.invoke(main, ["registry", "status", *folder]).exit_code == 1
    started = runner.invoke(main, ["registry", "start", "--port", "0", *folder])
    assert started.exit_code == 0, started.output
    registry = LocalRegistry(tmp_path, port=0)
    try:
        assert f"export STREAMAPP_SCHEMA_REGISTRY_URL={registry.url}" in started.output
        first = ConfluentSchemaRegistry(registry.url).id_of("flights-value", FLIGHT)
        second = ConfluentSchemaRegistry(registry.url).id_of("flights-value", NEWER)
        assert "runs already" in runner.invoke(main, ["registry", "start", *folder]).output

        registry.kill()
        assert runner.invoke(main, ["registry", "status", *folder]).exit_code == 1
        registry.start()
        again = ConfluentSchemaRegistry(registry.url)
        assert [again.schema_of(first), again.schema_of(second)] == [FLIGHT, NEWER]
        assert again.version_of("flights-value").version == 2
        again.id_of("others-value", FLIGHT)
        with pytest.raises(SchemaRegistryError, match="fields.dest: new"):  # BACKWARD, as Confluent's default
            again.id_of("others-value", REFUSED)
    finally:
        stopped = runner.invoke(main, ["registry", "stop", *folder])
    assert stopped.output == "The registry is stopped.\n"
    assert LocalRegistry(tmp_path).status().pid is None


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(
            BrokerError, match="so registry cannot listen on it.*STREAMAPP_SCHEMA_REGISTRY_URL"
        ):
            LocalRegistry(tmp_path, port=taken.getsockname()[1]).start()


def test_form_makes_no_new_version(registry: ConfluentSchemaRegistry, topic: str) -> None:
    serde = AvroSerde[Any](FLIGHT, registry=registry).bind(topic, False)
    serde.serialize({"delay": 1})
    body = {
        "schema": '{ "type": "record",  "name": "Flight", "fields": [ {"name": "delay", "type": "int"} ] }'
    }
    path = f"/subjects/{topic}-value/versions"
    registry.client.ask("POST", path, body)
    assert registry.client.ask("GET", path) == [1]


def test_a_real_refusal_names_both_schemas(registry: ConfluentSchemaRegistry, topic: str) -> None:
    registry.id_of(f"{topic}-value", FLIGHT)
    with pytest.raises(SchemaRegistryError, match=r"not compatible .*Version 1 \(id \d+\).*fields.dest: new"):
        registry.id_of(f"{topic}-value", REFUSED)
    with pytest.raises(SchemaRegistryError, match="as invalid"):
        registry.id_of(f"{topic}-other", {"type": "rekord"})


def test_a_path_without_registry_is_said(local: LocalRegistry) -> None:
    with pytest.raises(SchemaRegistryError, match="Is the path right.*ccompat"):
        ConfluentSchemaRegistry(local.url.partition("/apis")[0]).schema_of(1)


def test_a_real_registry_takes_references(registry: ConfluentSchemaRegistry, topic: str) -> None:
    """All three formats; a process without the application's schemas reads Avro by what the registry tells."""
    item = {"type": "enum", "name": f"Kind{topic}", "symbols": ["CUP"]}
    reference = SchemaReference(f"Kind{topic}", f"{topic}-kind", item)
    avro = AvroSerde[Any](
        {"type": "array", "items": f"Kind{topic}"}, references=[reference], registry=registry
    ).bind(topic, False)
    data = avro.serialize(["CUP"])
    fresh = ConfluentSchemaRegistry(registry.settings.url)
    assert fresh.schema_of(int.from_bytes(data[1:5], "big")) == {"type": "array", "items": item}

    cents = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "integer", "title": topic}
    order = {"title": "Order", "type": "object", "properties": {"cents": {"$ref": f"{topic}.json"}}}
    reference = SchemaReference(f"{topic}.json", f"{topic}-cents", cents)
    in_json = JsonSchemaSerde[Any](order, references=[reference], registry=registry).bind(f"{topic}-j", False)
    assert in_json.deserialize(in_json.serialize({"cents": 3})) == {"cents": 3}

    cargo = fleet.Truck.Cargo(label={"text": "x"}, item={"name": "cup"})
    serde = ProtobufSerde[Any](fleet.Truck.Cargo, registry=registry).bind(f"{topic}-p", False)
    assert serde.deserialize(serde.serialize(cargo)) == cargo
    written = registry.client.ask("GET", f"/subjects/{topic}-p-value/versions/latest")
    assert [each["name"] for each in written["references"]] == ["shop.proto"]


def test_a_registry_without_guids_is_said(registry: ConfluentSchemaRegistry, topic: str) -> None:
    """Apicurio Registry 2.5 has none."""
    serde = AvroSerde[Any](FLIGHT, registry=registry, schema_id_in="header").bind(topic, False)
    with pytest.raises(SchemaRegistryError, match='gives no GUIDs.*schema_id_in="payload"'):
        serde.serialize({"delay": 1})
    with pytest.raises(SerializationError, match="no schema with GUID"):
        serde.deserialize(b"\1" + bytes(16) + b"\2")
