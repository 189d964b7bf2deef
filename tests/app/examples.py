"""Events to test with: ordinary ones, of which a test changes what it is about."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tables.schemas import Airport, Flight, Plane, Weather, new_york_ms

NEW_YEAR = new_york_ms(2013)
MINUTE, HOUR = 60_000, 3_600_000

FLIGHT = Flight(
    carrier="UA",
    flight=15,
    origin="JFK",
    dest="LAX",
    sched_dep_time=NEW_YEAR + 15 * MINUTE,
    distance=2475,
    tailnum="N14228",
    dep_delay=10,
)
WEATHER = Weather(origin="JFK", time=NEW_YEAR, precip=0.0, visib=10.0, temp=39.0)
PLANE = Plane(
    tailnum="N14228",
    type="Fixed wing multi engine",
    manufacturer="BOEING",
    model="737-824",
    engines=2,
    seats=149,
    engine="Turbo-fan",
)
AIRPORT = Airport(faa="LAX", name="Los Angeles Intl", lat=33.9, lon=-118.4, alt=126, tz=-8, dst="A")


def flight(**changes: Any) -> Flight:
    """A flight from JFK to Los Angeles, at a quarter past midnight on New Year's Day, ten minutes late."""
    return replace(FLIGHT, **changes)


def weather(**changes: Any) -> Weather:
    """The first hour of the year at JFK, with a clear sky."""
    return replace(WEATHER, **changes)


def plane(**changes: Any) -> Plane:
    """The plane of `flight`."""
    return replace(PLANE, **changes)


def airport(**changes: Any) -> Airport:
    """The destination of `flight`."""
    return replace(AIRPORT, **changes)
