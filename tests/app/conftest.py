"""The application in the test's own process: its topics to write to, its tables to look into."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agents.topology import DEAD_LETTERS, describe
from streamapp import StreamsBuilder, StreamsConfig, TopologyTestDriver
from tables.events import AIRPORT, FLIGHT, KEY, PLANE, WEATHER
from tables.schemas import Airport, Flight, Plane, Weather


class Flights:
    """The application: events go to their topics with their own key and time, as the ingest writes them."""

    def __init__(self, driver: TopologyTestDriver) -> None:
        self.driver = driver
        self._flights = driver.create_input_topic("flights", KEY, FLIGHT)
        self._weather = driver.create_input_topic("weather", KEY, WEATHER)
        self._planes = driver.create_input_topic("planes", KEY, PLANE)
        self._airports = driver.create_input_topic("airports", KEY, AIRPORT)

    def send(self, *events: Flight | Weather | Plane | Airport) -> None:
        for event in events:
            match event:
                case Flight():
                    self._flights.pipe_input(event.tailnum, event, event.sched_dep_time)
                case Weather():
                    self._weather.pipe_input(event.origin, event, event.time)
                case Plane():
                    self._planes.pipe_input(event.tailnum, event)
                case Airport():
                    self._airports.pipe_input(event.faa, event)

    def value(self, table: str, key: str, *window_start: int) -> Any:
        """What a table has for a key (and hour); None if it has nothing."""
        value, _timestamp = self.driver.store(table).get(key, *window_start) or (None, None)
        return value


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    builder = StreamsBuilder(StreamsConfig("flights", dead_letter_queue_topic=DEAD_LETTERS))
    describe(builder)
    with TopologyTestDriver(builder.build()) as driver:
        yield driver


@pytest.fixture
def app(driver: TopologyTestDriver) -> Flights:
    return Flights(driver)
