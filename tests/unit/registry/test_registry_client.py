"""Questions and answers of the registry's client, its settings, and serdes that use it."""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from streamapp import StreamsBuilder, StreamsConfig, StringSerde, TopologyTestDriver
from streamapp.errors import ConfigError, SchemaRegistryError, SerializationError
from streamapp.producer import Outbox, SqliteOutbox
from streamapp.registry import ConfluentSchemaRegistry, RegistrySettings
from streamapp.runners.connection import connected
from streamapp.serdes import AvroSerde, JsonSchemaSerde, ProtobufSerde, Serde, schema_registry
from tests.unit.serdes.protos import shop

from .scripted import ScriptedRegistry
from .test_registry_faults import FLIGHT, LATER

IN_JSON = {"title": "Flight", "type": "object", "properties": {"delay": {"type": "integer"}}}


@pytest.fixture
def no_default() -> Iterator[None]:
    before, schema_registry._default = schema_registry._default, None
    yield
    schema_registry._default = before


def test_a_schema_is_asked_for_once(server: ScriptedRegistry) -> None:
    registry = ConfluentSchemaRegistry(server.url)
    assert [registry.id_of("s", FLIGHT) for _ in range(3)] == [1, 1, 1]
    assert registry.schema_of(1) == FLIGHT
    assert [request[:2] for request in server.requests] == [
        ("POST", "/subjects/s"),
        ("POST", "/subjects/s/versions"),
    ]


def test_normalisation_is_asked_for(server: ScriptedRegistry) -> None:
    ConfluentSchemaRegistry(server.url, normalize_schemas=True).id_of("s", FLIGHT)
    assert [path for _, path, _ in server.requests] == [
        "/subjects/s?normalize=true",
        "/subjects/s/versions?normalize=true",
    ]


def test_credentials_go_with_each_request(server: ScriptedRegistry) -> None:
    ConfluentSchemaRegistry(server.url, basic_auth_user_info="ada:love:lace").id_of("s", FLIGHT)
    ConfluentSchemaRegistry(server.url, bearer_auth_token="t0ken").id_of("s", FLIGHT)
    sent = [headers["Authorization"] for _, _, headers in server.requests]
    assert base64.b64decode(sent[0].removeprefix("Basic ")) == b"ada:love:lace"
    assert sent[-1] == "Bearer t0ken"


def test_a_subject_with_any_name_is_one_part_of_the_path(server: ScriptedRegistry) -> None:
    ConfluentSchemaRegistry(server.url).id_of("../a b/ü?x=1", FLIGHT)
    assert server.requests[0][1] == "/subjects/..%2Fa%20b%2F%C3%BC%3Fx%3D1"


def test_references_are_read_as_one_schema(server: ScriptedRegistry) -> None:
    item = {"type": "record", "name": "Item", "namespace": "shop", "fields": [{"name": "n", "type": "int"}]}
    server.add("item", {"schema": json.dumps(item)})
    line = {
        "type": "record",
        "name": "Line",
        "namespace": "shop",
        "fields": [{"name": "item", "type": "Item"}],
    }
    reference = {"name": "shop.Item", "subject": "item", "version": 1}
    server.add("line", {"schema": json.dumps(line), "references": [reference]})
    order = {"type": "array", "items": "shop.Line"}
    outer = {"name": "shop.Line", "subject": "line", "version": 1}
    number = server.add("order", {"schema": json.dumps(order), "references": [outer]})

    whole = ConfluentSchemaRegistry(server.url).schema_of(number)
    serde = AvroSerde[Any](whole)
    assert serde.deserialize(serde.serialize([{"item": {"n": 4}}])) == [{"item": {"n": 4}}]


