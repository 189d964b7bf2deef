"""Values of other libraries' classes: pydantic's models and Faust's Records."""

from __future__ import annotations

import dataclasses
import pickle
from datetime import UTC, date, datetime
from enum import Enum
from typing import Any
from uuid import UUID

import faust
import msgspec
import pydantic
import pytest

from streamapp import AvroSerde, JsonSchemaSerde, ProtobufSerde, Serde
from streamapp.errors import ConfigError, SerializationError
from streamapp.runners.spark.typed import arrow_type
from streamapp.serdes.models import plain_of, shape_of
from tests.unit.serdes.protos import shop


class Stop(pydantic.BaseModel):
    at: str


class Flight(pydantic.BaseModel):
    carrier: str
    delay: int | None = None
    stops: list[Stop] = []
    last: Stop | None = None
    moment: datetime | None = None


class Halt(faust.Record):
    at: str


class Train(faust.Record):
    line: str
    delay: int = None  # type: ignore[assignment]
    halts: list[Halt] = []  # noqa: RUF012
    last: Halt | None = None


MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FLIGHT = Flight(carrier="UA", stops=[Stop(at="JFK")], last=Stop(at="IAH"), moment=MOMENT)
TRAIN = Train(line="S1", delay=3, halts=[Halt(at="Hbf")], last=Halt(at="Ost"))


@pytest.mark.parametrize("serde", [AvroSerde(type=Flight), JsonSchemaSerde(type=Flight)])
def test_pydantic(serde: Serde[Any]) -> None:
    for value in (FLIGHT, Flight(carrier="AA")):
        assert serde.deserialize(serde.serialize(value)) == value
    assert pickle.loads(pickle.dumps(serde)).serialize(FLIGHT) == serde.serialize(FLIGHT)


class Late(pydantic.BaseModel):
    delay: int = 0
    carrier: str


@pytest.mark.parametrize(
    "serde", [AvroSerde(type=Late), JsonSchemaSerde(type=Late), ProtobufSerde(type=Late)]
)
def test_a_required_field_behind_a_default(serde: Serde[Any]) -> None:
    """AvroSerde raised a bare TypeError."""
    assert serde.deserialize(serde.serialize(Late(carrier="AA", delay=7))) == Late(carrier="AA", delay=7)
    assert list(msgspec.json.schema(shape_of(Late))["$defs"]["Late"]["properties"]) == ["delay", "carrier"]


def test_each_object_has_a_default_of_its_own() -> None:
    class Trip(pydantic.BaseModel):
        stops: list[str] = ["JFK"]

    struct = shape_of(Trip)
    struct().stops.append("IAH")
    assert struct().stops == ["JFK"]


@pytest.mark.parametrize("serde", [AvroSerde(type=Train), JsonSchemaSerde(type=Train)])
def test_faust(serde: Serde[Any]) -> None:
    read = serde.deserialize(serde.serialize(TRAIN))
    assert isinstance(read, Train)
    assert (read.line, read.delay, read.halts[0].at, read.last.at) == ("S1", 3, "Hbf", "Ost")
    short = serde.deserialize(serde.serialize(Train(line="S2")))
    assert (short.line, short.delay, short.last) == ("S2", None, None)


class Gauge(Enum):
    WIDE = "wide"


class Car(faust.Record):
    built: date
    key: bytes
    gauge: Gauge


class Run(faust.Record):
    at: datetime
    id: UUID
    key: bytes
    gauge: Gauge
    cars: list[Car]
    by_name: dict[str, Car]
    first: Car | None = None


CAR = Car(built=date(2020, 1, 2), key=b"\xff\0", gauge=Gauge.WIDE)
RUN = Run(at=MOMENT, id=UUID(int=1), key=b"\xff", gauge=Gauge.WIDE, cars=[CAR], by_name={"a": CAR}, first=CAR)


@pytest.mark.parametrize("serde", [AvroSerde(type=Run), JsonSchemaSerde(type=Run), ProtobufSerde(type=Run)])
def test_the_fields_of_a_record_have_their_types(serde: Serde[Any]) -> None:
    """JSON has times and bytes as text, and the Record took the texts."""
    read = serde.deserialize(serde.serialize(RUN))
    assert (read.at, read.id, read.key, read.gauge) == (MOMENT, UUID(int=1), b"\xff", Gauge.WIDE)
    for car in (read.cars[0], read.by_name["a"], read.first):
        assert isinstance(car, Car)
        assert (car.built, car.key, car.gauge) == (date(2020, 1, 2), b"\xff\0", Gauge.WIDE)


def test_the_avro_schema_of_both() -> None:
    of_flight = {field["name"]: field for field in AvroSerde[Any](type=Flight).schema["fields"]}
    of_train = {field["name"]: field for field in AvroSerde[Any](type=Train).schema["fields"]}
    assert (
        of_flight["delay"]
        == of_train["delay"]
        == {"name": "delay", "type": ["null", "long"], "default": None}
    )
    assert of_flight["stops"]["type"]["items"]["name"] == "Stop"
    assert of_flight["last"]["type"] == ["null", "Stop"]
    assert of_train["halts"]["type"]["items"]["fields"] == [{"name": "at", "type": "string"}]


