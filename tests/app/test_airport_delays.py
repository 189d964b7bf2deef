from __future__ import annotations

from agents.airport_delays import TABLE
from tables.results import Delays

from .conftest import Flights
from .examples import HOUR, MINUTE, NEW_YEAR, flight


def test_delays_are_added_up_by_airport_and_hour(app: Flights) -> None:
    app.send(
        flight(sched_dep_time=NEW_YEAR + 5 * MINUTE, dep_delay=10),
        flight(sched_dep_time=NEW_YEAR + 55 * MINUTE, dep_delay=-3),
        flight(sched_dep_time=NEW_YEAR + HOUR, dep_delay=7),
        flight(origin="EWR", dep_delay=None),
    )
    assert app.value(TABLE, "JFK", NEW_YEAR) == Delays(flights=2, cancelled=0, minutes=7)
    assert app.value(TABLE, "JFK", NEW_YEAR + HOUR) == Delays(flights=1, cancelled=0, minutes=7)
    assert app.value(TABLE, "EWR", NEW_YEAR) == Delays(flights=1, cancelled=1, minutes=0)


def test_a_flight_of_january_still_counts_in_december(app: Flights) -> None:
    app.send(flight(sched_dep_time=NEW_YEAR + 340 * 24 * HOUR), flight(sched_dep_time=NEW_YEAR))
    assert app.value(TABLE, "JFK", NEW_YEAR).flights == 1