def test_a_reference_to_itself_ends(server: ScriptedRegistry) -> None:
    loop = {"name": "A", "subject": "a", "version": 1}
    number = server.add("a", {"schema": '{"type": "array", "items": "A"}', "references": [loop]})
    assert ConfluentSchemaRegistry(server.url).schema_of(number) == {
        "type": "array",
        "items": {"type": "array", "items": "A"},
    }


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [("topic", "flights-key"), ("record", "air.Flight"), ("topic-record", "flights-air.Flight")],
)
def test_subjects_by_strategy(server: ScriptedRegistry, strategy: Any, subject: str) -> None:
    registry = ConfluentSchemaRegistry(server.url)
    serde = AvroSerde[Any]({**FLIGHT, "namespace": "air"}, registry=registry, subject_strategy=strategy)
    serde.bind("flights", True).serialize({"delay": 1})
    assert list(server.subjects) == [subject]


@pytest.mark.parametrize(
    ("strategy", "subjects"),
    [
        ("topic", ["flights-key", "flights-key"]),
        ("record", ["Flight", "streamapp.shop.Item"]),
        ("topic-record", ["flights-Flight", "flights-streamapp.shop.Item"]),
    ],
)
def test_subjects_of_the_other_formats(server: ScriptedRegistry, strategy: Any, subjects: list[str]) -> None:
    """The record's name is the title of a JSON Schema, and the full name of a message."""
    registry = ConfluentSchemaRegistry(server.url)
    serdes: list[tuple[Serde[Any], Any]] = [
        (JsonSchemaSerde(IN_JSON, registry=registry, subject_strategy=strategy), {"delay": 1}),
        (ProtobufSerde(shop.Item, registry=registry, subject_strategy=strategy), shop.Item()),
    ]
    for (serde, value), subject in zip(serdes, subjects, strict=True):
        server.subjects.clear()
        serde.bind("flights", True).serialize(value)
        assert list(server.subjects) == [subject]


def test_a_pinned_json_schema_is_what_values_are_held_against(server: ScriptedRegistry) -> None:
    later = {**IN_JSON, "required": ["delay"]}
    for schema in (IN_JSON, later):
        server.add("flights-value", {"schema": json.dumps(schema), "schemaType": "JSON"})
    registry = ConfluentSchemaRegistry(server.url)
    pinned = JsonSchemaSerde[Any](IN_JSON, registry=registry, version=1).bind("flights", False)
    assert pinned.serialize({}) == b"\0\0\0\0\1{}"
    latest = JsonSchemaSerde[Any](IN_JSON, registry=registry, version="latest").bind("flights", False)
    assert latest.serialize({"delay": 3}) == b'\0\0\0\0\2{"delay":3}'
    with pytest.raises(SerializationError, match="delay"):
        latest.serialize({})
    assert latest.deserialize(pinned.serialize({})) == {}
    assert not any(path.endswith("/versions") for _, path, _ in server.requests)


def test_a_strategy_needs_a_name() -> None:
    with pytest.raises(ConfigError, match="needs a schema with a name"):
        AvroSerde("string", subject_strategy="record")
    with pytest.raises(ConfigError, match="one of topic, record"):
        AvroSerde(FLIGHT, subject_strategy="name")  # type: ignore[arg-type]


def test_a_pinned_version_is_what_is_written(server: ScriptedRegistry) -> None:
    for schema in (FLIGHT, LATER):
        server.add("flights-value", {"schema": json.dumps(schema)})
    registry = ConfluentSchemaRegistry(server.url)
    pinned = AvroSerde[Any](FLIGHT, registry=registry, version=1).bind("flights", False)
    assert pinned.serialize({"delay": 3}) == b"\0\0\0\0\1\6"
    latest = AvroSerde[Any](FLIGHT, registry=registry, version="latest").bind("flights", False)
    assert latest.serialize({"delay": 3, "dest": "JFK"}) == b"\0\0\0\0\2\6\6JFK"
    with pytest.raises(SerializationError, match="dest"):
        latest.serialize({"delay": 3})
    assert latest.deserialize(b"\0\0\0\0\2\6\6JFK") == {"delay": 3}
    with pytest.raises(SchemaRegistryError, match="flights-value has no such version"):
        AvroSerde[Any](FLIGHT, registry=registry, version=3).bind("flights", False).serialize({"delay": 3})
    assert not any(path.endswith("/versions") for _, path, _ in server.requests)


