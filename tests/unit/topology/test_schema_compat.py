"""`streamapp compat` looks at schemas, too."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from streamapp import (
    AvroSerde,
    JsonSchemaSerde,
    Materialized,
    Need,
    ProtobufSerde,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    compare_topologies,
)
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
