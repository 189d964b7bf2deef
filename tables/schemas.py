"""The events of the reference application, in the topics ``flights``, ``weather``, ``planes``, ``airports`` and
``airlines``.

Each event is a frozen struct, from which its Avro schema follows. Optional fields default to null, so that readers with
an older or newer version of a schema can still read the events. Times are milliseconds since the epoch, UTC.
"""

from __future__ import annotations

from datetime import datetime
from types import NoneType
from typing import Any, NamedTuple, get_args, get_type_hints
from zoneinfo import ZoneInfo

import msgspec

__all__ = [
    "AIRLINE_SCHEMA",
    "AIRPORT_SCHEMA",
    "DATASETS",
    "FLIGHT_SCHEMA",
    "PLANE_SCHEMA",
    "WEATHER_SCHEMA",
    "Airline",
    "Airport",
    "Dataset",
    "Flight",
    "Plane",
    "Weather",
    "avro_schema",
    "new_york_ms",
]

NEW_YORK = ZoneInfo("America/New_York")


class Flight(msgspec.Struct, frozen=True):
    """One scheduled departure from New York City. The record's timestamp is ``sched_dep_time``."""

    carrier: str
    flight: int
    origin: str
    dest: str
    sched_dep_time: int
    distance: int
    """Statute miles."""
    tailnum: str | None = None
    """The plane; None when a cancelled flight never got one."""
    dep_delay: int | None = None
    """Minutes, negative when early; None when the flight was cancelled."""
    arr_delay: int | None = None
    """Minutes; None when the flight was cancelled or diverted."""
    air_time: int | None = None
    """Minutes."""

    @property
    def cancelled(self) -> bool:
        return self.dep_delay is None


class Weather(msgspec.Struct, frozen=True):
    """One hour of weather at an airport of New York City; ``time`` is the hour it was observed in."""

    origin: str
    time: int
    precip: float
    """Inches in this hour."""
    visib: float
    """Miles."""
    temp: float | None = None
    """Degrees Fahrenheit, as is ``dewp``."""
    dewp: float | None = None
    humid: float | None = None
    wind_dir: int | None = None
    wind_speed: float | None = None
    """Miles an hour, as is ``wind_gust``."""
    wind_gust: float | None = None
    pressure: float | None = None
    """Millibars."""


class Plane(msgspec.Struct, frozen=True):
    """A plane of the register of the Federal Aviation Administration."""

    tailnum: str
    type: str
    manufacturer: str
    model: str
    engines: int
    seats: int
    engine: str
    year: int | None = None
    """Year of manufacture."""
    speed: int | None = None


class Airport(msgspec.Struct, frozen=True):
    faa: str
    name: str
    lat: float
    lon: float
    alt: int
    """Feet."""
    tz: int
    """Hours from UTC."""
    dst: str
    tzone: str | None = None


class Airline(msgspec.Struct, frozen=True):
    carrier: str
    name: str


AVRO_TYPES = {str: "string", int: "long", float: "double"}


def avro_schema(event: type[msgspec.Struct]) -> dict[str, Any]:
    """The Avro record schema of an event.

    >>> avro_schema(Airline)["fields"][0]
    {'name': 'carrier', 'type': 'string'}
    """
    fields: list[dict[str, Any]] = []
    for name, hint in get_type_hints(event).items():
        kinds = [AVRO_TYPES[kind] for kind in get_args(hint) or (hint,) if kind is not NoneType]
        if NoneType in get_args(hint):
            fields.append({"name": name, "type": ["null", *kinds], "default": None})
        else:
            fields.append({"name": name, "type": kinds[0]})
    return {"type": "record", "name": event.__name__, "namespace": "streamapp.flights", "fields": fields}


FLIGHT_SCHEMA = avro_schema(Flight)
WEATHER_SCHEMA = avro_schema(Weather)
PLANE_SCHEMA = avro_schema(Plane)
AIRPORT_SCHEMA = avro_schema(Airport)
AIRLINE_SCHEMA = avro_schema(Airline)


class Dataset(NamedTuple):
    """One kind of event and its topic. ``key`` is the field whose value is the key of the records."""

    topic: str
    event: type[msgspec.Struct]
    schema: dict[str, Any]
    key: str
    partitions: int
    compacted: bool
    timestamp: str | None
    """The field with the time of the event. None for facts (such as planes), which are valid before the first event."""


DATASETS: dict[str, Dataset] = {
    dataset.topic: dataset
    for dataset in (
        Dataset("airlines", Airline, AIRLINE_SCHEMA, "carrier", 1, True, None),
        Dataset("airports", Airport, AIRPORT_SCHEMA, "faa", 1, True, None),
        Dataset("planes", Plane, PLANE_SCHEMA, "tailnum", 1, True, None),
        Dataset("weather", Weather, WEATHER_SCHEMA, "origin", 4, False, "time"),
        Dataset("flights", Flight, FLIGHT_SCHEMA, "tailnum", 4, False, "sched_dep_time"),
    )
}
"""The kinds of events, in the order in which events of the same time are written. Flights come last, so that a flight
finds the weather of its time."""


def new_york_ms(year: int, month: int = 1, day: int = 1, hour: int = 0) -> int:
    """Milliseconds since the epoch of a local time in New York.

    >>> new_york_ms(2013, 12, 1)
    1385874000000
    """
    return int(datetime(year, month, day, hour, tzinfo=NEW_YORK).timestamp()) * 1000
