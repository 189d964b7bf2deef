"""Bytes, schemas and values that nobody promised: each is refused or right, whatever it is, in little memory."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamapp import StreamsBuilder, StreamsConfig, StringSerde, TopologyTestDriver
from streamapp.errors import ConfigError, SerializationError
from streamapp.serdes import AvroSerde, LocalSchemaRegistry
from streamapp.serdes.avro_reader import FREE_VALUES, VALUE_DEPTH
from streamapp.serdes.types import excerpt
from tests.unit.serdes.hostile_avro import CASES, NODE, Registry, array, deep, number, record

ROOT = Path(__file__).parents[3]


def test_no_case_ends_a_process_with_little_memory() -> None:
    """Together, in a process of 1 GiB and 100 s of processor time: a case that is not refused ends the process there."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.unit.serdes.hostile_avro"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, (ran.returncode, ran.stdout[-300:], ran.stderr[-3000:])
    assert ran.stdout.splitlines() == [*CASES, "all refused"]


def test_the_limits_themselves_are_met() -> None:
    serde = AvroSerde[Any](NODE)
    value = deep(VALUE_DEPTH - 1, lambda inner: {"next": inner}, {"next": None})
    data = serde.serialize(value)
    assert serde.deserialize(data) == value
    with pytest.raises(SerializationError, match=f"more than {VALUE_DEPTH} levels"):
        serde.serialize({"next": value})
    with pytest.raises(SerializationError, match=f"more than {VALUE_DEPTH} levels"):
        serde.deserialize(data[:5] + b"\x02" + data[5:])

    nulls = AvroSerde[Any](array("null"), registry=Registry(array("null")))
    assert nulls.deserialize(b"\0\0\0\0\1" + number(FREE_VALUES) + b"\0") == [None] * FREE_VALUES
    with pytest.raises(SerializationError, match="take no bytes"):
        nulls.deserialize(b"\0\0\0\0\1" + number(FREE_VALUES + 1) + b"\0")


def test_what_follows_the_fields_that_are_wanted_is_not_looked_at() -> None:
    serde = AvroSerde[Any](record("int", "string"), fields=["f0"], registry=Registry(record("int", "string")))
    assert serde.deserialize(b"\0\0\0\0\1\x02\x05") == {"f0": 1}


def test_a_schema_that_is_refused_is_looked_at_once() -> None:
    class Counting(Registry):
        asked = 0

        def schema_of(self, schema_id: int) -> Any:
            self.asked += 1
            return super().schema_of(schema_id)

    registry = Counting(deep(300, array, "int"))
    serde = AvroSerde[Any]("int", registry=registry)
    for _ in range(3):
        with pytest.raises(SerializationError, match="levels deep"):
            serde.deserialize(b"\0\0\0\0\1\x02")
    assert registry.asked == 1


def test_a_registry_without_an_answer_is_asked_again() -> None:
    registry = LocalSchemaRegistry()
    written = AvroSerde[Any]("long", registry=LocalSchemaRegistry()).serialize(5)
    serde = AvroSerde[Any]("double", registry=registry)
    with pytest.raises(SerializationError, match="no schema with id"):
        serde.deserialize(written)
    registry.id_of("any", "long")
    assert serde.deserialize(written) == 5.0


def test_a_deep_file_of_a_folder_of_schemas_is_named(tmp_path: Path) -> None:
    (tmp_path / "1.avsc").write_text("[" * 100_000)
    with pytest.raises(SerializationError, match=r"1\.avsc"):
        AvroSerde[Any]("int", registry=LocalSchemaRegistry(tmp_path)).deserialize(b"\0\0\0\0\1\x02")


