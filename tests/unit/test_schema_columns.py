"""Columns of Spark's SQL, and the row format of the views, for serdes of the schema formats."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pydantic
import pytest

from streamapp import AvroSerde, JsonSchemaSerde, ProtobufSerde, Serde
from streamapp.runners.spark.columns import _writer
from streamapp.runners.spark.typed import _converter, arrow_type
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
