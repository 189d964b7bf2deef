"""The bytes are those of others: Apicurio's Java serializers in Confluent mode, and Confluent's own for Python."""

from __future__ import annotations

import enum
import json
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import json_format

from streamapp import AvroSerde, JsonSchemaSerde, ProtobufSerde
from streamapp.registry import ConfluentSchemaRegistry
from streamapp.registry.apicurio import LocalRegistry
from streamapp.serdes import FieldNumber
from tests.unit.serdes.protos import fleet, shop

from .conftest import JavaProtobuf, JavaSerdes

pytestmark = pytest.mark.broker

FLIGHT: dict[str, Any] = {
    "type": "record",
    "name": "Flight",
    "namespace": "air",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "delay", "type": ["null", "int"], "default": None},
        {
            "name": "stops",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "Stop", "fields": [{"name": "at", "type": "string"}]},
            },
        },
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["CARGO", "PEOPLE"]}},
        {"name": "miles", "type": "double"},
        {"name": "tags", "type": {"type": "map", "values": "long"}},
    ],
}
VALUE = {
    "carrier": "ÜA",
    "delay": -3,
    "stops": [{"at": "JFK"}],
    "kind": "PEOPLE",
    "miles": 2.5,
    "tags": {"a": 2**40},
}
AVRO_JSON = {**VALUE, "delay": {"int": -3}}
ORDER = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "string"}, "cents": {"type": "integer", "minimum": 0}},
    "required": ["id"],
}


@pytest.mark.parametrize("is_key", [False, True])
def test_avro_and_java(java: JavaSerdes, registry: ConfluentSchemaRegistry, topic: str, is_key: bool) -> None:
    serde = AvroSerde[Any](FLIGHT, registry=registry).bind(topic, is_key)
    theirs = java.write("AVRO", topic, AVRO_JSON, FLIGHT, is_key)
    assert serde.deserialize(theirs) == VALUE
    assert serde.serialize(VALUE) == theirs  # the id is the same, too: the subject is
    assert java.read("AVRO", topic, serde.serialize({**VALUE, "delay": None}), is_key)["delay"] is None


def test_java_reads_what_python_has_registered(
    java: JavaSerdes, registry: ConfluentSchemaRegistry, topic: str
) -> None:
    serde = AvroSerde[Any](FLIGHT, registry=registry).bind(topic, False)
    ours = serde.serialize(VALUE)
    assert java.read("AVRO", topic, ours) == VALUE
    assert java.write("AVRO", topic, AVRO_JSON, FLIGHT) == ours


def test_avro_of_java_with_a_type_outside_of_its_namespace(
    java: JavaSerdes, registry: ConfluentSchemaRegistry, topic: str
) -> None:
    """Java names a type without namespace by its short name, also inside a namespace."""
    kind = {"type": "enum", "name": "Kind", "symbols": ["CARGO", "PEOPLE"]}
    plane = {
        "type": "record",
        "name": "Plane",
        "namespace": "air",
        "fields": [{"name": "kind", "type": "Kind"}],
    }
    trip = {
        "type": "record",
        "name": "Trip",
        "fields": [{"name": "kind", "type": kind}, {"name": "plane", "type": plane}],
    }
    value = {"kind": "CARGO", "plane": {"kind": "PEOPLE"}}
    serde = AvroSerde[Any](trip, registry=registry).bind(topic, False)
    theirs = java.write("AVRO", topic, value, trip)
    assert serde.deserialize(theirs) == value
    assert serde.serialize(value) == theirs
    assert java.read("AVRO", topic, serde.serialize(value)) == value


@pytest.mark.parametrize("is_key", [False, True])
def test_json_and_java(java: JavaSerdes, registry: ConfluentSchemaRegistry, topic: str, is_key: bool) -> None:
    serde = JsonSchemaSerde[Any](ORDER, registry=registry).bind(topic, is_key)
    ours = serde.serialize({"cents": 5, "id": "a"})
    assert java.read("JSON", topic, ours, is_key) == {"cents": 5, "id": "a"}
    assert java.write("JSON", topic, {"cents": 5, "id": "a"}, key=is_key) == ours
    assert serde.deserialize(java.write("JSON", topic, {"id": "b"}, key=is_key)) == {"id": "b"}


@pytest.mark.parametrize("field", [MessageField.VALUE, MessageField.KEY])
def test_confluents_own_serializers(
    local: LocalRegistry, registry: ConfluentSchemaRegistry, topic: str, field: str
) -> None:
    client, is_key = SchemaRegistryClient({"url": local.url}), field == MessageField.KEY
    context = SerializationContext(topic, field)

    avro = AvroSerde[Any](FLIGHT, registry=registry).bind(f"{topic}", is_key)
    ours = avro.serialize(VALUE)
    assert AvroSerializer(client, json.dumps(FLIGHT))(VALUE, context) == ours
    assert AvroDeserializer(client)(ours, context) == VALUE

    context = SerializationContext(f"{topic}-json", field)
    in_json = JsonSchemaSerde[Any](ORDER, registry=registry).bind(f"{topic}-json", is_key)
    ours = in_json.serialize({"id": "a"})
    theirs = JSONSerializer(json.dumps(ORDER), client)({"id": "a"}, context)
    assert theirs is not None
    assert (theirs[:5], json.loads(theirs[5:])) == (ours[:5], {"id": "a"})
    assert in_json.deserialize(theirs) == {"id": "a"}
    assert JSONDeserializer(json.dumps(ORDER), schema_registry_client=client)(ours, context) == {"id": "a"}


MESSAGES = [
    shop.Item(name="cup", cents=-3),
    shop.Order(id="a", lines=[shop.Order.Line(item=shop.Item(name="x"), count=2)], cash=True),
]


