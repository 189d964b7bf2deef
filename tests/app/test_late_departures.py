from __future__ import annotations

import pytest

from agents.late_departures import TOPIC
from streamapp import TopologyTestDriver
from tables.events import KEY, LATE_DEPARTURE
from tables.results import LateDeparture

from .conftest import Flights
from .examples import flight


def test_a_late_departure_is_told_with_its_delay(app: Flights, driver: TopologyTestDriver) -> None:
    app.send(flight(dep_delay=75))
    told = driver.create_output_topic(TOPIC, KEY, LATE_DEPARTURE)
    assert told.read_key_value() == ("N14228", LateDeparture("UA", 15, "JFK", "LAX", 75))


@pytest.mark.parametrize(("delay", "told"), [(None, 0), (-5, 0), (59, 0), (60, 1)])
def test_late_is_an_hour_or_more(
    app: Flights, driver: TopologyTestDriver, delay: int | None, told: int
) -> None:
    app.send(flight(dep_delay=delay))
    assert driver.create_output_topic(TOPIC, KEY, LATE_DEPARTURE).queue_size == told
