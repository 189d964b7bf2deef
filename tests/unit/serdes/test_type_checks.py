"""A type beside a schema: each place that the type cannot hold is named when the serde is made, and no other."""

from __future__ import annotations

import dataclasses
import enum
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import faust
import msgspec
import pydantic
import pytest

from streamapp import AvroSerde, JsonSchemaSerde, ProtobufSerde
from streamapp.errors import ConfigError
from tests.unit.serdes.protos import compiled, shop


class State(enum.Enum):
    OPEN = "OPEN"
    PAID = "PAID"


class Level(enum.IntEnum):
    LOW = 1


class Item(msgspec.Struct):
    name: str
    cents: int | None = None


class Texts(msgspec.Struct):
    name: str
    cents: str | None = None


class Tall(msgspec.Struct):
    name: str
    height: int


class Model(pydantic.BaseModel):
    name: str
    cents: list[int] = []


class Halt(faust.Record):
    name: str
    cents: str = None  # type: ignore[assignment]


@dataclasses.dataclass
class Data:
    name: str
    cents: str | None = None


class Node(msgspec.Struct):
    name: str
    next: Node | None = None


class Loop(msgspec.Struct):
    name: int
    next: Loop | None = None


class Dicts(TypedDict):
    name: int


class Pair(NamedTuple):
    name: str


class Array(msgspec.Struct, array_like=True):
    name: str


class Tagged(msgspec.Struct, tag="a"):
    name: int


class Other(msgspec.Struct, tag="b"):
    name: int


def holder(kind: Any) -> Any:
    return msgspec.defstruct("Order", [("field", kind)])


AVRO_ITEM = {
    "type": "record",
    "name": "Item",
    "fields": [{"name": "name", "type": "string"}, {"name": "cents", "type": ["null", "long"]}],
}
AVRO_STATE = {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID", "SENT"]}
AVRO_NODE = {
    "type": "record",
    "name": "Node",
    "namespace": "shop",
    "fields": [{"name": "name", "type": "string"}, {"name": "next", "type": ["null", "Node"]}],
}


def avro(schema: Any, kind: Any) -> Any:
    return AvroSerde[Any](
        {"type": "record", "name": "Order", "fields": [{"name": "field", "type": schema}]}, type=holder(kind)
    )


def json_schema(schema: Any, kind: Any) -> Any:
    definitions = {"Item": JSON_ITEM, "Node": JSON_NODE, "a/b": {"type": "integer"}}
    return JsonSchemaSerde[Any](
        {"type": "object", "properties": {"field": schema}, "$defs": definitions}, type=holder(kind)
    )


JSON_ITEM = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "cents": {"type": ["integer", "null"]}},
    "additionalProperties": False,
}
JSON_NODE = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Node"}]},
    },
}
ITEM_OR_NULL = r"and the schema has null or long there"