def test_a_pinned_version_of_a_type(server: ScriptedRegistry) -> None:
    class Flight(msgspec.Struct):
        delay: int
        dest: str = "?"

    for schema in (FLIGHT, LATER):
        server.add("flights-value", {"schema": json.dumps(schema)})
    registry = ConfluentSchemaRegistry(server.url)
    for version, data in ((1, b"\0\0\0\0\1\6"), (2, b"\0\0\0\0\2\6\6JFK")):
        serde = AvroSerde[Flight](LATER, type=Flight, registry=registry, version=version).bind(
            "flights", False
        )
        assert serde.serialize(Flight(3, "JFK")) == data


class Leg(msgspec.Struct):
    delay: int
    dest: str = "?"


class Trip(msgspec.Struct):
    legs: list[Leg]
    note: str = ""


def _trip(leg: Any, *more: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Trip",
        "fields": [{"name": "legs", "type": {"type": "array", "items": {**leg, "name": "Leg"}}}, *more],
    }


NOTE = {"name": "note", "type": "string", "default": ""}
MIDDLE = {**FLIGHT, "doc": "another schema, with the same fields"}


def _pinned(server: ScriptedRegistry, old: Any, new: Any, type_: Any) -> Any:
    """A serde that is pinned to version 1, which has the old schema."""
    server.add("flights-value", {"schema": json.dumps(old)})
    registry = ConfluentSchemaRegistry(server.url)
    return AvroSerde[Any](new, type=type_, registry=registry, version=1).bind("flights", False)


@pytest.mark.parametrize(
    ("old", "new", "type_", "value", "data"),
    [
        (FLIGHT, LATER, None, {"delay": 3, "dest": "JFK"}, b"\6"),
        ({**FLIGHT, "name": "Old"}, LATER, None, {"delay": 3, "dest": "JFK"}, b"\6"),
        (FLIGHT, LATER, Leg, Leg(3, "JFK"), b"\6"),
        (_trip(FLIGHT), _trip(LATER, NOTE), None, {"legs": [{"delay": 3, "dest": "JFK"}]}, b"\2\6\0"),
        (_trip(FLIGHT), _trip(LATER, NOTE), Trip, Trip([Leg(3, "JFK")], "late"), b"\2\6\0"),
        (
            ["null", FLIGHT],
            ["null", {**LATER, "name": "Trip", "aliases": ["Flight"]}],
            None,
            {"delay": 3, "dest": "JFK"},
            b"\2\6",
        ),
    ],
)
def test_a_pinned_version_lacks_newer_fields_at_each_depth(
    server: ScriptedRegistry, old: Any, new: Any, type_: Any, value: Any, data: bytes
) -> None:
    """Flat types left newer attributes out, and nested records and dicts with them were refused."""
    serde = _pinned(server, old, new, type_)
    assert serde.serialize(value) == b"\0\0\0\0\1" + data


@pytest.mark.parametrize(
    ("old", "new", "type_", "value", "name"),
    [
        (FLIGHT, LATER, None, {"delay": 3, "gate": "B"}, "gate"),
        (FLIGHT, MIDDLE, Leg, Leg(3), "dest"),
        (_trip(FLIGHT), _trip(LATER), None, {"legs": [{"delay": 3, "gate": "B"}]}, "gate"),
        (_trip(FLIGHT), _trip(MIDDLE, NOTE), Trip, Trip([Leg(3)]), "dest"),
    ],
)
def test_a_field_that_no_schema_has_is_refused_with_a_pinned_version(
    server: ScriptedRegistry, old: Any, new: Any, type_: Any, value: Any, name: str
) -> None:
    """The fast writer left out each attribute that the version lacks, also one that no schema has."""
    serde = _pinned(server, old, new, type_)
    with pytest.raises(SerializationError, match=rf"the schema has no fields \['{name}'"):
        serde.serialize(value)


