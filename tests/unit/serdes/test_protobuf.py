"""Protobuf: framing, types, versions, hostile bytes."""

from __future__ import annotations

import dataclasses
import json
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from streamapp import (
    ProtobufSerde,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    TopologyTestDriver,
)
from streamapp.errors import ConfigError, SerializationError
from streamapp.registry import ConfluentSchemaRegistry
from streamapp.serdes import LocalSchemaRegistry
from streamapp.serdes.json_values import to_json
from streamapp.serdes.proto_outline import message_at
from tests.unit.registry.scripted import ScriptedRegistry
from tests.unit.serdes.protos import compiled, shop

ORDER = shop.Order(id="a", lines=[shop.Order.Line(item=shop.Item(name="x", cents=-3), count=2)], cash=True)


@pytest.mark.parametrize(
    ("message", "indexes"),
    [
        (shop.Item(name="cup"), b"\0"),
        (ORDER, b"\2\2"),
        (shop.Order.Line(count=1), b"\4\2\0"),
        (shop.Order.Line.Note(text="hi"), b"\6\2\0\0"),
    ],
)
def test_the_indexes_of_a_message_are_confluents(message: Any, indexes: bytes) -> None:
    """Counted by the .proto file, where the entry of the map in front of Line is no message."""
    serde = ProtobufSerde[Any](type(message))
    data = serde.serialize(message)
    assert data[5:] == indexes + message.SerializeToString()
    assert serde.deserialize(data) == message
    assert pickle.loads(pickle.dumps(serde.bind("orders", True))).subject == "orders-key"


def test_the_text_of_a_file_is_the_same_file(tmp_path: Path) -> None:
    text = (
        ProtobufSerde[Any](shop.Order)
        .schema.replace("package streamapp.shop;", "package again;")
        .replace(".streamapp.shop.", ".again.")
    )
    (tmp_path / "again.proto").write_text(text)
    again = compiled(tmp_path, "again")
    assert again.Order.FromString(ORDER.SerializeToString()).SerializeToString() == ORDER.SerializeToString()
    assert ProtobufSerde[Any](again.Order).schema == text


def test_the_text_of_defaults_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "defaults.proto").write_text(
        r"""syntax = "proto2"; package defaults; message Of {
        optional string letters = 1 [default = "a\\n \"b\" é 世 \t"]; optional bytes raw = 2 [default = "\\n \"\377\000é"]; }"""
    )
    first = compiled(tmp_path, "defaults").Of
    (tmp_path / "copied.proto").write_text(
        ProtobufSerde[Any](first).schema.replace("package defaults;", "package copied;")
    )
    copied = compiled(tmp_path, "copied").Of
    assert (copied().letters, copied().raw) == (first().letters, first().raw)
    assert first().letters == 'a\\n "b" é 世 \t'


class Item(msgspec.Struct):
    name: str
    cents: int = 0


@dataclasses.dataclass
class Cup:
    name: str
    cents: int = 0


@pytest.mark.parametrize(
    ("type_", "value"), [(Item, Item("x", 2**40)), (Cup, Cup("x", -1)), (dict, {"name": "x", "cents": "5"})]
)
def test_values_of_types(type_: Any, value: Any) -> None:
    serde = ProtobufSerde[Any](shop.Item, type=type_)
    assert serde.deserialize(serde.serialize(value)) == value
    with pytest.raises(SerializationError):
        serde.serialize({"nam": "x"} if type_ is dict else {"name": "x"})


@pytest.mark.parametrize("value", ["text", 7, {"name": "x"}, shop.Order(), Timestamp()])
def test_what_is_no_message_of_the_class(value: Any) -> None:
    with pytest.raises(SerializationError, match="expected Item"):
        ProtobufSerde[Any](shop.Item).serialize(value)


def test_a_newer_version_is_read_and_another_message_is_named(tmp_path: Path) -> None:
    registry = LocalSchemaRegistry()
    (tmp_path / "newer.proto").write_text(
        'syntax = "proto3"; package streamapp.shop; message Front {} message Item2 {} // message Item {}\n'
        "message Other { message Item { string name = 1; } }"
    )
    newer = compiled(tmp_path, "newer")
    note = ProtobufSerde[Any](newer.Other.Item, registry=registry)
    with pytest.raises(
        SerializationError,
        match=r"the message is a streamapp.shop.Other.Item; .*schema of id \d+, and streamapp.shop.Item here differs",
    ):
        ProtobufSerde[Any](shop.Item, registry=registry).deserialize(
            note.serialize(newer.Other.Item(name="x"))
        )

    moved = 'syntax = "proto3"; package streamapp.shop; message New {} message Item { string name = 1; int32 more = 9; }'
    number = registry.id_of("other", moved, "PROTOBUF")
    data = b"\0" + number.to_bytes(4, "big") + b"\2\2" + b"\x0a\1x\x48\5"
    assert ProtobufSerde[Any](shop.Item, registry=registry).deserialize(data).name == "x"


