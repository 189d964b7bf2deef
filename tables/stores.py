"""The stores of the reference application's tables, and the tables that are read from topics.

The reference application reads a whole year of events at full speed. Meanwhile, the records of two partitions of a
repartition topic may be months apart in event time. So stores keep windows, and the versions of rows in versioned
tables, for more than a year. In an application that reads only new events, some hours are enough.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from streamapp import GlobalKTable, KTable, LongSerde, Materialized, StreamsBuilder
from tables.events import AIRPORT, DELAYS, KEY, PLANE, WEATHER
from tables.schemas import Airport, Plane, Weather

__all__ = [
    "A_YEAR",
    "airports_table",
    "count_table",
    "delays_table",
    "planes_table",
    "weather_table",
    "windowed_delays_table",
]

A_YEAR = timedelta(days=400)


def count_table(name: str) -> Materialized:
    """Counts by key."""
    return Materialized(name, key_serde=KEY, value_serde=LongSerde())


def delays_table(name: str) -> Materialized:
    """Delays by key."""
    return Materialized(name, key_serde=KEY, value_serde=DELAYS)


def windowed_delays_table(name: str) -> Materialized:
    """Delays by key and hour."""
    return Materialized(name, key_serde=KEY, value_serde=DELAYS, retention=A_YEAR + timedelta(hours=1))


def weather_table(builder: StreamsBuilder) -> KTable[str, Weather]:
    """The weather of each airport with its history: a flight is joined with the weather of its own hour."""
    return builder.table(
        "weather",
        key_serde=KEY,
        value_serde=WEATHER,
        timestamp_extractor=just_before,
        materialized=Materialized("weather", key_serde=KEY, value_serde=WEATHER, history_retention=A_YEAR),
        name="weather",
    )


def just_before(record: Any, partition_time: int) -> int:
    """The time from which the weather of an hour is valid: 1 ms before the hour.

    Records with the same time may be read in any order, and a flight at the full hour must find the weather.
    """
    return int(record.timestamp) - 1


def planes_table(builder: StreamsBuilder) -> GlobalKTable[str, Plane]:
    """A global table of all planes by tail number. Every worker has all of it."""
    kept = Materialized("planes", key_serde=KEY, value_serde=PLANE)
    return builder.global_table("planes", key_serde=KEY, value_serde=PLANE, materialized=kept, name="planes")


def airports_table(builder: StreamsBuilder) -> GlobalKTable[str, Airport]:
    """A global table of all airports by their code. Every worker has all of it."""
    kept = Materialized("airports", key_serde=KEY, value_serde=AIRPORT)
    return builder.global_table(
        "airports", key_serde=KEY, value_serde=AIRPORT, materialized=kept, name="airports"
    )
