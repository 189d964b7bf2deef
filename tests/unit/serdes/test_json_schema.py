"""JSON with a JSON Schema."""

from __future__ import annotations

import dataclasses
import pickle
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamapp import (
    JsonSchemaSerde,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    TopologyTestDriver,
)
from streamapp.errors import ConfigError, SerializationError
from streamapp.serdes import LocalSchemaRegistry

ORDER = {
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "string"}, "cents": {"type": "integer", "minimum": 0}},
    "required": ["id"],
}
HEADER = b"\0\0\0\0\1"


class Line(msgspec.Struct):
    name: str


class Order(msgspec.Struct):
    id: str
    cents: int = 0
    lines: list[Line] = []
    at: datetime | None = None


@dataclasses.dataclass
class Placed:
    id: str


class Typed(TypedDict):
    id: str


class Named(NamedTuple):
    id: str


class Model(pydantic.BaseModel):
    id: str
    at: datetime | None = None


MOMENT = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize("validate", [True, False])
@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (Order, Order("a", 3, [Line("x")], MOMENT)),
        (Placed, Placed("a")),
        (Typed, {"id": "a"}),
        (Model, Model(id="a", at=MOMENT)),
        (dict[str, int], {"a": 1}),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_the_schema_follows_from_the_type(type_: Any, value: Any, validate: bool) -> None:
    serde = JsonSchemaSerde[Any](type=type_, validate=validate).bind("orders", False)
    assert serde.deserialize(serde.serialize(value)) == value
    shipped = pickle.loads(pickle.dumps(serde))
    assert shipped.serialize(value) == serde.serialize(value)
    assert shipped.subject == "orders-value"


def test_a_record_stands_at_the_top_of_its_schema() -> None:
    schema = JsonSchemaSerde[Any](type=Order).schema
    assert (schema["title"], schema["type"], list(schema["$defs"])) == ("Order", "object", ["Line"])


def test_a_type_that_contains_itself() -> None:
    class Node(msgspec.Struct):
        next: Node | None = None

    globals()["Node"] = Node
    serde = JsonSchemaSerde[Any](type=Node)
    assert serde.deserialize(serde.serialize(Node(Node()))) == Node(Node())


@pytest.mark.parametrize(
    ("value", "why"), [({}, "id"), ({"id": 3}, "string"), ({"id": "a", "cents": -1}, "minimum")]
)
def test_values_that_do_not_fit(value: Any, why: str) -> None:
    serde = JsonSchemaSerde[Any](ORDER)
    with pytest.raises(SerializationError, match=f"does not fit Order .*{why}"):
        serde.serialize(value)
    unchecked = JsonSchemaSerde[Any](ORDER, validate=False)
    data = unchecked.serialize(value)
    assert unchecked.deserialize(data) == value
    with pytest.raises(SerializationError, match=f"cannot read Order .*{why}"):
        serde.deserialize(data)


def test_an_unreadable_value_names_both_schemas() -> None:
    registry = LocalSchemaRegistry()
    theirs = JsonSchemaSerde[Any]({**ORDER, "properties": {"id": {"type": "integer"}}}, registry=registry)
    with pytest.raises(
        SerializationError,
        match=r"schema of id \d+, and Order here differs .*properties.id.type: 'integer' becomes 'string'",
    ):
        JsonSchemaSerde[Any](ORDER, registry=registry).deserialize(theirs.serialize({"id": 1}))


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "objekt"}, "is no JSON Schema"),
        ({"$ref": "http://example.com/schema"}, "put it under"),
        ({"$ref": "file:///etc/passwd"}, "put it under"),
        ({"pattern": "("}, "is no JSON Schema"),
        ("{", "is JSON"),
        ("[]", "is an object"),
        (None, "needs a schema, or a type"),
    ],
)
def test_what_is_no_schema(schema: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        JsonSchemaSerde(schema)


def test_the_driver_takes_it() -> None:
    builder = StreamsBuilder(StreamsConfig("app"))
    serde = JsonSchemaSerde[Order](type=Order)
    orders = builder.stream("orders", key_serde=StringSerde(), value_serde=serde)
    orders.group_by_key().reduce(lambda a, b: Order(b.id, a.cents + b.cents)).to_stream().to(
        "totals", value_serde=serde
    )
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.create_input_topic("orders", key_serde=StringSerde(), value_serde=serde)
        sums = driver.create_output_topic("totals", key_serde=StringSerde(), value_serde=serde)
        source.pipe_input("k", Order("a", 1))
        source.pipe_input("k", Order("b", 2))
        assert [each.value.cents for each in sums.read_records()] == [1, 3]


HOSTILE = [
    b"",
    b"\0",
    HEADER,
    b"\1" + HEADER[1:] + b"{}",
    HEADER + b"[" * 100_000,
    HEADER + b'{"id":' * 50_000,
    HEADER + b'"\xff"',
    HEADER + b"1" * 100_000,
    HEADER + b'{"id":"a","cents":1e999}',
    HEADER + b'{"id":"a","cents":-0}x',
    HEADER + b"NaN",
]


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize(
    "serde", [JsonSchemaSerde[Any](ORDER), JsonSchemaSerde[Any](type=Order), JsonSchemaSerde[Any](type=Model)]
)
def test_hostile_bytes_are_refused(serde: JsonSchemaSerde[Any], data: bytes) -> None:
    with pytest.raises(SerializationError):
        serde.deserialize(data)


@given(st.binary(max_size=40), st.booleans())
def test_any_bytes_are_refused_or_read(data: bytes, framed: bool) -> None:
    for serde in (JsonSchemaSerde[Any](ORDER), JsonSchemaSerde[Any](type=Order, validate=False)):
        with suppress(SerializationError):
            serde.deserialize(HEADER + data if framed else data)
