"""Protobuf messages that follow from types: the schema, the values, the numbers of fields, and the refusals."""

from __future__ import annotations

import dataclasses
import enum
import pickle
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import faust
import msgspec
import pydantic
import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from streamapp import ProtobufSerde
from streamapp.errors import ConfigError, SerializationError
from streamapp.serdes import FieldNumber
from tests.unit.serdes.protos import compiled


class State(enum.Enum):
    OPEN = "open"
    SENT_OUT = "sent out"


class Priority(enum.IntEnum):
    HIGH = 5
    LOW = 0


class Line(msgspec.Struct):
    name: str
    count: int = 1


class Node(msgspec.Struct):
    name: str
    below: list[Node] = []


class Order(msgspec.Struct):
    id: str
    state: State
    at: datetime
    lines: list[Line]
    gifts: dict[str, Line] = {}
    priority: Priority = Priority.LOW
    last: Line | None = None
    note: str | None = None
    cents: int = 5
    price: Decimal = Decimal("1.50")
    day: date | None = None
    hour: time | None = None
    key: UUID | None = None
    paid: bool = False
    rate: float = 0.5
    raw: bytes = b""
    tree: Node | None = None
    times: dict[int, datetime] = {}
    states: tuple[State, ...] = ()


TEXT = """syntax = "proto3";

import "google/protobuf/timestamp.proto";

enum State {
  STATE_UNSPECIFIED = 0;
  STATE_OPEN = 1;
  STATE_SENT_OUT = 2;
}
enum Priority {
  PRIORITY_LOW = 0;
  PRIORITY_HIGH = 5;
}
message Order {
  string id = 1;
  .State state = 2;
  .google.protobuf.Timestamp at = 3;
  repeated .Line lines = 4;
  map<string, .Line> gifts = 5;
  optional .Priority priority = 6;
  .Line last = 7;
  optional string note = 8;
  optional int64 cents = 9;
  optional string price = 10;
  optional string day = 11;
  optional string hour = 12;
  optional string key = 13;
  bool paid = 14;
  optional double rate = 15;
  bytes raw = 16;
  .Node tree = 17;
  map<int64, .google.protobuf.Timestamp> times = 18;
  repeated .State states = 19;
}
message Line {
  string name = 1;
  optional int64 count = 2;
}
message Node {
  string name = 1;
  repeated .Node below = 2;
}
"""

texts, longs = st.text(max_size=4), st.integers(-(2**63), 2**63 - 1)
moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))
lines = st.builds(Line, texts, longs)
nodes = st.recursive(
    st.builds(Node, texts), lambda inner: st.builds(Node, texts, st.lists(inner, max_size=2)), max_leaves=4
)
orders = st.builds(
    Order,
    texts,
    st.sampled_from(State),
    moments,
    st.lists(lines, max_size=2),
    st.dictionaries(texts, lines, max_size=2),
    st.sampled_from(Priority),
    st.none() | lines,
    st.none() | texts,
    longs,
    st.decimals(allow_nan=False),
    st.none() | st.dates(),
    st.none() | st.times(),
    st.none() | st.uuids(),
    st.booleans(),
    st.floats(allow_nan=False),
    st.binary(max_size=4),
    st.none() | nodes,
    st.dictionaries(longs, moments, max_size=2),
    st.lists(st.sampled_from(State), max_size=2).map(tuple),
)


def test_the_schema_follows_from_the_type() -> None:
    assert ProtobufSerde[Any](type=Order).schema == TEXT


def test_protoc_takes_the_schema_and_reads_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "derived.proto").write_text(
        TEXT.replace(' "proto3";', ' "proto3"; package derived_order;')
        .replace(" .O", " O")
        .replace(" .L", " L")
        .replace(" .N", " N")
        .replace(" .S", " S")
        .replace(" .P", " P")
    )
    made = compiled(tmp_path, "derived")
    value = Order(
        "o-1", State.SENT_OUT, datetime(2026, 1, 2, tzinfo=UTC), [Line("cup")], {"a": Line("pot", 0)}
    )
    message = made.Order.FromString(ProtobufSerde[Any](type=Order).serialize(value)[6:])
    assert json_format.MessageToDict(message) == {
        "id": "o-1",
        "state": "STATE_SENT_OUT",
        "at": "2026-01-02T00:00:00Z",
        "lines": [{"name": "cup", "count": "1"}],
        "gifts": {"a": {"name": "pot", "count": "0"}},
        "priority": "PRIORITY_LOW",
        "cents": "5",
        "price": "1.50",
        "rate": 0.5,
    }


