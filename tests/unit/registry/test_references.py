"""Schemas that refer to others: registered with them, in the order that a registry needs, and read whole."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema as TheirSchema
from confluent_kafka.schema_registry import SchemaReference as TheirReference
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from streamapp import AvroSerde, JsonSchemaSerde, ProtobufSerde
from streamapp.errors import ConfigError, SchemaRegistryError, SerializationError
from streamapp.registry import ConfluentSchemaRegistry
from streamapp.registry.subjects import Subjects
from streamapp.serdes import SchemaReference
from tests.unit.serdes.protos import fleet

from .scripted import ScriptedRegistry

ITEM: dict[str, Any] = {
    "type": "record",
    "name": "Item",
    "namespace": "shop",
    "fields": [{"name": "cents", "type": "int"}],
}
LINE: dict[str, Any] = {
    "type": "record",
    "name": "Line",
    "namespace": "shop",
    "fields": [
        {"name": "item", "type": "Item"},
        {"name": "second", "type": ["null", "Item"], "default": None},
    ],
}
ORDER = {"type": "array", "items": "shop.Line"}
ITEMS = SchemaReference("shop.Item", "item", ITEM)
LINES = SchemaReference("shop.Line", "line", LINE, (ITEMS,))
VALUE = [{"item": {"cents": 4}, "second": None}]


def test_avro_is_registered_with_what_it_names(server: ScriptedRegistry) -> None:
    registry = ConfluentSchemaRegistry(server.url)
    serde = AvroSerde[Any](ORDER, references=[LINES], registry=registry).bind("orders", False)
    data = serde.serialize(VALUE)
    assert pickle.loads(pickle.dumps(serde)).deserialize(data) == VALUE
    assert list(server.subjects) == ["item", "line", "orders-value"]
    ((number, body),) = server.subjects["orders-value"]
    assert data[:5] == b"\0" + number.to_bytes(4, "big")
    assert body["references"] == [{"name": "shop.Line", "subject": "line", "version": 1}]
    assert json.loads(body["schema"]) == ORDER
    # A process without the references reads it by the registry.
    assert (
        AvroSerde[Any](ConfluentSchemaRegistry(server.url).schema_of(number), registry=registry).deserialize(
            data
        )
        == VALUE
    )


def test_confluents_serializer_finds_the_same_version(server: ScriptedRegistry) -> None:
    line = SchemaReference("shop.Item", "item", ITEM)
    value = {"item": {"cents": 4}, "second": None}
    serde = AvroSerde[Any](LINE, references=[line], registry=ConfluentSchemaRegistry(server.url))
    ours = serde.bind("lines", False).serialize(value)
    client = SchemaRegistryClient({"url": server.url})
    theirs = TheirSchema(json.dumps(LINE), "AVRO", [TheirReference("shop.Item", "item", 1)])
    context = SerializationContext("lines", MessageField.VALUE)
    assert AvroSerializer(client, theirs)(value, context) == ours


def test_a_new_version_of_what_is_referred_to_is_found(server: ScriptedRegistry) -> None:
    registry = ConfluentSchemaRegistry(server.url)
    AvroSerde[Any](LINE, references=[ITEMS], registry=registry).bind("lines", False).serialize(VALUE[0])
    newer = {**ITEM, "fields": [*ITEM["fields"], {"name": "name", "type": "string", "default": ""}]}
    again = AvroSerde[Any](LINE, references=[SchemaReference("shop.Item", "item", newer)], registry=registry)
    again.bind("lines", False).serialize(VALUE[0])
    assert server.subjects["lines-value"][1][1]["references"][0]["version"] == 2


def test_without_auto_registration_the_missing_reference_is_named(server: ScriptedRegistry) -> None:
    registry = ConfluentSchemaRegistry(server.url, auto_register_schemas=False)
    serde = AvroSerde[Any](LINE, references=[ITEMS], registry=registry).bind("lines", False)
    with pytest.raises(SchemaRegistryError, match="^item has no version with the schema"):
        serde.serialize(VALUE[0])
    registry.register("lines-value", LINE, references=(ITEMS,))  # as `streamapp schema register` does
    serde.serialize(VALUE[0])


def test_bytes_whose_reference_was_deleted_are_read(server: ScriptedRegistry) -> None:
    """The registry gives the schema for its id as long as it is not deleted for good, and its references likewise."""
    registry = ConfluentSchemaRegistry(server.url)
    data = (
        AvroSerde[Any](LINE, references=[ITEMS], registry=registry).bind("lines", False).serialize(VALUE[0])
    )
    server.deleted = {"lines-value", "item"}
    whole = {**LINE, "fields": [{"name": "item", "type": ITEM}, LINE["fields"][1]]}
    reader = AvroSerde[Any](whole, registry=ConfluentSchemaRegistry(server.url)).bind("whole", False)
    assert reader.deserialize(data) == VALUE[0]


def test_a_check_compares_the_whole(server: ScriptedRegistry) -> None:
    registry = ConfluentSchemaRegistry(server.url)
    subjects = Subjects(registry)
    serde = AvroSerde[Any](LINE, references=[ITEMS], registry=registry).bind("lines", False)
    serde.serialize(VALUE[0])
    registered = serde.registered
    asked = registered.schema, registered.format, registered.references, registered.whole
    assert subjects.change("lines-value", *asked).kind == "unchanged"
    assert not any("references" in body for _, body in server.subjects["item"])


def test_json_schemas_refer_to_others(server: ScriptedRegistry) -> None:
    item = {"type": "object", "properties": {"cents": {"type": "integer"}}, "required": ["cents"]}
    for extra in ({}, {"$id": "https://example.com/schemas/order.json"}):
        order = {**extra, "title": "Order", "type": "object", "properties": {"item": {"$ref": "item.json"}}}
        serde = JsonSchemaSerde[Any](
            order,
            references=[SchemaReference("item.json", "item", item)],
            registry=ConfluentSchemaRegistry(server.url),
        ).bind("orders", False)
        data = serde.serialize({"item": {"cents": 1}})
        assert pickle.loads(pickle.dumps(serde)).deserialize(data) == {"item": {"cents": 1}}
        with pytest.raises(SerializationError, match="cents"):
            serde.serialize({"item": {}})
        assert server.subjects["orders-value"][-1][1]["references"] == [
            {"name": "item.json", "subject": "item", "version": 1}
        ]
    with pytest.raises(ConfigError, match=r"(?s)item.json.*retrieving it failed.*references="):
        JsonSchemaSerde({"$ref": "item.json"})


def test_imports_of_protobuf_are_registered_by_their_path(server: ScriptedRegistry) -> None:
    serde = ProtobufSerde[Any](fleet.Truck.Cargo, registry=ConfluentSchemaRegistry(server.url))
    message = fleet.Truck.Cargo(label={"text": "x"}, item={"name": "cup"})
    data = serde.bind("cargo", False).serialize(message)
    assert list(server.subjects) == ["shop.proto", "cargo-value"]  # google/protobuf/timestamp.proto is not
    assert server.subjects["cargo-value"][0][1]["references"] == [
        {"name": "shop.proto", "subject": "shop.proto", "version": 1}
    ]
    again = pickle.loads(pickle.dumps(serde)).bind("cargo", False)
    assert again.deserialize(data) == message
    # Confluent's serializer for Python gives its reference the same name and subject.
    client = SchemaRegistryClient({"url": server.url})
    write = ProtobufSerializer(fleet.Truck.Cargo, client, {"use.deprecated.format": False})
    theirs = write(message, SerializationContext("theirs", MessageField.VALUE))
    assert theirs is not None
    assert theirs[5:] == data[5:]
    references = server.subjects["theirs-value"][0][1]["references"]
    assert [(each["name"], each["subject"]) for each in references] == [("shop.proto", "shop.proto")]
    assert again.deserialize(theirs) == message


def test_what_is_no_reference() -> None:
    with pytest.raises(ConfigError, match="references= takes SchemaReference"):
        AvroSerde(LINE, references=[("shop.Item", "item", ITEM)])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="two different schemas have the reference name shop.Item"):
        AvroSerde(LINE, references=[ITEMS, ITEMS._replace(schema=LINE)])
    with pytest.raises(ConfigError, match="no Avro schema|not an Avro schema"):
        AvroSerde(LINE)
