"""A real registry on this machine: started, found, killed, with its subjects kept."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from streamapp.cli import main
from streamapp.errors import BrokerError, SchemaRegistryError
from streamapp.registry import ConfluentSchemaRegistry
from streamapp.registry.apicurio import LocalRegistry
from streamapp.serdes import AvroSerde

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
    with pytest.raises(SchemaRegistryError, match="for invalid"):
        registry.id_of(f"{topic}-other", {"type": "rekord"})


def test_a_path_without_registry_is_said(local: LocalRegistry) -> None:
    with pytest.raises(SchemaRegistryError, match="Is the path right.*ccompat"):
        ConfluentSchemaRegistry(local.url.partition("/apis")[0]).schema_of(1)
