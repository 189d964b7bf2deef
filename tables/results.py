"""What the application computes: the values of its output topics and tables."""

from __future__ import annotations

import msgspec

from tables.schemas import Flight

__all__ = ["Delays", "Departure", "LateDeparture"]


class Departure(msgspec.Struct, frozen=True):
    """What the aggregations need of a flight; small, since it travels through repartition topics."""

    delay: int | None
    """Minutes late; None when the flight was cancelled."""


class LateDeparture(msgspec.Struct, frozen=True):
    """A flight that left at least an hour late."""

    carrier: str
    flight: int
    origin: str
    dest: str
    delay: int


class Delays(msgspec.Struct, frozen=True):
    """Departures and their delays, added up."""

    flights: int = 0
    cancelled: int = 0
    minutes: int = 0
    """Minutes of delay of those that left; early ones count negative."""

    def plus(self, departure: Departure) -> Delays:
        """With one more departure.

        >>> Delays().plus(Departure(10)).plus(Departure(None))
        Delays(flights=2, cancelled=1, minutes=10)
        """
        if departure.delay is None:
            return Delays(self.flights + 1, self.cancelled + 1, self.minutes)
        return Delays(self.flights + 1, self.cancelled, self.minutes + departure.delay)


def departure(flight: Flight) -> Departure:
    """What the aggregations need of a flight."""
    return Departure(flight.dep_delay)
