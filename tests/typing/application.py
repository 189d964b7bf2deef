"""An application as users write it in strict mode: a store, a processor, joins and views, typed from end to end.

Flights have text keys (the tail number), airports have numbers. `test_checkers` runs the application. The test then
makes the change that each ``# wrong:`` names in the next line: mypy and pyright have to refuse each such line.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamapp import (
    JsonSerde,
    KStream,
    KTable,
    LongSerde,
    Materialized,
    Processor,
    ReadOnlyKeyValueStore,
    Record,
    Stores,
    StreamsBuilder,
    StringSerde,
    TimestampedWindowStore,
    TimeWindows,
    TopologyTestDriver,
    Windowed,
)


@dataclass(frozen=True)
class Flight:
    airport: int
    delay: int


@dataclass(frozen=True)
class Arrival:
    airport: str
    delay: int


TEXT, NUMBER, FLIGHT, ARRIVAL = StringSerde(), LongSerde(), JsonSerde(Flight), JsonSerde(Arrival)
WORST = Stores.key_value("worst", TEXT, NUMBER)
HOUR_MS = 3_600_000


class Worse(Processor[str, Flight, int, Flight]):
    """Forwards a flight by its airport if its delay is the plane's worst so far."""

    stores = (WORST,)

    def process(self, record: Record[str, Flight]) -> None:
        worst = self.context.get_state_store(WORST)
        flight = record.value
        # wrong: record.key -> flight.airport
        before = worst.get(record.key)
        if before is None or flight.delay > before:
            # wrong: record.key -> flight.airport
            worst.put(record.key, flight.delay)
            # wrong: record.with_key(flight.airport) -> record
            self.context.forward(record.with_key(flight.airport))


def arrival(flight: Flight, airport: str) -> Arrival:
    return Arrival(airport, flight.delay)


def describe(builder: StreamsBuilder) -> None:
    flights: KStream[str, Flight] = builder.stream("flights", key_serde=TEXT, value_serde=FLIGHT)
    airports: KTable[int, str] = builder.table("airports", key_serde=NUMBER, value_serde=TEXT)
    worse = flights.process(Worse)
    # wrong: worse.join -> flights.join
    arrivals: KStream[int, Arrival] = worse.join(airports, arrival, key_serde=NUMBER, value_serde=FLIGHT)
    # wrong: NUMBER -> TEXT
    arrivals.to("arrivals", key_serde=NUMBER, value_serde=ARRIVAL)
    grouped = worse.group_by_key(key_serde=NUMBER, value_serde=FLIGHT)
    windowed = grouped.windowed_by(TimeWindows.of_size_with_no_grace(HOUR_MS))
    counts = windowed.count(materialized=Materialized("hourly"))
    # wrong: is_busy -> is_late
    busy = counts.filter(is_busy)
    busy.to_stream().foreach(lambda window, count: print(window.key + 1, count))


def is_busy(window: Windowed[int], count: int) -> bool:
    return count > 1


def is_late(tail: str, count: int) -> bool:
    return tail != "" and count > 0


def worst_delay(view: ReadOnlyKeyValueStore[str, int], tail: str) -> int:
    return view.get(tail) or 0


def departures(view: TimestampedWindowStore[int, int], airport: int) -> list[int]:
    # wrong: airport -> "JFK"
    rows = view.fetch(airport, 0, HOUR_MS)
    return [count for _, count, _ in rows]


def ask(driver: TopologyTestDriver) -> tuple[int, list[int]]:
    # wrong: "N1" -> 1
    delay = worst_delay(driver.store(WORST), "N1")
    return delay, departures(driver.store("hourly"), 1)


def feed(driver: TopologyTestDriver) -> None:
    airports = driver.create_input_topic("airports", NUMBER, TEXT)
    # wrong: 1 -> "JFK"
    airports.pipe_input(1, "JFK")
    flights = driver.create_input_topic("flights", TEXT, FLIGHT)
    for delay in (5, 3, 9):
        flights.pipe_input("N1", Flight(1, delay))


def read(driver: TopologyTestDriver) -> dict[int, Arrival]:
    # wrong: NUMBER -> TEXT
    return driver.create_output_topic("arrivals", NUMBER, ARRIVAL).read_table()