@pytest.mark.parametrize(
    ("schema", "kind", "why"),
    [
        (["null", "int"], int, "Order.field is int, and the schema has null or int there: let the type take null"),
        (["int", "string"], int, "Order.field is int, and the schema has int or string there"),
        ("string", int | None, r"Order.field is int \| None, and the schema has string there"),
        ("bytes", str, "Order.field is str, and the schema has bytes there"),
        ({"type": "array", "items": "int"}, str, "Order.field is str, and the schema has an array there"),
        ({"type": "array", "items": "int"}, list[str], r"Order.field\[\] is str, and the schema has int there"),
        ({"type": "array", "items": ["null", "int"]}, tuple[int, ...], r"Order.field\[\] is int, and the schema has null or int"),
        ({"type": "map", "values": "int"}, dict[str, str], r"Order.field\[\*\] is str, and the schema has int there"),
        ({"type": "map", "values": "int"}, list[int], r"Order.field is list\[int\], and the schema has a map there"),
        ({"type": "map", "values": "int"}, Item, "Order.field.name is str, and the schema has int there"),
        (AVRO_ITEM, list[int], r"Order.field is list\[int\], and the schema has the record Item there"),
        (AVRO_ITEM, Texts, r"Order.field.cents is str \| None, " + ITEM_OR_NULL),
        (["null", AVRO_ITEM], Texts | None, r"Order.field.cents is str \| None, " + ITEM_OR_NULL),
        (AVRO_ITEM, Data, r"Order.field.cents is str \| None, " + ITEM_OR_NULL),
        (AVRO_ITEM, Dicts, r"Order.field.name is int, and the schema has string there"),
        (AVRO_ITEM, Tall, r"Order.field needs the fields \['height'\], and the schema has the record Item there"),
        ({"type": "array", "items": {"type": "map", "values": AVRO_ITEM}}, list[dict[str, Texts]], r"Order.field\[\]\[\*\].cents is"),
        (AVRO_ITEM, dict[str, str], r"Order.field\[\*\] is str, " + ITEM_OR_NULL),
        (AVRO_NODE, Loop, "Order.field.name is int, and the schema has string there"),
        (AVRO_STATE, State, "Order.field is State with the values OPEN, PAID, and the schema has the enum State there, also with SENT"),
        (AVRO_STATE, Literal["OPEN", "PAID"], "Order.field is literal with the values OPEN, PAID, .* also with SENT"),
        (AVRO_STATE, Level, "Order.field is Level, and the schema has the enum State there"),
        (AVRO_STATE, int, "Order.field is int, and the schema has the enum State there"),
        ({"type": "long", "logicalType": "timestamp-millis"}, list[int], r"Order.field is list\[int\], .* timestamp-millis there"),
        ({"type": "string", "logicalType": "uuid"}, str, "Order.field is str, and the schema has uuid there"),
        (AVRO_ITEM, Array, "Order.field is Array, and the schema has the record Item there"),
        (AVRO_ITEM, Pair, "Order.field is Pair, and the schema has the record Item there"),
    ],
)  # fmt: skip
def test_avro_misfits_are_named(schema: Any, kind: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        avro(schema, kind)


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ("int", int | None),
        (["null", "int"], int | None),
        (["int", "string"], int | str),
        ("int", Any),
        (AVRO_ITEM, Item),
        (AVRO_ITEM, dict[str, Any]),
        (AVRO_ITEM, dict),
        (AVRO_NODE, Node),
        (AVRO_STATE, str),
        ({**AVRO_STATE, "symbols": ["OPEN"]}, State),
        ({"type": "array", "items": AVRO_ITEM}, list[Item]),
        ({"type": "array", "items": "int"}, list),
        ({"type": "map", "values": AVRO_ITEM}, dict[str, Item]),
        (AVRO_ITEM, Tagged | Other),  # which of the two shows with the record
    ],
)
def test_avro_that_fits(schema: Any, kind: Any) -> None:
    avro(schema, kind)


@pytest.mark.parametrize(
    ("schema", "kind", "why"),
    [
        ({"type": ["integer", "null"]}, int, "Order.field is int, and the schema has integer or null there"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, int, "Order.field is int, and the schema has integer or string"),
        ({"type": "array", "items": {"type": "integer"}}, list[str], r"Order.field\[\] is str, and the schema has integer"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, dict[str, str], r"Order.field\[\*\] is str"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, Item, "Order.field.name is str, and the schema has integer"),
        ({"$ref": "#/$defs/Item"}, Texts, r"Order.field.cents is str \| None, and the schema has integer or null there"),
        ({"$ref": "#/$defs/Item"}, Tall, r"Order.field needs the fields \['height'\]"),
        ({"$ref": "#/$defs/Node"}, Loop, "Order.field.name is int, and the schema has string there"),
        ({"$ref": "#/$defs/a~1b"}, str, "Order.field is str, and the schema has integer there"),
        ({"type": "array", "items": {"$ref": "#/$defs/Item"}}, list[Data], r"Order.field\[\].cents is str \| None"),
        ({"enum": ["OPEN", "SENT"]}, State, "Order.field is State with the values OPEN, PAID, .* also with SENT"),
        ({"enum": ["OPEN", None]}, State, "Order.field is State, and the schema has an enum or null there"),
        ({"enum": [1, 2]}, Level, "Order.field is Level with the values 1, .* also with 2"),
        ({"const": "OPEN"}, int, "Order.field is int, and the schema has an enum there"),
        ({"type": "string"}, bool, "Order.field is bool, and the schema has string there"),
    ],
)  # fmt: skip
def test_json_misfits_are_named(schema: Any, kind: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        json_schema(schema, kind)


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        (True, int),
        ({}, int),
        ({"allOf": [{"type": "string"}]}, int),  # what several schemas share is not compared
        ({"type": "number"}, int),
        ({"type": "object", "properties": {"name": {"type": "string"}}}, Tall),  # the height may be there
        ({"$ref": "#/$defs/Node"}, Node),
        ({"oneOf": [{"$ref": "#/$defs/Item"}, {"type": "null"}]}, Item | None),
        ({"type": "string", "format": "date-time"}, datetime),
        ({"type": "array"}, set[int]),
    ],
)
def test_json_that_fits(schema: Any, kind: Any) -> None:
    json_schema(schema, kind)


