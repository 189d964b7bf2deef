"""Values at the edges of Avro's types. The serde refuses a value, or reads the same value that it has written."""

from __future__ import annotations

import array
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from streamapp.errors import SerializationError
from streamapp.serdes import AvroSerde, LocalSchemaRegistry

ID = "6f1ed002-ab5a-4b5c-a5a5-6d2b1e1b1e1b"


def in_shape(shape: str, kind: Any, value: Any) -> tuple[AvroSerde[Any], Any]:
    """A serde and a value: flat records have writers of their own."""
    if shape == "alone":
        return AvroSerde[Any](kind), value
    if shape == "flat":
        fields: list[Any] = [{"name": "f", "type": ["null", kind]}]
        return AvroSerde[Any]({"type": "record", "name": "R", "fields": fields}), {"f": value}
    return AvroSerde[Any]({"type": "array", "items": ["null", "boolean", kind]}), [value]


def logical(base: str, kind: str) -> dict[str, str]:
    return {"type": base, "logicalType": kind}


@pytest.mark.parametrize("shape", ["alone", "flat", "items"])
@pytest.mark.parametrize("kind", ["int", "long"])
@pytest.mark.parametrize(
    "value",
    [
        np.int8(100),
        np.int8(-128),
        np.uint8(200),
        np.int16(20_000),
        np.int32(2**31 - 1),
        np.int64(-(2**31)),
        np.int64(2**62),
        np.int64(2**63 - 1),
        np.int64(-(2**63)),
        np.uint64(2**63 + 5),
    ],
)
def test_ints_of_numpy_are_the_same_numbers(shape: str, kind: str, value: Any) -> None:
    """Sums and shifts of NumPy's ints overflow: 200 was written as 72, and 2**63 - 1 as 8191."""
    fits = -(2**31) <= int(value) < 2**31 if kind == "int" else int(value) < 2**63
    serde, whole = in_shape("alone" if shape == "items" else shape, kind, value)
    if shape == "items":
        serde, whole = AvroSerde[Any]({"type": "array", "items": kind}), [value]
    if fits:
        assert serde.deserialize(serde.serialize(whole)) == whole
    else:
        with pytest.raises(SerializationError, match="bits"):
            serde.serialize(whole)


@pytest.mark.parametrize("shape", ["alone", "flat"])
def test_only_bytes_are_written_as_bytes(shape: str) -> None:
    """A flat record counted the items of an array, and wrote their bytes, which are more."""
    for value in (b"ab", bytearray(b"ab"), memoryview(b"ab"), memoryview(b"abcdabcd").cast("I")):
        serde, whole = in_shape(shape, "bytes", value)
        assert bytes(value) in serde.serialize(whole)
        assert serde.deserialize(serde.serialize(whole)) in (bytes(value), {"f": bytes(value)})
    for wrong in (array.array("i", [1, 2]), np.array([1, 2]), [1, 2], "ab"):
        serde, whole = in_shape(shape, "bytes", wrong)
        with pytest.raises(SerializationError, match="is not bytes"):
            serde.serialize(whole)


@pytest.mark.parametrize("shape", ["alone", "flat", "items"])
@pytest.mark.parametrize(
    ("kind", "good", "wrong", "why"),
    [
        ("long", 2**63 - 1, 2**63, "64 bits"),
        (logical("string", "uuid"), ID, "abc", "badly formed"),
        ({**logical("bytes", "decimal"), "precision": 2}, b"\x63", b"\x64", "more than 2 digits"),
        (logical("int", "time-millis"), 86_399_999, 86_400_000, "is no time of a day"),
        (logical("long", "time-micros"), 0, -1, "is no time of a day"),
        *(
            (
                logical("long", kind),
                datetime.max.replace(tzinfo=UTC),
                datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))),
                "is not in the years 1 to 9999 of UTC",
            )
            for kind in ("timestamp-millis", "timestamp-micros")
        ),
        *(
            (logical(base, kind), good, good + step, "is not in the years 1 to 9999 of UTC")
            for base, kind, first, last in (
                ("long", "timestamp-millis", -62_135_596_800_000, 253_402_300_799_999),
                ("long", "timestamp-micros", -62_135_596_800_000_000, 253_402_300_799_999_999),
                ("long", "local-timestamp-millis", -62_135_596_800_000, 253_402_300_799_999),
                ("long", "local-timestamp-micros", -62_135_596_800_000_000, 253_402_300_799_999_999),
                ("int", "date", -719_162, 2_932_896),
            )
            for good, step in ((first, -1), (last, 1))
        ),
    ],
)
def test_a_value_that_cannot_be_read_is_not_written(
    shape: str, kind: Any, good: Any, wrong: Any, why: str
) -> None:
    """These values were written, and nobody could read them."""
    serde, whole = in_shape("alone" if shape == "items" else shape, kind, good)
    assert serde.deserialize(serde.serialize(whole))
    if shape == "items":
        serde, whole = AvroSerde[Any]({"type": "array", "items": kind}), [wrong]
    else:
        serde, whole = in_shape(shape, kind, wrong)
    with pytest.raises(SerializationError, match=why):
        serde.serialize(whole)


