"""Ids of schemas in headers: bytes as Confluent's own serializers write and read, in every place where records come and go."""

from __future__ import annotations

import json
import pickle
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    dual_schema_id_deserializer,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from streamapp import (
    AvroSerde,
    JsonSchemaSerde,
    Materialized,
    ProtobufSerde,
    Serde,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    TopologyTestDriver,
)
from streamapp.errors import ConfigError, SchemaRegistryError, SerializationError
from streamapp.producer.core import Core
from streamapp.producer.options import ProducerOptions
from streamapp.records import RecordBatch
from streamapp.registry import ConfluentSchemaRegistry
from streamapp.serdes import LocalSchemaRegistry
from streamapp.serdes.framing import Framing
from tests.unit.serdes.protos import fleet, shop

from .scripted import ScriptedRegistry

FLIGHT: dict[str, Any] = {
    "type": "record",
    "name": "Flight",
    "fields": [{"name": "carrier", "type": "string"}, {"name": "delay", "type": "int", "default": 0}],
}
OLDER: dict[str, Any] = {**FLIGHT, "fields": FLIGHT["fields"][:1]}
ORDER: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "string"}},
    "required": ["id"],
}
FIRST = shop.Item(name="cup", cents=-3)
NESTED = fleet.Truck.Cargo.Label(text="x")
IN_HEADERS = {"schema.id.serializer": header_schema_id_serializer}
IN_PROTOBUF = {**IN_HEADERS, "use.deprecated.format": False, "skip.known.types": True}
READ_PROTOBUF = {"use.deprecated.format": False, "schema.id.deserializer": dual_schema_id_deserializer}

Theirs = tuple[Callable[..., Any], Callable[..., Any]]


def avro(registry: Any, client: Any) -> tuple[Serde[Any], Theirs, Any]:
    ours = AvroSerde[Any](FLIGHT, registry=registry, schema_id_in="header")
    theirs = AvroSerializer(client, json.dumps(FLIGHT), conf=IN_HEADERS), AvroDeserializer(client)
    # Confluent's deserializer refuses payloads of five bytes and less, also behind a header.
    return ours, theirs, {"carrier": "United", "delay": -3}


def in_json(registry: Any, client: Any) -> tuple[Serde[Any], Theirs, Any]:
    ours = JsonSchemaSerde[Any](ORDER, registry=registry, schema_id_in="header")
    read = JSONDeserializer(json.dumps(ORDER), schema_registry_client=client)
    return ours, (JSONSerializer(json.dumps(ORDER), client, conf=IN_HEADERS), read), {"id": "a"}


def protobuf(message: Any) -> Callable[..., tuple[Serde[Any], Theirs, Any]]:
    def made(registry: Any, client: Any) -> tuple[Serde[Any], Theirs, Any]:
        ours = ProtobufSerde[Any](type(message), registry=registry, schema_id_in="header")
        write = ProtobufSerializer(type(message), client, IN_PROTOBUF)
        return ours, (write, ProtobufDeserializer(type(message), READ_PROTOBUF, client)), message

    return made


FORMATS = pytest.mark.parametrize(
    "made", [avro, in_json, protobuf(FIRST), protobuf(NESTED)], ids=["avro", "json", "first", "nested"]
)


