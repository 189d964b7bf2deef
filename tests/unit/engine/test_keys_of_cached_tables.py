"""Joins with a table that has a record cache, and keys whose serde keeps bytes in memory, such as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from streamapp import (
    JsonSerde,
    KStream,
    KTable,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    TopologyTestDriver,
)


class Plane(msgspec.Struct, frozen=True):
    seats: int


class Tail(msgspec.Struct, frozen=True):
    number: str


TEXT, PLANE = StringSerde(), JsonSerde(Plane)
KEYS: dict[Any, Any] = {JsonSerde(): {"number": "N1"}, JsonSerde(Tail): Tail("N1")}
"""Serde of the key -> a key."""
Join = Callable[[StreamsBuilder, KTable[Any, Plane], Any], KStream[Any, str]]


def joined(left: Any, plane: Plane | None) -> str:
    return f"{left} {plane and plane.seats}"


def of_stream(builder: StreamsBuilder, planes: KTable[Any, Plane], key: Any) -> KStream[Any, str]:
    return builder.stream("in", key_serde=key, value_serde=TEXT).left_join(planes, joined)


def of_table(builder: StreamsBuilder, planes: KTable[Any, Plane], key: Any) -> KStream[Any, str]:
    return builder.table("in", key_serde=key, value_serde=TEXT).left_join(planes, joined).to_stream()


def by_foreign_key(builder: StreamsBuilder, planes: KTable[Any, Plane], key: Any) -> KStream[Any, str]:
    flights = builder.table("in", key_serde=key, value_serde=TEXT)
    return flights.left_join(planes, joined, foreign_key=lambda flight: KEYS[key]).to_stream()


@pytest.mark.parametrize("join", [of_stream, of_table, by_foreign_key])
@pytest.mark.parametrize("key_serde", KEYS, ids=["dict", "Struct"])
@pytest.mark.parametrize("optimization", ["none", "all"])
@pytest.mark.parametrize("cache", [0, 10_000_000])
def test_a_join_finds_the_row_of_a_key_of_json(
    join: Join, key_serde: Any, optimization: str, cache: int
) -> None:
    """With ``all``, nobody listens to the table, so its rows are not in the cache. Such a join serialized a key twice,
    and found no row."""
    config = StreamsConfig("keys", topology_optimization=optimization, statestore_cache_max_bytes=cache)
    builder = StreamsBuilder(config)
    planes = builder.table("planes", key_serde=key_serde, value_serde=PLANE)
    join(builder, planes, key_serde).to("out", key_serde=key_serde, value_serde=TEXT)
    key = KEYS[key_serde]
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("planes", key_serde, PLANE).pipe_input(key, Plane(7))
        driver.create_input_topic("in", key_serde, TEXT).pipe_input(key, "UA1")
        assert driver.create_output_topic("out", key_serde, TEXT).read_values() == ["UA1 7"]
