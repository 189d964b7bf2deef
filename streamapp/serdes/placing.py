"""Finds the bytes of a key that choose the partition of its record, and of its row in a table."""

from __future__ import annotations

from typing import Any

from streamapp.serdes.base import Serde
from streamapp.serdes.windowed import SESSION_BYTES, TIME_BYTES, SessionWindowedSerde, TimeWindowedSerde

__all__ = ["placing_bytes"]


def placing_bytes(serde: Serde[Any] | None, data: bytes) -> bytes:
    """The bytes that Kafka's default partitioner gets for a key, whose bytes by ``serde`` are ``data``.

    A windowed key is placed by its inner key, so all windows of a key are in one partition. Kafka Streams does so in
    ``KStream.to`` only (``WindowedStreamPartitioner``). For a key without a window, ``schema_id_in="header"`` leaves
    out the id of the schema, because the record has the id in a header.

    >>> from streamapp.records import Windowed
    >>> from streamapp.serdes import StringSerde
    >>> serde = TimeWindowedSerde(StringSerde(), window_size_ms=1000)
    >>> placing_bytes(serde, serde.serialize(Windowed("JFK", 256, 1256)))
    b'JFK'
    """
    if isinstance(serde, TimeWindowedSerde):
        return data[:-TIME_BYTES]
    if isinstance(serde, SessionWindowedSerde):
        return data[:-SESSION_BYTES]
    return data if serde is None else data[serde.header_bytes :]
