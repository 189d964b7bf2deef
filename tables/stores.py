"""The tables of the application, by the names under which they are kept, restored and shown.

The year is read as fast as it comes, so the partitions of a repartition topic run months apart in event time. Windows
and versions are kept for that long; an application that only lives in the present would say hours.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from streamapp import JsonSerde, LongSerde, Materialized
from tables.events import KEY, WEATHER
from tables.results import Delays

__all__ = ["A_YEAR", "count_table", "delays_table", "weather_table", "windowed_delays_table"]

A_YEAR = timedelta(days=400)


def count_table(name: str) -> Materialized[str, int]:
    """Counts by key."""
    return Materialized(name, key_serde=KEY, value_serde=LongSerde())


def delays_table(name: str) -> Materialized[str, Delays]:
    """Delays by key."""
    return Materialized(name, key_serde=KEY, value_serde=JsonSerde(Delays))


def windowed_delays_table(name: str) -> Materialized[str, Delays]:
    """Delays by key and window."""
    return Materialized(
        name, key_serde=KEY, value_serde=JsonSerde(Delays), retention=A_YEAR + timedelta(hours=1)
    )


def weather_table(name: str) -> Materialized[str, Any]:
    """The weather of an airport with its history: a flight is joined with the weather of its own hour."""
    return Materialized(name, key_serde=KEY, value_serde=WEATHER, history_retention=A_YEAR)
