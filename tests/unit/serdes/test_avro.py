"""Fast readers and writers against fastavro, and the framing, resolution and errors around them."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamapp.errors import ConfigError, SerializationError
from streamapp.serdes import AvroSerde, LocalSchemaRegistry

TIMES = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)).map(
    lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000, tzinfo=UTC)
)
TYPES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1) | st.integers(-70, 70)),
    ("long", st.integers(-(2**63), 2**63 - 1) | st.integers(-9000, 9000)),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("string", st.text(st.characters(exclude_categories=["Cs"]), max_size=80)),
    ("bytes", st.binary(max_size=80)),
    ({"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}, st.sampled_from("ABC")),
    ({"type": "long", "logicalType": "timestamp-millis"}, TIMES),
    ({"type": "long", "logicalType": "timestamp-micros"}, TIMES),
    ({"type": "int", "logicalType": "date"}, st.dates(date(1900, 1, 1), date(2100, 1, 1))),
]


@st.composite
def schemas_and_records(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    fields, record = [], {}
    for n, (type_, values) in enumerate(draw(st.lists(st.sampled_from(TYPES), max_size=7))):
        if isinstance(type_, dict) and "name" in type_:
            type_ = {**type_, "name": f"E{n}"}
        shape = draw(st.sampled_from(["plain", "null first", "null last"]))
        union = {"plain": type_, "null first": ["null", type_], "null last": [type_, "null"]}[shape]
        fields.append({"name": f"f{n}", "type": union})
        record[f"f{n}"] = draw(values if shape == "plain" else st.none() | values)
    return {"type": "record", "name": "R", "fields": fields}, record


def by_fastavro(schema: Any, record: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return out.getvalue()


@settings(max_examples=150, deadline=None)
@given(schemas_and_records(), st.data())
def test_bytes_and_values_are_those_of_fastavro(
    case: tuple[dict[str, Any], dict[str, Any]], data: Any
) -> None:
    schema, record = case
    serde: AvroSerde[Any] = AvroSerde(schema)
    written = serde.serialize(record)

    assert written[5:] == by_fastavro(schema, record)
    expected = fastavro.schemaless_reader(BytesIO(written[5:]), fastavro.parse_schema(schema), None)
    assert serde.deserialize(written) == expected == record
    names = data.draw(st.sets(st.sampled_from(sorted(record)))) if record else set()
    assert AvroSerde(schema, fields=names).deserialize(written) == {name: record[name] for name in names}
    for cut in range(5, len(written)):
        with pytest.raises(SerializationError):
            serde.deserialize(written[:cut])


@settings(max_examples=150, deadline=None)
@given(schemas_and_records(), st.binary(max_size=30))
def test_damaged_bytes_raise_nothing_but_serialization_errors(
    case: tuple[dict[str, Any], dict[str, Any]], noise: bytes
) -> None:
    serde: AvroSerde[Any] = AvroSerde(case[0])
    header = serde.serialize(case[1])[:5]
    try:
        serde.deserialize(header + noise)
    except SerializationError as error:
        assert "cannot read R" in str(error)  # noqa: PT017


FLIGHT = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "delay", "type": ["null", "int"], "default": None},
    ],
}
AT = datetime(2013, 1, 1, 5, 15, tzinfo=UTC)
AT_MS = int(AT.timestamp() * 1000)
RECORD = {"carrier": "UA", "at": AT, "delay": -3}
NESTED = {
    "type": "record",
    "name": "Trip",
    "fields": [{"name": "legs", "type": {"type": "array", "items": FLIGHT}}, {"name": "n", "type": "int"}],
}


class Flight(msgspec.Struct, frozen=True):
    carrier: str
    at: datetime
    delay: int | None = None


class Late(msgspec.Struct):
    at: int
    delay: int | None


class Renamed(msgspec.Struct, rename={"company": "carrier"}):
    company: str


@dataclass
class Carrier:
    carrier: str


class Trip(msgspec.Struct):
    legs: list[Flight]
    n: int


@pytest.mark.parametrize(
    ("schema", "type_", "value"),
    [
        (FLIGHT, Flight, Flight("UA", AT, -3)),
        (FLIGHT, Late, Late(AT_MS, -3)),
        (FLIGHT, Renamed, Renamed("UA")),
        (FLIGHT, Carrier, Carrier("UA")),
    ],
)
def test_typed_records_take_the_fields_they_have(schema: Any, type_: Any, value: Any) -> None:
    registry = LocalSchemaRegistry()
    data = AvroSerde[Any](schema, registry=registry).serialize(RECORD)

    assert AvroSerde[Any](schema, type=type_, registry=registry).deserialize(data) == value


def test_an_attribute_that_the_schema_lacks_is_refused() -> None:
    """The fast writer of flat schemas left such an attribute out."""

    class Flight(msgspec.Struct):
        carrier: str
        delay: int = 0

    schema = {"type": "record", "name": "Flight", "fields": [{"name": "carrier", "type": "string"}]}
    serde = AvroSerde(schema, type=Flight)
    with pytest.raises(SerializationError, match=r"the schema has no fields \['delay'\]"):
        serde.serialize(Flight("UA", 3))


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("wrong", ["no", None, 2, [True]])
def test_only_booleans_are_written_as_booleans(nested: bool, wrong: Any) -> None:
    boolean: Any = {"type": "array", "items": "boolean"} if nested else "boolean"
    serde = AvroSerde[Any](
        {"type": "record", "name": "Flight", "fields": [{"name": "late", "type": boolean}]}
    )
    for value in (True, np.True_):
        assert serde.serialize({"late": [value] if nested else value})
    with pytest.raises(SerializationError, match="is not a boolean"):
        serde.serialize({"late": [wrong] if nested else wrong})


def test_a_typed_record_is_written_like_the_dict() -> None:
    expected = AvroSerde[Any](FLIGHT).serialize(RECORD)

    assert AvroSerde[Any](FLIGHT, type=Flight).serialize(Flight("UA", AT, -3)) == expected
    assert AvroSerde[Any](FLIGHT, type=Flight).immutable
    assert not AvroSerde[Any](FLIGHT).immutable


def test_nested_records_are_those_of_fastavro() -> None:
    trip = {"legs": [RECORD], "n": 1}
    plain, typed = AvroSerde[Any](NESTED), AvroSerde[Any](NESTED, type=Trip)
    data = plain.serialize(trip)

    assert data[5:] == by_fastavro(NESTED, trip)
    assert plain.deserialize(data) == trip
    assert typed.deserialize(data) == Trip([Flight("UA", AT, -3)], 1)
    assert typed.serialize(Trip([Flight("UA", AT, -3)], 1)) == data
    assert AvroSerde[Any](NESTED, fields=["n"]).deserialize(data) == {"n": 1}


@pytest.mark.parametrize(
    ("schema", "value"), [("string", "a"), ("long", 7), (["null", "int", "string"], "x")]
)
def test_schemas_other_than_records(schema: Any, value: Any) -> None:
    serde = AvroSerde[Any](schema)

    assert serde.deserialize(serde.serialize(value)) == value
    assert serde.immutable is isinstance(schema, str)


def test_what_another_schema_wrote_is_resolved() -> None:
    registry = LocalSchemaRegistry()
    fields: list[Any] = FLIGHT["fields"]  # type: ignore[assignment]
    older = {**FLIGHT, "fields": [{"name": "airline", "type": "string"}, fields[1]]}
    newer = {**FLIGHT, "fields": [{"name": "carrier", "type": "string", "aliases": ["airline"]}, *fields[1:]]}
    data = AvroSerde[Any](older, registry=registry).serialize({"airline": "UA", "at": AT})

    read = AvroSerde[Any](newer, registry=registry)
    assert read.deserialize(data) == {"carrier": "UA", "at": AT, "delay": None}
    assert AvroSerde[Any](newer, registry=registry, type=Late).deserialize(data) == Late(AT_MS, None)
    with pytest.raises(SerializationError, match="cannot read Flight"):
        AvroSerde[Any](
            {**FLIGHT, "fields": [*fields, {"name": "new", "type": "int"}]}, registry=registry
        ).deserialize(data)


def test_framing_and_subject() -> None:
    asked = []

    class Registry:
        def id_of(self, subject: str, schema: Any) -> int:
            asked.append(subject)
            return 258

        def schema_of(self, schema_id: int) -> Any:
            return FLIGHT

    serde = AvroSerde[Any](FLIGHT, registry=Registry()).bind("flights", False)
    assert serde.serialize(RECORD)[:5] == b"\x00\x00\x00\x01\x02"
    assert serde.deserialize(serde.serialize(RECORD)) == RECORD
    assert AvroSerde[Any](FLIGHT, registry=Registry()).bind("flights", True).serialize(RECORD)
    assert asked == ["flights-value", "flights-key"]


def test_it_pickles() -> None:
    serde = AvroSerde[Any](FLIGHT, type=Late, fields=["at", "delay"]).bind("t", False)
    again = pickle.loads(pickle.dumps(serde))

    data = AvroSerde[Any](FLIGHT).serialize(RECORD)
    assert again.deserialize(data) == serde.deserialize(data) == Late(AT_MS, -3)
    assert again.subject == "t-value"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"got|from 0 bytes.*a schema id \(byte 0, 4 bytes\)"),
        (b"\x00\x00\x00", r"a schema id \(byte 0, 4 bytes\)"),
        (b'{"carrier":"UA"}', "Is the topic Avro at all"),
        (b"\x00\x00\x00\x00\x01abc", "no schema with id 1 that this process"),
    ],
)
def test_bytes_in_another_frame(data: bytes, message: str) -> None:
    with pytest.raises(SerializationError, match=message):
        AvroSerde[Any](FLIGHT).deserialize(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"carrier": 5}, "cannot write .* as Flight.*carrier"),
        ({"carrier": None}, "carrier"),
        ({"delay": 2**31}, "32 bits"),
        ({"delay": "late"}, "delay"),
        ({"at": 2**63}, "at: .* is not in the years 1 to 9999 of UTC"),
        ({"at": datetime(2013, 1, 1)}, "has no time zone"),
        ({"carier": "UA"}, r"no fields \['carier'\]"),
    ],
)
def test_records_that_do_not_fit(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SerializationError, match=message):
        AvroSerde[Any](FLIGHT).serialize({**RECORD, **change})


def test_missing_fields_take_their_default_or_are_named() -> None:
    serde = AvroSerde[Any](FLIGHT)

    assert serde.deserialize(serde.serialize({"carrier": "UA", "at": AT_MS}))["delay"] is None
    with pytest.raises(SerializationError, match=r"the fields \['at'\] are missing"):
        serde.serialize({"carrier": "UA"})
    with pytest.raises(SerializationError, match=r"no fields \['dely'\]"):
        serde.serialize({"carrier": "UA", "at": AT, "dely": 1})
    with pytest.raises(SerializationError, match=r"the fields \['carrier'\] are missing"):
        AvroSerde[Any](FLIGHT, type=Late).serialize(Late(1, None))


def test_what_cannot_work_is_refused_when_the_serde_is_made() -> None:
    class Gate(msgspec.Struct):
        gate: str

    with pytest.raises(ConfigError, match=r"Gate needs the fields \['gate'\]"):
        AvroSerde[Any](FLIGHT, type=Gate)
    with pytest.raises(ConfigError, match=r"no fields \['gate'\]"):
        AvroSerde[Any](FLIGHT, fields=["gate"])
    with pytest.raises(ConfigError, match="needs the schema of a record"):
        AvroSerde[Any]("string", fields=["gate"])
    with pytest.raises(ConfigError, match="is not an Avro schema"):
        AvroSerde[Any]({"type": "record", "name": "R"})
    with pytest.raises(ConfigError, match="is not an Avro schema"):
        AvroSerde[Any]("strang")
    with pytest.raises(ConfigError, match="is JSON"):
        AvroSerde[Any]('{"type":')


def test_schemas_may_be_given_as_text() -> None:
    assert AvroSerde[Any](msgspec.json.encode(FLIGHT).decode()).schema == FLIGHT


def test_times_before_the_epoch_round_down_as_in_fastavro() -> None:
    early = datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    data = AvroSerde[Any](FLIGHT).serialize({**RECORD, "at": early})

    assert data[5:] == by_fastavro(FLIGHT, {**RECORD, "at": early})
    assert AvroSerde[Any](FLIGHT).deserialize(data)["at"] == early - timedelta(microseconds=999)


def test_a_folder_tells_other_processes_the_schemas(tmp_path: Path) -> None:
    data = AvroSerde[Any](FLIGHT, registry=LocalSchemaRegistry(tmp_path / "schemas")).serialize(RECORD)
    other = LocalSchemaRegistry(tmp_path / "schemas")
    narrow = {**FLIGHT, "fields": [FLIGHT["fields"][0]]}  # type: ignore[index]

    assert other.schema_of(int.from_bytes(data[1:5], "big")) == FLIGHT
    assert AvroSerde[Any](narrow, registry=other).deserialize(data) == {"carrier": "UA"}
    with pytest.raises(SerializationError, match=f"no schema with id 5 in {tmp_path}"):
        other.schema_of(5)
    assert {path.suffix for path in (tmp_path / "schemas").iterdir()} == {".avsc"}


def test_two_schemas_with_one_id_are_told_apart(tmp_path: Path) -> None:
    registry = LocalSchemaRegistry(tmp_path)
    schema_id = registry.id_of("s", "string")
    (tmp_path / f"{schema_id}.avsc").write_text('"long"')

    assert registry.id_of("s", "string") == schema_id
    with pytest.raises(SerializationError, match="the same id"):
        LocalSchemaRegistry(tmp_path).id_of("s", "string")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}, bytes(range(12))),
        ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, bytes(range(16))),
        ({"type": "long", "logicalType": "timestamp-nanos"}, 1_372_636_800_000_000_001),
        ({"type": "long", "logicalType": "local-timestamp-nanos"}, -1),
        ({"type": "long", "logicalType": "of the application"}, 7),
    ],
)
def test_logical_types_that_python_has_no_type_for_keep_their_base(schema: Any, value: Any) -> None:
    """As in fastavro, which Confluent's serializer uses. Source: "Logical Types" of Avro's specification."""
    serde = AvroSerde[Any](schema)
    data = serde.serialize(value)
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    assert data[5:] == out.getvalue()
    assert serde.deserialize(data) == value
