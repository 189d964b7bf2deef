"""A join with a global table, by the stream's key: delays by the manufacturer of the plane."""

from __future__ import annotations

from streamapp import GlobalKTable, KStream, KTable
from tables.events import DEPARTURE, KEY
from tables.results import Delays, add_departure, departure
from tables.schemas import Flight, Plane
from tables.stores import delays_table

TABLE = "manufacturer-delays"


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
        .group_by_key(key_serde=KEY, value_serde=DEPARTURE, name="manufacturer-departures")
        .aggregate(Delays, add_departure, materialized=delays_table(TABLE), name=TABLE)
    )
