"""Structs and dataclasses of messages: field by field where both sides agree, and the same values as by the JSON mapping."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import Annotated, Any

import msgspec
import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st

from streamapp import ProtobufSerde
from streamapp.errors import SerializationError
from streamapp.serdes.protobuf_types import copier_of
from tests.unit.serdes.protos import measures, shop


class Item(msgspec.Struct):
    name: str = "?"
    cents: int = 5


@dataclasses.dataclass
class Line:
    item: Item | None = None
    count: int = 0


class Order(msgspec.Struct):
    id: str
    gifts: dict[str, Item] = {}
    lines: list[Line] = []
    card: str | None = None
    cash: bool | None = None
    discount: int | None = None
    numbers: list[int] = []
    raw: bytes = b"default"


texts, longs = st.text(max_size=5), st.integers(-(2**63), 2**63 - 1)
items = st.builds(Item, texts, longs)
orders = st.builds(
    Order,
    texts,
    st.dictionaries(texts, items, max_size=3),
    st.lists(st.builds(Line, st.none() | items, st.integers(0, 2**32 - 1)), max_size=3),
    st.none() | texts,
    st.none(),
    st.none() | st.integers(-(2**31), 2**31 - 1),
    st.lists(longs, max_size=3),
    st.binary(max_size=5),
)


def by_json(message: Any, type_: Any) -> ProtobufSerde[Any]:
    serde = ProtobufSerde[Any](message, type=type_)
    serde._copier = None
    return serde


@given(orders)
def test_messages_and_values_are_those_of_the_json_mapping(order: Order) -> None:
    serde, slow = ProtobufSerde[Any](shop.Order, type=Order), by_json(shop.Order, Order)
    data = serde.serialize(order)
    assert data == slow.serialize(order)
    assert serde.deserialize(data) == slow.deserialize(data)


@pytest.mark.parametrize(
    "message", [shop.Order(), shop.Order(discount=0), shop.Order(cash=False, lines=[{}])]
)
def test_absent_fields_take_the_default_of_the_type(message: Any) -> None:
    """Without presence the message has a value: empty, not the type's default."""
    data = ProtobufSerde[Any](shop.Order).serialize(message)
    read = ProtobufSerde[Any](shop.Order, type=Order).deserialize(data)
    assert read == by_json(shop.Order, Order).deserialize(data)
    assert (read.raw, read.card) == (b"", None)


class Timed(msgspec.Struct):
    id: str
    at: datetime | None = None


class Stated(msgspec.Struct):
    state: str


class Renamed(msgspec.Struct, rename={"title": "name"}):
    title: str


class Tagged(msgspec.Struct, tag="item"):
    name: str


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    name: str


class Limited(msgspec.Struct):
    cents: Annotated[int, msgspec.Meta(ge=0)]


class Taller(Item):
    height: int = 0


class Value(msgspec.Struct):
    value: float


class Span(msgspec.Struct):
    seconds: int


class Entry(msgspec.Struct):
    key: str
    value: Item


class Entries(msgspec.Struct):
    gifts: list[Entry]


class More(msgspec.Struct):
    name: str
    height: int = 0


@pytest.mark.parametrize(
    ("message", "shape"),
    [
        (shop.Order, Timed),
        (shop.Order, Stated),
        (shop.Item, Renamed),
        (shop.Item, Tagged),
        (shop.Item, Strict),
        (shop.Item, Limited),
        (measures.Single, Value),
        (Duration, Span),
        (shop.Item, More),
        (shop.Order, Entries),
    ],
)
def test_other_fields_need_the_json_mapping(message: Any, shape: Any) -> None:
    assert copier_of(message, shape) is None


@pytest.mark.parametrize(
    ("message", "value"),
    [
        (shop.Item, Item("x", True)),  # type: ignore[arg-type]
        (shop.Item, Item("x", 2**64)),
        (shop.Item, Item(7)),  # type: ignore[arg-type]
        (shop.Item, Item("\ud800")),
        (shop.Order, Order("a", lines=[None])),  # type: ignore[list-item]
        (shop.Order, Order("a", gifts={"g": Taller()})),
    ],
)
def test_values_of_another_type_are_refused_as_before(message: Any, value: Any) -> None:
    for serde in (ProtobufSerde[Any](message, type=type(value)), by_json(message, type(value))):
        with pytest.raises(SerializationError, match="cannot write"):
            serde.serialize(value)


class Readings(msgspec.Struct):
    many: list[float] = []
    named: dict[str, float] = {}
    inner: Value | None = None
    maybe: float | None = None


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_infinity_are_written_as_they_are_read(number: float) -> None:
    for message in (measures.Double, measures.Single):
        data = ProtobufSerde[Any](message).serialize(message(value=number))
        for serde in (ProtobufSerde[Any](message, type=Value), by_json(message, Value)):
            assert serde.serialize(serde.deserialize(data)) == data
    value = Readings([1.0, number], {"a": number}, Value(number), number)
    serde = ProtobufSerde[Any](measures.Readings, type=Readings)
    assert str(serde.deserialize(serde.serialize(value))) == str(value)
    with pytest.raises(SerializationError, match="text"):
        ProtobufSerde[Any](measures.Readings, type=dict).serialize({"text": number})


class Offer(Item):
    pass


@pytest.mark.parametrize(
    ("message", "type_", "value", "same"),
    [
        (shop.Item, Item, Item("x", 3.0), shop.Item(name="x", cents=3)),  # type: ignore[arg-type]
        (measures.Double, Value, Value(3), measures.Double(value=3.0)),
        (shop.Item, Item, Offer("x", 1), shop.Item(name="x", cents=1)),
    ],
)
def test_values_that_the_json_mapping_converts_are_converted(
    message: Any, type_: Any, value: Any, same: Any
) -> None:
    assert ProtobufSerde[Any](message, type=type_).serialize(value) == ProtobufSerde[Any](message).serialize(
        same
    )


def test_a_single_float_has_the_digits_of_its_json() -> None:
    serde = ProtobufSerde[Value](measures.Single, type=Value)
    assert serde.deserialize(serde.serialize(Value(0.1))) == Value(0.1)


class Needs(msgspec.Struct):
    discount: int


def test_a_field_that_the_type_needs_and_the_message_leaves_out_is_named() -> None:
    data = ProtobufSerde[Any](shop.Order).serialize(shop.Order(id="a"))
    with pytest.raises(SerializationError, match="required.*discount"):
        ProtobufSerde[Any](shop.Order, type=Needs).deserialize(data)


def test_a_time_without_a_zone_is_named() -> None:
    """The error spoke of the text '2020-01', which no value had."""

    class Dated(msgspec.Struct):
        at: datetime | None = None

    with pytest.raises(SerializationError, match="a Timestamp takes a time with a time zone"):
        ProtobufSerde(shop.Order, type=Dated).serialize(Dated(datetime(2020, 1, 1)))
