from __future__ import annotations

import pytest

from agents.weather_delays import TABLE, conditions
from tables.results import Delays
from tables.schemas import Weather

from .conftest import Flights
from .examples import HOUR, MINUTE, NEW_YEAR, flight, weather


def test_a_flight_meets_the_weather_of_its_hour(app: Flights) -> None:
    app.send(
        weather(time=NEW_YEAR, visib=0.5),
        weather(time=NEW_YEAR + HOUR),
        flight(sched_dep_time=NEW_YEAR + HOUR, dep_delay=5),
        flight(sched_dep_time=NEW_YEAR + 59 * MINUTE, dep_delay=40),  # comes later, left in the fog
    )
    assert app.value(TABLE, "fog") == Delays(flights=1, cancelled=0, minutes=40)
    assert app.value(TABLE, "fair") == Delays(flights=1, cancelled=0, minutes=5)


def test_the_weather_of_another_airport_does_not_count(app: Flights) -> None:
    app.send(weather(origin="EWR"), flight(origin="JFK"))
    assert app.value(TABLE, "unknown").flights == 1


@pytest.mark.parametrize(
    ("hour", "word"),
    [
        (None, "unknown"),
        (weather(), "fair"),
        (weather(visib=0.25, precip=0.1), "fog"),
        (weather(precip=0.02), "rain"),
        (weather(precip=0.02, temp=None), "rain"),
        (weather(precip=0.02, temp=30.0), "snow"),
        (weather(wind_speed=25.0), "wind"),
    ],
)
def test_the_word_for_an_hour(hour: Weather | None, word: str) -> None:
    assert conditions(hour) == word