@FORMATS
@pytest.mark.parametrize("field", [MessageField.VALUE, MessageField.KEY])
def test_headers_and_bytes_are_confluents(
    server: ScriptedRegistry, made: Callable[..., tuple[Serde[Any], Theirs, Any]], field: str
) -> None:
    client, is_key = SchemaRegistryClient({"url": server.url}), field == MessageField.KEY
    serde, (write, read), value = made(ConfluentSchemaRegistry(server.url), client)
    # Confluent's Protobuf serializer registers a descriptor in base64, so its GUID is another one.
    own_topic = "theirs" if isinstance(serde, ProtobufSerde) else "t"
    headers: list[tuple[str, bytes]] = []
    theirs = write(value, SerializationContext(own_topic, field, headers))
    bound = serde.bind("t", is_key)
    framing = Framing(bound, None) if is_key else Framing(None, bound)
    record = (bound.serialize(value), None) if is_key else (None, bound.serialize(value))
    key, raw, sent = framing.parted(*record)
    ours = key if is_key else raw
    assert ours is not None

    assert [name for name, _ in sent] == [f"__{field}_schema_id"] == [name for name, _ in headers]
    if isinstance(serde, JsonSchemaSerde):
        assert json.loads(ours) == json.loads(theirs)
    else:
        assert ours == theirs
    if isinstance(serde, ProtobufSerde):
        assert (sent[0][1] or b"")[17:] == headers[0][1][17:]  # the message's indexes
    else:
        assert list(sent) == headers

    there = (theirs, None) if is_key else (None, theirs)
    joined = framing.joined(*there, tuple(headers))
    assert joined[2] == ()
    assert bound.deserialize(joined[0] or joined[1] or b"") == value
    if isinstance(
        serde, ProtobufSerde
    ):  # Confluent's registry gives this client a descriptor, whatever was registered
        sent = ((sent[0][0], headers[0][1]),)
    assert read(ours, SerializationContext("t", field, list(sent))) == value


@pytest.mark.parametrize("made", [avro, in_json], ids=["avro", "json"])
def test_state_and_dead_letters_need_no_headers(
    server: ScriptedRegistry, made: Callable[..., tuple[Serde[Any], Theirs, Any]]
) -> None:
    """Bytes with the GUID in front are what Confluent's deserializers read in a payload, too."""
    client = SchemaRegistryClient({"url": server.url})
    serde, (_, read), value = made(ConfluentSchemaRegistry(server.url), client)
    data = serde.bind("t", False).serialize(value)
    assert data[0] == 1
    assert serde.bind("t", False).deserialize(data) == value
    assert read(data, SerializationContext("t", MessageField.VALUE)) == value


def test_an_application_reads_and_writes_them(server: ScriptedRegistry) -> None:
    registry = ConfluentSchemaRegistry(server.url)
    written = AvroSerde[Any](OLDER, registry=registry, schema_id_in="header")
    reads = AvroSerde[Any](FLIGHT, registry=registry)
    writes = AvroSerde[Any](FLIGHT, registry=registry, schema_id_in="header")
    builder = StreamsBuilder()
    stream = builder.stream("in", key_serde=StringSerde(), value_serde=reads)
    stream.to("prefixed", key_serde=StringSerde(), value_serde=reads)
    stream.to("headers", key_serde=StringSerde(), value_serde=writes)
    stream.group_by_key().reduce(
        lambda old, new: new, materialized=Materialized("latest", value_serde=writes)
    )
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", StringSerde(), written)
        topic.pipe_input("a", {"carrier": "UA"}, headers=(("trace", b"1"),))
        topic.pipe_input("a", None)
        prefixed, headed = driver.produced["prefixed"][0], driver.produced["headers"][0]
        # The header of the record that came in is no header of one that goes out with another schema.
        assert prefixed.headers == (("trace", b"1"),)
        assert prefixed.value[:1] == b"\0"
        assert [name for name, _ in headed.headers] == ["trace", "__value_schema_id"]
        guid = uuid.UUID(server.guid({"schema": json.dumps(FLIGHT, separators=(",", ":"))}))
        assert dict(headed.headers)["__value_schema_id"] == b"\1" + guid.bytes
        assert driver.produced["headers"][1][1:3] == (b"a", None)
        for name in ("prefixed", "headers"):
            out = driver.create_output_topic(name, StringSerde(), reads)
            assert out.read_record().value == {"carrier": "UA", "delay": 0}
            assert out.read_value() is None
        assert driver.store("latest").get("a")[0] == {"carrier": "UA", "delay": 0}


