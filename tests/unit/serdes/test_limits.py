"""Values beyond the limits of a type: no serde writes them, and no serde reads them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta

from streamapp.errors import SerializationError
from streamapp.serdes import AvroSerde, JsonSchemaSerde, JsonSerde, ProtobufSerde, Serde
from tests.unit.serdes.protos import shop


class Item(msgspec.Struct, frozen=True):
    name: Annotated[str, Meta(max_length=3, pattern="^[A-Z]*$")]
    cents: Annotated[int, Meta(ge=0, le=99)] = 0


@dataclass(frozen=True)
class Line:
    name: Annotated[str, Meta(min_length=1)]
    shares: Annotated[list[float], Meta(max_length=2)]


class Order(msgspec.Struct, frozen=True):
    items: list[Item]
    named: dict[str, Item]
    best: Item | None = None


class Free(msgspec.Struct):
    """As Item, without limits."""

    name: str
    cents: int = 0


class FreeOrder(msgspec.Struct):
    items: list[Free]
    named: dict[str, Free]
    best: Free | None = None


SERDES = [
    JsonSerde,
    lambda type_: JsonSchemaSerde(type=type_, validate=False),
    lambda type_: JsonSchemaSerde({"title": type_.__name__}, type=type_),
    lambda type_: AvroSerde(type=type_),
    lambda type_: ProtobufSerde(type=type_),
]
NAMES = ["JSON", "JSON Schema, not validated", "JSON Schema without the limits", "Avro", "Protobuf"]
CUP, BAD = Item("CUP", 5), Item("CUP", 100)


@pytest.mark.parametrize("serde_of", SERDES, ids=NAMES)
@pytest.mark.parametrize(
    ("fits", "unlike"),
    [
        (CUP, BAD),
        (CUP, Item("CUPS")),
        (CUP, Item("cup")),
        (Line("a", [0.5]), Line("", [0.5])),
        (Line("a", [0.5]), Line("a", [0.5, 1.0, 1.5])),
        (Order([CUP], {}), Order([CUP, BAD], {})),
        (Order([], {"a": CUP}), Order([], {"a": BAD})),
        (Order([], {}, CUP), Order([], {}, BAD)),
    ],
)
def test_a_value_beyond_a_limit_is_not_written(serde_of: Any, fits: Any, unlike: Any) -> None:
    """Each serde wrote these values. Most serdes could then not read them."""
    serde: Serde[Any] = serde_of(type(fits))
    assert serde.deserialize(serde.serialize(fits)) == fits
    with pytest.raises(SerializationError, match="Expected"):
        serde.serialize(unlike)


@pytest.mark.parametrize("serde_of", SERDES, ids=NAMES)
@pytest.mark.parametrize(
    ("type_", "free", "value"),
    [(Item, Free, Free("CUP", 100)), (Order, FreeOrder, FreeOrder([Free("CUP", 100)], {}))],
)
def test_a_value_beyond_a_limit_is_not_read(serde_of: Any, type_: Any, free: Any, value: Any) -> None:
    """Avro read flat types, and Protobuf read all types, without a look at their limits."""
    serde, writer = serde_of(type_), serde_of(free)
    if isinstance(writer, AvroSerde | ProtobufSerde):
        data = writer.serialize(value)
        fitting = {Item: CUP, Order: Order([], {})}[type_]
        data = serde.serialize(fitting)[:5] + data[5:]
    else:
        data = writer.serialize(value)
    with pytest.raises(SerializationError, match="Expected"):
        serde.deserialize(data)


def test_limits_beside_a_generated_message() -> None:
    serde = ProtobufSerde[Any](shop.Item, type=Limited)
    assert serde.deserialize(serde.serialize(Limited("cup"))) == Limited("cup")
    with pytest.raises(SerializationError, match=r"length <= 3"):
        serde.serialize(Limited("cups"))


class Limited(msgspec.Struct):
    name: Annotated[str, Meta(max_length=3)]


class Aware(msgspec.Struct):
    at: Annotated[datetime, Meta(tz=True)]


def test_a_limit_of_times() -> None:
    serde = JsonSerde(Aware)
    assert serde.deserialize(serde.serialize(Aware(datetime(2026, 1, 1, tzinfo=UTC))))
    with pytest.raises(SerializationError, match="timezone"):
        serde.serialize(Aware(datetime(2026, 1, 1)))


class Mean(msgspec.Struct):
    mean: float
    last: float | None = None


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_json_without_a_number_is_not_written_where_the_type_wants_one(wrong: float) -> None:
    """The null was written, and nobody could read the value: a table could not be restored."""
    serde = JsonSerde(Mean)
    assert serde.deserialize(serde.serialize(Mean(0.5))) == Mean(0.5)
    assert serde.deserialize(serde.serialize(Mean(0.5, wrong))) == Mean(0.5, None)
    with pytest.raises(SerializationError, match=r"at `\$\.mean`; NaN and infinity become null in JSON"):
        serde.serialize(Mean(wrong))
    with pytest.raises(SerializationError, match="NaN and infinity become null"):
        JsonSerde(list[float]).serialize([wrong])
    assert JsonSerde().serialize([wrong]) == b"[null]"


@settings(max_examples=200, deadline=None)
@given(
    st.builds(
        Order,
        st.lists(st.builds(Item, st.text("AB", max_size=4), st.integers(-1, 100)), max_size=3),
        st.dictionaries(
            st.text("ab"), st.builds(Item, st.text("AB", max_size=4), st.integers(-1, 100)), max_size=2
        ),
    ),
    st.sampled_from(SERDES),
)
def test_all_that_is_written_is_read(value: Order, serde_of: Any) -> None:
    serde = serde_of(Order)
    items = [*value.items, *value.named.values()]
    fits = all(len(item.name) <= 3 and 0 <= item.cents <= 99 for item in items)
    try:
        data = serde.serialize(value)
    except SerializationError:
        assert not fits
    else:
        assert fits
        assert serde.deserialize(data) == value


class Counted(msgspec.Struct):
    count: Annotated[int, Meta(ge=0)]
    share: Annotated[float, Meta(le=1)] = 0.0


def test_values_of_numpy_within_the_limits_are_written() -> None:
    """The error was: Encoding objects of type numpy.int64 is unsupported."""
    serde = AvroSerde[Any](type=Counted)
    value: Any = Counted(np.int64(3), np.float32(0.5))  # type: ignore[arg-type]
    assert serde.deserialize(serde.serialize(value)) == Counted(3, 0.5)
    with pytest.raises(SerializationError, match="Expected `int` >= 0"):
        serde.serialize(Counted(np.int64(-1)))  # type: ignore[arg-type]
    for other in (object(), np.longdouble(1), np.array([1])):
        with pytest.raises(SerializationError, match="Encoding objects of type .* is unsupported"):
            serde.serialize(Counted(other))  # type: ignore[arg-type]
