"""`streamapp compat` looks at schemas, too."""

from __future__ import annotations

import enum
import json
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest

from streamapp import (
    AvroSerde,
    JsonSchemaSerde,
    JsonSerde,
    Materialized,
    Need,
    ProtobufSerde,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    compare_topologies,
)
from streamapp.errors import SerializationError
from streamapp.serdes.json_changes import json_form, json_misfit
from streamapp.topology.snapshot import snapshot

ID: dict[str, Any] = {"name": "id", "type": "string"}


def version(serde: Any) -> dict[str, Any]:
    builder = StreamsBuilder(StreamsConfig("app"))
    stream = builder.stream("in", key_serde=StringSerde(), value_serde=serde)
    stream.group_by_key().reduce(lambda old, new: new, materialized=Materialized("last", value_serde=serde))
    written: dict[str, Any] = json.loads(json.dumps(snapshot(builder.build().plan())))
    return written


def avro(*fields: dict[str, Any]) -> AvroSerde[Any]:
    return AvroSerde({"type": "record", "name": "Order", "fields": list(fields)})


def found(old: Any, new: Any) -> dict[str, tuple[Need, str]]:
    findings = compare_topologies(version(old), version(new)).findings
    return {each.subject: (each.need, each.why) for each in findings if each.subject.startswith("schema")}


def test_an_equal_schema_is_no_finding() -> None:
    assert found(avro(ID), avro(ID)) == {}


def test_a_field_with_default_needs_nothing() -> None:
    cents = {"name": "cents", "type": "long", "default": 0}
    changes = found(avro(ID), avro(ID, cents))
    assert set(changes) == {"schema in-value", "schema app-last-changelog-value"}
    assert all(need is Need.NOTHING and "fields.cents: new" in why for need, why in changes.values())


@pytest.mark.parametrize(
    "after", [avro(ID, {"name": "cents", "type": "long"}), avro({"name": "id", "type": "int"})]
)
def test_rows_that_cannot_be_read_need_a_reset(after: Any) -> None:
    changes = found(avro(ID), after)
    assert changes["schema app-last-changelog-value"][0] is Need.RESET
    assert "cannot read what the old one has written" in changes["schema app-last-changelog-value"][1]
    assert changes["schema in-value"][0] is Need.MIGRATION


def test_a_json_schema_is_shown_with_its_difference() -> None:
    changes = found(
        JsonSchemaSerde({"type": "object"}), JsonSchemaSerde({"type": "object", "required": ["id"]})
    )
    assert changes["schema in-value"] == (Need.NOTHING, "it changes: required: new, ['id']")


def test_rows_of_derived_messages_whose_fields_have_moved_need_a_reset() -> None:
    """A class that protoc has generated may rename a field; a type that derives its numbers may not."""
    first, moved, more = (
        ProtobufSerde[Any](type=msgspec.defstruct("Order", [(name, str) for name in names]))
        for names in (["id"], ["key", "id"], ["id", "key"])
    )
    changes = found(first, moved)
    need, why = changes["schema app-last-changelog-value"]
    assert need is Need.RESET
    assert "Order.id is string with number 2 here, and string with number 1 there" in why
    assert changes["schema in-value"][0] is Need.MIGRATION
    assert found(first, more)["schema app-last-changelog-value"][0] is Need.NOTHING


def test_a_snapshot_without_schemas_is_taken() -> None:
    old = version(avro(ID))
    del old["schemas"]
    assert compare_topologies(old, version(avro({"name": "id", "type": "int"}))).need is Need.NOTHING


def two(first: Any, second: Any) -> dict[str, Any]:
    """A topic to which two serdes write, so its subject has two schemas."""
    builder = StreamsBuilder(StreamsConfig("app"))
    stream = builder.stream("in", key_serde=StringSerde(), value_serde=StringSerde())
    for serde in (first, second):
        stream.to("out", key_serde=StringSerde(), value_serde=serde)
    written: dict[str, Any] = json.loads(json.dumps(snapshot(builder.build().plan())))
    return written


