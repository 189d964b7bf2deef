"""`streamapp schema check` for pinned versions and normal forms, by a scripted registry."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import pytest
from click.testing import CliRunner

from streamapp import App, AvroSerde, JsonSchemaSerde, StreamsBuilder, StreamsConfig, StringSerde
from streamapp.cli import main
from streamapp.registry import ConfluentSchemaRegistry
from streamapp.registry.subjects import Subjects
from streamapp.serdes import schema_registry

from .scripted import ScriptedRegistry
from .test_registry_faults import FLIGHT, LATER


def checked(server: ScriptedRegistry, monkeypatch: pytest.MonkeyPatch, serde: Any) -> tuple[int, str]:
    """Exit code and output of the command for an application that writes to ``flights`` with a serde."""

    def describe(builder: StreamsBuilder) -> None:
        stream = builder.stream("in", key_serde=StringSerde(), value_serde=StringSerde())
        stream.map_values(lambda text: {"delay": len(text)}).to("flights", value_serde=serde)

    monkeypatch.setattr(schema_registry, "_default", None)
    config = StreamsConfig("pinned", schema_registry_url=server.url)
    app = App("pinned", topology=describe, config=config)
    monkeypatch.setattr(sys.modules[__name__], "app", app, raising=False)
    ran = CliRunner().invoke(main, ["schema", "check", __name__])
    assert ran.exception is None or isinstance(ran.exception, SystemExit), ran.output
    return ran.exit_code, ran.output


@pytest.mark.parametrize(("version", "number"), [(1, 1), ("latest", 2)])
def test_a_pinned_version_is_named(
    server: ScriptedRegistry, monkeypatch: pytest.MonkeyPatch, version: Any, number: int
) -> None:
    """The application's own schema is not written, so no difference is a fault."""
    for schema in (FLIGHT, LATER):
        server.add("flights-value", {"schema": json.dumps(schema)})
    serde = AvroSerde[Any](FLIGHT, registry=ConfluentSchemaRegistry(server.url), version=version)
    code, said = checked(server, monkeypatch, serde)
    assert (code, said) == (0, f"flights-value: writes, pinned to version {number} (id {number})\n")


@pytest.mark.parametrize(("serde", "schema"), [(AvroSerde, FLIGHT), (JsonSchemaSerde, {"type": "object"})])
def test_a_pinned_version_that_is_not_there_stops_the_deployment(
    server: ScriptedRegistry, monkeypatch: pytest.MonkeyPatch, serde: Any, schema: Any
) -> None:
    server.add("flights-value", {"schema": json.dumps(FLIGHT)})
    pinned = serde(schema, registry=ConfluentSchemaRegistry(server.url), version=7)
    code, said = checked(server, monkeypatch, pinned)
    assert code == 1
    assert said.startswith("flights-value: writes, missing\n")
    assert "the registry says: Version 7 not found." in said


def test_a_pinned_version_of_another_format_stops_the_deployment(
    server: ScriptedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.add("flights-value", {"schema": '{"type": "object"}', "schemaType": "JSON"})
    pinned = AvroSerde[Any](FLIGHT, registry=ConfluentSchemaRegistry(server.url), version=1)
    code, said = checked(server, monkeypatch, pinned)
    assert code == 1
    assert said.startswith("flights-value: writes, incompatible with version 1 (id 1)\n")
    assert "the version is JSON, not AVRO" in said


def test_normalisation_holds_for_the_check(server: ScriptedRegistry) -> None:
    """The worker that registers the schema asks for the normal form, too."""
    for normal, query in (
        (False, ["", "?verbose=true"]),
        (True, ["?normalize=true", "?normalize=true&verbose=true"]),
    ):
        server.add("flights-value", {"schema": json.dumps(FLIGHT)})
        registry = ConfluentSchemaRegistry(server.url, normalize_schemas=normal)
        server.requests.clear()
        assert Subjects(registry).change("flights-value", LATER, "AVRO").kind == "compatible"
        asked = [path for method, path, _ in server.requests if method == "POST"]
        paths = ["/subjects/flights-value", "/compatibility/subjects/flights-value/versions/latest"]
        assert asked == [path + each for path, each in zip(paths, query, strict=True)]


def test_the_list_has_a_subject_whose_reference_was_deleted(
    server: ScriptedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command ended with the error of this subject, and showed no other one."""
    gate = {"name": "Gate", "subject": "gate", "version": 1}
    server.add("flights-value", {"schema": '{"type":"array","items":"Gate"}', "references": [gate]})
    server.add("orders-value", {"schema": "{}", "schemaType": "JSON"})
    monkeypatch.setenv("STREAMAPP_SCHEMA_REGISTRY_URL", server.url)
    ran = CliRunner().invoke(main, ["schema", "list"])
    assert ran.exit_code == 0, ran.output
    rows = [re.findall(r"[\w-]+", line) for line in ran.output.splitlines() if "-value" in line]
    assert rows == [
        ["flights-value", "1", "1", "AVRO"],
        ["orders-value", "1", "2", "JSON"],
    ]
