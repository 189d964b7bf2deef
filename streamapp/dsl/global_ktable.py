"""`GlobalKTable`: a table that every process keeps whole."""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["GlobalKTable"]

K = TypeVar("K")
V = TypeVar("V")


class GlobalKTable(Generic[K, V]):
    """A table that every process keeps whole; only to be joined with. (Kafka Streams: ``GlobalKTable``.)

    >>> from streamapp import StreamsBuilder, StringSerde
    >>> StreamsBuilder().global_table("airports", key_serde=StringSerde(), value_serde=StringSerde())
    <GlobalKTable airports-STATE-STORE-0000000000>
    """

    def __init__(self, store_name: str, queryable_store_name: str | None) -> None:
        self.store_name = store_name
        self.queryable_store_name = queryable_store_name

    def __repr__(self) -> str:
        return f"<GlobalKTable {self.store_name}>"
