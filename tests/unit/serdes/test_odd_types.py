"""Types whose values are not only their fields: omitted defaults, fields that are no arguments, objects of any class."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from typing import Any

import msgspec
import numpy as np
import pytest

from streamapp.errors import ConfigError, SerializationError
from streamapp.serdes import AvroSerde, JsonSerde, ProtobufSerde
from streamapp.serdes.types import as_plain
from tests.unit.serdes.protos import shop


class Lean(msgspec.Struct, omit_defaults=True):
    delay: int = 5
    dest: str | None = None


class Trip(msgspec.Struct):
    legs: list[Lean]


@pytest.mark.parametrize("value", [Lean(), Lean(7, "JFK"), Lean(7)])
def test_a_default_of_the_type_wins_over_a_default_of_the_schema(value: Lean) -> None:
    """A Struct with omit_defaults left its 5 out in nested records, and the schema's default 7 was written."""
    fields = [
        {"name": "delay", "type": "int", "default": 7},
        {"name": "dest", "type": ["null", "string"], "default": None},
    ]
    lean = {"type": "record", "name": "Lean", "fields": fields}
    legs = {"name": "legs", "type": {"type": "array", "items": lean}}
    nested = AvroSerde[Any]({"type": "record", "name": "Trip", "fields": [legs]}, type=Trip)
    flat = AvroSerde[Any](lean, type=Lean)
    assert nested.deserialize(nested.serialize(Trip([value]))) == Trip([value])
    assert flat.deserialize(flat.serialize(value)) == value
    required = {**lean, "fields": [{"name": each["name"], "type": each["type"]} for each in fields]}
    items = AvroSerde[Any]({"type": "array", "items": required}, type=list[Lean])
    assert items.deserialize(items.serialize([value])) == [value]


class Pair(msgspec.Struct, array_like=True, omit_defaults=True):
    low: int = 1
    high: int = 2


class Tagged(msgspec.Struct, array_like=True, omit_defaults=True, tag="t"):
    pair: Pair


class Paired(msgspec.Struct):
    pair: Pair


def test_a_struct_that_is_a_list_is_written_as_a_list() -> None:
    """With omit_defaults, such a Struct became a dict: {'low': 1, 'high': 2} is not a list."""
    field = {"name": "pair", "type": {"type": "array", "items": "int"}}
    serde = AvroSerde[Any]({"type": "record", "name": "Paired", "fields": [field]}, type=Paired)
    assert serde.deserialize(serde.serialize(Paired(Pair()))) == Paired(Pair())
    assert as_plain(Tagged(Pair(3))) == msgspec.to_builtins(Tagged(Pair(3))) == ["t", [3, 2]]


class Line(msgspec.Struct, omit_defaults=True):
    name: str = "cup"
    cents: float = 0.0  # an int in the message, so that Protobuf's JSON mapping converts the value


def test_a_default_of_the_type_is_written_into_a_message() -> None:
    serde = ProtobufSerde[Any](shop.Item, type=Line)
    assert shop.Item.FromString(serde.serialize(Line())[6:]).name == "cup"


@dataclass
class Sum:
    cents: int
    count: int = field(init=False, default=3)


def test_a_field_that_is_no_argument_is_read() -> None:
    """The bytes were written, and could not be read: __init__() got an unexpected keyword argument."""
    for serde in (AvroSerde[Any](type=Sum), JsonSerde(Sum)):
        value = Sum(1)
        value.count = 4
        assert serde.deserialize(serde.serialize(value)) == value
    with pytest.raises(ConfigError, match="init=False"):
        ProtobufSerde(type=Sum)


class At(msgspec.Struct):
    at: datetime


def test_a_moment_that_no_reader_can_make_is_not_written() -> None:
    late = At(datetime.max.replace(tzinfo=timezone(timedelta(hours=-2))))
    for serde in (AvroSerde[Any](type=At), ProtobufSerde[Any](type=At)):
        last = At(datetime.max.replace(tzinfo=UTC))
        assert serde.deserialize(serde.serialize(last)) == last
        with pytest.raises(SerializationError, match="is not in the years 1 to 9999 of UTC"):
            serde.serialize(late)


class Gate(Enum):
    A = "A"


class Leg(msgspec.Struct):
    gate: Gate
    dest: str


class Journey(msgspec.Struct):
    legs: list[Leg]
    total: int = 0


def test_the_path_to_an_object_of_an_unknown_class() -> None:
    """The error was: Encoding objects of type object is unsupported."""
    serde = AvroSerde[Any](type=Journey)
    leg: Any = Leg(Gate.A, object())  # type: ignore[arg-type]
    with pytest.raises(SerializationError, match=r"legs\[0\]\.dest: <object object at .* is not a str"):
        serde.serialize(Journey([leg]))
    journey = Journey([Leg(Gate.A, "JFK")], np.int64(2**62))  # type: ignore[arg-type]
    assert serde.deserialize(serde.serialize(journey)) == Journey([Leg(Gate.A, "JFK")], 2**62)