def test_a_dead_letter_keeps_the_schema_of_its_bytes(server: ScriptedRegistry) -> None:
    registry = ConfluentSchemaRegistry(server.url)
    serde = AvroSerde[Any](FLIGHT, registry=registry, schema_id_in="header")
    config = StreamsConfig(
        dead_letter_queue_topic="letters",
        processing_exception_handler="dead_letter",
        deserialization_exception_handler="dead_letter",
    )
    builder = StreamsBuilder(config)
    stream = builder.stream("in", key_serde=StringSerde(), value_serde=serde)
    stream.map_values(lambda value: 1 // value["delay"]).foreach(lambda key, value: None)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", StringSerde(), serde).pipe_input("a", {"carrier": "UA", "delay": 0})
        driver.pipe_raw("in", b"b", b"rest", 0, (("__value_schema_id", b"\1short"),))
        letters = driver.produced["letters"]
        assert serde.bind("in", False).deserialize(letters[0].value) == {"carrier": "UA", "delay": 0}
        assert letters[1].value == b"\xff\1shortrest"


def test_a_producer_writes_them(server: ScriptedRegistry) -> None:
    serde = AvroSerde[Any](FLIGHT, registry=ConfluentSchemaRegistry(server.url), schema_id_in="header")
    core = Core(ProducerOptions(name="p", bootstrap_servers="nobody:1"), StringSerde(), serde)
    record = core.record("t", "a", {"carrier": "UA", "delay": 2}, 5, (("trace", b"1"),), None)
    assert [name for name, _ in record.headers] == ["trace", "__value_schema_id"]
    assert record.value == b"\x04UA\x04"


def test_changelogs_that_are_source_topics_are_joined() -> None:
    serde = AvroSerde[Any](FLIGHT, schema_id_in="header")
    framing = Framing(StringSerde(), serde)
    key, value, headers = framing.parted(b"a", serde.serialize({"carrier": "UA"}), (("k", None),))
    batch = RecordBatch([key, b"b"], [value, None], [1, 2], [0, 1], [headers, ()])
    joined = framing.join(batch)
    assert joined.headers == ((("k", None),), ())
    assert serde.deserialize(joined.values[0] or b"") == {"carrier": "UA", "delay": 0}
    assert Framing(StringSerde(), StringSerde()).join(batch) is batch


def test_a_registry_without_guids_is_said(server: ScriptedRegistry) -> None:
    registry = ConfluentSchemaRegistry(server.url)
    server.guids = False
    serde = AvroSerde[Any](FLIGHT, registry=registry, schema_id_in="header").bind("t", False)
    with pytest.raises(SchemaRegistryError, match='gives no GUIDs.*schema_id_in="payload"'):
        serde.serialize({"carrier": "UA"})
    # A record that has one is at fault, not the registry: the handler is asked.
    with pytest.raises(SerializationError, match="no schema with GUID"):
        serde.deserialize(b"\1" + uuid.uuid4().bytes + b"\x04UA\x04")


def test_pinned_versions_go_by_their_guid(server: ScriptedRegistry) -> None:
    server.add("t-value", {"schema": json.dumps(FLIGHT)})
    serde = AvroSerde[Any](
        FLIGHT, registry=ConfluentSchemaRegistry(server.url), version=1, schema_id_in="header"
    ).bind("t", False)
    again = pickle.loads(pickle.dumps(serde))
    assert again.serialize({"carrier": "UA"})[1:17] == uuid.UUID(server.guid(server.ids[0])).bytes


def test_no_registry_is_needed_in_tests() -> None:
    shared = LocalSchemaRegistry()
    old, new = (AvroSerde[Any](schema, registry=shared, schema_id_in="header") for schema in (OLDER, FLIGHT))
    assert new.deserialize(old.serialize({"carrier": "UA"})) == {"carrier": "UA", "delay": 0}
    with pytest.raises(ConfigError, match="schema_id_in must be"):
        AvroSerde(FLIGHT, schema_id_in="headers")  # type: ignore[arg-type]
