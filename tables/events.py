"""The serdes of the reference application's events.

Input events and the tables of delays are Avro, because their schemas may change in later versions of the application.
Results that are not kept for long are JSON."""

from __future__ import annotations

from streamapp import AvroSerde, JsonSerde, Serde, StringSerde
from tables.results import Delays, Departure, LateDeparture, Ticket
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

__all__ = ["AIRPORT", "DELAYS", "DEPARTURE", "FLIGHT", "KEY", "LATE_DEPARTURE", "PLANE", "TICKET", "WEATHER"]

KEY = StringSerde()
FLIGHT: Serde[Flight] = AvroSerde(FLIGHT_SCHEMA, type=Flight)
WEATHER: Serde[Weather] = AvroSerde(WEATHER_SCHEMA, type=Weather)
PLANE: Serde[Plane] = AvroSerde(PLANE_SCHEMA, type=Plane)
AIRPORT: Serde[Airport] = AvroSerde(AIRPORT_SCHEMA, type=Airport)
DEPARTURE: Serde[Departure] = JsonSerde(Departure)
LATE_DEPARTURE: Serde[LateDeparture] = JsonSerde(LateDeparture)
TICKET: Serde[Ticket] = JsonSerde(Ticket)
DELAYS: Serde[Delays] = AvroSerde(type=Delays)
