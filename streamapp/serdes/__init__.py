"""Serdes: objects that turn keys and values into bytes and back, in the formats of Kafka's own serializers."""

from streamapp.serdes.avro import AvroSerde
from streamapp.serdes.base import Serde
from streamapp.serdes.json import JsonSerde
from streamapp.serdes.json_schema import JsonSchemaSerde
from streamapp.serdes.lists import ListSerde
from streamapp.serdes.primitives import (
    BooleanSerde,
    BytesSerde,
    DoubleSerde,
    FloatSerde,
    IntegerSerde,
    LongSerde,
    ShortSerde,
    StringSerde,
    UUIDSerde,
    VoidSerde,
)
from streamapp.serdes.protobuf import ProtobufSerde
from streamapp.serdes.protobuf_fields import FieldNumber
from streamapp.serdes.schema_registry import (
    LocalSchemaRegistry,
    SchemaGuids,
    SchemaReference,
    SchemaRegistry,
    SchemaVersion,
)
from streamapp.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde

__all__ = [
    "AvroSerde",
    "BooleanSerde",
    "BytesSerde",
    "DoubleSerde",
    "FieldNumber",
    "FloatSerde",
    "IntegerSerde",
    "JsonSchemaSerde",
    "JsonSerde",
    "ListSerde",
    "LocalSchemaRegistry",
    "LongSerde",
    "ProtobufSerde",
    "SchemaGuids",
    "SchemaReference",
    "SchemaRegistry",
    "SchemaVersion",
    "Serde",
    "SessionWindowedSerde",
    "ShortSerde",
    "StringSerde",
    "TimeWindowedSerde",
    "UUIDSerde",
    "VoidSerde",
]