def test_a_datetime_in_a_union_keeps_its_time_of_the_day() -> None:
    at = datetime(2026, 1, 1, 5, 15, tzinfo=UTC)
    serde = AvroSerde[Any]([logical("int", "date"), logical("long", "timestamp-millis"), "string"])
    assert serde.deserialize(serde.serialize(at)) == at
    assert serde.deserialize(serde.serialize(date(2026, 1, 1))) == date(2026, 1, 1)
    with pytest.raises(SerializationError, match="fits no branch"):
        AvroSerde[Any]([logical("int", "date"), "string"]).serialize(at)


@pytest.mark.parametrize(
    ("kind", "wrong", "why"),
    [
        ("int", 1.5, r"1\.5 \(float\) is not an int"),
        ("long", "7", r"'7' \(str\) is not an int"),
        (logical("long", "timestamp-millis"), date(2026, 1, 1), r"\(date\) is not an int"),
        (logical("long", "time-micros"), "12:00", r"'12:00' \(str\) is not an int"),
        ("double", "1.5", r"'1\.5' \(str\) is not a number"),
        ("float", None, r"None \(NoneType\) is not a number"),
    ],
)
def test_numbers_of_another_class_are_named(kind: Any, wrong: Any, why: str) -> None:
    """The errors were those of Python's operators: unsupported operand type(s) for <<."""
    for schema, value, path in (
        (kind, wrong, ""),
        ({"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]}, {"f": wrong}, "f: "),
        ({"type": "array", "items": kind}, [wrong], r"\[0\]: "),
    ):
        with pytest.raises(SerializationError, match=f": {path}.*{why}"):
            AvroSerde[Any](schema).serialize(value)


def test_texts_and_times_stay_as_they_are() -> None:
    serde = AvroSerde[Any](logical("string", "uuid"))
    assert serde.serialize(ID.upper())[6:] == ID.upper().encode()
    assert serde.deserialize(serde.serialize(ID.upper())) == UUID(ID)
    times = AvroSerde[Any](logical("long", "time-micros"))
    assert times.deserialize(times.serialize(time(23, 59, 59, 999999))) == time(23, 59, 59, 999999)


RECORD = {"type": "record", "fields": [{"name": "n", "type": "int"}]}


@pytest.mark.parametrize(
    ("written", "wanted", "value", "read"),
    [
        (["bytes", "string"], ["bytes", "string"], "a", "a"),
        ("string", ["null", "bytes", "string"], "a", "a"),
        (["string", "bytes"], ["string", "bytes"], b"a", b"a"),
        (["double", "int", "string"], ["double", "int", "string"], 5, 5.0),
        ("int", ["double", "int"], 5, 5),
        ("int", ["string", "double", "float"], 5, 5.0),
        (
            [{"type": "array", "items": "bytes"}, "null"],
            [{"type": "array", "items": "string"}, "null"],
            [b"a"],
            ["a"],
        ),
        (
            {**RECORD, "name": "b.X"},
            [{**RECORD, "name": "a.X", "fields": [*RECORD["fields"], {"name": "m", "type": "int", "default": 0}]},
             {**RECORD, "name": "b.X"}],
            {"n": 1},
            {"n": 1},
        ),
        (
            {**RECORD, "name": "b.X"},
            ["null", {**RECORD, "name": "Y", "aliases": ["b.X"]}],
            {"n": 1},
            {"n": 1},
        ),
    ],
)  # fmt: skip
def test_a_union_takes_the_branch_of_the_same_type_before_a_promotion(
    written: Any, wanted: Any, value: Any, read: Any
) -> None:
    """The first branch to which a value could be promoted won: texts of ["bytes", "string"] were read as bytes."""
    registry = LocalSchemaRegistry()
    data = AvroSerde[Any](written, registry=registry).serialize(value)
    found = AvroSerde[Any](wanted, registry=registry).deserialize(data)
    assert (found, type(found)) == (read, type(read))
