from __future__ import annotations

from agents.destination_flights import TABLE

from .conftest import Flights
from .examples import airport, flight


def test_flights_are_counted_by_the_name_of_their_destination(app: Flights) -> None:
    app.send(airport(faa="LAX", name="Los Angeles Intl"), flight(dest="LAX"), flight(dest="LAX"))
    assert app.value(TABLE, "Los Angeles Intl") == 2


def test_a_destination_without_a_name_goes_by_its_code(app: Flights) -> None:
    app.send(flight(dest="SJU"))
    assert app.value(TABLE, "SJU") == 1
