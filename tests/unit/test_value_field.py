"""A field of values that no serde of the application reads."""

from __future__ import annotations

from typing import Any

import pytest

from streamapp import AvroSerde
from streamapp.producer.reconciliation import identity_of
from streamapp.producer.value_field import ValueField
from streamapp.serdes import LocalSchemaRegistry, schema_registry
from streamapp.serdes.framing import Framing


@pytest.mark.parametrize(("kind", "id"), [("long", 24), ("long", -25), ("string", "1" * 25)])
def test_a_record_of_avro_that_looks_like_json(
    kind: str, id: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes of these records are numbers of JSON, so the records counted as missing."""
    registry = LocalSchemaRegistry()
    monkeypatch.setattr(schema_registry, "_default", registry)
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": kind}]}
    serde = AvroSerde[Any](schema, registry=registry).bind("orders", False)
    assert ValueField("id")(serde.serialize({"id": id})) == str(id)


def test_a_value_whose_schema_is_named_in_a_header(monkeypatch: pytest.MonkeyPatch) -> None:
    """All records of such a topic had no id, and counted as missing without a word."""
    registry = LocalSchemaRegistry()
    monkeypatch.setattr(schema_registry, "_default", registry)
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
    serde = AvroSerde[Any](schema, registry=registry, schema_id_in="header").bind("orders", False)
    _, value, headers = Framing(None, serde).parted(None, serde.serialize({"id": "o1"}))
    assert [name for name, _ in headers] == ["__value_schema_id"]
    assert identity_of("value:id")(None, value, 0, headers) == "o1"
