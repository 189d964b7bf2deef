"""The events of the benchmarks: flights and planes of New York, 2013, as JSON."""

from __future__ import annotations

import msgspec

__all__ = ["Delays", "Flight", "Joined", "LateFlight", "Plane"]


class Flight(msgspec.Struct, frozen=True):
    year: int
    month: int
    day: int
    dep_time: int | None
    sched_dep_time: int
    dep_delay: int | None
    arr_time: int | None
    sched_arr_time: int
    arr_delay: int | None
    carrier: str
    flight: int
    tailnum: str | None
    origin: str
    dest: str
    air_time: int | None
    distance: int
    time_hour: str


class Plane(msgspec.Struct, frozen=True):
    tailnum: str
    year: int | None
    type: str
    manufacturer: str
    model: str
    engines: int
    seats: int
    engine: str


class LateFlight(msgspec.Struct, frozen=True):
    """The output of W1."""

    carrier: str
    origin: str
    dest: str
    flight: int
    dep_delay: int


class Delays(msgspec.Struct, frozen=True):
    """The row and the output of W3 for an airport and an hour."""

    count: int = 0
    delay: int = 0


class Joined(msgspec.Struct, frozen=True):
    """The output of W4."""

    carrier: str
    tailnum: str | None
    origin: str
    dest: str
    flight: int
    dep_delay: int | None
    manufacturer: str
    model: str
    seats: int
