"""The simplest table: the number of flights of each carrier."""

from __future__ import annotations

from streamapp import KStream, KTable
from tables.events import DEPARTURE, KEY
from tables.results import departure
from tables.schemas import Flight
from tables.stores import count_table

TABLE = "carrier-flights"


def carrier_flights(flights: KStream[str, Flight]) -> KTable[str, int]:
    return (
        flights.map(lambda tailnum, flight: (flight.carrier, departure(flight)), name="by-carrier")
        .group_by_key(key_serde=KEY, value_serde=DEPARTURE, name="carrier-departures")
        .count(materialized=count_table(TABLE), name=TABLE)
    )
