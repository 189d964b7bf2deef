"""The results of the application: the values of its output topics and tables."""

from __future__ import annotations

import msgspec

from tables.schemas import Flight

__all__ = ["Delays", "Departure", "LateDeparture", "Ticket", "add_departure", "departure"]


class Departure(msgspec.Struct, frozen=True):
    """The delay of a flight, which is all that aggregations need. Other fields are left out, because each record goes
    through a repartition topic."""

    delay: int | None
    """Minutes late; None when the flight was cancelled."""


class LateDeparture(msgspec.Struct, frozen=True):
    """A flight that left at least an hour late."""

    carrier: str
    flight: int
    origin: str
    dest: str
    delay: int


class Ticket(msgspec.Struct, frozen=True):
    """A late departure as the maintenance has noted it."""

    tailnum: str
    carrier: str
    flight: int


class Delays(msgspec.Struct, frozen=True):
    """Departures and their delays, added up."""

    flights: int = 0
    cancelled: int = 0
    minutes: int = 0
    """Minutes of delay of the flights that left; early departures count negative."""


def departure(flight: Flight) -> Departure:
    """The departure of a flight, with only the field that aggregations need."""
    return Departure(flight.dep_delay)


def add_departure(key: object, departure: Departure, delays: Delays) -> Delays:
    """The sums with one more departure. The function ignores the key, so tables with any key can use it.

    >>> add_departure("JFK", Departure(10), Delays(flights=1, cancelled=1))
    Delays(flights=2, cancelled=1, minutes=10)
    """
    if departure.delay is None:
        return Delays(delays.flights + 1, delays.cancelled + 1, delays.minutes)
    return Delays(delays.flights + 1, delays.cancelled, delays.minutes + departure.delay)
