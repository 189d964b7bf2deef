"""Any nested type: each format derives a schema from it, writes its values, and reads the same values."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamapp import AvroSerde, JsonSchemaSerde, ProtobufSerde, Serde
from streamapp.errors import ConfigError, SerializationError
from tests.unit.serdes.protos import compiled


class State(enum.Enum):
    OPEN = "OPEN"
    SENT = "SENT"


class Priority(enum.IntEnum):
    LOW = 0
    HIGH = 5


class Made(NamedTuple):
    """A type, its values, and the formats that have no single form for it."""

    type: Any
    values: st.SearchStrategy[Any]
    refused: frozenset[str] = frozenset()


AVRO, PROTOBUF = "Avro", "Protobuf"
NUMBERS = count()
TEXT = st.text(max_size=5)
LEAVES = [
    Made(bool, st.booleans()),
    Made(int, st.integers(-(2**63), 2**63 - 1)),
    Made(float, st.floats(allow_nan=False, allow_infinity=False)),
    Made(str, TEXT),
    Made(bytes, st.binary(max_size=5)),
    Made(datetime, st.datetimes(timezones=st.just(UTC))),
    Made(date, st.dates()),
    Made(time, st.times()),
    Made(UUID, st.uuids()),
    Made(State, st.sampled_from(State)),
    Made(Priority, st.sampled_from(Priority), frozenset({AVRO})),
    Made(Decimal, st.decimals(allow_nan=False, allow_infinity=False, places=3), frozenset({AVRO})),
]


def struct(name: str, fields: list[tuple[Any, ...]]) -> Any:
    return msgspec.defstruct(name, fields)


def data_class(name: str, fields: list[tuple[Any, ...]]) -> Any:
    return dataclasses.make_dataclass(
        name,
        [
            (f, t) if not default else (f, t, dataclasses.field(default=default[0]))
            for f, t, *default in fields
        ],
    )


def model(name: str, fields: list[tuple[Any, ...]]) -> Any:
    given: dict[str, Any] = {f: (t, default[0] if default else ...) for f, t, *default in fields}
    # pydantic writes bytes as text, unless the model asks for base64.
    config = pydantic.ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    return pydantic.create_model(name, __config__=config, **given)


@st.composite
def records(draw: st.DrawFn, kind: Callable[..., Any], depth: int = 2, of: Sequence[Made] = LEAVES) -> Made:
    """A class of ``kind`` with up to four fields, whose leaves are ``of``. Fields with a default stand last."""
    parts = [draw(fields(kind, depth, of)) for _ in range(draw(st.integers(1, 4)))]
    without = [(f"f{n}", part.type) for n, part in enumerate(parts)]
    refused = frozenset[str]().union(*(part.refused for part in parts))
    optional = [
        (f"g{n}", part.type | None, None)
        for n, part in enumerate(draw(st.lists(st.sampled_from(of), max_size=2)))
    ]
    cls = kind(f"Record{next(NUMBERS)}", [*without, *optional])
    values = st.builds(cls, **{name: part.values for (name, _), part in zip(without, parts, strict=True)})
    return Made(cls, values, refused | _refused_by(optional))


def _refused_by(optional: list[tuple[Any, ...]]) -> frozenset[str]:
    types = [each.__args__[0] for _, each, _ in optional]
    return frozenset({AVRO}) if Priority in types or Decimal in types else frozenset()


@st.composite
def fields(draw: st.DrawFn, kind: Callable[..., Any], depth: int, of: Sequence[Made]) -> Made:
    """The type of a field: a leaf, a record, or a list, dict or optional of one of them."""
    leaves = st.sampled_from(of)
    inner = draw(st.one_of(leaves, records(kind, depth - 1, of)) if depth else leaves)
    shape = draw(st.sampled_from(["one", "optional", "list", "dict", "list of optional", "list of lists"]))
    some, values, refused = inner
    match shape:
        case "optional":
            return Made(some | None, st.none() | values, refused)
        case "list":
            return Made(list[some], st.lists(values, max_size=3), refused)  # type: ignore[valid-type]
        case "dict":
            return Made(dict[str, some], st.dictionaries(TEXT, values, max_size=3), refused)  # type: ignore[valid-type]
        case "list of optional":
            items = st.lists(st.none() | values, max_size=3)
            return Made(list[some | None], items, refused | {PROTOBUF})  # type: ignore[valid-type]
        case "list of lists":
            lists = st.lists(st.lists(values, max_size=2), max_size=2)
            return Made(list[list[some]], lists, refused | {PROTOBUF})  # type: ignore[valid-type]
    return inner


def again_avro(serde: Any, type_: Any) -> Serde[Any]:
    return AvroSerde(json.loads(json.dumps(serde.schema)), type=type_)


def again_json(serde: Any, type_: Any) -> Serde[Any]:
    return JsonSchemaSerde(json.loads(json.dumps(serde.schema)), type=type_)


def again_protobuf(serde: Any, type_: Any) -> Serde[Any]:
    return ProtobufSerde(type=type_)


FORMATS = [
    (AVRO, AvroSerde, again_avro),
    ("JSON", JsonSchemaSerde, again_json),
    (PROTOBUF, ProtobufSerde, again_protobuf),
]


@pytest.mark.parametrize("kind", [struct, data_class, model])
@pytest.mark.parametrize(("name", "make", "again"), FORMATS, ids=[name for name, *_ in FORMATS])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_type(kind: Any, name: str, make: Any, again: Any, data: st.DataObject) -> None:
    """Refusals come with the serde, and only for types without a single form in the format.

    A second serde gets the derived schema in its text form. The second serde accepts the type, and both read what the
    other has written.
    """
    made = data.draw(records(kind))
    if name in made.refused:
        with pytest.raises(ConfigError):
            make(type=made.type)
        return
    serde = make(type=made.type)
    other = again(serde, made.type)
    for value in data.draw(st.lists(made.values, min_size=1, max_size=3)):
        written = serde.serialize(value)
        assert serde.deserialize(written) == value
        assert other.deserialize(written) == value
        assert serde.deserialize(other.serialize(value)) == value


@pytest.mark.parametrize("kind", [struct, data_class, model])
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_proto_file_of_any_type(kind: Any, tmp_path: Path, data: st.DataObject) -> None:
    """A class that protoc generates from the derived text has the same bytes, and takes the type in its turn."""
    without_enums = [each for each in LEAVES if each.type not in (State, Priority)]
    made = data.draw(records(kind, of=without_enums).filter(lambda each: PROTOBUF not in each.refused))
    derived = ProtobufSerde[Any](type=made.type)
    name = f"any{next(NUMBERS)}"
    (tmp_path / f"{name}.proto").write_text(derived.schema)
    message = getattr(compiled(tmp_path, name), made.type.__name__)
    generated = ProtobufSerde[Any](message, type=made.type)
    for value in data.draw(st.lists(made.values, min_size=1, max_size=3)):
        body = derived.serialize(value)[6:]
        assert message.FromString(body).SerializeToString(deterministic=True) == body
        assert generated.deserialize(generated.serialize(value)) == value


class Ticket(msgspec.Struct):
    state: State
    before: State | None
    level: Priority


TICKET_SCHEMA = {
    "type": "record",
    "name": "Ticket",
    "fields": [
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "SENT"]}},
        {"name": "before", "type": ["null", "State"]},
        {"name": "level", "type": "int"},
    ],
}


def test_a_field_with_an_enum_has_its_members() -> None:
    """Before, a Struct came back with the symbol or the number in the field."""
    serde = AvroSerde[Ticket](TICKET_SCHEMA, type=Ticket)
    ticket = Ticket(State.OPEN, None, Priority.HIGH)
    assert serde.deserialize(serde.serialize(ticket)) == ticket
    plain = AvroSerde[Any](TICKET_SCHEMA, registry=serde.registry)
    assert plain.deserialize(serde.serialize(ticket)) == {"state": "OPEN", "before": None, "level": 5}
    wrong = plain.serialize({"state": "SENT", "before": "OPEN", "level": 3})
    with pytest.raises(SerializationError, match="Invalid enum value 3"):
        serde.deserialize(wrong)


def test_bytes_of_a_model_are_text_in_json() -> None:
    class Blob(pydantic.BaseModel):
        data: bytes

    serde = JsonSchemaSerde[Blob](type=Blob)
    assert serde.deserialize(serde.serialize(Blob(data=b"text"))) == Blob(data=b"text")
    with pytest.raises(SerializationError, match="invalid utf-8"):
        serde.serialize(Blob(data=b"\x80"))
