"""A field of values that no serde of the application reads."""

from __future__ import annotations

from typing import Any

import pytest

from streamapp import AvroSerde
from streamapp.producer.value_field import ValueField
from streamapp.serdes import LocalSchemaRegistry, schema_registry


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
