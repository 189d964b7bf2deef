"""Values of other libraries' classes: pydantic's models and Faust's Records."""

from __future__ import annotations

import dataclasses
import pickle
from datetime import UTC, date, datetime
from enum import Enum
from typing import Any, Generic, TypeVar
from uuid import UUID, uuid4

import attrs
import faust
import msgspec
import pydantic
import pytest
from faust.models.fields import IntegerField

from streamapp import AvroSerde, JsonSchemaSerde, JsonSerde, ProtobufSerde, Serde
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


def round_trip(serde: Serde[Any], value: Any) -> Any:
    return pickle.loads(pickle.dumps(serde)).deserialize(serde.serialize(value))


class Part(pydantic.BaseModel):
    cents: int = pydantic.Field(0, alias="C")


class Aliased(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    a: int = pydantic.Field(alias="A")
    both: int = pydantic.Field(0, validation_alias="V", serialization_alias="S")
    choice: int = pydantic.Field(0, validation_alias=pydantic.AliasChoices("X", "Y"))
    part: Part | None = None
    parts: list[Part] = []
    by_name: dict[str, Part] = {}


class ByAlias(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(serialize_by_alias=True, extra="forbid")
    a: int = pydantic.Field(alias="A")
    part: Part | None = None


class Renamed(msgspec.Struct, rename="camel"):
    one_name: int
    other: int = msgspec.field(default=0, name="OTHER")


class InnerField(faust.Record):
    a: int = IntegerField(field="A")


class Fielded(faust.Record):
    a: int = IntegerField(field="A")
    inner: InnerField
    b: int = 1


PART = Part(C=3)


@pytest.mark.parametrize("serde", [AvroSerde, JsonSchemaSerde, ProtobufSerde])
@pytest.mark.parametrize(
    "value",
    [
        Aliased(A=5, V=6, X=7, part=PART, parts=[PART], by_name={"p": PART}),
        ByAlias(A=5, part=PART),
        Renamed(5, 6),
        Fielded(a=5, inner=InnerField(a=6)),
    ],
)
def test_a_field_with_another_name_keeps_its_value(serde: Any, value: Any) -> None:
    """pydantic passed over the names under which the values were written, and the fields had their defaults."""
    assert plain_of(round_trip(serde(type=type(value)), value)) == plain_of(value)


@pytest.mark.parametrize(
    ("value", "name"), [(Part(C=3), "cents"), (ByAlias(A=5), "A"), (Renamed(5), "oneName")]
)
def test_a_json_schema_has_the_names_of_the_json(value: Any, name: str) -> None:
    serde = JsonSchemaSerde[Any](type=type(value))
    assert next(iter(serde.schema["properties"])) == name
    assert next(iter(msgspec.json.decode(serde.serialize(value)[5:]))) == name


def test_data_with_aliases_can_be_read() -> None:
    foreign = {"type": "object", "properties": {"A": {"type": "integer"}}, "additionalProperties": False}
    data = JsonSchemaSerde[Any](foreign).serialize({"A": 5})
    assert JsonSchemaSerde[Any](foreign, type=Aliased).deserialize(data) == Aliased(A=5)
    with pytest.raises(ConfigError, match="Part.cents is int, and the schema has a list there|has an array"):
        JsonSchemaSerde({"type": "object", "properties": {"C": {"type": "array"}}}, type=Part)


class Swapped(pydantic.BaseModel):
    a: int = pydantic.Field(0, alias="b")
    b: int = 0


class OneWay(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(serialize_by_alias=True)
    a: int = pydantic.Field(0, validation_alias="V", serialization_alias="S")


class HasSwapped(pydantic.BaseModel):
    inside: list[Swapped] = []


class Cups(pydantic.BaseModel):
    cup: str = pydantic.Field("", alias="name")


class TwoNames(faust.Record):
    a: int = IntegerField(input_name="in", output_name="out")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: AvroSerde(type=Swapped), "Swapped.a has the alias 'b', which is the name of another field"),
        (lambda: ProtobufSerde(type=HasSwapped), "Swapped.a has the alias 'b'"),
        (lambda: JsonSchemaSerde(type=HasSwapped), "Swapped.a has the alias 'b'"),
        (lambda: JsonSchemaSerde(type=OneWay), "OneWay.a is written as 'S'"),
        (lambda: AvroSerde(type=TwoNames), "TwoNames.a is written as 'out', and read as 'in'"),
        (
            lambda: ProtobufSerde(shop.Item, type=Cups),
            "Cups.cup has the alias 'name', and the schema has a field",
        ),
        (lambda: JsonSerde(InField), "InField.items is a Field"),
        (lambda: ProtobufSerde(type=InField), "InField.items is a Field"),
    ],
)
def test_names_and_defaults_that_no_reader_could_use(make: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        make()


@dataclasses.dataclass
class InField:
    items: list[int] = pydantic.Field(default_factory=list)  # noqa: RUF009


class Made(pydantic.BaseModel):
    id: str = pydantic.Field(default_factory=lambda: str(uuid4()))
    stop: Stop = pydantic.Field(default_factory=lambda: Stop(at="JFK"))
    stops: list[str] = pydantic.Field(default_factory=list)


def test_a_default_that_is_made_anew_is_not_in_the_schema() -> None:
    """Each process had another schema, with a random text as default."""
    serde = AvroSerde[Any](type=Made)
    assert ["default" in field for field in serde.schema["fields"]] == [False, False, True]
    value = Made()
    assert round_trip(serde, value) == value


class Squared(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    side: int

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> int:
        return self.side**2


@pytest.mark.parametrize("serde", [AvroSerde, ProtobufSerde])
def test_computed_and_extra_fields(serde: Any) -> None:
    """AvroSerde wrote no model with a computed field, and ProtobufSerde lost extra fields."""
    assert round_trip(serde(type=Squared), Squared(side=2)) == Squared(side=2)
    with pytest.raises(SerializationError, match="no fields .'more'"):
        serde(type=Squared).serialize(Squared.model_validate({"side": 2, "more": 3}))
    assert plain_of(Squared(side=2))["area"] == 4


class Tags(pydantic.RootModel[list[str]]):
    pass


class Tagged(pydantic.BaseModel):
    tags: Tags


def test_a_model_without_fields() -> None:
    """A ProtobufSerde wrote bytes that no reader could read."""
    assert round_trip(JsonSchemaSerde(type=Tagged), Tagged(tags=Tags(["a"]))) == Tagged(tags=Tags(["a"]))
    for serde in (AvroSerde, ProtobufSerde):
        with pytest.raises(ConfigError, match="Tags is a RootModel"):
            serde(type=Tagged)


T = TypeVar("T")


class Pair(msgspec.Struct, Generic[T]):
    one: T
    more: tuple[T, ...] = ()


@dataclasses.dataclass
class Twin(Generic[T]):
    one: T
    more: tuple[T, ...] = (1, 2)  # type: ignore[assignment]


@attrs.define
class Attrs:
    one: int = 0


@pytest.mark.parametrize(
    ("type_", "value"),
    [(Pair[int], Pair(1, (2,))), (Twin[int], Twin(1)), (Twin[int], Twin(1, (7,))), (Attrs, Attrs(4))],
)
def test_generic_types_tuples_and_attrs(type_: Any, value: Any) -> None:
    """Generic types and attrs raised a bare AttributeError, tuples an error about two schemas with the same id."""
    serdes: list[Serde[Any]] = [AvroSerde(type=type_), JsonSchemaSerde(type=type_), ProtobufSerde(type=type_)]
    for serde in (*serdes, JsonSerde(type_)):
        assert round_trip(serde, value) == value


class Counts(faust.Record):
    by_number: dict[int, str]


def test_a_record_with_keys_that_are_no_text() -> None:
    """A JsonSchemaSerde refused each value."""
    value = Counts(by_number={1: "a"})
    assert round_trip(JsonSchemaSerde(type=Counts), value).by_number == {1: "a"}


class Raw(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    raw: bytearray


def test_a_model_without_a_json_schema() -> None:
    """An error of pydantic's reached the application."""
    with pytest.raises(ConfigError, match="no JSON Schema follows from"):
        JsonSchemaSerde(type=Raw)
