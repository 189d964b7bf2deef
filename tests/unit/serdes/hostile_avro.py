"""Hostile Avro: what once ended the process, took all memory or all time, or was read as a wrong value.

Run as a program it goes through all cases with little memory and little stack of its own; `test_hostile.py` runs it so.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from streamapp.errors import ConfigError, SerializationError
from streamapp.serdes import AvroSerde

MEMORY = 1 << 30

NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": ["null", "Node"], "default": None}],
}
TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "children", "type": {"type": "array", "items": "Tree"}}],
}
NO_EXIT = {
    "type": "record",
    "name": "Loop",
    "fields": [{"name": "a", "type": "Loop"}, {"name": "b", "type": "Loop"}],
}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
EMPTY = {"type": "record", "name": "Empty", "fields": []}
FORK = {
    "type": "record",
    "name": "A",
    "fields": [
        {
            "name": "next",
            "type": [
                "A",
                {"type": "record", "name": "B", "fields": [{"name": "next", "type": ["A", "B", "int"]}]},
                "int",
            ],
        }
    ],
}


def record(*types: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": f"f{n}", "type": type_} for n, type_ in enumerate(types)],
    }


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def number(x: int) -> bytes:
    z, out = (x << 1) ^ (x >> 63), bytearray()
    while z > 127:
        out.append(z & 127 | 128)
        z >>= 7
    return bytes(out) + bytes((z,))


MANY = number(2**50)
BYTES: dict[str, tuple[Any, bytes]] = {
    "60 kB of nesting": (NODE, b"\x02" * 60_000 + b"\x00"),
    "nested arrays": (TREE, b"\x02" * 60_000),
    "a type without an exit": (NO_EXIT, b""),
    "2**50 nulls": (array("null"), MANY + b"\0"),
    "2**50 empty records": (array(EMPTY), MANY + b"\0"),
    "2**50 empty fixed": (array({"type": "fixed", "name": "F", "size": 0}), MANY + b"\0"),
    "2**63 nulls in a negative block": (array("null"), number(-(2**63)) + number(0) + b"\0"),
    "arrays of nulls": (array(array("null")), number(3000) + (number(2000) + b"\0") * 3000 + b"\0"),
    "2**50 fixed of nothing": (array({"type": "fixed", "name": "F", "size": 16}), MANY),
    "2**50 doubles": (array("double"), MANY),
    "2**50 strings": (array("string"), MANY),
    "2**50 keys": ({"type": "map", "values": "null"}, MANY),
    "a string of 2**62 bytes": ("string", number(2**62)),
    "an endless number": ("long", b"\xff" * 400_000),
    "an endless number in a record": (record("int", "string"), b"\xff" * 400_000),
    "a number of 65 bits": ("long", b"\xff" * 9 + b"\x02"),
    "an int of 33 bits": ("int", number(2**32)),
    "a decimal of 300 kB": (DECIMAL, number(300_000) + b"\x7f" * 300_000),
    "a decimal of too many digits": (DECIMAL, number(3) + (123_456).to_bytes(3, "big")),
    "a negative branch": (["null", "int", "string"], number(-1) + b"\x02"),
    "a branch that is not there": (["null", "int", "string"], number(3)),
    "a negative symbol": ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, number(-1)),
    "a symbol that is not there": ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, number(2)),
    "a negative length": ("bytes", number(-1)),
    "a negative block size": (array("int"), number(-1) + number(-1) + b"\x02\0"),
    "a block of another size": (array("int"), number(-1) + number(5) + b"\x02\0"),
    "bytes that follow": (record("int"), b"\x02\x02"),
    "bytes that follow a nested value": (array("int"), b"\0\0"),
    "a boolean of 2": ("boolean", b"\x02"),
    "text that is not UTF-8": ("string", b"\x02\xff"),
    "a time out of range": ({"type": "long", "logicalType": "timestamp-millis"}, number(2**62)),
    "a date out of range": ({"type": "int", "logicalType": "date"}, number(2**31 - 1)),
    "a time of day out of range": ({"type": "long", "logicalType": "time-micros"}, number(-1)),
    "no UUID": ({"type": "string", "logicalType": "uuid"}, b"\x02x"),
}
"""Schema, and bytes that are no value of it."""


def deep(levels: int, make: Any, leaf: Any) -> Any:
    value = leaf
    for _ in range(levels):
        value = make(value)
    return value


def chain() -> list[Any]:
    """Each type contains the one before, so the JSON is flat and the types are deep."""
    return [
        {
            "type": "record",
            "name": f"C{n}",
            "fields": [{"name": "x", "type": f"C{n - 1}" if n else "int"}],
        }
        for n in range(3000)
    ]


SCHEMAS: dict[str, Any] = {
    "nested arrays": deep(50_000, array, "int"),
    "nested unions": deep(50_000, lambda inner: [inner], "int"),
    "a deep default": record("int") | {"doc": deep(50_000, lambda inner: [inner], 1)},
    "a million fields": record(*["int"] * 1_000_000),
    "a parsed schema": {"type": "Evil", "__fastavro_parsed": True, "__named_schemas": {"Evil": 5}},
    "two fields of one name": record("int") | {"fields": [{"name": "a", "type": "int"}] * 2},
    "a field without a name": record("int") | {"fields": [{"name": 5, "type": "int"}]},
    "a fixed of a negative size": {"type": "fixed", "name": "F", "size": -5},
    "a fixed of a huge size": {"type": "fixed", "name": "F", "size": 10**5000},
    "an unknown name": array("Nobody"),
    "a union in a union": [["null"], "int"],
    "a type that is a list": {"type": ["int"]},
    "a type that is a number": 5,
    "nothing": None,
    "symbols that are no text": {"type": "enum", "name": "E", "symbols": [[]]},
    "a scale without end": DECIMAL | {"scale": 10**5000},
    "a deep chain of types": chain(),
    "another type": "string",
    "another name": record("int") | {"name": "Other"},
    "a name that is code": {
        "type": "record",
        "name": "R",
        "fields": [{"name": "'+exit(9)+'", "type": "int"}],
    },
    "100 unions of 400": record(
        *[[record(*["int"]) | {"name": f"U{a}_{b}"} for b in range(100)] for a in range(90)]
    ),
}
"""Schemas of a writer from which no record with an int ``f0`` can be read."""

SELF: dict[str, Any] = {}
SELF["next"] = SELF
VALUES: dict[str, tuple[Any, Any]] = {
    "60,000 levels": (NODE, deep(60_000, lambda inner: {"next": inner}, None)),
    "lists in lists": (TREE, deep(60_000, lambda inner: {"children": [inner]}, {"children": []})),
    "a value that contains itself": (NODE, SELF),
    "a fork at each level": (FORK, deep(150, lambda inner: {"next": inner}, {"next": "no int"})),
    "a deep value of another type": ("int", deep(60_000, lambda inner: [inner], 1)),
    "a decimal with a billion zeros": (DECIMAL, Decimal("1E+1000000000")),
    "a decimal of too many digits": (DECIMAL, Decimal("123.45")),
    "a decimal of too many places": (DECIMAL, Decimal("1.234")),
    "a decimal that is none": (DECIMAL, Decimal("NaN")),
    "an int of 33 bits": (record(array("int")), {"f0": [2**31]}),
    "a long of 65 bits": (array("long"), [2**63]),
    "an int of 5,000 digits": ("long", 10**5000),
    "half a pair": (array("string"), ["\ud800"]),
    "a float beyond all": (array("float"), [1e300]),
    "no symbol": (array({"type": "enum", "name": "E", "symbols": ["A"]}), [[]]),
}
"""Schema, and a value that it cannot write."""


class Registry:
    """Every id is the one schema of a writer."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema

    def id_of(self, subject: str, schema: Any) -> int:
        return 1

    def schema_of(self, schema_id: int) -> Any:
        return self.schema