@pytest.mark.parametrize("message", [dict, Item, "Item", None])
def test_what_is_no_class_of_protoc(message: Any) -> None:
    with pytest.raises(ConfigError, match="a class that protoc has generated"):
        ProtobufSerde(message)


def test_a_file_with_imports_that_was_registered_by_hand(tmp_path: Path) -> None:
    (tmp_path / "inner.proto").write_text('syntax = "proto3"; package inner; message A { int32 n = 1; }')
    (tmp_path / "outer.proto").write_text(
        'syntax = "proto3"; package outer; import "inner.proto"; message B { inner.A a = 1; }'
    )
    compiled(tmp_path, "inner")
    outer = compiled(tmp_path, "outer")
    server = ScriptedRegistry()
    try:
        server.add("b-value", {"schema": (tmp_path / "outer.proto").read_text(), "schemaType": "PROTOBUF"})
        serde = ProtobufSerde[Any](
            outer.B, version="latest", registry=ConfluentSchemaRegistry(server.url)
        ).bind("b", False)
        value = outer.B(a={"n": 3})
        assert serde.deserialize(serde.serialize(value)) == value
    finally:
        server.stop()


def test_the_driver_and_the_views_take_it() -> None:
    builder = StreamsBuilder(StreamsConfig("app"))
    serde = ProtobufSerde[Any](shop.Item)
    items = builder.stream("items", key_serde=StringSerde(), value_serde=serde)
    items.group_by_key().reduce(lambda a, b: shop.Item(name=b.name, cents=a.cents + b.cents)).to_stream().to(
        "sums", value_serde=serde
    )
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.create_input_topic("items", key_serde=StringSerde(), value_serde=serde)
        sums = driver.create_output_topic("sums", key_serde=StringSerde(), value_serde=serde)
        for cents in (1, 2):
            source.pipe_input("k", shop.Item(name="x", cents=cents))
        assert [each.value.cents for each in sums.read_records()] == [1, 3]
    assert json.dumps(to_json(ORDER)["lines"]) == '[{"item": {"name": "x", "cents": "-3"}, "count": 2}]'


HOSTILE = [b"", b"\0" * 5, b"\0\0\0\0\1", b"\1\0\0\0\1\0", b"\xff" * 40]


@pytest.fixture(scope="module")
def known() -> tuple[ProtobufSerde[Any], bytes]:
    serde = ProtobufSerde[Any](shop.Order)
    return serde, serde.serialize(ORDER)


@pytest.mark.parametrize(
    "indexes",
    [
        b"\1",
        b"\2\1",
        b"\2\4",
        b"\2\xff\xff\xff\xff\xff\xff",
        b"\xfe\xff\xff\xff\x0f",
        b"\4\2",
        b"\x7e" + b"\0" * 63,
        b"\6\2\2\2",
    ],
)
def test_hostile_indexes_are_refused(known: Any, indexes: bytes) -> None:
    serde, data = known
    with pytest.raises(SerializationError):
        serde.deserialize(data[:5] + indexes)


@pytest.mark.parametrize("data", HOSTILE)
def test_hostile_bytes_are_refused(known: Any, data: bytes) -> None:
    with pytest.raises(SerializationError):
        known[0].deserialize(data)


def test_nested_bytes_and_wrong_lengths_are_refused(known: Any) -> None:
    serde, data = known
    for body in (b"\x12\xff\xff\xff\xff\x07", b"\x1a\x05a", b"\x0b" * 1_000, b"\x12\2\xff\xfe"):
        with pytest.raises(SerializationError):
            serde.deserialize(data[:7] + body)


@given(st.binary(max_size=60), st.integers(0, 7))
def test_any_bytes_are_refused_or_read(known: Any, data: bytes, kept: int) -> None:
    serde, good = known
    with suppress(SerializationError):
        serde.serialize(serde.deserialize(good[:kept] + data))


@pytest.mark.parametrize(
    "schema",
    [
        "",
        "}",
        "message A {",
        "{" * 100_000,
        "message " * 100_000,
        "/*" * 100_000,
        '"' * 100_000,
        "x" * 2_000_000,
        "message A {}" * 10,
    ],
)
def test_hostile_schemas_are_refused_in_bounded_time(schema: str) -> None:
    with pytest.raises(ValueError, match="schema"):
        message_at(schema, [50, 0])


@given(st.text(max_size=200), st.lists(st.integers(0, 3), max_size=4))
def test_any_text_as_schema(schema: str, path: list[int]) -> None:
    with suppress(ValueError):
        message_at(schema, path)
