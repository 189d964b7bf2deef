"""The reference application with another `Delays`: the change that a test deploys while the application runs."""

from __future__ import annotations

import os

import msgspec

import tables.results
from tables.results import Departure

CHANGE = os.environ.get("DELAYS_CHANGE", "")

if CHANGE == "compatible":

    class Delays(msgspec.Struct, frozen=True):
        flights: int = 0
        cancelled: int = 0
        minutes: int = 0
        longest: int = 0
        """Minutes of the longest delay."""

    def add_departure(key: object, departure: Departure, delays: Delays) -> Delays:
        """The delays with one more departure."""
        late = departure.delay or 0
        gone = int(departure.delay is None)
        return Delays(
            delays.flights + 1, delays.cancelled + gone, delays.minutes + late, max(delays.longest, late)
        )

    tables.results.Delays = Delays  # type: ignore[misc,assignment]
    tables.results.add_departure = add_departure  # type: ignore[assignment]

if CHANGE == "incompatible":
    Required = msgspec.defstruct("Delays", [("flights", str, "")], frozen=True)
    tables.results.Delays = Required  # type: ignore[misc,assignment]
    tables.results.add_departure = lambda key, departure, delays: Required("1")  # type: ignore[assignment,return-value]

# ruff: noqa: E402
# The parts of the application take their names from `tables` when they are imported.
from agents import app as app