@given(orders)
def test_values_are_read_back_as_they_were_written(order: Order) -> None:
    serde = ProtobufSerde[Any](type=Order)
    assert serde.deserialize(serde.serialize(order)) == order


def test_a_time_of_another_zone_is_the_same_moment() -> None:
    class At(msgspec.Struct):
        at: datetime

    serde = ProtobufSerde[Any](type=At)
    east = datetime(1960, 5, 1, 12, 0, 0, 5, timezone(timedelta(hours=5)))
    assert serde.deserialize(serde.serialize(At(east))).at == east
    with pytest.raises(SerializationError, match=r"At\.at takes a datetime with a time zone"):
        serde.serialize(At(datetime(2026, 1, 1)))


@dataclasses.dataclass
class Parcel:
    lines: list[Line]
    weight: float = 0.0


class Stop(pydantic.BaseModel):
    at: str


class Flight(pydantic.BaseModel):
    carrier: Annotated[str, FieldNumber(7)]
    delay: int | None = None
    stops: list[Stop] = []
    last: Stop | None = None
    moment: datetime | None = None
    state: State = State.OPEN


class Halt(faust.Record):
    at: str


class Train(faust.Record):
    line: Annotated[str, FieldNumber(7)]
    delay: int = None  # type: ignore[assignment]
    halts: list[Halt] = []  # noqa: RUF012
    last: Halt | None = None


MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
VALUES: list[Any] = [
    Parcel([Line("cup")], 2),
    Flight(carrier="UA", stops=[Stop(at="JFK")], last=Stop(at="IAH"), moment=MOMENT, state=State.SENT_OUT),
    Flight(carrier=""),
    Train(line="S1", delay=0, halts=[Halt(at="Hbf")], last=Halt(at="Ost")),
    Train(line="S2"),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_types_of_each_library(value: Any) -> None:
    serde = ProtobufSerde[Any](type=type(value)).bind("orders", False)
    read = serde.deserialize(serde.serialize(value))
    assert type(read) is type(value)
    assert read == value
    assert pickle.loads(pickle.dumps(serde)).deserialize(serde.serialize(value)) == value


@pytest.mark.parametrize("type_", [Flight, Train])
def test_models_say_their_numbers(type_: Any) -> None:
    fields = ProtobufSerde[Any](type=type_).message.DESCRIPTOR.fields
    assert [field.number for field in fields][:2] == [7, 8]


def test_a_model_inside_a_function_says_its_numbers() -> None:
    """Its annotations are texts, which only the model has resolved."""

    class Inner(pydantic.BaseModel):
        name: str

    class Local(pydantic.BaseModel):
        inner: Annotated[Inner, FieldNumber(3)]

    assert ProtobufSerde[Any](type=Local).message.DESCRIPTOR.fields_by_name["inner"].number == 3


def test_an_absent_field_takes_the_default_of_the_type() -> None:
    """Also one that is not the zero value, which a newer type has and older bytes lack."""

    class Order(msgspec.Struct):
        id: str
        cents: int = 5
        state: State = State.SENT_OUT
        line: Line = msgspec.field(default_factory=lambda: Line("?"))
        tags: list[str] = msgspec.field(default_factory=lambda: ["new"])

    serde = ProtobufSerde[Any](type=Order)
    assert serde.deserialize(serde.serialize(Order("a"))[:6]) == Order("", tags=[])
    changed = Order("", 0, State.OPEN, Line("", 0), [])
    assert serde.deserialize(serde.serialize(changed)) == changed


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "State"),  # an enum without default, which is absent
        (b"\x10\x09", "Small.state has the number 9, which State does not have"),
        (b"\x10\x01", "line"),  # a message that is needed
    ],
)
def test_bytes_that_the_type_does_not_take(body: bytes, why: str) -> None:
    class Small(msgspec.Struct):
        id: str
        state: State
        line: Line

    serde = ProtobufSerde[Any](type=Small)
    with pytest.raises(SerializationError, match=why):
        serde.deserialize(serde.serialize(Small("a", State.OPEN, Line("x")))[:6] + body)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"id": 7}, r"Order\.id takes str, got 7"),
        ({"id": None}, r"Order\.id takes str, got None"),
        ({"cents": True}, r"Order\.cents takes int, got True"),
        ({"cents": 2**63}, "9223372036854775808"),
        ({"state": "open"}, r"Order\.state takes State, got 'open'"),
        ({"lines": None}, r"Order\.lines\[\] takes a list, got None"),
        ({"lines": [None]}, "expected Line, got None"),
        ({"gifts": {7: Line("x")}}, r"a key of Order\.gifts\[\*\] takes str, got 7"),
        ({"gifts": {"a": Line(7)}}, r"Line\.name takes str, got 7"),  # type: ignore[arg-type]
        ({"id": "\ud800"}, "surrogate|UTF-8|utf-8"),
        ({"tree": Line("x")}, "expected Node, got Line"),
        ({"key": "7"}, r"Order\.key takes UUID"),
    ],
)
def test_values_of_another_type_are_named(changes: dict[str, Any], why: str) -> None:
    order = Order("a", State.OPEN, MOMENT, [])
    for name, value in changes.items():
        setattr(order, name, value)
    with pytest.raises(SerializationError, match=why):
        ProtobufSerde[Any](type=Order).serialize(order)


