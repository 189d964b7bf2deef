"""A join with a global table, by a field of the value: flights by the name of the airport they go to."""

from __future__ import annotations

from streamapp import GlobalKTable, KStream, KTable
from tables.events import DEPARTURE, KEY
from tables.results import departure
from tables.schemas import Airport, Flight
from tables.stores import count_table

TABLE = "destination-flights"


def destination_flights(
    flights: KStream[str, Flight], airports: GlobalKTable[str, Airport]
) -> KTable[str, int]:
    return (
        flights.left_join(
            airports,
            lambda flight, airport: (airport.name if airport else flight.dest, departure(flight)),
            key_selector=lambda tailnum, flight: flight.dest,
            name="airport-of-flight",
        )
        .map(lambda tailnum, pair: pair, name="by-destination")
        .group_by_key(key_serde=KEY, value_serde=DEPARTURE, name="destination-departures")
        .count(materialized=count_table(TABLE), name=TABLE)
    )
