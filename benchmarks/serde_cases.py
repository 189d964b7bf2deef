"""Records for the comparison of serdes: two records in three formats, and a third one in Avro.

Each case has the serdes of streamapp and of Confluent.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from benchmarks.schema import Flight
from streamapp import AvroSerde, JsonSchemaSerde, ProtobufSerde, Serde
from streamapp.registry import ConfluentSchemaRegistry

__all__ = ["Case", "cases"]


class Line(msgspec.Struct, frozen=True):
    sku: str
    count: int
    cents: int


class Order(msgspec.Struct, frozen=True):
    id: str
    customer: str
    paid: bool
    weight: float
    lines: list[Line]
    tags: dict[str, str]


FLIGHT = Flight(
    2013, 1, 1, 517, 515, 2, 830, 819, 11, "UA", 1545, "N14228", "EWR", "IAH", 227, 1400, "2013-01-01T05:00"
)
ORDER = Order(
    "o-4711",
    "c-0815",
    True,
    12.75,
    [Line(f"sku-{number}", number, 995 * number) for number in range(1, 6)],
    {"channel": "web", "country": "NZ", "voucher": "none"},
)
RECORDS = {"flight": FLIGHT, "order": ORDER}
LOGICAL: dict[str, Any] = {
    "type": "record",
    "name": "Invoice",
    "fields": [
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "due", "type": {"type": "int", "logicalType": "date"}},
        {"name": "made", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "paid", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
    ],
}
INVOICE = {
    "id": UUID("12345678-1234-4234-8234-123456789abc"),
    "total": Decimal("1234.50"),
    "due": date(2026, 11, 23),
    "made": datetime(2026, 11, 1, 12, 30, 15, 250_000, tzinfo=UTC),
    "paid": datetime(2026, 11, 2, 8, 0, 0, 1, tzinfo=UTC),
}
PROTO = """syntax = "proto3";
message Flight {
%s
}
message Line { string sku = 1; int64 count = 2; int64 cents = 3; }
message Order {
  string id = 1; string customer = 2; bool paid = 3; double weight = 4;
  repeated Line lines = 5; map<string, string> tags = 6;
}
"""

SUBJECT = {"subject.name.strategy": topic_subject_name_strategy}
"""The setting with which Confluent's serializers name subjects as streamapp does.

Their default asks the registry about associations, and takes a little longer.
"""

Work = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """One record's work on both sides, with the same schema and the same value."""

    format: str
    record: str
    way: str
    ours: Work
    theirs: Work


class _Sides:
    """Serdes of both sides on one registry, under one topic."""

    def __init__(self, url: str) -> None:
        self.own, self.client = ConfluentSchemaRegistry(url), SchemaRegistryClient({"url": url})

    def cases(
        self, format: str, record: str, serde: Serde[Any], value: Any, write: Any, read: Any
    ) -> Iterator[Case]:
        """Both sides read the bytes of Confluent's serializer. Raises AssertionError if the values differ.

        The written bytes must be equal, too, except for spaces in JSON, and the order of maps and ids in Protobuf.
        """
        topic = f"{format}-{record}".replace(" ", "-")
        context = SerializationContext(topic, MessageField.VALUE)
        ours = serde.bind(topic, False)
        data, own = write(value, context), ours.serialize(value)
        if isinstance(serde, JsonSchemaSerde):  # Confluent's serializer writes spaces
            assert own[:5] == data[:5]
            assert json.loads(own[5:]) == json.loads(data[5:])
        elif isinstance(serde, ProtobufSerde):  # another schema id, and the entries of maps in another order
            assert len(own) == len(data)
        else:
            assert own == data
        assert ours.deserialize(data) == value == read(data, context)
        yield Case(format, record, "write", partial(ours.serialize, value), partial(write, value, context))
        yield Case(format, record, "read", partial(ours.deserialize, data), partial(read, data, context))


def cases(url: str) -> list[Case]:
    """All cases, on the registry at ``url``. Serdes know their schemas afterwards."""
    sides = _Sides(url)
    return [*_avro(sides), *_json(sides), *_protobuf(sides)]


