"""The cost of a record in a serde, beside Confluent's own serializers for Python: CPU microseconds, without brokers.

Registries are in the process on both sides, so no request is measured. Rounds alternate; the smallest counts.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.schema import Flight
from streamapp import AvroSerde, JsonSchemaSerde, ProtobufSerde

__all__ = ["costs", "serdes_table"]

FLIGHT = Flight(
    2013, 1, 1, 517, 515, 2, 830, 819, 11, "UA", 1545, "N14228", "EWR", "IAH", 227, 1400, "2013-01-01T05:00"
)
PROTO = """syntax = "proto3";
message Flight {{
{fields}
}}
"""
RECORDS = 2_000

Case = tuple[str, str, Callable[[], Any]]
"""Format, whose and which direction, and one record's work."""


def costs(rounds: int = 15) -> dict[tuple[str, str], float]:
    """(format, case) -> CPU microseconds for a record, the smallest of the rounds."""
    cases = [*_avro(), *_json(), *_protobuf()]
    best: dict[tuple[str, str], float] = {}
    for _ in range(rounds):
        for format, name, work in cases:
            started = time.process_time()
            for _ in range(RECORDS):
                work()
            spent = (time.process_time() - started) / RECORDS * 1e6
            best[format, name] = min(best.get((format, name), spent), spent)
    return best


def serdes_table(measured: dict[tuple[str, str], float]) -> Table:
    names = ["streamapp write", "confluent write", "streamapp read", "confluent read"]
    table = Table("format", *names, caption="CPU microseconds for a record of 17 fields")
    for format in dict.fromkeys(format for format, _ in measured):
        table.add_row(
            format, *(f"{measured[format, name]:.1f}" if (format, name) in measured else "" for name in names)
        )
    return table


def _context() -> Any:
    from confluent_kafka.serialization import MessageField, SerializationContext

    return SerializationContext("flights", MessageField.VALUE)


def _client() -> Any:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    return SchemaRegistryClient.new_client({"url": "mock://serdes"})


def _plain() -> dict[str, Any]:
    return {name: getattr(FLIGHT, name) for name in FLIGHT.__struct_fields__}


def _cases(format: str, ours: Any, value: Any, write: Any, theirs: Any, read: Any) -> list[Case]:
    """Both sides are used once before, so that schemas are registered and functions made."""
    context = _context()
    own, other = ours.serialize(value), write(theirs, context)
    assert ours.deserialize(own) == value
    assert read(other, context) is not None
    return [
        (format, "streamapp write", lambda: ours.serialize(value)),
        (format, "confluent write", lambda: write(theirs, context)),
        (format, "streamapp read", lambda: ours.deserialize(own)),
        (format, "confluent read", lambda: read(other, context)),
    ]


def _avro() -> list[Case]:
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

    client, plain = _client(), _plain()
    as_dict, typed = AvroSerde[Any](AvroSerde[Any](type=Flight).schema), AvroSerde[Any](type=Flight)
    text = json.dumps(as_dict.schema)
    write, read = AvroSerializer(client, text), AvroDeserializer(client)
    return [
        *_cases("Avro, dicts", as_dict, plain, write, plain, read),
        *_cases(
            "Avro, Structs",
            typed,
            FLIGHT,
            AvroSerializer(client, text, lambda f, _: _plain()),
            FLIGHT,
            AvroDeserializer(client, text, lambda d, _: Flight(**d)),
        ),
    ]


def _json() -> list[Case]:
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

    client, plain = _client(), _plain()
    found: list[Case] = []
    for name, validate in (("JSON Schema, validated", True), ("JSON Schema, not validated", False)):
        ours = JsonSchemaSerde[Any](JsonSchemaSerde[Any](type=Flight).schema, validate=validate)
        text = json.dumps(ours.schema)
        write = JSONSerializer(text, client, conf={"validate": validate})
        read = JSONDeserializer(text, schema_registry_client=client, conf={"validate": validate})
        found += _cases(name, ours, plain, write, plain, read)
    return found


def _protobuf() -> list[Case]:
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer

    message = _message()
    settings = {"use.deprecated.format": False}
    client, value = _client(), message(**{name: item for name, item in _plain().items() if item is not None})
    write, read = (
        ProtobufSerializer(message, client, settings),
        ProtobufDeserializer(message, settings, client),
    )
    return _cases("Protobuf, messages", ProtobufSerde[Any](message), value, write, value, read)


def _message() -> Any:
    """The class of a message with the fields of a flight."""
    from grpc_tools import protoc

    kinds = {str: "string", int: "int64"}
    fields = [
        f"  optional {kinds[type(getattr(FLIGHT, name))]} {name} = {number};"
        for number, name in enumerate(FLIGHT.__struct_fields__, start=1)
    ]
    folder = tempfile.mkdtemp(prefix="protos-")
    (Path(folder) / "benchmark_flight.proto").write_text(PROTO.format(fields="\n".join(fields)))
    assert protoc.main(["protoc", f"-I{folder}", f"--python_out={folder}", "benchmark_flight.proto"]) == 0
    sys.path.insert(0, folder)
    return import_module("benchmark_flight_pb2").Flight