def bill(kind: str) -> AvroSerde[Any]:
    return AvroSerde({"type": "record", "name": "Bill", "fields": [{"name": "id", "type": kind}]})


def schemas_found(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Need]:
    return {
        each.subject: each.need
        for each in compare_topologies(old, new).findings
        if each.subject.startswith("schema")
    }


@pytest.mark.parametrize("turn", [1, -1])
def test_each_schema_of_a_subject_is_compared_with_the_old_one_of_its_name(turn: int) -> None:
    old = two(avro(ID), bill("string"))
    assert schemas_found(old, two(*[avro(ID), bill("string")][::turn])) == {}
    assert schemas_found(old, two(*[avro(ID), bill("int")][::turn])) == {
        "schema out-value (Bill)": Need.MIGRATION
    }
    changed = avro({"name": "id", "type": "int"})
    assert schemas_found(old, two(*[changed, bill("string")][::turn])) == {
        "schema out-value (Order)": Need.MIGRATION
    }


def test_each_message_of_a_subject_is_compared_with_the_old_one_of_its_name() -> None:
    def message(name: str, *fields: str) -> ProtobufSerde[Any]:
        return ProtobufSerde(type=msgspec.defstruct(name, [(field, str) for field in fields]))

    old = two(message("Order", "id"), message("Bill", "id"))
    assert schemas_found(old, two(message("Order", "key", "id"), message("Bill", "id"))) == {
        "schema out-value (Order)": Need.MIGRATION
    }
    assert schemas_found(old, two(message("Bill", "id", "key"), message("Order", "id"))) == {
        "schema out-value (Bill)": Need.NOTHING
    }


def test_a_schema_that_only_reads_is_compared_with_the_written_one() -> None:
    """A field that no old value lacks needs no default."""

    def reads_back(*fields: dict[str, Any]) -> dict[str, Any]:
        builder = StreamsBuilder(StreamsConfig("app"))
        stream = builder.stream("in", key_serde=StringSerde(), value_serde=StringSerde())
        stream.to("out", key_serde=StringSerde(), value_serde=avro(*fields))
        builder.stream("out", key_serde=StringSerde(), value_serde=avro(ID)).foreach(lambda k, v: None)
        written: dict[str, Any] = snapshot(builder.build().plan())
        return written

    cents = {"name": "cents", "type": "long"}
    note = {"name": "note", "type": "string", "default": ""}
    assert schemas_found(reads_back(ID, cents), reads_back(ID, cents, note)) == {
        "schema out-value (Order)": Need.NOTHING
    }


@pytest.mark.parametrize("several", [False, True])
def test_a_snapshot_with_one_schema_for_each_subject_is_taken(several: bool) -> None:
    """Snapshots from before 27 November 2026 have the form of format 1."""
    one = version(avro(ID))
    old = {
        **one,
        "format": 1,
        "schemas": {
            subject: {part: schema[part] for part in ("format", "schema", "internal", "derived")}
            for subject, (schema,) in one["schemas"].items()
        },
    }
    assert compare_topologies(old, one).need is Need.NOTHING
    new = version(avro({"name": "id", "type": "int"}))
    if several:
        for schemas in new["schemas"].values():
            schemas.append({**schemas[0], "name": "Bill", "schema": bill("string").schema})
    assert compare_topologies(old, new).need is Need.RESET


class Row(msgspec.Struct):
    number: int
    lines: list[int] = []


class WithNote(msgspec.Struct):
    number: int
    note: str


class WithText(msgspec.Struct):
    number: str
    lines: list[int] = []


class Wider(msgspec.Struct):
    number: float | None
    lines: list[int | str] = []
    note: str = ""


class Tree(msgspec.Struct):
    value: int
    branches: list[Tree] = []
    parent: Tree | None = None


