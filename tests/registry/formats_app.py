"""An application with a topic and a table in each format; its records are keyed anew before they are summed.

``shop_pb2`` is a module that protoc has generated; the test gives its folder.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec
import shop_pb2

from streamapp import (
    AvroSerde,
    JsonSchemaSerde,
    Materialized,
    ProtobufSerde,
    Serde,
    StreamsBuilder,
    StringSerde,
)
from tests.registry.environment import application

NAME = os.environ["FORMATS_NAME"]
TEXT = StringSerde()


class Item(msgspec.Struct, frozen=True):
    name: str
    cents: int = 0


SERDES: dict[str, Serde[Any]] = {
    "avro": AvroSerde(type=Item),
    "json": JsonSchemaSerde(type=Item),
    "messages": ProtobufSerde(shop_pb2.Item),
    "typed": ProtobufSerde(shop_pb2.Item, type=Item),
    "derived": ProtobufSerde(type=Item),
}


def describe(builder: StreamsBuilder) -> None:
    for each, serde in SERDES.items():
        make: Any = shop_pb2.Item if each == "messages" else Item
        stream = builder.stream(f"{NAME}-{each}", key_serde=TEXT, value_serde=serde)
        grouped = stream.group_by(
            lambda key, item: item.name, key_serde=TEXT, value_serde=serde, name=f"{each}-by-name"
        )
        sums = grouped.reduce(
            lambda old, new, make=make: make(name=new.name, cents=old.cents + new.cents),  # type: ignore[misc]
            materialized=Materialized(f"{each}-sums", key_serde=TEXT, value_serde=serde),
        )
        sums.to_stream().to(f"{NAME}-{each}-out", key_serde=TEXT, value_serde=serde)


app = application("FORMATS", describe)
