"""Keys and values of letters as text, and back: Avro, JSON Schema, Protobuf, numbers, and bytes of any kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamapp import App, StreamsBuilder, StreamsConfig
from streamapp.desk.letter_texts import LetterTexts, TextRefused
from streamapp.desk.letters import Letter
from streamapp.desk.readers import Reader, readers_of
from streamapp.errors import SchemaRegistryError
from streamapp.serdes import (
    AvroSerde,
    BytesSerde,
    JsonSchemaSerde,
    JsonSerde,
    LocalSchemaRegistry,
    LongSerde,
    ProtobufSerde,
    Serde,
    StringSerde,
)


class Ride(msgspec.Struct):
    km: int
    city: str = ""


class Longer(msgspec.Struct):
    km: int
    city: str = ""
    tip: float | None = None


def letter(
    value: bytes | None, key: bytes | None = b"r-1", topic: bytes = b"rides", task: bytes = b"0_1"
) -> Letter:
    headers = (
        ("__streams.errors.topic", topic),
        ("__streamapp.errors.application", b"taxi"),
        ("__streamapp.errors.task", task),
    )
    return Letter(0, 17, 5, key, value, headers)


def texts_of(value: Serde[Any], key: Serde[Any] | None = None, group: str = "taxi") -> LetterTexts:
    reader = Reader(group, ("rides",), None, key or StringSerde(), value)
    return LetterTexts(StreamsConfig("taxi"), [reader])


FRAMED: list[Callable[[LocalSchemaRegistry, Any], Serde[Any]]] = [
    lambda registry, type_: AvroSerde(type=type_, registry=registry),
    lambda registry, type_: JsonSchemaSerde(type=type_, registry=registry),
    lambda registry, type_: ProtobufSerde(type=type_, registry=registry),
]


@pytest.mark.parametrize("make", FRAMED, ids=["avro", "json", "protobuf"])
def test_a_value_with_a_schema_is_json_and_is_encoded_again(
    make: Callable[..., Serde[Any]], tmp_path: Path
) -> None:
    """The desk wrote the JSON text itself, which the topology could not read."""
    serde = make(LocalSchemaRegistry(tmp_path), Ride).bind("rides", False)
    texts, found = texts_of(serde), letter(serde.serialize(Ride(3, "Basel")))
    part = texts.part(found, False)
    assert (msgspec.json.decode(part.text), part.problem) == ({"km": 3, "city": "Basel"}, "")
    assert ", id " in part.form
    assert texts.bytes_of(found, False, part.text) == found.value
    data = texts.bytes_of(found, False, '{"km": 4, "city": "Zürich"}')
    assert serde.deserialize(data) == Ride(4, "Zürich")


@pytest.mark.parametrize("make", FRAMED, ids=["avro", "json", "protobuf"])
@pytest.mark.parametrize("text", ['{"km": "far"}', "no json", "7"])
def test_a_text_that_does_not_fit_is_refused(
    make: Callable[..., Serde[Any]], tmp_path: Path, text: str
) -> None:
    serde = make(LocalSchemaRegistry(tmp_path), Ride).bind("rides", False)
    found = letter(serde.serialize(Ride(3)))
    with pytest.raises(TextRefused, match="letter 0-17: .*value"):
        texts_of(serde).bytes_of(found, False, text)


def test_a_value_keeps_the_schema_of_its_writer(tmp_path: Path) -> None:
    """The application reads with an older schema; a field that it does not know would be lost."""
    registry = LocalSchemaRegistry(tmp_path)
    writer, reader = (
        AvroSerde[Any](type=Longer, registry=registry),
        AvroSerde[Any](type=Ride, registry=registry),
    )
    texts = texts_of(AvroSerde({**reader.schema, "name": "Longer"}, type=Ride, registry=registry))
    found = letter(writer.serialize(Longer(3, "Basel", 0.5)))
    assert texts.part(found, False).text == '{"km": 3, "city": "Basel", "tip": 0.5}'
    data = texts.bytes_of(found, False, '{"km": 4, "city": "Basel", "tip": 0.5}')
    assert writer.deserialize(data) == Longer(4, "Basel", 0.5)
    assert data[:5] == (found.value or b"")[:5]


def test_a_value_keeps_the_schema_of_a_writer_that_java_does_not_check(tmp_path: Path) -> None:
    """The schema has a wrong default, so the letter was shown as if nobody knew its schema."""
    fields = [{"name": "km", "type": "int", "default": "far"}, {"name": "city", "type": "string"}]
    (tmp_path / "7.avsc").write_text(json.dumps({"type": "record", "name": "Ride", "fields": fields}))
    texts = texts_of(AvroSerde(type=Ride, registry=LocalSchemaRegistry(tmp_path)))
    found = letter(b"\0\0\0\0\7" + b"\6\nBasel")
    assert texts.part(found, False).text == '{"km": 3, "city": "Basel"}'
    assert texts.bytes_of(found, False, '{"km": 4, "city": "Basel"}') == b"\0\0\0\0\7" + b"\x08\nBasel"


def test_a_value_of_a_wrong_schema_gets_the_schema_of_the_application(tmp_path: Path) -> None:
    registry = LocalSchemaRegistry(tmp_path)
    serde = AvroSerde[Any](type=Ride, registry=registry)
    found = letter(AvroSerde[Any]("string", registry=registry).serialize("3 km"))
    part = texts_of(serde).part(found, False)
    assert (part.text, part.form[:7]) == ('"3 km"', "avro, i")
    assert "cannot read Ride" in part.problem
    assert serde.deserialize(texts_of(serde).bytes_of(found, False, '{"km": 3}')) == Ride(3)


@pytest.mark.parametrize("value", [None, b"{}", b"\0\0\0\0\x07?"])
def test_bytes_without_a_known_schema_get_the_schema_of_the_application(
    value: bytes | None, tmp_path: Path
) -> None:
    serde = AvroSerde[Any](type=Ride, registry=LocalSchemaRegistry(tmp_path))
    part = texts_of(serde).part(letter(value), False)
    assert (part.text, part.problem == "") == ("null" if value is None else part.text, value is None)
    assert serde.deserialize(texts_of(serde).bytes_of(letter(value), False, '{"km": 3}')) == Ride(3)


def test_numbers_are_shown_and_given_as_text() -> None:
    texts, found = texts_of(StringSerde(), LongSerde()), letter(b"late", LongSerde().serialize(7))
    assert texts.part(found, True)[:2] == ("7", "long")
    assert texts.bytes_of(found, True, "8") == LongSerde().serialize(8)
    assert texts.part(found, False)[:2] == ("late", "string")
    assert texts.bytes_of(found, False, "early") == b"early"
    with pytest.raises(TextRefused, match="the new key is no long: ValueError"):
        texts.bytes_of(found, True, "late")


def test_json_without_a_schema_stays_as_it_is_written() -> None:
    texts, found = texts_of(JsonSerde(Ride)), letter(b'{"km":  3, "tip": 1}')
    assert texts.part(found, False)[:2] == ('{"km":  3, "tip": 1}', "json")
    assert texts.bytes_of(found, False, '{"km":  4, "tip": 1}') == b'{"km":  4, "tip": 1}'
    with pytest.raises(TextRefused, match="the application cannot read the new value"):
        texts.bytes_of(found, False, '{"km": "far"}')


def test_bytes_from_a_file_are_checked(tmp_path: Path) -> None:
    serde = AvroSerde[Any](type=Ride, registry=LocalSchemaRegistry(tmp_path))
    texts, data = texts_of(serde), serde.serialize(Ride(3))
    assert texts.checked(letter(b"?"), False, data) == data
    with pytest.raises(TextRefused, match="the application cannot read the new value"):
        texts.checked(letter(b"?"), False, b'{"km": 3}')


@pytest.mark.parametrize(
    ("reader", "task"),
    [
        (BytesSerde(), b"0_1"),
        (LongSerde(), b"taxi-mail_1"),  # another consumer of the topic
    ],
)
def test_bytes_without_a_serde_are_text_or_escaped(reader: Serde[Any], task: bytes) -> None:
    texts = texts_of(reader)
    assert texts.part(letter(b"\0\xff", task=task), False)[:2] == ("\\x00\\xff", "bytes")
    assert texts.bytes_of(letter(b"\0\xff", task=task), False, "ü") == "ü".encode()


def test_a_registry_that_does_not_answer_hides_no_letter() -> None:
    class Away(LocalSchemaRegistry):
        def schema_of(self, schema_id: int, format: Any = "AVRO") -> Any:
            raise SchemaRegistryError("the registry is away")

    serde = AvroSerde[Any](type=Ride, registry=Away())
    part = texts_of(serde).part(letter(b"\0\0\0\0\x07?"), False)
    assert (part.form, part.problem) == ("bytes", "SchemaRegistryError: the registry is away")
    with pytest.raises(SchemaRegistryError):
        texts_of(serde).bytes_of(letter(b"\0\0\0\0\x07?"), False, "{}")


def test_the_readers_of_an_application() -> None:
    def describe(builder: StreamsBuilder) -> None:
        rides = builder.stream("rides", key_serde=StringSerde(), value_serde=JsonSerde())
        rides.group_by(
            lambda key, value: value, name="by-city", key_serde=JsonSerde(), value_serde=JsonSerde()
        ).count()
        builder.global_table("cities", key_serde=LongSerde(), value_serde=StringSerde())

    app = App("readers-of", topology=describe)

    @app.consume("orders", key_serde=LongSerde())
    def mail(order: object) -> None: ...

    found = {(reader.group, topic): reader for reader in readers_of(app) for topic in reader.topics}
    assert found.keys() == {
        ("readers-of", "rides"),
        ("readers-of", "readers-of-by-city-repartition"),
        ("readers-of", "cities"),
        ("readers-of-mail", "orders"),
    }
    assert type(found["readers-of-mail", "orders"].key_serde) is LongSerde


def test_an_argument_that_is_not_utf8_is_refused() -> None:
    """The command ended with an UnboundLocalError."""
    with pytest.raises(TextRefused, match="the new value is no text: UnicodeEncodeError"):
        texts_of(BytesSerde()).bytes_of(letter(b"late"), False, "caf\udce9")
