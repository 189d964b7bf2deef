"""The part of a reconciliation that runs on Spark's executors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from streamapp import AvroSerde, ConfluentSchemaRegistry
from streamapp.operations import spark_reconciliation
from streamapp.producer.reconciliation import EVERYTHING
from streamapp.records import RecordBatch
from streamapp.serdes import schema_registry

from .registry.scripted import ScriptedRegistry

VARIABLE = "STREAMAPP_SCHEMA_REGISTRY_URL"


def test_executors_ask_the_registry_that_the_driver_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of an executor names no registry, so the reconciliation of Avro ended with an error."""
    server = ScriptedRegistry()
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
    serde = AvroSerde[Any](schema, registry=ConfluentSchemaRegistry(server.url)).bind("orders", False)
    value = serde.serialize({"id": "o1"})
    batches = [RecordBatch([None], [value], [1], [0])] * 2
    monkeypatch.setattr(schema_registry, "_default", None)

    def part(*_: Any) -> Any:
        left: list[Any] = [*batches, None]
        reader = SimpleNamespace(read=lambda: left.pop(0), close=lambda: None)
        return SimpleNamespace(open=lambda partition: reader)

    monkeypatch.setattr(spark_reconciliation, "KafkaPart", part)
    monkeypatch.setenv(VARIABLE, server.url)
    read = spark_reconciliation._reader_of_records({}, "orders", [(0, 0, 2)], "value:id", None, EVERYTHING)
    monkeypatch.delenv(VARIABLE)  # from here on as on an executor
    asked = len(server.requests)
    (found,) = read(iter([pa.RecordBatch.from_arrays([pa.array([0])], ["id"])]))
    assert found.to_pylist() == [{"name": "o1", "found": 2}]
    assert len(server.requests) - asked <= 3  # the schema of the first batch is known in the second
    server.stop()
