"""The pieces of work that are measured, each as a topology and as the loop that one would write by hand.

W1  parse, filter, five fields out            W2  count by key into a table
W3  re-key, shuffle, count and sum by hour

W2 has no function of Python, so Spark SQL can compute it alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import msgspec

from streamapp import (
    BytesSerde,
    JsonSerde,
    LongSerde,
    Materialized,
    StreamsBuilder,
    StringSerde,
    TimeWindows,
    Topology,
)

__all__ = ["LOOPS", "NATIVE", "TOPOLOGIES", "Columns"]

NATIVE = "W2"

TEXT = StringSerde()
HOUR = 3_600_000


class Flight(msgspec.Struct):
    """The fields of an event that the work needs."""

    carrier: str
    origin: str
    dest: str
    flight: int
    dep_delay: int | None = None


class Late(msgspec.Struct):
    carrier: str
    origin: str
    dest: str
    flight: int
    dep_delay: int


class Delay(msgspec.Struct):
    minutes: int


class Delays(msgspec.Struct):
    flights: int = 0
    minutes: int = 0


FLIGHT = JsonSerde(Flight)


def late(flight: Flight) -> Late:
    return Late(flight.carrier, flight.origin, flight.dest, flight.flight, flight.dep_delay or 0)


def w1(builder: StreamsBuilder, topic: str) -> None:
    flights = builder.stream(topic, key_serde=BytesSerde(), value_serde=FLIGHT)
    chosen = flights.filter(lambda key, flight: (flight.dep_delay or 0) > 15).map_values(late)
    chosen.to("late", key_serde=BytesSerde(), value_serde=JsonSerde(Late))


def w2(builder: StreamsBuilder, topic: str) -> None:
    flights = builder.stream(topic, key_serde=TEXT, value_serde=FLIGHT)
    flights.group_by_key().count(materialized=Materialized("counts", key_serde=TEXT, value_serde=LongSerde()))


def w3(builder: StreamsBuilder, topic: str) -> None:
    flights = builder.stream(topic, key_serde=TEXT, value_serde=FLIGHT)
    (
        flights.map(lambda key, flight: (flight.origin, Delay(flight.dep_delay or 0)))
        .group_by_key(key_serde=TEXT, value_serde=JsonSerde(Delay))
        .windowed_by(TimeWindows.of_size_and_grace(timedelta(hours=1), timedelta(days=1)))
        .aggregate(
            Delays,
            lambda key, delay, delays: Delays(delays.flights + 1, delays.minutes + delay.minutes),
            materialized=Materialized("delays", key_serde=TEXT, value_serde=JsonSerde(Delays)),
        )
    )


def _built(describe: Callable[[StreamsBuilder, str], None]) -> Callable[[str], Topology]:
    def build(topic: str) -> Topology:
        builder = StreamsBuilder()
        describe(builder, topic)
        return builder.build()

    return build


TOPOLOGIES = {"W1": _built(w1), "W2": _built(w2), "W3": _built(w3)}

Columns = tuple[list[bytes], list[bytes], list[int]]
"""Keys, values, timestamps of a batch."""


def loop_w1(batches: Iterable[Columns]) -> int:
    decode, encode, out = msgspec.json.Decoder(Flight).decode, msgspec.json.Encoder().encode, 0
    for keys, values, timestamps in batches:
        found = []
        for key, value, timestamp in zip(keys, values, timestamps, strict=True):
            flight = decode(value)
            if (flight.dep_delay or 0) > 15:
                found.append((key, encode(late(flight)), timestamp))
        out += len(found)
    return out


def loop_w2(batches: Iterable[Columns]) -> int:
    decode, counts = msgspec.json.Decoder(Flight).decode, defaultdict[str, int](int)
    for keys, values, _ in batches:
        for key, value in zip(keys, values, strict=True):
            decode(value)
            counts[key.decode()] += 1
    return len(counts)


def loop_w3(batches: Iterable[Columns]) -> int:
    decode, delays = msgspec.json.Decoder(Flight).decode, dict[Any, Delays]()
    for _, values, timestamps in batches:
        for value, timestamp in zip(values, timestamps, strict=True):
            flight = decode(value)
            window = flight.origin, timestamp - timestamp % HOUR
            old = delays.get(window) or Delays()
            delays[window] = Delays(old.flights + 1, old.minutes + (flight.dep_delay or 0))
    return len(delays)


LOOPS: dict[str, Callable[[Iterable[Columns]], int]] = {"W1": loop_w1, "W2": loop_w2, "W3": loop_w3}