@pytest.mark.parametrize(
    "serde",
    [
        AvroSerde(type=Flight),
        JsonSchemaSerde(type=Flight),
        AvroSerde(type=Train),
        JsonSchemaSerde(type=Train),
    ],
)
@pytest.mark.parametrize("value", [None, 7, {"carrier": 7}, Stop(at="x"), Halt(at="x")])
def test_another_value_is_refused(serde: Serde[Any], value: Any) -> None:
    with pytest.raises(SerializationError):
        serde.serialize(value)


@pytest.mark.parametrize("serde", [AvroSerde, JsonSchemaSerde])
def test_a_value_that_the_model_refuses(serde: Any) -> None:
    class Late(pydantic.BaseModel):
        delay: int = pydantic.Field(gt=0)

    class Any_(pydantic.BaseModel):
        delay: int

    schema = serde(type=Any_).schema
    data = serde(schema).serialize({"delay": -1})
    with pytest.raises(SerializationError, match="greater than 0"):
        serde(schema, type=Late).deserialize(data)


def test_a_model_without_one_schema() -> None:
    class Odd(pydantic.BaseModel):
        either: int | str

    with pytest.raises(ConfigError, match="Odd.either"):
        AvroSerde(type=Odd)


class Cup(pydantic.BaseModel):
    name: str
    cents: int = 0


class Mug(faust.Record):
    name: str
    cents: int = 0


class Bag(pydantic.BaseModel):
    id: str
    raw: bytes = b""
    at: datetime | None = None
    numbers: list[int] = []
    gifts: dict[str, Cup] = {}


@pytest.mark.parametrize(
    ("message", "value"),
    [
        (shop.Item, Cup(name="cup", cents=-3)),
        (shop.Item, Mug(name="mug", cents=2**40)),
        (
            shop.Order,
            Bag(id="a", raw=b"\0\xff", at=MOMENT, numbers=[2**40], gifts={"g": Cup(name="x", cents=1)}),
        ),
    ],
)
def test_protobuf_makes_models_and_records(message: Any, value: Any) -> None:
    """Numbers of 64 bits, bytes and times come back as what they were."""
    serde = ProtobufSerde[Any](message, type=type(value))
    read = pickle.loads(pickle.dumps(serde)).deserialize(serde.serialize(value))
    assert type(read) is type(value)
    assert plain_of(read) == plain_of(value)
    assert message.FromString(serde.serialize(value)[6 if message is shop.Item else 7 :])
    with pytest.raises(SerializationError, match="expected"):
        serde.serialize({"name": "cup"})


class Tall(msgspec.Struct):
    name: str
    height: int


@dataclasses.dataclass
class Texts:
    cents: str


class WrongModel(pydantic.BaseModel):
    cents: str | None = None


ITEM = {
    "type": "record",
    "name": "Item",
    "fields": [{"name": "name", "type": "string"}, {"name": "cents", "type": ["null", "long"]}],
}
IN_JSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "cents": {"type": ["integer", "null"]}},
}


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: AvroSerde(ITEM, type=Tall), r"Tall needs the fields \['height'\]"),
        (
            lambda: AvroSerde(ITEM, type=Texts),
            "Texts.cents is str, and the schema has null or long there",
        ),
        (
            lambda: AvroSerde(ITEM, type=WrongModel),
            r"WrongModel.cents is str \| None, and the schema has null or long there",
        ),
        (
            lambda: JsonSchemaSerde(IN_JSON, type=Texts),
            "Texts.cents is str, and the schema has integer or null there",
        ),
        (lambda: JsonSchemaSerde(IN_JSON, type=WrongModel), "WrongModel.cents is str"),
        (
            lambda: JsonSchemaSerde({**IN_JSON, "additionalProperties": False}, type=Tall),
            r"Tall needs .*height.*schema has an object there, which lacks",
        ),
        (
            lambda: ProtobufSerde(shop.Item, type=Tall),
            r"Tall needs .*height.*streamapp.shop.Item there, which lacks",
        ),
        (lambda: ProtobufSerde(shop.Item, type=list[int]), "type= of a ProtobufSerde is"),
    ],
)
def test_a_type_that_the_schema_cannot_fill_is_refused_at_once(make: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        make()


class Tree(pydantic.BaseModel):
    children: list[Tree] = []


def test_a_model_that_contains_itself_has_a_json_schema_and_no_columns() -> None:
    serde = JsonSchemaSerde[Any](type=Tree)
    tree = Tree(children=[Tree()])
    assert serde.deserialize(serde.serialize(tree)) == tree
    assert arrow_type(serde) is None
    with pytest.raises(ConfigError, match="Tree"):
        AvroSerde(type=Tree)
