"""Serdes: values to bytes and back, in Kafka's formats."""

from streamapp.serdes.base import Serde
from streamapp.serdes.primitives import BytesSerde, DoubleSerde, IntegerSerde, LongSerde, StringSerde
from streamapp.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde

__all__ = [
    "BytesSerde",
    "DoubleSerde",
    "IntegerSerde",
    "LongSerde",
    "Serde",
    "SessionWindowedSerde",
    "StringSerde",
    "TimeWindowedSerde",
]
