"""Serdes: values to bytes and back, in Kafka's formats."""

from streamapp.serdes.avro import AvroSerde
from streamapp.serdes.base import Serde
from streamapp.serdes.json import JsonSerde
from streamapp.serdes.primitives import BytesSerde, DoubleSerde, IntegerSerde, LongSerde, StringSerde
from streamapp.serdes.registry import LocalSchemaRegistry, SchemaRegistry
from streamapp.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde

__all__ = [
    "AvroSerde",
    "BytesSerde",
    "DoubleSerde",
    "IntegerSerde",
    "JsonSerde",
    "LocalSchemaRegistry",
    "LongSerde",
    "SchemaRegistry",
    "Serde",
    "SessionWindowedSerde",
    "StringSerde",
    "TimeWindowedSerde",
]
