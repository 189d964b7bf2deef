from __future__ import annotations

from agents.manufacturer_delays import TABLE
from streamapp import TopologyTestDriver
from tables.results import Delays

from .conftest import Flights
from .examples import flight, plane


def test_delays_are_added_up_by_who_built_the_plane(app: Flights, driver: TopologyTestDriver) -> None:
    app.send(
        plane(tailnum="N14228", manufacturer="BOEING"),
        plane(tailnum="N516JB", manufacturer="AIRBUS"),
        flight(tailnum="N14228", dep_delay=2),
        flight(tailnum="N516JB", dep_delay=4),
        flight(tailnum="N14228", dep_delay=None),
    )
    assert app.value(TABLE, "BOEING") == Delays(flights=2, cancelled=1, minutes=2)
    assert app.value(TABLE, "AIRBUS") == Delays(flights=1, cancelled=0, minutes=4)


def test_a_plane_that_nobody_knows_is_left_out(app: Flights, driver: TopologyTestDriver) -> None:
    app.send(flight(tailnum="N00000"), flight(tailnum=None))
    assert list(driver.store(TABLE).all()) == []