@pytest.mark.parametrize("message", MESSAGES, ids=["first of the file", "another"])
@pytest.mark.parametrize("field", [MessageField.VALUE, MessageField.KEY])
def test_confluents_protobuf(
    local: LocalRegistry, registry: ConfluentSchemaRegistry, topic: str, field: str, message: Any
) -> None:
    client, is_key = SchemaRegistryClient({"url": local.url}), field == MessageField.KEY
    serde = ProtobufSerde[Any](type(message), registry=registry).bind(topic, is_key)
    ours = serde.serialize(message)
    context = SerializationContext(f"{topic}-theirs", field)
    settings = {"use.deprecated.format": False, "skip.known.types": True}
    theirs = ProtobufSerializer(type(message), client, settings)(message, context)
    assert theirs is not None
    assert theirs[5:] == ours[5:]
    assert serde.deserialize(theirs) == message
    # Confluent's registry gives this client a descriptor whatever was registered, Apicurio what was.
    read = ProtobufDeserializer(type(message), {"use.deprecated.format": False}, client)
    assert read(theirs[:5] + ours[5:], context) == message


def test_a_descriptor_that_confluents_serializer_has_registered(
    local: LocalRegistry, registry: ConfluentSchemaRegistry, topic: str
) -> None:
    client, context = (
        SchemaRegistryClient({"url": local.url}),
        SerializationContext(topic, MessageField.VALUE),
    )
    settings = {"use.deprecated.format": False, "skip.known.types": True}
    theirs = ProtobufSerializer(shop.Order, client, settings)(MESSAGES[1], context)
    assert theirs is not None
    assert (
        ProtobufSerde[Any](shop.Order, registry=registry).bind(topic, False).deserialize(theirs)
        == MESSAGES[1]
    )


IN_JAVA = [
    shop.Item(name="cup", cents=-3),
    shop.Order(id="a", numbers=[1, 2], lines=[{"count": 2}], gifts={"g": shop.Item(name="x")}, card="c"),
    shop.Order.Line(item=shop.Item(name="x"), count=2),  # the entry of a map stands in front
    shop.Order.Line.Note(text="hi"),
    fleet.Truck.Cargo(label={"text": "x"}, item={"name": "cup", "cents": 7}),  # with an import
]
IN_JAVA_IDS = [message.DESCRIPTOR.full_name for message in IN_JAVA]


@pytest.mark.parametrize("message", IN_JAVA, ids=IN_JAVA_IDS)
@pytest.mark.parametrize("is_key", [False, True])
def test_protobuf_and_java(
    java_protobuf: JavaProtobuf,
    registry: ConfluentSchemaRegistry,
    topic: str,
    is_key: bool,
    message: Any,
) -> None:
    serde = ProtobufSerde[Any](type(message), registry=registry).bind(topic, is_key)
    ours = serde.serialize(message)
    fields = json_format.MessageToDict(message, preserving_proto_field_name=True)
    assert java_protobuf.read(topic, ours, is_key) == (message.DESCRIPTOR.full_name, fields)
    theirs = java_protobuf.write(topic, message.DESCRIPTOR, fields, is_key)
    assert theirs == ours  # the id is the same, too
    assert serde.deserialize(theirs) == message


@pytest.mark.parametrize("message", IN_JAVA[:4], ids=IN_JAVA_IDS[:4])
@pytest.mark.parametrize("is_key", [False, True])
def test_protobuf_that_java_has_registered(
    java_protobuf: JavaProtobuf, registry: ConfluentSchemaRegistry, topic: str, is_key: bool, message: Any
) -> None:
    fields = json_format.MessageToDict(message, preserving_proto_field_name=True)
    theirs = java_protobuf.write(topic, message.DESCRIPTOR, fields, is_key, register=True)
    serde = ProtobufSerde[Any](type(message), registry=registry).bind(topic, is_key)
    assert serde.deserialize(theirs) == message


class State(enum.Enum):
    OPEN = "open"
    SENT_OUT = "sent out"


class Line(msgspec.Struct):
    name: str
    count: int = 1


class Order(msgspec.Struct):
    id: str
    state: State
    lines: list[Line]
    cents: Annotated[int, FieldNumber(7)]
    gifts: dict[str, Line] = {}
    at: datetime | None = None
    note: str | None = None
    paid: bool = False


@pytest.mark.parametrize("is_key", [False, True])
def test_protobuf_that_follows_from_a_type_and_java(
    java_protobuf: JavaProtobuf, registry: ConfluentSchemaRegistry, topic: str, is_key: bool
) -> None:
    """Java's libraries take the text of the schema, and read and write its messages."""
    serde = ProtobufSerde[Any](type=Order, registry=registry).bind(topic, is_key)
    moment = datetime(2026, 1, 2, 3, 4, 5, 6_000, UTC)
    value = Order("o-1", State.SENT_OUT, [Line("cup"), Line("", 0)], 995, {"g": Line("x")}, moment, "")
    ours = serde.serialize(value)
    fields = json_format.MessageToDict(serde.message.FromString(ours[6:]), preserving_proto_field_name=True)
    assert (fields["state"], fields["at"]) == ("STATE_SENT_OUT", "2026-01-02T03:04:05.006Z")
    assert java_protobuf.read(topic, ours, is_key) == ("Order", fields)
    theirs = java_protobuf.write(topic, serde.message.DESCRIPTOR, fields, is_key)
    assert (theirs[:6], len(theirs)) == (
        ours[:6],
        len(ours),
    )  # Java writes the entries of a map in another order
    assert serde.deserialize(theirs) == value
