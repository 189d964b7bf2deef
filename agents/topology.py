"""The topology of the reference application: what it reads, and which parts it is made of."""

from __future__ import annotations

from agents.airport_delays import airport_delays
from agents.carrier_flights import carrier_flights
from agents.late_departures import late_departures
from agents.plane_delays import destination_flights, manufacturer_delays
from agents.weather_delays import weather_delays
from streamapp import StreamsBuilder
from tables.events import AIRPORT, FLIGHT, KEY, PLANE, WEATHER
from tables.stores import weather_table


def describe(builder: StreamsBuilder) -> None:
    flights = builder.stream("flights", key_serde=KEY, value_serde=FLIGHT, name="flights")
    weather = builder.table(
        "weather", key_serde=KEY, value_serde=WEATHER, materialized=weather_table("weather"), name="weather"
    )
    planes = builder.global_table("planes", key_serde=KEY, value_serde=PLANE, name="planes")
    airports = builder.global_table("airports", key_serde=KEY, value_serde=AIRPORT, name="airports")

    late_departures(flights)
    carrier_flights(flights)
    airport_delays(flights)
    weather_delays(flights, weather)
    manufacturer_delays(flights, planes)
    destination_flights(flights, airports)
