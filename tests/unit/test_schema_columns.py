"""Columns of Spark's SQL, and the row format of the views, for serdes of the schema formats."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pydantic
import pytest

from streamapp import AvroSerde, JsonSchemaSerde, JsonSerde, ProtobufSerde, Serde
from streamapp.runners.spark.columns import _writer
from streamapp.runners.spark.typed import _converter, arrow_type
from streamapp.serdes import LocalSchemaRegistry
from streamapp.serdes.json_values import to_json
from tests.unit.serdes.protos import shop


class Item(msgspec.Struct):
    name: str
    cents: int = 0


class Model(pydantic.BaseModel):
    name: str


COLUMNS = pa.struct([("name", pa.string()), ("cents", pa.int64())])


@pytest.mark.parametrize(
    "serde", [AvroSerde(type=Item), JsonSchemaSerde(type=Item), ProtobufSerde(shop.Item, type=Item)]
)
def test_a_type_becomes_columns_and_columns_the_type(serde: Serde[Any]) -> None:
    assert arrow_type(serde) == COLUMNS
    row = {"name": "cup", "cents": 3}
    data = _writer(serde)(row)
    assert data == serde.serialize(Item("cup", 3))
    assert _converter(serde)([data, None]).to_pylist() == [row, None]


@pytest.mark.parametrize(
    "serde", [AvroSerde(type=Model), JsonSchemaSerde(type=Model), ProtobufSerde(shop.Item, type=Model)]
)
def test_a_model_becomes_columns_too(serde: Serde[Any]) -> None:
    assert arrow_type(serde) == pa.struct([("name", pa.string())])
    data = _writer(serde)({"name": "cup"})
    assert data == serde.serialize(Model(name="cup"))
    assert _converter(serde)([data, None]).to_pylist() == [{"name": "cup"}, None]


MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
PAYMENT = {
    "type": "record",
    "name": "Payment",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "total", "type": MONEY},
        {"name": "tip", "type": ["null", {**MONEY, "type": "fixed", "name": "Tip", "size": 6}]},
        {
            "name": "from",
            "type": {"type": "record", "name": "Party", "fields": [{"name": "bank", "type": "string"}]},
        },
        {"name": "to", "type": "Party"},
        {"name": "key", "type": {"type": "fixed", "name": "Key", "size": 2}},
        {"name": "keys", "type": {"type": "array", "items": "shop.Key"}},
    ],
}


class Total(msgspec.Struct):
    total: Decimal


def test_decimals_and_named_types_of_avro_are_columns() -> None:
    serde, party = AvroSerde(PAYMENT), pa.struct([("bank", pa.string())])
    money, key = pa.decimal128(12, 2), pa.binary()
    names = {"id": pa.string(), "total": money, "tip": money, "from": party, "to": party, "key": key}
    assert arrow_type(serde) == pa.struct([*names.items(), ("keys", pa.list_(key))])
    row = {
        "id": UUID(int=1),
        "total": Decimal("19.90"),
        "tip": None,
        "from": {"bank": "A"},
        "to": {"bank": "B"},
        "key": b"ab",
        "keys": [b"cd"],
    }
    shown = _converter(serde)([serde.serialize(row), None]).to_pylist()
    assert shown == [{**row, "id": str(UUID(int=1))}, None]
    assert _converter(AvroSerde(MONEY))([AvroSerde(MONEY).serialize(Decimal("1.5"))]).to_pylist() == [
        Decimal("1.50")
    ]


def test_the_schema_beside_a_type_has_the_digits_of_decimals() -> None:
    record = {"type": "record", "name": "Total", "fields": [{"name": "total", "type": MONEY}]}
    serde = AvroSerde(record, type=Total)
    assert arrow_type(serde) == pa.struct([("total", pa.decimal128(12, 2))])
    shown = _converter(serde)([serde.serialize(Total(Decimal("0.10")))]).to_pylist()
    assert shown == [{"total": Decimal("0.10")}]


class Bank(msgspec.Struct):
    code: str


class Booking(msgspec.Struct):
    at: int
    total: Decimal
    bank: Bank


class Node(msgspec.Struct):
    value: int
    next: Node | None = None


BOOKING = {
    "type": "record",
    "name": "Booking",
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "total", "type": MONEY},
        {"name": "note", "type": "string"},
        {
            "name": "bank",
            "type": {
                "type": "record",
                "name": "Bank",
                "fields": [{"name": "code", "type": "string"}, {"name": "city", "type": "string"}],
            },
        },
    ],
}


@pytest.mark.parametrize(
    ("reading", "row"),
    [
        ({"type": Booking}, {"at": 1_704_067_200_000, "total": Decimal("1.50"), "bank": {"code": "A"}}),
        ({"fields": ["total", "note"]}, {"total": Decimal("1.50"), "note": "n"}),
    ],
)
def test_columns_are_the_fields_that_the_serde_reads(reading: dict[str, Any], row: dict[str, Any]) -> None:
    """Other fields of the schema would be columns of nulls, and the number of a moment would be another moment."""
    registry = LocalSchemaRegistry()
    whole = {
        "at": 1_704_067_200_000,
        "total": Decimal("1.5"),
        "note": "n",
        "bank": {"code": "A", "city": "B"},
    }
    data = AvroSerde[Any](BOOKING, registry=registry).serialize(whole)
    assert _converter(AvroSerde(BOOKING, registry=registry, **reading))([data]).to_pylist() == [row]


@pytest.mark.parametrize("serde", [JsonSerde(Node), JsonSchemaSerde(type=Node)])
def test_a_type_that_contains_itself_is_json_text(serde: Serde[Any]) -> None:
    assert arrow_type(serde) is None
    shown = _converter(serde)([serde.serialize(Node(1, Node(2)))]).to_pylist()
    assert [json.loads(text) for text in shown] == [{"value": 1, "next": {"value": 2, "next": None}}]


GATE = {"type": "enum", "name": "Gate", "symbols": ["A"]}
LEG = {"type": "record", "name": "Leg", "namespace": "air", "fields": [{"name": "gate", "type": "Gate"}]}


@pytest.mark.parametrize(
    ("schema", "value", "column"),
    [
        ({"type": "fixed", "name": "U", "size": 2, "logicalType": "uuid"}, b"\xff\xff", pa.binary()),
        ({"type": "string", "logicalType": "date"}, "today", pa.string()),
        ({"type": "int", "logicalType": "decimal", "precision": 4}, 7, pa.int32()),
        ({"type": "long", "logicalType": "timestamp-nanos"}, 7, pa.int64()),
        (
            {
                "type": "record",
                "name": "Trip",
                "fields": [{"name": "gate", "type": GATE}, {"name": "leg", "type": LEG}],
            },
            {"gate": "A", "leg": {"gate": "A"}},
            pa.struct([("gate", pa.string()), ("leg", pa.struct([("gate", pa.string())]))]),
        ),
    ],
)
def test_a_column_has_the_type_of_the_values_that_the_serde_reads(
    schema: Any, value: Any, column: pa.DataType
) -> None:
    """A column had the logical type of the schema, although the serde reads the type below it."""
    serde = AvroSerde[Any](schema)
    assert arrow_type(serde) == column
    assert _converter(serde)([serde.serialize(value)]).to_pylist() == [value]


def test_a_schema_that_contains_itself_and_decimals_beyond_spark_are_json_text() -> None:
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    assert arrow_type(AvroSerde(node)) is None
    assert arrow_type(AvroSerde({**MONEY, "precision": 39})) is None


@pytest.mark.parametrize(
    ("serde", "value", "text"),
    [
        (ProtobufSerde(shop.Item), shop.Item(name="cup"), '{"cents":"0","name":"cup"}'),
        (ProtobufSerde(shop.Item, type=dict), {"name": "cup", "cents": "0"}, '{"cents":"0","name":"cup"}'),
        (JsonSchemaSerde({"type": "object"}), {"name": "cup"}, '{"name":"cup"}'),
    ],
)
def test_other_values_are_json_text(serde: Serde[Any], value: Any, text: str) -> None:
    assert arrow_type(serde) is None
    assert _converter(serde)([serde.serialize(value)]).to_pylist() == [text]
    assert to_json(value)["name"] == "cup"
