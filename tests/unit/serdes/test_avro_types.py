"""The Avro schema that follows from a type."""

from __future__ import annotations

import dataclasses
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pytest

from streamapp import AvroSerde
from streamapp.errors import ConfigError
from tables import schemas


class Kind(Enum):
    CARGO = "cargo"
    PEOPLE = "people"


class Stop(msgspec.Struct):
    at: str


class Flight(msgspec.Struct):
    carrier: str
    delay: int | None = None
    stops: list[Stop] = []
    last: Stop | None = None
    tags: dict[str, float] = {}
    kind: Kind = Kind.CARGO
    moment: datetime | None = None
    day: date | None = None
    hour: time | None = None
    id: UUID | None = None
    seats: int | None = 5
    raw: bytes = b""
    late: bool = False


MOMENT = datetime(2026, 2, 3, 4, 5, 6, 7, tzinfo=UTC)


def test_values_come_back_as_they_were() -> None:
    class Whole(msgspec.Struct):
        carrier: str
        stops: list[Stop]
        last: Stop | None
        tags: dict[str, float]
        kind: Kind
        moment: datetime
        day: date
        hour: time
        id: UUID
        seats: int | None = 5

    serde = AvroSerde[Whole](type=Whole)
    value = Whole(
        "ÜA",
        [Stop("JFK")],
        Stop("IAH"),
        {"a": 1.5},
        Kind.PEOPLE,
        MOMENT,
        MOMENT.date(),
        time(1, 2),
        UUID(int=3),
    )
    assert serde.deserialize(serde.serialize(value)) == value


def test_a_named_type_is_defined_in_its_first_place() -> None:
    fields = {field["name"]: field for field in AvroSerde[Any](type=Flight).schema["fields"]}
    assert fields["stops"]["type"]["items"]["name"] == "Stop"
    assert fields["last"]["type"] == ["null", "Stop"]
    assert fields["seats"] == {"name": "seats", "type": ["long", "null"], "default": 5}
    assert fields["kind"]["default"] == "cargo"


def test_a_dataclass_too() -> None:
    schema = AvroSerde[Any](type=dataclasses.make_dataclass("Wing", [("metres", float)])).schema
    assert schema == {"type": "record", "name": "Wing", "fields": [{"name": "metres", "type": "double"}]}


def test_the_reference_applications_schemas_follow_from_its_types() -> None:
    for event in (schemas.Flight, schemas.Weather, schemas.Plane, schemas.Airport, schemas.Airline):
        assert AvroSerde[Any](type=event).schema["fields"] == schemas.avro_schema(event)["fields"]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (Decimal, "for Decimal"),
        (int | str, "for Union"),
        (Any, "for Any"),
        (dict[int, str], "for Dict"),
        (datetime, "default of .* has no form"),
    ],
)
def test_types_without_one_schema_are_refused(kind: Any, why: str) -> None:
    fields: list[Any] = [("field", kind, MOMENT)] if kind is datetime else [("field", kind)]
    with pytest.raises(ConfigError, match=why):
        AvroSerde(type=msgspec.defstruct("Odd", fields))


def test_neither_schema_nor_type() -> None:
    with pytest.raises(ConfigError, match="needs a schema, or a type"):
        AvroSerde()


class Sums(msgspec.Struct, frozen=True):
    count: int = 0
    name: str | None = None


def test_values_that_are_read_back_as_they_were_written_are_known() -> None:
    """An aggregation goes on with such a result without reading its bytes."""
    assert AvroSerde(type=Sums).exact is Sums
    moment = {"name": "count", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0}
    name = {"name": "name", "type": ["null", "string"], "default": None}
    assert AvroSerde({"type": "record", "name": "Sums", "fields": [moment, name]}, type=Sums).exact is Sums
    doubled = {"type": "record", "name": "Sums", "fields": [{"name": "count", "type": "double"}]}
    more = {
        **doubled,
        "fields": [{"name": "count", "type": "int"}, {"name": "more", "type": "int", "default": 0}],
    }
    for inexact in (
        AvroSerde(doubled, type=Sums),  # an int comes back as a float
        AvroSerde(more, type=Sums),  # the name is not written
        AvroSerde(type=Sums, version=1),  # the registry's schema is not known yet
        AvroSerde(type=Sums, fields=["count"]),
    ):
        assert inexact.exact is None
