from __future__ import annotations

import json
import numbers
import pickle
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import faust
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamapp.errors import ConfigError, SerializationError
from streamapp.serdes.json import JsonSerde


class Flight(msgspec.Struct):
    carrier: str
    delay: int | None = None


class FrozenFlight(msgspec.Struct, frozen=True):
    carrier: str
    stops: tuple[str, ...] = ()
    next: FrozenFlight | None = None


class FrozenWithList(msgspec.Struct, frozen=True):
    stops: list[str]


@dataclass
class Plane:
    tail: str
    seats: int


@dataclass(frozen=True)
class FrozenPlane:
    tail: str
    seats: int


class Weather(TypedDict):
    temp: float


class Pair(NamedTuple):
    a: str
    b: int


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("aé\u4e2d", max_size=3), inner),
    max_leaves=12,
)


@given(plain)
def test_plain_values_round_trip_and_any_parser_reads_them(value: Any) -> None:
    serde: JsonSerde[Any] = JsonSerde()
    data = serde.serialize(value)

    assert serde.deserialize(data) == value
    assert json.loads(data) == value


@given(st.dictionaries(st.text("abé", max_size=3), st.integers(0, 9)))
def test_equal_objects_have_equal_bytes(value: dict[str, int]) -> None:
    serde: JsonSerde[Any] = JsonSerde()
    turned = dict(reversed(value.items()))

    assert serde.serialize(value) == serde.serialize(turned)
    assert (
        serde.serialize(value)
        == json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    )


@pytest.mark.parametrize(
    ("type_", "value", "data"),
    [
        (Flight, Flight("UA", 3), b'{"carrier":"UA","delay":3}'),
        (Plane, Plane("N1", 5), b'{"tail":"N1","seats":5}'),
        (Weather, {"temp": 1.5}, b'{"temp":1.5}'),
        (dict[str, int], {"b": 1, "a": 2}, b'{"a":2,"b":1}'),
        (list[Flight], [Flight("UA")], b'[{"carrier":"UA","delay":null}]'),
        (Pair, Pair("a", 1), b'["a",1]'),
        (str, "Zürich", b'"Z\xc3\xbcrich"'),
    ],
)
def test_typed_values(type_: Any, value: Any, data: bytes) -> None:
    serde: JsonSerde[Any] = JsonSerde(type_)

    assert serde.serialize(value) == data
    assert serde.deserialize(data) == value
    assert pickle.loads(pickle.dumps(serde)).deserialize(data) == value


@pytest.mark.parametrize(
    ("type_", "immutable"),
    [
        (None, False),
        (Any, False),
        (str, True),
        (int | None, True),
        (dict[str, int], False),
        (tuple[str, int], True),
        (tuple[list[str], int], False),
        (frozenset[str], True),
        (Flight, False),
        (FrozenFlight, True),
        (FrozenWithList, False),
        (Plane, False),
        (FrozenPlane, True),
        (Pair, True),
        (Weather, False),
    ],
)
def test_immutable_means_frozen_all_the_way_down(type_: Any, immutable: bool) -> None:
    assert JsonSerde(type_).immutable is immutable


@pytest.mark.parametrize(
    ("type_", "data", "message"),
    [
        (None, b"", "got no bytes"),
        (None, b'{"a":', r"ends too early \(byte 5\)"),
        (None, b'{"a" 1}', r"\(byte 5\)"),
        (None, b"x" * 500, r"got b'x{60}'\.\.\.:"),
        (None, b'"\xff"', "utf-8|UTF-8"),
        (Flight, b'{"carrier":1}', r"expected Flight.*`\$\.carrier`"),
        (Flight, b"{}", "missing required field `carrier`"),
    ],
)
def test_bytes_that_are_not_what_was_expected(type_: Any, data: bytes, message: str) -> None:
    with pytest.raises(SerializationError, match=message):
        JsonSerde(type_).deserialize(data)