class Tagged(msgspec.Struct, tag=True):
    number: int


class Renamed(msgspec.Struct, tag=True):
    number: int


class Untagged(msgspec.Struct):
    number: int


class Letter(enum.Enum):
    A = "a"
    B = "b"


class Nowhere:
    """A class that JSON does not know."""


class WithDefaults(msgspec.Struct):
    number: int
    other: Any = Nowhere()


class Upgrading(JsonSerde[Any]):
    def deserialize(self, data: bytes) -> Any:
        return msgspec.json.decode(data, type=self.type, strict=False)


def needs(old: Any, new: Any) -> dict[str, tuple[Need, str]]:
    findings = compare_topologies(version(old), version(new)).findings
    return {each.subject: (each.need, each.why) for each in findings}


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (Row, WithText, "values: number: integer was written, and string is read"),
        (Row, WithNote, "values: note: this field was not written, and has no default"),
        (list[Row], list[WithText], "values: [].number: integer was written, and string is read"),
        (dict[str, int], dict[str, str], "values: any key: integer was written, and string is read"),
        (Row, dict[str, int], "values: lines: array was written, and integer is read"),
        (Tagged, Renamed, "values: type: 'Tagged' was written, and 'Renamed' is read"),
        (tuple[int, str], list[int], "values: [1]: string was written, and integer is read"),
    ],
)
def test_json_that_a_new_type_cannot_read_needs_a_reset(old: Any, new: Any, why: str) -> None:
    """The command said that nothing was needed, and the worker ended at the first old row."""
    need, said = needs(JsonSerde(old), JsonSerde(new))["store last"]
    assert (need, said) == (Need.RESET, f"the new version cannot read its {why}")
    with pytest.raises(SerializationError):
        JsonSerde(new).deserialize(_written(old))


def _written(type_: Any) -> bytes:
    row = Row(1, [2])
    values = {
        Row: row,
        Tagged: Tagged(1),
        list[Row]: [row],
        dict[str, int]: {"a": 1},
        tuple[int, str]: (1, "a"),
    }
    return JsonSerde(type_).serialize(values[type_])


@pytest.mark.parametrize(
    ("old", "new"),
    [(Row, Row), (Row, Wider), (Row, dict), (None, Row), (Row, None), (Row, Row | None), (Tree, Tree)],
)
def test_json_that_a_new_type_can_read_needs_nothing(old: Any, new: Any) -> None:
    assert needs(JsonSerde(old), JsonSerde(new))["store last"] == (Need.NOTHING, "unchanged")


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        (int, Decimal, 5),
        (float | None, Decimal | None, 1.5),
        (Literal[1, 2], Decimal, 1),
        (Untagged, Tagged, Untagged(1)),
        (Letter | None, Literal["a", "b", None], None),
        (str, Annotated[str, msgspec.Meta(extra_json_schema={"format": "email"})], "x"),
    ],
)
def test_msgspec_reads_more_than_the_schema_of_a_type_tells(old: Any, new: Any, value: Any) -> None:
    """The command asked for a reset, although each old value can be read."""
    assert needs(JsonSerde(old), JsonSerde(new))["store last"] == (Need.NOTHING, "unchanged")
    JsonSerde(new).deserialize(JsonSerde(old).serialize(value))


@pytest.mark.parametrize(
    ("old", "new", "good", "bad", "why"),
    [
        (int | None, int, 1, None, "null was written, and integer is read"),
        (str, UUID, str(UUID(int=5)), "x", "string was written, and uuid is read"),
        (str, Letter, "a", "c", "string was written, and 'a' or 'b' is read"),
        (Literal["a", "b", "c"], Letter, "a", "c", "'c' was written, and 'a' or 'b' is read"),
        (list[int], tuple[int, int], [1, 2], [1], "any number of items was written, and 2 needed"),
    ],
)
def test_json_of_which_a_new_type_reads_a_part_needs_no_reset(
    old: Any, new: Any, good: Any, bad: Any, why: str
) -> None:
    """The command asked for a reset. Perhaps no old row has such a value, and only the user can know."""
    assert needs(JsonSerde(old), JsonSerde(new))["store last"] == (
        Need.MIGRATION,
        f"the new version cannot read some values: the value: {why}",
    )
    JsonSerde(new).deserialize(JsonSerde(old).serialize(good))
    with pytest.raises(SerializationError):
        JsonSerde(new).deserialize(JsonSerde(old).serialize(bad))


