"""How the events of the application are read and written: Avro for what comes in, JSON for what it makes itself."""

from __future__ import annotations

from streamapp import AvroSerde, JsonSerde, StringSerde
from tables.results import LateDeparture
from tables.schemas import (
    AIRPORT_SCHEMA,
    FLIGHT_SCHEMA,
    PLANE_SCHEMA,
    WEATHER_SCHEMA,
    Airport,
    Flight,
    Plane,
    Weather,
)

__all__ = ["AIRPORT", "FLIGHT", "KEY", "LATE_DEPARTURE", "PLANE", "WEATHER"]

KEY = StringSerde()
FLIGHT = AvroSerde(FLIGHT_SCHEMA, type=Flight)
WEATHER = AvroSerde(WEATHER_SCHEMA, type=Weather)
PLANE = AvroSerde(PLANE_SCHEMA, type=Plane)
AIRPORT = AvroSerde(AIRPORT_SCHEMA, type=Airport)
LATE_DEPARTURE = JsonSerde(LateDeparture)