@pytest.mark.parametrize(
    ("type_", "value", "message"),
    [
        (None, object(), "cannot write <object"),
        (None, {"a": 1j}, "as JSON"),
        (Flight, {"carrier": "UA"}, r"expected Flight, got .*\(dict\)"),
    ],
)
def test_values_that_cannot_be_written(type_: Any, value: Any, message: str) -> None:
    with pytest.raises(SerializationError, match=message):
        JsonSerde(type_).serialize(value)


def test_a_type_that_json_cannot_hold_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="cannot be read into"):
        JsonSerde(int | str | list[int] | tuple[int, ...])


class Order(faust.Record):
    shop: str


class Plain:
    shop: str


@pytest.mark.parametrize("type_", [Order, Plain])
def test_a_class_that_the_parser_cannot_make_is_refused_at_once(type_: Any) -> None:
    with pytest.raises(ConfigError, match=f"cannot be read into .*{type_.__name__}.*dataclass"):
        JsonSerde(type_)


class Shop(msgspec.Struct):
    orders: list[Order]
    next: Shop | None = None


class Model(pydantic.BaseModel):
    shop: str


@pytest.mark.parametrize(
    ("type_", "cls"),
    [
        (list[Order], Order),
        (dict[str, Model], Model),
        (tuple[int, Plain], Plain),
        (dict[str, list[Plain | None]], Plain),
        (Shop, Order),
        (list[Shop], Order),
        (Annotated[list[Model], msgspec.Meta(min_length=1)], Model),
    ],
)
def test_a_class_inside_a_type_that_the_parser_cannot_make_is_refused_at_once(type_: Any, cls: type) -> None:
    with pytest.raises(ConfigError, match=f"because of .*{cls.__name__}.* inside it.*dataclass"):
        JsonSerde(type_)


CUP = Flight("UA", 3)


@pytest.mark.parametrize(
    ("type_", "value", "where"),
    [
        (list[Flight], 5, "got `int`"),
        (list[Flight], CUP, "got `Flight`"),
        (list[Flight], [CUP, 5], r"`\$\[1\]`"),
        (list[dict], [CUP], r"got `Flight` - at `\$\[0\]`"),
        (list[dict[str, int]], [{"a": 1}, {"a": "b"}], r"`\$\[1\]\[...\]`"),
        (dict[str, list[Flight]], {"a": [CUP, None]}, r"`\$\[...\]\[1\]`"),
        (dict[str, int], {7: 1}, "key"),
        (dict[str, int], {"a": True}, "got `bool`"),
        (tuple[str, int], ["a", "b"], r"`\$\[1\]`"),
        (int | None, "a", "got `str`"),
        (Weather, {"temp": "hot"}, r"`\$.temp`"),
        (Pair, Flight("a"), "got `Flight`"),
        (str, 7, "got `int`"),
    ],
)
def test_a_value_of_another_type_inside_a_container_is_not_written(
    type_: Any, value: Any, where: str
) -> None:
    """Nobody could read the bytes."""
    with pytest.raises(SerializationError, match=f"expected .*, got .*{where}"):
        JsonSerde(type_).serialize(value)


class Delayed(Flight):
    gate: str = ""


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (list[Flight], (CUP,)),
        (list[Flight], [Delayed("UA")]),
        (list[Flight], [{"carrier": "UA"}]),
        (dict[str, list[Flight | None]], {"a": [CUP, None]}),
        (dict[str, float], {"a": 2}),
        (set[str], frozenset({"a"})),
        (list[Any], [object, 5][1:]),
        (list[dict], [{"a": [1]}]),
        (Literal["a", "b"], "b"),
        (tuple[str, int], ("a", 1)),
        (Pair, Pair("a", 1)),
        (Annotated[list[int], msgspec.Meta(max_length=3)], [1]),
    ],
)
def test_a_value_that_fits_is_written_and_read(type_: Any, value: Any) -> None:
    serde: JsonSerde[Any] = JsonSerde(type_)
    assert serde.serialize(serde.deserialize(serde.serialize(value)))


@given(plain)
def test_what_a_typed_writer_writes_its_reader_reads(value: Any) -> None:
    for type_ in (list[int], dict[str, list[str | None]], list[dict[str, bool]] | None, tuple[int, str]):
        serde: JsonSerde[Any] = JsonSerde(type_)
        try:
            data = serde.serialize(value)
        except SerializationError:
            with pytest.raises(SerializationError):
                serde.deserialize(JsonSerde().serialize(value))
        else:
            serde.deserialize(data)