def test_a_serde_that_reads_in_its_own_way_is_not_compared() -> None:
    assert needs(Upgrading(Row), Upgrading(WithText))["store last"] == (Need.NOTHING, "unchanged")


def test_a_type_without_a_schema_has_a_description() -> None:
    """`snapshot` raised TypeError, so the worker could not start: a field's default was no JSON."""
    assert snapshot_of(JsonSerde(WithDefaults)) is None
    assert snapshot_of(JsonSerde(Wider)) == json_form(Wider)
    assert "default" not in str(json_form(Wider))


def snapshot_of(serde: Any) -> Any:
    return version(serde)["stores"]["last"]["json"]["value"]


def test_json_in_a_repartition_topic_counts_too() -> None:
    def regrouped(type_: Any) -> dict[str, Any]:
        builder = StreamsBuilder(StreamsConfig("app"))
        rows = builder.stream("in", key_serde=StringSerde(), value_serde=JsonSerde(type_))
        rows.group_by(lambda key, row: key, key_serde=StringSerde(), name="by").count(
            materialized=Materialized("counts")
        )
        written: dict[str, Any] = json.loads(json.dumps(snapshot(builder.build().plan())))
        return written

    found = compare_topologies(regrouped(Row), regrouped(WithText)).findings[0]
    assert (found.need, found.subject) == (Need.RESET, "repartition topic app-by-repartition")


def test_a_description_without_json_types_is_compared_without_them() -> None:
    old = version(JsonSerde(Row))
    del old["stores"]["last"]["json"]
    assert compare_topologies(old, version(JsonSerde(WithText))).need is Need.NOTHING


def test_a_json_schema_that_a_new_type_cannot_read_needs_a_reset() -> None:
    changes = found(JsonSchemaSerde(type=Row), JsonSchemaSerde(type=WithText))
    assert changes["schema app-last-changelog-value"][0] is Need.RESET
    assert found(JsonSchemaSerde(type=Row), JsonSchemaSerde(type=Wider))["schema app-last-changelog-value"][
        0
    ] is (Need.NOTHING)


def test_schemas_that_refer_to_themselves_are_compared_in_bounded_time() -> None:
    loop = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
    assert json_misfit(loop, loop) is None
    node = {"type": ["object", "null"], "properties": {name: {"$ref": "#/$defs/n"} for name in "abcdef"}}
    tree = {"$ref": "#/$defs/n", "$defs": {"n": node}}
    assert json_misfit(tree, json.loads(json.dumps(tree))) is None


def test_schemas_of_other_tools_are_compared() -> None:
    """`true` in the place of a schema ended the command, and formats that no reader checks asked for a reset."""
    anything = {"type": "object", "properties": {"a": True, "b": {"type": "string"}}}
    assert (
        json_misfit(anything, {"type": "object", "properties": {"a": {"type": "string"}, "b": True}}) is None
    )
    choice = {**anything, "oneOf": [{"type": "object", "required": ["a"]}]}
    assert json_misfit(choice, {"type": "object", "required": ["c"], "properties": {"c": {}}}) is None
    day, time = {"type": "string", "format": "date"}, {"type": "string", "format": "date-time"}
    assert json_misfit(day, time, formats=False) is None
    misfit = json_misfit(day, time)
    assert misfit is not None
    assert misfit.always