class Line(msgspec.Struct):
    item: Texts | None = None
    count: int = 0


def message(fields: dict[str, Any]) -> Any:
    return ProtobufSerde(shop.Order, type=msgspec.defstruct("Order", list(fields.items())))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"id": int}, "Order.id is int, and the schema has string there"),
        ({"lines": Line}, "Order.lines is Line, and the schema has a repeated field there"),
        ({"lines": list[int]}, r"Order.lines\[\] is int, and the schema has the message streamapp.shop.Order.Line there"),
        ({"lines": list[Tall]}, r"Order.lines\[\] needs the fields \['name', 'height'\]"),
        ({"gifts": list[Item]}, r"Order.gifts is list\[Item\], and the schema has a map there"),
        ({"gifts": dict[str, Tall]}, r"Order.gifts\[\*\] needs the fields \['height'\], .* streamapp.shop.Item there"),
        ({"state": Literal["OPEN"]}, "Order.state is literal with the values OPEN, .* also with PAID"),
        ({"state": int}, "Order.state is int, and the schema has the enum State there"),
        ({"at": int}, "Order.at is int, and the schema has a Timestamp there"),
        ({"numbers": list[bool]}, r"Order.numbers\[\] is bool, and the schema has int64 there"),
        ({"cash": int | None}, r"Order.cash is int \| None, and the schema has bool there"),
        ({"raw": int}, "Order.raw is int, and the schema has bytes there"),
        ({"nothing": int}, r"Order needs the fields \['nothing'\], and the schema has the message streamapp.shop.Order"),
    ],
)  # fmt: skip
def test_message_misfits_are_named(fields: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        message(fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"state": State},
        {"lines": list[Line]},
        {"lines": list[dict[str, Any]], "gifts": dict[str, Any], "at": datetime},
    ],
)
def test_messages_that_fit(fields: Any) -> None:
    message(fields)


