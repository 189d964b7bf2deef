"""A stream-table join: delays by the weather at departure."""

from __future__ import annotations

from streamapp import KStream, KTable
from tables.events import DEPARTURE, KEY
from tables.results import Delays, add_departure, departure
from tables.schemas import Flight, Weather
from tables.stores import delays_table

TABLE = "weather-delays"


def conditions(weather: Weather | None) -> str:
    """One word for the weather of an hour."""
    if weather is None:
        return "unknown"
    if weather.visib < 1:
        return "fog"
    if weather.precip > 0:
        return "snow" if weather.temp is not None and weather.temp <= 32 else "rain"
    return "wind" if weather.wind_speed is not None and weather.wind_speed > 20 else "fair"


def weather_delays(flights: KStream[str, Flight], weather: KTable[str, Weather]) -> KTable[str, Delays]:
    return (
        flights.map(lambda tailnum, flight: (flight.origin, departure(flight)), name="by-origin")
        .left_join(
            weather,
            lambda departed, hour: (conditions(hour), departed),
            key_serde=KEY,
            value_serde=DEPARTURE,
            name="weather-of-departure",
        )
        .map(lambda origin, pair: pair, name="by-weather")
        .group_by_key(key_serde=KEY, value_serde=DEPARTURE, name="weather-departures")
        .aggregate(Delays, add_departure, materialized=delays_table(TABLE), name=TABLE)
    )
