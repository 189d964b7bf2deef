"""Versions of a schema that differ in logical types: the reader's schema decides about the value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import pytest

from streamapp.errors import ConfigError, SerializationError
from streamapp.serdes import AvroSerde, LocalSchemaRegistry
from streamapp.serdes.schema_registry import SchemaVersion

AT = datetime(2026, 1, 1, 5, 15, tzinfo=UTC)
MILLIS = 1_767_244_500_000
ID = UUID("6f1ed002-ab5a-4b5c-a5a5-6d2b1e1b1e1b")


def kind(base: str, logical: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": logical, **more}


TIME, MICROS, NANOS = (kind("long", f"timestamp-{unit}") for unit in ("millis", "micros", "nanos"))
LOCAL, LOCAL_MICROS = kind("long", "local-timestamp-millis"), kind("long", "local-timestamp-micros")
DAY, CLOCK, CLOCK_MICROS = kind("int", "date"), kind("int", "time-millis"), kind("long", "time-micros")
UUID_TEXT, MONEY = kind("string", "uuid"), kind("bytes", "decimal", precision=9, scale=2)


def order(type: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": [{"name": "x", "type": type}]}


def read_as(written: Any, wanted: Any, value: Any, **type: Any) -> Any:
    registry = LocalSchemaRegistry()
    data = AvroSerde[Any](order(written), registry=registry).serialize({"x": value})
    serde = AvroSerde[Any](order(wanted), registry=registry, **type)
    read = serde.deserialize(data)
    assert serde.deserialize(serde.serialize(read)) == read, "the reader can write what it reads"
    return read


@pytest.mark.parametrize("nullable", ["no", "both", "reader", "one of three"])
@pytest.mark.parametrize(
    ("written", "value", "wanted", "expected"),
    [
        ("long", MILLIS, TIME, AT),
        ("long", MILLIS * 1000, MICROS, AT),
        ("long", MILLIS, LOCAL, AT.replace(tzinfo=None)),
        ("int", 3, TIME, datetime.fromtimestamp(0.003, UTC)),
        ("int", 20_000, DAY, date(2024, 10, 4)),
        ("int", 1_000, CLOCK, time(0, 0, 1)),
        ("string", str(ID), UUID_TEXT, ID),
        ("bytes", b"\1\2", MONEY, Decimal("2.58")),
        (TIME, AT, "long", MILLIS),
        (TIME, AT, "double", float(MILLIS)),
        (DAY, date(2024, 10, 4), "int", 20_000),
        (DAY, date(2024, 10, 4), "long", 20_000),
        (CLOCK, time(0, 0, 1), "int", 1_000),
        (UUID_TEXT, ID, "string", str(ID)),
        (UUID_TEXT, ID, "bytes", str(ID).encode()),
        (MONEY, Decimal("2.58"), "bytes", b"\1\2"),
        (TIME, AT, MICROS, AT),
        (MICROS, AT, TIME, AT),
        (MICROS, AT, NANOS, MILLIS * 1_000_000),
        (NANOS, MILLIS * 1_000_000 + 7, TIME, AT),
        (TIME, AT, LOCAL_MICROS, AT.replace(tzinfo=None)),
        (LOCAL_MICROS, AT.replace(tzinfo=None), TIME, AT),
        (CLOCK, time(1, 2), CLOCK_MICROS, time(1, 2)),
    ],
)
def test_the_readers_schema_decides(
    written: Any, value: Any, wanted: Any, expected: Any, nullable: str
) -> None:
    """A value of the writer's logical type was not a value of the reader's schema, which could not write it."""
    if nullable == "both":
        written = ["null", written]
    elif nullable == "one of three":
        written = ["null", written, "boolean"]
    assert read_as(written, wanted if nullable == "no" else ["null", wanted], value) == {"x": expected}


@pytest.mark.parametrize(
    ("written", "value", "wanted"),
    [
        (DAY, date(2026, 1, 1), TIME),
        (CLOCK, time(1, 2), TIME),
        (UUID_TEXT, ID, MONEY),
        (DAY, date(2026, 1, 1), CLOCK),
    ],
)
def test_another_meaning_is_refused(written: Any, value: Any, wanted: Any) -> None:
    with pytest.raises(SerializationError, match="is written and .* is wanted"):
        read_as(written, wanted, value)


def test_a_moment_that_nanoseconds_cannot_count_is_refused() -> None:
    with pytest.raises(SerializationError, match="x: a number has more than 64 bits"):
        read_as(TIME, NANOS, datetime.max.replace(tzinfo=UTC))


@dataclass
class Number:
    x: int | None


@dataclass
class Moment:
    x: datetime | None


@pytest.mark.parametrize(
    ("written", "value"), [("long", MILLIS), (TIME, AT), (MICROS, AT), (NANOS, MILLIS * 1_000_000)]
)
def test_an_int_has_the_unit_of_its_own_schema(written: Any, value: Any) -> None:
    """The int was the number of the writer's unit: microseconds in a field of milliseconds."""
    assert read_as(written, ["null", TIME], value, type=Number) == Number(MILLIS)
    assert read_as(written, ["null", TIME], value, type=Moment) == Moment(AT)


class Pinned:
    """A registry whose subject has one version."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema

    def version_of(self, subject: str, version: int | Literal["latest"] = "latest") -> SchemaVersion:
        return SchemaVersion(subject, 1, 7, self.schema)

    def id_of(self, subject: str, schema: Any) -> int:
        raise AssertionError("a pinned serde registers nothing")

    def schema_of(self, schema_id: int) -> Any:
        return self.schema


def test_an_int_is_not_written_in_another_unit() -> None:
    """The number of milliseconds was written where readers expect microseconds."""
    pinned: dict[str, Any] = {"registry": Pinned(order(MICROS)), "version": 1}
    with pytest.raises(ConfigError, match="the int x of Number has another unit in version 1"):
        AvroSerde[Any](order(TIME), type=Number, **pinned).serialize(Number(MILLIS))
    moments = AvroSerde[Any](order(TIME), type=Moment, **pinned)
    assert moments.deserialize(moments.serialize(Moment(AT))) == Moment(AT)
    plain: dict[str, Any] = {"registry": Pinned(order("long")), "version": 1}
    numbers = AvroSerde[Any](order(TIME), type=Number, **plain)
    assert numbers.deserialize(numbers.serialize(Number(MILLIS))) == Number(MILLIS)


@pytest.mark.parametrize("type_", [CLOCK, CLOCK_MICROS, ["null", CLOCK]])
def test_a_time_of_day_with_a_zone_is_refused(type_: Any) -> None:
    """The zone was lost."""
    serde = AvroSerde[Any](order(type_))
    assert serde.deserialize(serde.serialize({"x": time(5, 15)})) == {"x": time(5, 15)}
    with pytest.raises(SerializationError, match="has a time zone"):
        serde.serialize({"x": time(5, 15, tzinfo=UTC)})