def test_two_fields_of_one_name_are_no_schema() -> None:
    with pytest.raises(ConfigError, match="two fields with the name 'a'"):
        AvroSerde[Any](record() | {"fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]})


def test_decimals_are_exact_or_refused() -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 2}
    serde = AvroSerde[Any](kind)
    for value in (
        Decimal("-1.20"),
        Decimal("0.00"),
        Decimal("9" * 38 + ".99"),
        Decimal("-" + "9" * 38 + ".99"),
    ):
        assert serde.deserialize(serde.serialize(value)).as_tuple() == value.as_tuple()
    for value in (Decimal("1e39"), Decimal("1.234"), Decimal("Infinity")):
        with pytest.raises(SerializationError):
            serde.serialize(value)


def test_defaults_are_values_of_their_type_and_nobody_shares_them() -> None:
    at = {"type": "long", "logicalType": "timestamp-millis"}
    wanted = record("int") | {
        "fields": [
            {"name": "at", "type": at, "default": 0},
            {"name": "raw", "type": "bytes", "default": "\u00ff"},
            {"name": "list", "type": array("int"), "default": []},
            {
                "name": "sum",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 4},
                "default": "\u0007",
            },
            {"name": "inner", "type": record("int") | {"name": "Inner"}, "default": {"f0": 3}},
            {"name": "either", "type": ["string", "null"], "default": None},
        ]
    }
    expected = {
        "at": datetime(1970, 1, 1, tzinfo=UTC),
        "raw": b"\xff",
        "list": [],
        "sum": Decimal(7),
        "inner": {"f0": 3},
        "either": None,
    }
    serde = AvroSerde[Any](wanted, registry=Registry(record("int")))
    first = serde.deserialize(b"\0\0\0\0\1\x02")
    first["list"].append(5)
    first["inner"]["f0"] = 5
    assert serde.deserialize(b"\0\0\0\0\1\x02") == expected
    own = AvroSerde[Any](wanted)
    assert own.deserialize(own.serialize({})) == expected


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ({"type": "int", "logicalType": "time-millis"}, 86_400_000),
        ({"type": "long", "logicalType": "time-micros"}, -1),
        ({"type": "fixed", "name": "F", "size": 2}, "a"),
        ("int", 2**31),
        ("long", -(2**63) - 1),
    ],
)
def test_a_default_that_nobody_could_write_is_not_read(kind: Any, default: Any) -> None:
    """A time of the next day was read as midnight, and the other defaults as they are."""
    wanted = record("int") | {"fields": [{"name": "new", "type": kind, "default": default}]}
    with pytest.raises(SerializationError, match="new: the default does not fit"):
        AvroSerde[Any](wanted, registry=Registry(record("int"))).deserialize(b"\0\0\0\0\1\x02")
    with pytest.raises(SerializationError, match="new: "):
        AvroSerde[Any](wanted).serialize({})


def test_the_handler_is_asked_and_the_next_record_is_processed() -> None:
    registry = Registry(NODE)
    config = StreamsConfig(
        "app",
        deserialization_exception_handler="continue",
        dead_letter_queue_topic="dead",
        statestore_cache_max_bytes=0,
    )
    builder = StreamsBuilder(config)
    serdes: dict[str, Any] = {
        "key_serde": StringSerde(),
        "value_serde": AvroSerde[Any](NODE, registry=registry),
    }
    builder.stream("in", **serdes).to("out", **serdes)
    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe_raw("in", b"k", b"\0\0\0\0\1" + b"\x02" * 60_000 + b"\0", 0)
        driver.pipe_raw("in", b"k", b"\0\0\0\0\1\x02\0", 1)
        assert driver.dropped_records == 1
        assert [record.value for record in driver.produced["out"]] == [b"\0\0\0\0\1\x02\0"]
        (dead,) = driver.produced["dead"]
        assert b"SerializationError" in dict(dead.headers)["__streams.errors.exception"]


LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("string", st.text(st.characters(exclude_categories=["Cs"]), max_size=8)),
    ("bytes", st.binary(max_size=8)),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, st.sampled_from("AB")),
    ({"type": "fixed", "name": "F", "size": 3}, st.binary(min_size=3, max_size=3)),
    (
        {"type": "long", "logicalType": "timestamp-micros"},
        st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)).map(lambda t: t.replace(tzinfo=UTC)),
    ),
    (
        {"type": "long", "logicalType": "local-timestamp-micros"},
        st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)),
    ),
    ({"type": "int", "logicalType": "date"}, st.dates(date(1900, 1, 1), date(2100, 1, 1))),
    ({"type": "long", "logicalType": "time-micros"}, st.times()),
    (
        {"type": "int", "logicalType": "time-millis"},
        st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    ),
    ({"type": "string", "logicalType": "uuid"}, st.uuids()),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        st.integers(-999_999, 999_999).map(lambda n: Decimal(n).scaleb(-2)),
    ),
]


