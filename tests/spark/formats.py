"""An application with a table and a topic in each schema format: Avro with ids in headers, JSON Schema, Protobuf."""

from __future__ import annotations

from typing import Any

import msgspec
import pydantic

from streamapp import (
    App,
    AvroSerde,
    JsonSchemaSerde,
    Materialized,
    ProtobufSerde,
    Serde,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
)
from tests.unit.serdes.protos import shop

TEXT = StringSerde()


class Item(msgspec.Struct, frozen=True):
    name: str
    cents: int = 0


class Model(pydantic.BaseModel):
    name: str
    cents: int = 0


SERDES: dict[str, Serde[Any]] = {
    "avro": AvroSerde(type=Item, schema_id_in="header"),
    "json": JsonSchemaSerde(type=Model),
    "proto": ProtobufSerde(shop.Item),
    "typed": ProtobufSerde(shop.Item, type=Item),
}
MAKE: dict[str, Any] = {"avro": Item, "json": Model, "proto": shop.Item, "typed": Item}


def describe(builder: StreamsBuilder, name: str) -> None:
    for each, serde in SERDES.items():
        stream = builder.stream(f"{name}-{each}", key_serde=TEXT, value_serde=serde)
        stream.to(f"{name}-{each}-out", key_serde=TEXT, value_serde=serde)
        added = _adder(MAKE[each])
        kept = Materialized(f"{each}-sums", key_serde=TEXT, value_serde=serde)
        stream.group_by_key().reduce(added, materialized=kept)


def _adder(make: Any) -> Any:
    return lambda old, new: make(name=new.name, cents=old.cents + new.cents)


def application(name: str, servers: str) -> App:
    config = StreamsConfig(name, bootstrap_servers=servers)
    return App(name, topology=lambda builder: describe(builder, name), config=config)