def _avro(sides: _Sides) -> Iterator[Case]:
    registry, client = sides.own, sides.client
    for name, value in RECORDS.items():
        typed = AvroSerde[Any](type=type(value), registry=registry)
        text = json.dumps(typed.schema)
        plain = AvroSerde[Any](typed.schema, registry=registry)
        write, read = AvroSerializer(client, text, conf=SUBJECT), AvroDeserializer(client, conf=SUBJECT)
        yield from sides.cases("Avro, dicts", name, plain, msgspec.to_builtins(value), write, read)
        write = AvroSerializer(client, text, lambda value, _: msgspec.to_builtins(value), SUBJECT)
        read = AvroDeserializer(client, from_dict=_made(type(value)), conf=SUBJECT)
        yield from sides.cases("Avro, Structs", name, typed, value, write, read)
    serde, text = AvroSerde[Any](LOGICAL, registry=registry), json.dumps(LOGICAL)
    write, read = AvroSerializer(client, text, conf=SUBJECT), AvroDeserializer(client, conf=SUBJECT)
    yield from sides.cases("Avro, dicts", "times, decimal", serde, INVOICE, write, read)


def _made(type: type) -> Callable[[Any, Any], Any]:
    return lambda fields, _: msgspec.convert(fields, type)


def _json(sides: _Sides) -> Iterator[Case]:
    for format, validate in (("JSON Schema, validated", True), ("JSON Schema, not validated", False)):
        for name, value in RECORDS.items():
            schema = JsonSchemaSerde[Any](type=type(value)).schema
            serde = JsonSchemaSerde[Any](schema, registry=sides.own, validate=validate)
            settings, text = {"validate": validate, **SUBJECT}, json.dumps(schema)
            write = JSONSerializer(text, sides.client, conf=settings)
            read = JSONDeserializer(text, schema_registry_client=sides.client, conf=settings)
            yield from sides.cases(format, name, serde, msgspec.to_builtins(value), write, read)


def _protobuf(sides: _Sides) -> Iterator[Case]:
    generated, settings = _generated(), {"use.deprecated.format": False, **SUBJECT}
    for name, value in RECORDS.items():
        message = getattr(generated, type(value).__name__)
        write = ProtobufSerializer(message, sides.client, settings)
        read = ProtobufDeserializer(message, settings, sides.client)
        plain = ProtobufSerde[Any](message, registry=sides.own)
        made = message(**msgspec.to_builtins(value))
        yield from sides.cases("Protobuf, messages", name, plain, made, write, read)
        typed = ProtobufSerde[Any](message, type=type(value), registry=sides.own)
        yield from sides.cases(
            "Protobuf, Structs", name, typed, value, _from_struct(write, message), _to_struct(read, name)
        )


def _from_struct(write: Any, message: Any) -> Any:
    """Confluent's serializer behind the conversion that its users write by hand."""
    return lambda value, context: write(message(**msgspec.to_builtins(value)), context)


def _to_struct(read: Any, name: str) -> Any:
    return lambda data, context: _BY_HAND[name](read(data, context))


def _flight(message: Any) -> Flight:
    return Flight(
        **{
            name: getattr(message, name) if message.HasField(name) else None
            for name in Flight.__struct_fields__
        }
    )


def _order(message: Any) -> Order:
    lines = [Line(line.sku, line.count, line.cents) for line in message.lines]
    return Order(message.id, message.customer, message.paid, message.weight, lines, dict(message.tags))


_BY_HAND: dict[str, Callable[[Any], Any]] = {"flight": _flight, "order": _order}


def _generated() -> Any:
    """The module that protoc makes of `PROTO`."""
    from grpc_tools import protoc

    kinds = {str: "string", int: "int64"}
    fields = [
        f"  optional {kinds[type(getattr(FLIGHT, name))]} {name} = {number};"
        for number, name in enumerate(FLIGHT.__struct_fields__, start=1)
    ]
    folder = tempfile.mkdtemp(prefix="protos-")
    (Path(folder) / "benchmark_records.proto").write_text(PROTO % "\n".join(fields))
    assert protoc.main(["protoc", f"-I{folder}", f"--python_out={folder}", "benchmark_records.proto"]) == 0
    sys.path.insert(0, folder)
    return import_module("benchmark_records_pb2")