@st.composite
def types(
    draw: st.DrawFn, depth: int = 3, used: list[int] | None = None
) -> tuple[Any, st.SearchStrategy[Any]]:
    """A schema and its values."""
    used = [0] if used is None else used
    used[0] += 1
    number = used[0]
    shape = draw(
        st.sampled_from(["leaf", "array", "map", "record", "nullable", "union"] if depth else ["leaf"])
    )
    if shape in ("leaf", "nullable", "union"):
        schema, values = draw(st.sampled_from(LEAVES[1:] if shape != "leaf" else LEAVES))
        if isinstance(schema, dict) and "name" in schema:
            schema = {**schema, "name": f"{schema['name']}{number}"}
        if shape == "nullable":
            return ["null", schema], st.none() | values
        if shape == "union":
            return [
                "null",
                {"type": "array", "items": schema},
                "boolean",
            ], st.none() | st.booleans() | st.lists(values, max_size=3)
        return schema, values
    if shape == "record":
        fields = [draw(types(depth - 1, used)) for _ in range(draw(st.integers(0, 3)))]
        schema = record(*(field for field, _ in fields)) | {"name": f"R{number}"}
        return schema, st.fixed_dictionaries({f"f{n}": values for n, (_, values) in enumerate(fields)})
    inner, values = draw(types(depth - 1, used))
    if shape == "array":
        return array(inner), st.lists(values, max_size=3)
    return {"type": "map", "values": inner}, st.dictionaries(st.text("abc", max_size=2), values, max_size=3)


@settings(max_examples=300, deadline=None)
@given(types(), st.data())
def test_any_schema_is_written_and_read_as_by_fastavro(
    case: tuple[Any, st.SearchStrategy[Any]], data: Any
) -> None:
    schema, values = case
    value = data.draw(values)
    serde = AvroSerde[Any](schema, registry=Registry(schema))
    written = serde.serialize(value)

    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    assert written[5:] == out.getvalue()
    read = serde.deserialize(written)
    assert read == value
    assert fastavro.schemaless_reader(BytesIO(written[5:]), fastavro.parse_schema(schema), None) == value
    around = AvroSerde[Any](
        record("int") | {"fields": [{"name": "last", "type": "int"}]},
        registry=Registry(
            record("int") | {"fields": [{"name": "over", "type": schema}, {"name": "last", "type": "int"}]}
        ),
    )
    assert around.deserialize(written + b"\x0e") == {"last": 7}
    for wrong in (written[:-1], written + b"\0"):
        if len(wrong) >= 5:
            with suppress(SerializationError):  # nulls and bytes may be cut and still be a value
                serde.deserialize(wrong)


@settings(max_examples=300, deadline=None)
@given(types(), types(), st.binary(max_size=60))
def test_any_bytes_of_any_schema_are_refused_or_read(
    written: tuple[Any, Any], wanted: tuple[Any, Any], noise: bytes
) -> None:
    for schema in (written[0], wanted[0]):
        serde = AvroSerde[Any](wanted[0], registry=Registry(schema))
        try:
            value = serde.deserialize(b"\0\0\0\0\1" + noise)
        except SerializationError:
            continue
        if schema is wanted[0]:  # a value of the type: it can be written, and is read as the same
            again = serde.deserialize(serde.serialize(value))
            assert again == value or "nan" in repr(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.sampled_from(["record", "int", "R"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "name",
                    "fields",
                    "items",
                    "values",
                    "symbols",
                    "size",
                    "default",
                    "aliases",
                    "logicalType",
                    "precision",
                    "scale",
                    "namespace",
                    "__fastavro_parsed",
                    "__named_schemas",
                ]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)


@settings(max_examples=500, deadline=None)
@given(JSON, st.binary(max_size=20))
def test_any_json_is_a_schema_or_refused(schema: Any, noise: bytes) -> None:
    with suppress(ConfigError):
        AvroSerde[Any](schema)
    with suppress(SerializationError):
        AvroSerde[Any]("long", registry=Registry(schema)).deserialize(b"\0\0\0\0\1" + noise)


@pytest.mark.parametrize(
    ("value", "start"),
    [
        (10**5000, "<int of more than 4300 digits>"),
        (deep(5000, lambda inner: [inner], 1), "[[[[[...]]]]]"),
        ({"a": "x" * 10**6}, "{'a': 'xxx"),
        (list(range(10**6)), "[0, 1, 2, "),
        ((1,), "(1,)"),
        ({1: UUID(int=0)}, "{1: UUID("),
        (time(1), "datetime.time(1, 0)"),
    ],
    ids=["digits", "deep", "long text", "long list", "tuple", "UUID", "time"],
)
def test_an_excerpt_of_anything_is_short(value: Any, start: str) -> None:
    assert excerpt(value).startswith(start)
    assert len(excerpt(value)) <= 63
