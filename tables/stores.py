"""The tables of the application: how they are kept, and those that it reads from topics.

The year is read as fast as it comes, so the partitions of a repartition topic run months apart in event time. Windows
and versions are kept for that long; an application that only lives in the present would say hours.
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
    """The time from which an hour's weather holds: a moment before the hour.

    Of records with the same time any may be read first, and a flight on the hour has to find the weather.
    """
    return int(record.timestamp) - 1


def planes_table(builder: StreamsBuilder) -> GlobalKTable[str, Plane]:
    """All planes by tail number, whole in every worker."""
    kept = Materialized("planes", key_serde=KEY, value_serde=PLANE)
    return builder.global_table("planes", key_serde=KEY, value_serde=PLANE, materialized=kept, name="planes")


def airports_table(builder: StreamsBuilder) -> GlobalKTable[str, Airport]:
    """All airports by their code, whole in every worker."""
    kept = Materialized("airports", key_serde=KEY, value_serde=AIRPORT)
    return builder.global_table(
        "airports", key_serde=KEY, value_serde=AIRPORT, materialized=kept, name="airports"
    )