def test_a_renamed_field_is_not_lost_beside_a_default_of_the_pinned_version(server: ScriptedRegistry) -> None:
    old = {**FLIGHT, "fields": [{"name": "airline", "type": "string", "default": "?"}]}
    new = {**FLIGHT, "fields": [{"name": "carrier", "type": "string", "aliases": ["airline"]}]}
    server.add("flights-value", {"schema": json.dumps(old)})
    registry = ConfluentSchemaRegistry(server.url)
    serde = AvroSerde[Any](new, registry=registry, version=1).bind("flights", False)
    with pytest.raises(SerializationError, match=r"the schema has no fields \['carrier'\]"):
        serde.serialize({"carrier": "UA"})


def test_a_pinned_version_that_is_refused_is_refused_for_each_value(server: ScriptedRegistry) -> None:
    """The second value had the id of the pinned version, and the bytes of the serde's own schema."""
    fields = [{"name": f"f{number}", "type": "int", "default": 0} for number in range(7_000)]
    server.add("flights-value", {"schema": json.dumps({**FLIGHT, "fields": fields})})
    registry = ConfluentSchemaRegistry(server.url)
    serde = AvroSerde[Any](FLIGHT, registry=registry, version=1).bind("flights", False)
    for _ in range(2):
        with pytest.raises(ConfigError, match="more than 20,000 parts"):
            serde.serialize({"delay": 3})

    server.add("orders-value", {"schema": '{"type": 7}', "schemaType": "JSON"})
    in_json = JsonSchemaSerde[Any](IN_JSON, registry=registry, version=1).bind("orders", False)
    for _ in range(2):
        with pytest.raises(ConfigError, match="is no JSON Schema"):
            in_json.serialize({"delay": 3})


@pytest.mark.parametrize("version", [0, -1, True, "first", 1.5])
def test_a_version_is_a_number_or_the_latest(version: Any) -> None:
    with pytest.raises(ConfigError, match="version must be"):
        AvroSerde(FLIGHT, version=version)


def test_a_newer_writer_is_resolved_and_an_incompatible_one_named(server: ScriptedRegistry) -> None:
    reader = AvroSerde[Any](FLIGHT, registry=ConfluentSchemaRegistry(server.url)).bind("flights", False)
    newer = AvroSerde[Any](LATER, registry=ConfluentSchemaRegistry(server.url)).bind("flights", False)
    assert reader.deserialize(reader.serialize({"delay": 1})) == {"delay": 1}
    assert reader.deserialize(newer.serialize({"delay": 2, "dest": "JFK"})) == {"delay": 2}

    text = {**FLIGHT, "fields": [{"name": "delay", "type": "string"}]}
    other = AvroSerde[Any](text, registry=ConfluentSchemaRegistry(server.url)).bind("flights", False)
    with pytest.raises(SerializationError) as raised:
        reader.deserialize(other.serialize({"delay": "late"}))
    assert (
        "the schema of id 3, and Flight here differs from it: fields.delay.type: 'string' becomes 'int'"
        in str(raised.value)
    )


def test_a_client_is_shipped_with_its_settings(server: ScriptedRegistry) -> None:
    registry = ConfluentSchemaRegistry(server.url, bearer_auth_token="t0ken", auto_register_schemas=False)
    serde = AvroSerde[Any](FLIGHT, registry=registry).bind("flights", False)
    shipped = pickle.loads(pickle.dumps(serde))
    assert shipped.registry == registry
    assert shipped.subject == "flights-value"


