"""Which topic each serde is bound to: that of Kafka Streams, for records, stores and what foreign-key joins compare."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from streamapp import (
    JoinWindows,
    Materialized,
    Record,
    SessionWindows,
    StreamJoined,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    Suppressed,
    TimeWindows,
    Topology,
    TopologyTestDriver,
)
from streamapp.errors import SerializationError
from streamapp.serdes import Serde
from streamapp.stores import Stores

MINUTE = timedelta(minutes=1)
USED: set[tuple[str, str, bool | None]] = set()


class Noting(Serde[str]):
    """Text, and a note of each topic that it is used for."""

    immutable = True

    def __init__(self, name: str, topic: str = "NO TOPIC", is_key: bool | None = None) -> None:
        self.name, self.topic, self.is_key = name, topic, is_key

    def bind(self, topic: str, is_key: bool) -> Noting:
        return Noting(self.name, topic, is_key)

    def serialize(self, value: str) -> bytes:
        USED.add((self.name, self.topic, self.is_key))
        if not isinstance(value, str):
            raise SerializationError(f"expected text, got {value!r:.60}")
        return value.encode()

    def deserialize(self, data: bytes) -> str:
        USED.add((self.name, self.topic, self.is_key))
        return data.decode()


def noting(name: str) -> dict[str, Any]:
    return {"key_serde": Noting(f"{name} key"), "value_serde": Noting(f"{name} value")}


def kept(store: str, name: str = "kept", **options: Any) -> Materialized:
    return Materialized(store, **noting(name), **options)


def stream(b: StreamsBuilder, topic: str = "in") -> Any:
    return b.stream(topic, **noting(topic))


def counted(b: StreamsBuilder, **options: Any) -> Any:
    m = kept("store", **options)
    return stream(b).group_by_key().reduce(lambda a, v: v, materialized=m)


def by_window(b: StreamsBuilder, windows: Any) -> Any:
    m = kept("store")
    return stream(b).group_by_key().windowed_by(windows).reduce(lambda a, v: v, materialized=m)


def table(b: StreamsBuilder, topic: str = "in") -> Any:
    return b.table(topic, **noting(topic), materialized=kept("store"))


def joined_streams(b: StreamsBuilder) -> Any:
    windows = JoinWindows.of(MINUTE)
    given = StreamJoined(key_serde=Noting("kept key"), store_name="j", name="j")
    left, right = stream(b), stream(b, "other")
    return left.outer_join(right, lambda x, y: f"{x}{y}", windows, joined=given)


def joined_table(b: StreamsBuilder) -> Any:
    versioned = Materialized.versioned("store", timedelta(hours=1)).with_serdes if False else None
    assert versioned is None
    return stream(b).join(b.table("other", **noting("other")), lambda x, y: f"{x}{y}")


def by_foreign_key(b: StreamsBuilder) -> Any:
    left = b.table("in", **noting("in"), materialized=Materialized("left"))
    right = b.table("other", **noting("other"), materialized=Materialized("right"))
    return left.join(right, lambda x, y: f"{x}{y}", foreign_key=lambda v: v, name="fk")
