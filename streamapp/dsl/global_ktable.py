"""`GlobalKTable`: a table of which every process has all rows."""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["GlobalKTable"]

K = TypeVar("K")
V = TypeVar("V")


class GlobalKTable(Generic[K, V]):
    """A table of which every process has all rows, so that streams can join it by any key.

    Streams join it with `KStream.join` or `KStream.left_join`; it has no operators of its own. (Kafka Streams:
    ``GlobalKTable``.)

    >>> from streamapp import StreamsBuilder, StringSerde
    >>> StreamsBuilder().global_table("airports", key_serde=StringSerde(), value_serde=StringSerde())
    <GlobalKTable airports-STATE-STORE-0000000000>
    """

    def __init__(self, store_name: str, queryable_store_name: str | None) -> None:
        self.store_name = store_name
        self.queryable_store_name = queryable_store_name

    def __repr__(self) -> str:
        return f"<GlobalKTable {self.store_name}>"