def test_no_secret_is_shown() -> None:
    settings = RegistrySettings(
        url="http://r", basic_auth_user_info="ada:lovelace", ssl_key_password="s3cret"
    )
    config = StreamsConfig(
        schema_registry_url="http://r", schema_registry_properties={"bearer.auth.token": "t0ken"}
    )
    shown = f"{settings} {settings!r} {ConfluentSchemaRegistry('http://r', bearer_auth_token='t0ken')!r} {config!r}"
    assert not any(secret in shown for secret in ("lovelace", "s3cret", "t0ken"))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"url": "registry:8081"}, "is no address"),
        ({"url": "http://"}, "is no address"),
        ({"url": "http://ada:lovelace@r:8081"}, "has a user in it"),
        ({"url": "http://ada:lovelace@r:8o81"}, "has a user in it"),
        ({"url": "http://ada:lovelace@[r"}, "has a user in it"),
        ({"url": "http://ada:love/lovelace@r:8081"}, "has a user in it"),
        ({"url": "http://ada:lovelace,2@r:8081"}, "has a user in it"),
        ({"url": "http://r:99999999"}, "is no address"),
        ({"url": "http://r,"}, "is no address"),
        ({"url": "http://r", "basic_auth_user_info": "ada"}, "user:password"),
        ({"url": "http://r", "basic_auth_user_info": "a:b", "bearer_auth_token": "c"}, "exclude each other"),
        ({"url": "http://r", "ssl_key_location": "k"}, "only work together"),
        ({"url": "http://r", "ssl_ca_location": "/nowhere/ca.pem"}, "no such file"),
        ({"url": "http://r", "patience_ms": 0}, "at least 1"),
        ({"url": "http://r", "auto.register.schemas": "perhaps"}, "true or false"),
        ({"url": "http://r", "request.timeout.ms": "soon"}, "a whole number"),
        ({"url": "http://r", "basic.auth.userinfo": "a:b"}, "no setting basic.auth.userinfo"),
        ({"url": "http://r", "bearer.auth.token": 7}, "has to be text, not int"),
        ({}, "has no address"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as raised:
        RegistrySettings.from_properties(settings)
    assert "lovelace" not in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"url": None}, "url has to be text, not None"),
        ({"request_timeout_ms": "5"}, "request.timeout.ms has to be a whole number, not '5'"),
        ({"patience_ms": None}, "patience.ms has to be a whole number, not None"),
        ({"auto_register_schemas": "no"}, "auto.register.schemas has to be true or false, not 'no'"),
        ({"bearer_auth_token": 7}, "bearer.auth.token has to be text, not int"),
    ],
)
def test_fields_of_another_type_are_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        RegistrySettings(**{"url": "http://r", **settings})


def test_one_place_decides(no_default: None, server: ScriptedRegistry) -> None:
    """The configuration comes before the environment, and serdes without registry follow."""
    environ = {
        "STREAMAPP_SCHEMA_REGISTRY_URL": "http://elsewhere:8081",
        "STREAMAPP_SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO": "ada:lovelace",
        "STREAMAPP_SCHEMA_REGISTRY_AUTO_REGISTER_SCHEMAS": "false",
    }
    config = StreamsConfig(
        "app", schema_registry_url=server.url, schema_registry_properties={"patience.ms": "100"}
    )
    decided = connected(config, environ)
    assert decided.schema_registry_url == server.url
    assert dict(decided.schema_registry_properties) == {
        "basic.auth.user.info": "ada:lovelace",
        "auto.register.schemas": False,
        "patience.ms": 100,
    }
    serde = AvroSerde[Any](FLIGHT).bind("flights", False)
    assert isinstance(serde.registry, ConfluentSchemaRegistry)
    assert connected(decided, {}) == decided
    shipped = pickle.dumps(serde)
    schema_registry._default = None
    assert pickle.loads(shipped).registry.settings.basic_auth_user_info == "ada:lovelace"


