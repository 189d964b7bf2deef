"""The topology of the reference application: what it reads, and which parts it is made of."""

from __future__ import annotations

from agents.airport_delays import airport_delays
from agents.carrier_flights import carrier_flights
from agents.destination_flights import destination_flights
from agents.late_departures import late_departures
from agents.maintenance import maintenance
from agents.manufacturer_delays import manufacturer_delays
from agents.weather_delays import weather_delays
from streamapp import StreamsBuilder
from tables.events import FLIGHT, KEY
from tables.stores import airports_table, planes_table, weather_table

DEAD_LETTERS = "flights-dead"


def describe(builder: StreamsBuilder) -> None:
    flights = builder.stream("flights", key_serde=KEY, value_serde=FLIGHT, name="flights")
    weather = weather_table(builder)
    planes = planes_table(builder)
    airports = airports_table(builder)

    late = late_departures(flights)
    maintenance(late)
    carrier_flights(flights)
    airport_delays(flights)
    weather_delays(flights, weather)
    manufacturer_delays(flights, planes)
    destination_flights(flights, airports)
