"""Global-table joins: delays by who built the plane, and flights by where they go."""

from __future__ import annotations

from streamapp import GlobalKTable, JsonSerde, KStream, KTable
from tables.events import KEY
from tables.results import Delays, Departure, departure
from tables.schemas import Airport, Flight, Plane
from tables.stores import count_table, delays_table

MANUFACTURERS = "manufacturer-delays"
DESTINATIONS = "destination-flights"


def manufacturer_delays(
    flights: KStream[str, Flight], planes: GlobalKTable[str, Plane]
) -> KTable[str, Delays]:
    return (
        flights.join(
            planes,
            lambda flight, plane: (plane.manufacturer, departure(flight)),
            key_selector=lambda tailnum, flight: tailnum,
            name="plane-of-flight",
        )
        .map(lambda tailnum, pair: pair, name="by-manufacturer")
        .group_by_key(key_serde=KEY, value_serde=JsonSerde(Departure), name="manufacturer-departures")
        .aggregate(
            Delays,
            lambda maker, new, delays: delays.plus(new),
            materialized=delays_table(MANUFACTURERS),
            name="manufacturer-delays",
        )
    )


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
        .group_by_key(key_serde=KEY, value_serde=JsonSerde(Departure), name="destination-departures")
        .count(materialized=count_table(DESTINATIONS), name="destination-flights")
    )