def test_an_outbox_writes_with_the_registry_of_the_environment(
    no_default: None, server: ScriptedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise no reader would know the ids in its rows: they would be those of a `LocalSchemaRegistry`."""
    monkeypatch.setenv("STREAMAPP_SCHEMA_REGISTRY_URL", server.url)
    outbox = Outbox(SqliteOutbox("orders.db"), value_serde=AvroSerde[Any](FLIGHT))
    _, (_, _, value, *_) = outbox.statement("flights", value={"delay": 3})
    assert value[:5] == b"\0\0\0\0\1"
    assert list(server.subjects) == ["flights-value"]


def test_two_registries_in_one_process_are_refused(no_default: None) -> None:
    connected(StreamsConfig("a", schema_registry_url="http://one"), {})
    with pytest.raises(ConfigError, match="give each serde its registry="):
        connected(StreamsConfig("b", schema_registry_url="http://two"), {})


def test_settings_without_address_are_refused(no_default: None) -> None:
    with pytest.raises(ConfigError, match="no registry is named"):
        connected(StreamsConfig("a", schema_registry_properties={"bearer.auth.token": "t"}), {})


def test_kafkas_names_of_the_settings() -> None:
    config = StreamsConfig.from_properties(
        {"application.id": "a", "schema.registry.url": "http://r", "auto.register.schemas": "false"}
    )
    assert config.schema_registry_url == "http://r"
    assert dict(config.schema_registry_properties) == {"auto.register.schemas": "false"}


class Hop(msgspec.Struct):
    delay: int


class Named(msgspec.Struct):
    name: str
    delay: int | None = None
    legs: list[Hop] = []


def _record(*fields: Any, name: str = "Named") -> Any:
    return {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in fields]}


def _object(**more: Any) -> Any:
    return {"type": "object", "properties": {"name": {"type": "string"}}, **more}


@pytest.mark.parametrize(
    ("serde", "version", "why"),
    [
        (AvroSerde, "string", "the value is record, and the version has string there"),
        (AvroSerde, _record(("name", "long")), "name is string, and the version has long there"),
        (AvroSerde, _record(("name", "string"), ("must", "int")), "the version needs the field must"),
        (AvroSerde, _record(("delay", "string")), "delay is long, and the version has string there"),
        (JsonSchemaSerde, {"type": "string"}, "object was written, and string is read"),
        (JsonSchemaSerde, _object(additionalProperties=False), "this field was written, and is forbidden"),
        (JsonSchemaSerde, _object(required=["must"]), "must: this field was not written"),
        (JsonSchemaSerde, False, "it allows no value"),
    ],
)
def test_a_version_that_fits_no_value_is_no_fault_of_the_record(
    server: ScriptedRegistry, serde: Any, version: Any, why: str
) -> None:
    """With the answer "continue", each result was dropped."""
    format_ = {"schemaType": "JSON"} if serde is JsonSchemaSerde else {}
    server.add("out-value", {"schema": json.dumps(version), **format_})
    pinned = serde(type=Named, registry=ConfluentSchemaRegistry(server.url), version=1)
    builder = StreamsBuilder()
    names = builder.stream("in", key_serde=StringSerde(), value_serde=StringSerde())
    names.map_values(Named).to("out", value_serde=pinned)
    config = StreamsConfig("a", production_exception_handler="continue")
    with TopologyTestDriver(builder.build(), config) as driver, pytest.raises(SchemaRegistryError, match=why):
        driver.create_input_topic("in", StringSerde(), StringSerde()).pipe_input("k", "v")


@pytest.mark.parametrize(
    "version",
    [
        _record(
            ("name", "string"), ("legs", {"type": "array", "items": _record(("must", "int"), name="Flight")})
        ),
        _record(("delay", ["null", "string"])),
        _record(("name", {"type": "enum", "name": "Names", "symbols": ["v"]})),
    ],
)
def test_a_version_that_fits_some_values_is_taken(server: ScriptedRegistry, version: Any) -> None:
    server.add("out-value", {"schema": json.dumps(version)})
    serde = AvroSerde[Any](type=Named, registry=ConfluentSchemaRegistry(server.url), version=1)
    bound = serde.bind("out", False)
    assert bound.serialize(Named("v"))
    with pytest.raises(SerializationError):
        bound.serialize(Named("w", 3, [Hop(3)]))
