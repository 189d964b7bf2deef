"""A re-key and a windowed aggregation: departures and delays per airport and hour."""

from __future__ import annotations

from datetime import timedelta

from streamapp import KStream, KTable, TimeWindows, Windowed
from tables.events import DEPARTURE, KEY
from tables.results import Delays, add_departure, departure
from tables.schemas import Flight
from tables.stores import A_YEAR, windowed_delays_table

TABLE = "airport-delays"
HOURLY = TimeWindows.of_size_and_grace(timedelta(hours=1), A_YEAR)


def airport_delays(flights: KStream[str, Flight]) -> KTable[Windowed, Delays]:
    return (
        flights.map(lambda tailnum, flight: (flight.origin, departure(flight)), name="by-airport")
        .group_by_key(key_serde=KEY, value_serde=DEPARTURE, name="airport-departures")
        .windowed_by(HOURLY)
        .aggregate(Delays, add_departure, materialized=windowed_delays_table(TABLE), name=TABLE)
    )