@pytest.mark.parametrize("type_", [object, numbers.Number])
def test_a_class_of_plain_values_stays(type_: Any) -> None:
    assert JsonSerde(type_).deserialize(b"5") == 5


class Delays(msgspec.Struct, frozen=True):
    flights: int = 0
    late: bool = False
    last: str | None = None


class Mean(msgspec.Struct, frozen=True):
    total: float = 0


class Seats(msgspec.Struct, frozen=True):
    number: Annotated[int, msgspec.Meta(gt=0)] = 1


class Counter(msgspec.Struct):
    flights: int = 0


@pytest.mark.parametrize(
    ("type_", "exact"),
    [(Delays, Delays), (Mean, None), (Seats, None), (Counter, None), (int, None), (None, None)],
)
def test_exact_are_types_that_are_read_back_as_they_were_written(type_: Any, exact: type | None) -> None:
    """An int in a float's place is read back as a float."""
    assert JsonSerde(type_).exact is exact


class Upper(JsonSerde[str]):
    def deserialize(self, data: bytes) -> str:
        return super().deserialize(data).upper()


def test_a_decoder_gives_what_deserialize_gives() -> None:
    assert JsonSerde().decoder()(b'{"dest":"ZRH"}') == {"dest": "ZRH"}
    assert Upper(str).decoder()(b'"zrh"') == "ZRH"


class Seat(Enum):
    WINDOW = "w"
    AISLE = "a"


class Rows(msgspec.Struct):
    rows: dict[int, list[str]]
    by_day: dict[date, dict[Seat, int]]
    a: int = 0


def test_keys_of_dicts_may_be_numbers_dates_and_enums() -> None:
    """Such a serde was made, and could write no value: Only dicts with str keys are supported."""
    serde = JsonSerde(Rows)
    value = Rows({10: ["x"], 9: []}, {date(2026, 1, 2): {Seat.WINDOW: 1, Seat.AISLE: 2}})
    assert (
        serde.serialize(value) == b'{"rows":{"10":["x"],"9":[]},"by_day":{"2026-01-02":{"a":2,"w":1}},"a":0}'
    )
    assert serde.deserialize(serde.serialize(value)) == value
    assert JsonSerde(dict[int, int]).serialize({2: 1, 1: 2}) == b'{"1":2,"2":1}'
    with pytest.raises(SerializationError, match="Expected `int`, got `str`"):
        JsonSerde(dict[int, int]).serialize({"2": 1})


class Mixed(msgspec.Struct):
    counts: dict[int, int]
    free: Any


@pytest.mark.parametrize("type_", [dict[str | int, int], dict[Literal["2", 2], int], dict[bytes | int, int]])
def test_keys_of_more_than_one_kind_must_be_text(type_: Any) -> None:
    """{"2": 1, 2: 3} was written as {"2":3}, and {2: 3} was read back as {"2": 3}."""
    for value in ({"2": 1, 2: 3}, {2: 3}):
        with pytest.raises(SerializationError):
            JsonSerde(type_).serialize(value)
    assert JsonSerde(dict[str | int, int]).serialize({"2": 1}) == b'{"2":1}'
    assert JsonSerde(dict[int | float, int]).serialize({1: 2, 1.5: 3}) == b'{"1":2,"1.5":3}'
    assert JsonSerde(dict[int | None, int]).serialize({1: 2}) == b'{"1":2}'


@pytest.mark.parametrize("free", [{"2": 1, 2: 3}, [{"a": {"2": 1, 2: 3}}]])
def test_keys_with_the_same_text_are_not_merged(free: Any) -> None:
    with pytest.raises(SerializationError, match="two keys of a dict have the same text"):
        JsonSerde(Mixed).serialize(Mixed({1: 2}, free))
    value = Mixed({1: 2}, {'"': '":', "a": 1e300})
    assert JsonSerde(Mixed).deserialize(JsonSerde(Mixed).serialize(value)) == value