def refused(call: Callable[[], Any], *errors: type[Exception]) -> bool:
    """True if the call raises one of the errors, with a message that fits into a log."""
    try:
        call()
    except errors as error:
        if len(str(error)) > 2000:
            raise AssertionError(f"the message has {len(str(error))} characters") from error
        return True
    return False


def run(name: str) -> None:
    """One case; raises anything but `SerializationError` if it is not refused as it should be."""
    kind, _, case = name.partition(": ")
    if kind == "bytes":
        schema, data = BYTES[case]
        for wanted in (schema, record("int")):  # the same type, and another, for which it is stepped over
            around = record("int") | {
                "fields": [{"name": "skipped", "type": schema}, *record("int")["fields"]]
            }
            serde = AvroSerde[Any](wanted, registry=Registry(schema if wanted is schema else around))
            gone = refused(lambda serde=serde: serde.deserialize(b"\0\0\0\0\1" + data), SerializationError)
            assert gone or wanted is not schema, (
                f"{case} was read"
            )  # what is stepped over need not be a value
    elif kind == "schema":
        serde = AvroSerde[Any](record("int"), registry=Registry(SCHEMAS[case]))
        for _ in range(3):
            assert refused(lambda: serde.deserialize(b"\0\0\0\0\1" + b"\x02" * 40), SerializationError)
        refused(lambda: AvroSerde[Any](SCHEMAS[case]), ConfigError)
    else:
        schema, value = VALUES[case]
        assert refused(lambda: AvroSerde[Any](schema).serialize(value), SerializationError), (
            f"{case} was written"
        )


CASES = [
    *(f"bytes: {name}" for name in BYTES),
    *(f"schema: {name}" for name in SCHEMAS),
    *(f"value: {name}" for name in VALUES),
]

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (100, 100))
    for each in sys.argv[1:] or CASES:
        print(each, flush=True)
        run(each)
    print("all refused")