def fields_of(**types: Any) -> Any:
    return msgspec.defstruct("Made", list(types.items()))


@pytest.mark.parametrize(
    ("type_", "why"),
    [
        (fields_of(a=Any), r"Made\.a: Protobuf has no type, or several types, for Any\."),
        (fields_of(a=int | str), r"Made\.a has several types"),
        (fields_of(a=list[list[int]]), r"Made\.a\[\] has a list or map as item"),
        (fields_of(a=dict[str, list[int]]), r"Made\.a\[\*\] has a list or map as item"),
        (fields_of(a=list[int | None]), r"Made\.a\[\] can be None"),
        (fields_of(a=list[int] | None), r"Made\.a\[\] can be None"),
        (fields_of(a=dict[float, int]), r"Made\.a\[\*\] has keys"),
        (fields_of(a=enum.Flag("Rights", "READ WRITE")), "Rights, and Protobuf has no flags"),
        (msgspec.defstruct("Made", [("a", int | None, 5)]), r"Made\.a can be None and has another default"),
        (msgspec.defstruct("Made", [("a", int)], tag="made"), "a tag, which Protobuf does not have"),
        (msgspec.defstruct("Made", [("a_b", int)], rename="kebab"), "'a-b', which no .proto file can have"),
        (fields_of(a=fields_of(b=int)), "two types have the name Made"),
        (msgspec.defstruct("int64", [("a", int)]), "int64 is a type of Protobuf"),
        (
            fields_of(a=Annotated[int, FieldNumber(2)], b=int, c=Annotated[int, FieldNumber(3)]),
            "Made.c and Made.b have the field number 3",
        ),
        (list[int], "type= of a ProtobufSerde without message"),
        (dict, "type= of a ProtobufSerde without message"),
    ],
)
def test_types_without_one_form_are_refused(type_: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        ProtobufSerde(type=type_)


@pytest.mark.parametrize("number", [0, -1, 19_000, 2**29, True, "1"])
def test_numbers_that_protobuf_does_not_have(number: Any) -> None:
    with pytest.raises(ConfigError, match="a field number of Protobuf is"):
        FieldNumber(number)


def test_the_number_after_is_no_reserved_one() -> None:
    type_ = fields_of(a=Annotated[int, FieldNumber(18_999)], b=int)
    fields = ProtobufSerde[Any](type=type_).message.DESCRIPTOR.fields
    assert [field.number for field in fields] == [18_999, 20_000]
