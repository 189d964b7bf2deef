"""Serdes: values to bytes and back, in Kafka's formats."""

from streamapp.serdes.base import Serde
from streamapp.serdes.json import JsonSerde
from streamapp.serdes.primitives import BytesSerde, DoubleSerde, IntegerSerde, LongSerde, StringSerde
from streamapp.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde

__all__ = [
    "BytesSerde",
    "DoubleSerde",
    "IntegerSerde",
    "JsonSerde",
    "LongSerde",
    "Serde",
    "SessionWindowedSerde",
    "StringSerde",
    "TimeWindowedSerde",
]
