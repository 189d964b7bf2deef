"""Types with Protobuf: a field's number belongs to the field, before a schema is registered and when bytes are read."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import msgspec
import pytest
from click.testing import CliRunner

from streamapp import App, ProtobufSerde, StreamsBuilder, StreamsConfig, StringSerde
from streamapp.cli import main
from streamapp.errors import SchemaRegistryError, SerializationError
from streamapp.registry import ConfluentSchemaRegistry
from streamapp.serdes import FieldNumber, LocalSchemaRegistry, schema_registry

from .scripted import Refused, ScriptedRegistry


def order(**fields: Any) -> Any:
    return msgspec.defstruct(
        "Order",
        [
            (name, kind, kind.__args__[0]() if hasattr(kind, "__args__") else kind())
            for name, kind in fields.items()
        ],
    )


FIRST = order(id=str, cents=int)
ADDED = order(id=str, cents=int, paid=bool)
IN_FRONT = order(paid=bool, id=str, cents=int)
SWAPPED = order(cents=int, id=str)
LEFT_OUT = order(cents=int)
KEPT = order(cents=Annotated[int, FieldNumber(2)])
USED_AGAIN = order(id=str, paid=bool)
NEXT = order(id=str, paid=Annotated[bool, FieldNumber(3)])
OF_ANOTHER_TYPE = order(id=str, cents=str)

WRONG = [
    (IN_FRONT, "Order.id is string with number 2 here, and string with number 1 there"),
    (SWAPPED, "Order.cents is int64 with number 1 here, and int64 with number 2 there"),
    (LEFT_OUT, "Order.cents is int64 with number 1 here, and int64 with number 2 there"),
    (USED_AGAIN, "number 2 is Order.paid here, and Order.cents there"),
    (OF_ANOTHER_TYPE, "Order.cents is string with number 2 here, and int64 with number 2 there"),
]
RIGHT = [FIRST, ADDED, KEPT, NEXT]


def serde(type_: Any, server: ScriptedRegistry, **settings: Any) -> ProtobufSerde[Any]:
    return ProtobufSerde(type=type_, registry=ConfluentSchemaRegistry(server.url), **settings).bind(
        "orders", False
    )


@pytest.mark.parametrize(("type_", "why"), WRONG)
def test_no_schema_is_registered_whose_numbers_have_moved(
    server: ScriptedRegistry, type_: Any, why: str
) -> None:
    serde(FIRST, server).serialize(FIRST())
    with pytest.raises(SchemaRegistryError, match=f"orders-value .*version 1 .*{why}.*FieldNumber"):
        serde(type_, server).serialize(type_())
    assert len(server.subjects["orders-value"]) == 1
    pinned = serde(type_, server, version=1)
    with pytest.raises(SchemaRegistryError, match=why):
        pinned.serialize(type_())


@pytest.mark.parametrize("type_", RIGHT)
def test_other_changes_are_registered_and_read(server: ScriptedRegistry, type_: Any) -> None:
    first = serde(FIRST, server)
    old = first.serialize(FIRST("o-1", 995))
    new = serde(type_, server)
    assert first.deserialize(new.serialize(type_(cents=7) if hasattr(type_, "cents") else type_("x"))) in (
        FIRST("", 7),
        FIRST("x", 0),
    )
    read = new.deserialize(old)
    assert {name: getattr(read, name) for name in read.__struct_fields__} == {
        name: {"id": "o-1", "cents": 995, "paid": False}[name] for name in read.__struct_fields__
    }


@pytest.mark.parametrize(("type_", "why"), WRONG)
def test_bytes_whose_numbers_have_moved_are_refused(
    server: ScriptedRegistry, tmp_path: Any, type_: Any, why: str
) -> None:
    """A folder as registry refuses no schema, so that a reader meets the bytes."""
    for registry in (ConfluentSchemaRegistry(server.url), LocalSchemaRegistry(tmp_path)):
        old = ProtobufSerde[Any](type=FIRST, registry=registry).bind("orders", False)
        new = ProtobufSerde[Any](type=type_, registry=registry).bind("orders", False)
        with pytest.raises(SerializationError, match=f"{why}.*schema of id"):
            new.deserialize(old.serialize(FIRST("o-1", 995)))


def test_a_number_of_a_version_long_ago_is_refused_where_it_is_read(server: ScriptedRegistry) -> None:
    old = serde(FIRST, server).serialize(FIRST("o-1", 995))
    only_id = order(id=str)
    serde(only_id, server).serialize(only_id())
    again = serde(USED_AGAIN, server)
    again.serialize(USED_AGAIN())  # the newest version does not have the number
    with pytest.raises(SerializationError, match=r"number 2 is Order\.paid here, and Order\.cents there"):
        again.deserialize(old)


def test_a_generated_class_may_rename_its_fields(server: ScriptedRegistry) -> None:
    """The application owns the numbers of its .proto file."""
    message = ProtobufSerde[Any](type=FIRST).message
    renamed = ProtobufSerde[Any](type=order(key=str, cents=int)).message
    registry = ConfluentSchemaRegistry(server.url)
    data = ProtobufSerde[Any](message, registry=registry).bind("o", False).serialize(message(id="x"))
    assert ProtobufSerde[Any](renamed, registry=registry).bind("o", False).deserialize(data).key == "x"


def test_a_registry_that_is_away_is_said_once(server: ScriptedRegistry) -> None:
    def away(number: int) -> None:
        raise Refused(503, 50302, "the leader is not known")

    server.fault = away
    registry = ConfluentSchemaRegistry(server.url, patience_ms=50)
    with pytest.raises(SchemaRegistryError, match="the leader is not known"):
        ProtobufSerde[Any](type=FIRST, registry=registry).bind("orders", False).serialize(FIRST())


def run(
    server: ScriptedRegistry, monkeypatch: pytest.MonkeyPatch, command: str, type_: Any
) -> tuple[int, str]:
    def describe(builder: StreamsBuilder) -> None:
        stream = builder.stream("in", key_serde=StringSerde(), value_serde=StringSerde())
        stream.map_values(type_).to("orders", value_serde=ProtobufSerde(type=type_))

    monkeypatch.setattr(schema_registry, "_default", None)
    app = App("numbers", topology=describe, config=StreamsConfig("numbers", schema_registry_url=server.url))
    monkeypatch.setattr(sys.modules[__name__], "app", app, raising=False)
    ran = CliRunner().invoke(main, ["schema", command, __name__])
    return ran.exit_code, ran.output


@pytest.mark.parametrize("command", ["check", "register"])
def test_the_commands_compare_with_each_version(
    server: ScriptedRegistry, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    assert run(server, monkeypatch, command, FIRST)[0] == 0
    only_id = order(id=str)
    for type_ in (FIRST, only_id):
        assert run(server, monkeypatch, "register", type_)[0] == 0
    code, said = run(server, monkeypatch, command, USED_AGAIN)
    assert code == 1
    assert "version 1 (id 1): number 2 is Order.paid here, and Order.cents there" in said
    assert ("orders-value: writes, incompatible with version 2" in said) is (command == "check")
    assert len(server.subjects["orders-value"]) == 2
    assert run(server, monkeypatch, command, NEXT)[0] == 0
