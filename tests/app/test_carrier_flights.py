from __future__ import annotations

from agents.carrier_flights import TABLE

from .conftest import Flights
from .examples import flight


def test_flights_are_counted_by_carrier(app: Flights) -> None:
    app.send(flight(carrier="UA"), flight(carrier="DL"), flight(carrier="UA"))
    assert app.value(TABLE, "UA") == 2
    assert app.value(TABLE, "DL") == 1
    assert app.value(TABLE, "AA") is None


def test_a_flight_that_never_got_a_plane_counts(app: Flights) -> None:
    app.send(flight(tailnum=None, dep_delay=None))
    assert app.value(TABLE, "UA") == 1