def test_a_message_that_contains_itself(tmp_path: Path) -> None:
    (tmp_path / "looped.proto").write_text(
        'syntax = "proto3"; package looped; message Node { string name = 1; Node next = 2; }'
    )
    looped = compiled(tmp_path, "looped")
    ProtobufSerde(looped.Node, type=Node)
    with pytest.raises(ConfigError, match="Loop.name is int, and the schema has string there"):
        ProtobufSerde(looped.Node, type=Loop)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: AvroSerde(AVRO_ITEM, type=Model), r"Model.cents is list\[int\], " + ITEM_OR_NULL),
        (lambda: AvroSerde(AVRO_ITEM, type=Halt), r"Halt.cents is str \| None, " + ITEM_OR_NULL),
        (lambda: JsonSchemaSerde(JSON_ITEM, type=Model), r"Model.cents is list\[int\], .* integer or null there"),
        (lambda: ProtobufSerde(shop.Item, type=Model), r"Model.cents is list\[int\], and the schema has sint64"),
        (lambda: AvroSerde({"type": "array", "items": AVRO_ITEM}, type=list[Texts]), r"list\[\].cents is str"),
        (lambda: JsonSchemaSerde({"type": "array", "items": JSON_ITEM}, type=list[Texts]), r"list\[\].cents is str"),
    ],
)  # fmt: skip
def test_types_of_each_library(make: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        make()


BUILTIN = (bytes, date, datetime, time, Decimal, UUID)
TYPES = [
    bool,
    int,
    float,
    str,
    bytes,
    datetime,
    date,
    time,
    timedelta,
    UUID,
    Decimal,
    State,
    Level,
    list[int],
]
TYPES += [dict[str, int], Item, Data, Pair, Array]
SAMPLES: list[tuple[Any, Any, Any]] = [
    # a value, its Avro schema, its JSON Schema
    (True, "boolean", {"type": "boolean"}),
    (1, "int", {"type": "integer"}),
    (1, "long", {"type": "integer"}),
    (2.5, "double", None),
    ("OPEN", "string", None),
    (b"a", "bytes", None),
    ("OPEN", {"type": "enum", "name": "S", "symbols": ["OPEN"]}, {"enum": ["OPEN"]}),
    ([1], {"type": "array", "items": "int"}, {"type": "array", "items": {"type": "integer"}}),
    ({"name": 1}, {"type": "map", "values": "int"}, {"type": "object", "additionalProperties": {"type": "integer"}}),
    ({"name": "x", "cents": 3}, AVRO_ITEM, JSON_ITEM),
    (datetime(2026, 1, 2, tzinfo=UTC), {"type": "long", "logicalType": "timestamp-millis"}, None),
    (date(2026, 1, 2), {"type": "int", "logicalType": "date"}, None),
    (time(1, 2), {"type": "long", "logicalType": "time-micros"}, None),
    (UUID(int=7), {"type": "string", "logicalType": "uuid"}, None),
    (Decimal("1.5"), {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}, None),
]  # fmt: skip
LOOSE = {("double", int)}
"""Pairs of which only some values fit; these show with their records."""


def name_of(schema: Any) -> str:
    return schema if isinstance(schema, str) else str(schema.get("logicalType", schema.get("type", "enum")))


@pytest.mark.parametrize(("value", "schema", "_"), SAMPLES)
def test_the_comparison_with_avro_agrees_with_reading(value: Any, schema: Any, _: Any) -> None:
    """Behind a list, so that each value is converted: a refused type reads no value, another type reads the value."""
    listed = {"type": "array", "items": schema}
    whole = {"type": "record", "name": "Order", "fields": [{"name": "field", "type": listed}]}
    plain = AvroSerde[Any](whole)
    data = plain.serialize({"field": [value]})
    for kind in TYPES:
        made = holder(list[kind])
        try:
            msgspec.convert(plain.deserialize(data), made, builtin_types=BUILTIN)
            reads = True
        except msgspec.ValidationError:
            reads = False
        assert accepted(avro, listed, list[kind]) is (reads or (name_of(schema), kind) in LOOSE), kind


@pytest.mark.parametrize(("value", "_", "schema"), [each for each in SAMPLES if each[2] is not None])
def test_the_comparison_with_json_agrees_with_reading(value: Any, _: Any, schema: Any) -> None:
    data = msgspec.json.encode({"field": [value]})
    for kind in TYPES:
        try:
            msgspec.json.decode(data, type=holder(list[kind]))
            reads = True
        except msgspec.ValidationError:
            reads = False
        texts = name_of(schema) == "enum" and kind in (bytes, datetime, date, time, timedelta, UUID, Decimal)
        assert accepted(json_schema, {"type": "array", "items": schema}, list[kind]) is (
            reads or texts or (name_of(schema), kind) in LOOSE
        ), kind


def accepted(make: Any, schema: Any, kind: Any) -> bool:
    try:
        make(schema, kind)
    except ConfigError:
        return False
    return True
