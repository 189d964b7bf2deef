"""Schemas as Java writes and accepts them, beyond the words of the specification."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from streamapp.errors import ConfigError
from streamapp.serdes import AvroSerde, SchemaReference

GATE = {"type": "enum", "name": "Gate", "symbols": ["A", "B"]}
OUTSIDE = {**GATE, "namespace": ""}


def record(name: str, **fields: Any) -> dict[str, Any]:
    """Fields by name, each a type or a pair of type and default."""
    made = [
        {"name": field, "type": kind[0], "default": kind[1]}
        if isinstance(kind, tuple)
        else {"name": field, "type": kind}
        for field, kind in fields.items()
    ]
    return {"type": "record", "name": name, "fields": made}


class Writer:
    """A registry whose ids all stand for the schema of one writer."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema

    def id_of(self, subject: str, schema: Any) -> int:
        return 8

    def schema_of(self, schema_id: int) -> Any:
        return self.schema


def read(written: Any, wanted: Any, data: bytes) -> Any:
    return AvroSerde[Any](wanted, registry=Writer(written)).deserialize(b"\0\0\0\0\7" + data)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (record("Trip", g=GATE, leg=record("air.Leg", g="Gate")), {"g": "A", "leg": {"g": "B"}}),
        (record("air.Trip", g=OUTSIDE, h="Gate"), {"g": "A", "h": "B"}),
        (record("air.Trip", g=OUTSIDE, h=("Gate", "B")), {"g": "A", "h": "B"}),
        (
            record(
                "air.Trip", g=OUTSIDE, leg=record("sea.Leg", g=["null", {"type": "array", "items": "Gate"}])
            ),
            {"g": "A", "leg": {"g": ["B"]}},
        ),
        (record("Trip", next=["null", record("air.Leg", trip="Trip")]), {"next": {"trip": {"next": None}}}),
    ],
)
def test_a_name_in_a_namespace_may_be_that_of_a_type_without_one(schema: Any, value: Any) -> None:
    """`org.apache.avro.Schema.toString` writes such names, and these schemas were refused."""
    serde = AvroSerde[Any](schema)
    assert serde.deserialize(serde.serialize(value)) == value


def test_a_type_of_the_namespace_comes_first() -> None:
    inner = {**GATE, "symbols": ["X", "Y"]}
    schema = record("air.Trip", g=OUTSIDE, h=inner, i="Gate")
    serde = AvroSerde[Any](schema)
    assert serde.deserialize(serde.serialize({"g": "A", "h": "X", "i": "Y"}))["i"] == "Y"
    with pytest.raises(ConfigError, match="air.Other"):
        AvroSerde(record("air.Trip", g=OUTSIDE, h="Other"))


def test_a_reference_without_namespace_serves_several_namespaces() -> None:
    schema = record("Trip", a=record("air.Leg", g="Gate"), b=record("sea.Leg", g="Gate"))
    serde = AvroSerde[Any](schema, references=[SchemaReference("Gate", "gate", GATE)])
    value = {"a": {"g": "A"}, "b": {"g": "B"}}
    assert serde.deserialize(serde.serialize(value)) == value


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        (("int", "none"), b"\2", 1),
        (({**GATE, "default": "Z"}, "Y"), b"\2", "B"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3}, b"\2\1", b"\1"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 0}, b"\2\1", b"\1"),
        ({"type": "bytes", "logicalType": "decimal", "precision": "4"}, b"\2\1", b"\1"),
        ({"type": "fixed", "name": "F", "size": 1, "logicalType": "decimal", "precision": 3}, b"\1", b"\1"),
    ],
)
@pytest.mark.parametrize("part", ["alone", "array", "map", "union"])
def test_bytes_are_read_although_their_schema_has_a_wrong_default_or_decimal(
    kind: Any, data: bytes, expected: Any, part: str
) -> None:
    """Java checks neither in the schema of a writer: each of these records became a dead letter."""
    written = kind[0] if isinstance(kind, tuple) else kind
    wanted = (
        {name: item for name, item in written.items() if name in ("type", "name", "size", "symbols")}
        if (isinstance(written, dict))
        else written
    )
    match part:
        case "array":
            written, wanted = ({"type": "array", "items": each} for each in (written, wanted))
            data, expected = b"\2" + data + b"\0", [expected]
        case "map":
            written, wanted = ({"type": "map", "values": each} for each in (written, wanted))
            data, expected = b"\2\2k" + data + b"\0", {"k": expected}
        case "union":
            written, wanted = ["null", written], ["null", wanted]
            data = b"\2" + data
    wrong = (written, kind[1]) if isinstance(kind, tuple) else written
    assert read(record("R", f=wrong), record("R", f=wanted), data) == {"f": expected}


def test_the_serdes_own_schema_has_no_mistakes() -> None:
    wrong = {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3}
    for schema in (wrong, record("R", f=("int", "none"))):
        with pytest.raises(ConfigError):
            AvroSerde(schema)
    money = {**wrong, "precision": 3}
    assert read(wrong, money, b"\2\1") == Decimal("0.001")


def test_an_error_is_read_like_a_record() -> None:
    """A value of the type error came back without its fields."""
    schema = {**record("Failure", code="int"), "type": "error"}
    for serde in (AvroSerde[Any](schema), AvroSerde[Any](schema, fields=["code"])):
        assert serde.deserialize(serde.serialize({"code": 3})) == {"code": 3}
