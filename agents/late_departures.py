"""A stateless step: each flight that left at least an hour late gives a small JSON event."""

from __future__ import annotations

from streamapp import KStream
from tables.events import KEY, LATE_DEPARTURE
from tables.results import LateDeparture
from tables.schemas import Flight

TOPIC = "late-departures"
AN_HOUR = 60


def is_late(tailnum: str | None, flight: Flight) -> bool:
    return flight.dep_delay is not None and flight.dep_delay >= AN_HOUR


def summary(flight: Flight) -> LateDeparture:
    assert flight.dep_delay is not None
    return LateDeparture(flight.carrier, flight.flight, flight.origin, flight.dest, flight.dep_delay)


def late_departures(flights: KStream[str, Flight]) -> KStream[str, LateDeparture]:
    late = flights.filter(is_late, name="late").map_values(summary, name="late-summary")
    late.to(TOPIC, key_serde=KEY, value_serde=LATE_DEPARTURE, name="late-departures-sink")
    return late
