"""Errors of Avro name the path to the part that does not fit, when a value is written and when bytes are read."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamapp.errors import SerializationError
from streamapp.serdes import AvroSerde, LocalSchemaRegistry

GATE = {"type": "enum", "name": "Gate", "symbols": ["A", "B", "C"]}
LEG = {
    "type": "record",
    "name": "Leg",
    "fields": [
        {"name": "gate", "type": GATE},
        {"name": "late", "type": "boolean"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "cents",
            "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 0}],
        },
        {"name": "next", "type": ["null", "Leg"]},
    ],
}
TRIP = {
    "type": "record",
    "name": "Trip",
    "fields": [
        {"name": "legs", "type": {"type": "array", "items": LEG}},
        {"name": "seats", "type": {"type": "map", "values": ["null", "int", "Leg"]}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "bags", "type": {"type": "array", "items": "int"}},
    ],
}
AT = datetime(2026, 1, 1, tzinfo=UTC)
ID = "6f1ed002-ab5a-4b5c-a5a5-6d2b1e1b1e1b"


def leg(**changed: Any) -> dict[str, Any]:
    return {"gate": "A", "late": True, "at": AT, "cents": None, "next": None, **changed}


def trip(**changed: Any) -> dict[str, Any]:
    return {"legs": [], "seats": {}, "id": ID, "bags": [], **changed}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (trip(legs=[leg(), leg(gate="D")]), r"as Trip: legs\[1\]\.gate: 'D' is none of the symbols"),
        (trip(legs=[leg(late="no")]), r": legs\[0\]\.late: 'no' \(str\) is not a boolean"),
        (trip(legs=[leg(at=datetime(2026, 1, 1))]), r": legs\[0\]\.at: .* has no time zone"),
        (trip(legs=[leg(next=leg(at="now"))]), r": legs\[0\]\.next\.at: "),
        (trip(legs=[leg(), 5]), r": legs\[1\]: 5 \(int\) is not a record"),
        (
            trip(legs=[{"gate": "A"}]),
            r": legs\[0\]: the fields \['at', 'cents', 'late', 'next'\] are missing",
        ),
        (trip(seats={"a.1": "x"}), r": seats\['a\.1'\]: 'x' \(str\) fits no branch of its union"),
        (trip(seats={5: 1}), r": seats\[5\]: 5 \(int\) is not a str"),
        (trip(bags=[1, 2**31]), r": bags\[1\]: 2147483648 has more than 32 bits"),
        (trip(id=5), r": id: 5 \(int\) is not a str"),
    ],
)
def test_the_path_in_a_value_that_does_not_fit(value: Any, message: str) -> None:
    with pytest.raises(SerializationError, match=message):
        AvroSerde[Any](TRIP).serialize(value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\2\6", r"legs\[0\]\.gate: symbol 3 is written, and the enum has 3 symbols"),
        (b"\2\0\7", r"legs\[0\]\.late: the bytes are cut short or damaged"),
        (b"\2\0\1" + b"\xff" * 11, r"legs\[0\]\.at: a number has more than 64 bits"),
        (b"\2\0\1\0\2\4\x7f\xff", r"legs\[0\]\.cents: a decimal has more than 3 digits"),
        (b"\2\0\1\0\4", r"legs\[0\]\.cents: a union has no branch 2"),
        (b"\2\0\1\0\0\2\2\7", r"legs\[0\]\.next\.late: the bytes are cut short or damaged"),
        (b"\4\0\1\0\0\0\2\1", r"legs\[1\]\.at: the bytes are cut short or damaged"),
        (b"\2\0\1\0\0\0", r"legs: the bytes are cut short or damaged"),
        (b"\0\2\x02a\x02\xff\xff\xff\xff\xff\1", r"seats\['a'\]: an int has more than 32 bits"),
        (b"\0\2\x02\xff", r"seats: 'utf-8' codec can't decode"),
        (b"\0\0\4no", r"id: badly formed hexadecimal UUID string"),
        (b"\0\0\x50no", r"id: "),
        (b"\0\0" + b"\x48" + ID.encode() + b"\2\1\0\0", r": 1 byte follows the value$"),
    ],
)
def test_the_path_to_damaged_bytes(data: bytes, message: str) -> None:
    serde = AvroSerde[Any](TRIP)
    header = serde.serialize(trip())[:5]
    with pytest.raises(SerializationError, match=message):
        serde.deserialize(header + data)


class Gate(Enum):
    A = "A"
    B = "B"


class Flat(msgspec.Struct):
    gate: Gate


def resolved(written: Any, wanted: Any, value: Any, **options: Any) -> str:
    registry = LocalSchemaRegistry()
    data = AvroSerde[Any](written, registry=registry).serialize(value)
    with pytest.raises(SerializationError) as raised:
        AvroSerde[Any](wanted, registry=registry, **options).deserialize(data)
    return str(raised.value)


def test_the_path_to_a_symbol_that_the_reader_lacks() -> None:
    """The error was the symbol alone, in quotes."""
    short = {**GATE, "symbols": ["A", "B"]}
    flat = {"type": "record", "name": "Flat", "fields": [{"name": "gate", "type": GATE}]}
    flat_short = {**flat, "fields": [{"name": "gate", "type": short}]}
    why = "gate: 'C' is none of the symbols ['A', 'B']"

    assert resolved(flat, flat_short, {"gate": "C"}).endswith(f": {why}")
    assert resolved(flat, flat_short, {"gate": "C"}, type=Flat).endswith(f": {why}")
    assert resolved(flat, flat_short, {"gate": "C"}, fields=["gate"]).endswith(f": {why}")
    assert resolved(GATE, short, "C").endswith(": 'C' is none of the symbols ['A', 'B']")
    lists = [{"type": "array", "items": {"type": "map", "values": each}} for each in (flat, flat_short)]
    assert resolved(*lists, [{}, {"x": {"gate": "C"}}]).endswith(f": [1]['x'].{why}")


def test_the_path_to_a_branch_that_the_reader_lacks() -> None:
    written, wanted = (
        {
            "type": "record",
            "name": "Trip",
            "fields": [
                {
                    "name": "legs",
                    "type": {
                        "type": "array",
                        "items": {
                            "type": "record",
                            "name": "Leg",
                            "fields": [{"name": "gate", "type": gate}],
                        },
                    },
                }
            ],
        }
        for gate in (["null", "string"], "string")
    )
    said = resolved(written, wanted, {"legs": [{"gate": "A"}, {"gate": None}]})
    assert said.endswith(": legs[1].gate: 'null' is written and 'string' is wanted")


def test_the_path_to_a_field_that_cannot_be_converted() -> None:
    fields: Any = LEG["fields"]
    wanted = {**TRIP, "fields": [{"name": "legs", "type": {"type": "array", "items": {**LEG, "fields": [
        {"name": "gate", "type": "int"}, *fields[1:]]}}}]}  # fmt: skip
    assert "legs[0].gate: Gate is written and 'int' is wanted" in resolved(TRIP, wanted, trip(legs=[leg()]))
    added = {**TRIP, "fields": [{"name": "legs", "type": {"type": "array", "items": {**LEG, "fields": [
        *fields, {"name": "row", "type": "int"}]}}}]}  # fmt: skip
    assert "legs[0].row: the field of Leg was not written and has no default" in resolved(
        TRIP, added, trip(legs=[leg()])
    )
    at_top = {**TRIP, "fields": [{"name": "bags", "type": "int"}]}
    assert "describes: bags: {'type': 'array', 'items': 'int'} is written and 'int' is wanted" in resolved(
        TRIP, at_top, trip()
    )


def test_the_path_in_skipped_fields() -> None:
    serde = AvroSerde[Any](TRIP, fields=["bags"])
    header = AvroSerde[Any](TRIP, registry=serde.registry).serialize(trip())[:5]
    with pytest.raises(SerializationError, match=r"legs\[0\]\.cents: a union has no branch 2"):
        serde.deserialize(header + b"\2\0\1\0\4")


def test_a_long_path_lacks_its_middle() -> None:
    node = {
        "type": "record",
        "name": "Node",
        "fields": [{"name": "next", "type": ["null", "Node", "string"]}],
    }
    value: Any = {"next": 5}
    for _ in range(150):
        value = {"next": value}
    with pytest.raises(SerializationError) as raised:
        AvroSerde[Any](node).serialize(value)
    assert len(str(raised.value)) < 1_000
    assert ".next: 5 (int) fits no branch" in str(raised.value)


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=40)
    | st.lists(st.sampled_from([b"\0", b"\1", b"\2", b"\4", b"a", b"\x7f", b"\xff"]), max_size=30).map(
        b"".join
    )
)
def test_each_error_of_the_reader_is_found_again(noise: bytes) -> None:
    serde = AvroSerde[Any](TRIP)
    data = serde.serialize(trip())[:5] + noise
    traced = None
    try:
        serde.deserialize(data)
    except SerializationError:
        traced = serde._traced(data)
        assert traced is not None
    else:
        assert serde._traced(data) is None
