"""A user's topology as a type checker sees it; `test_checkers` reads what it infers at each reveal_type."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import reveal_type

from streamapp import (
    EmitStrategy,
    FixedKeyProcessor,
    JoinWindows,
    JsonSerde,
    LongSerde,
    Materialized,
    Processor,
    ProcessorContext,
    ReadOnlyKeyValueStore,
    Record,
    SessionWindows,
    Stores,
    StreamsBuilder,
    StringSerde,
    TimeWindows,
    TopologyTestDriver,
    Windowed,
)


@dataclass(frozen=True)
class Flight:
    carrier: str
    delay: int


@dataclass(frozen=True)
class Gate:
    name: str


class Delays(Processor[str, Flight, str, int]):
    def process(self, record: Record[str, Flight]) -> None:
        reveal_type(record.with_key(5))  # Record[int, Flight]
        self.context.forward(record.with_value(record.value.delay))


class Carriers(FixedKeyProcessor[str, Flight, str]):
    def process(self, record: Record[str, Flight]) -> None:
        self.context.forward(record.with_value(record.value.carrier))


SEEN = Stores.key_value("seen", StringSerde(), LongSerde())
LATEST = Stores.timestamped_key_value("latest", StringSerde(), JsonSerde(Flight))
HOURS = Stores.window("hours", StringSerde(), LongSerde(), retention=10, window_size=5)
UPDATED = Stores.window("updated", StringSerde(), LongSerde(), retention=10, window_size=5, timestamped=True)
VISITS = Stores.session("visits", StringSerde(), LongSerde(), retention=10)
PRICES = Stores.versioned("prices", StringSerde(), LongSerde(), history_retention=10)


class Remembers(Processor[str, Flight, str, int]):
    stores = (SEEN, LATEST, HOURS, UPDATED, VISITS, PRICES)

    def init(self, context: ProcessorContext[str, int]) -> None:
        super().init(context)
        self.seen = context.get_state_store(SEEN)
        reveal_type(self.seen)  # KeyValueStore[str, int]
        reveal_type(context.get_state_store(LATEST))  # TimestampedKeyValueStore[str, Flight]
        reveal_type(context.get_state_store(HOURS))  # WindowStore[str, int]
        reveal_type(context.get_state_store(UPDATED))  # TimestampedWindowStore[str, int]
        reveal_type(context.get_state_store(VISITS))  # SessionStore[str, int]
        reveal_type(context.get_state_store(PRICES))  # VersionedStore[str, int]
        reveal_type(context.get_state_store("seen"))  # Any

    def process(self, record: Record[str, Flight]) -> None:
        reveal_type(self.seen.get(record.key))  # int | None
        latest = self.context.get_state_store(LATEST)
        reveal_type(latest.get(record.key))  # tuple[Flight, int] | None
        read_only: ReadOnlyKeyValueStore[str, tuple[Flight, int]] = latest
        reveal_type(read_only.all())  # Iterator[tuple[str, tuple[Flight, int]]]


class Whatever(Processor):
    def process(self, record: Record) -> None:
        self.context.forward(record.with_value(1))


def describe(builder: StreamsBuilder) -> None:
    flights = builder.stream("flights", key_serde=StringSerde(), value_serde=JsonSerde(Flight))
    gates = builder.table("gates", key_serde=StringSerde(), value_serde=JsonSerde(Gate))
    airports = builder.global_table("airports", key_serde=LongSerde(), value_serde=StringSerde())
    reveal_type(flights)  # KStream[str, Flight]
    reveal_type(gates)  # KTable[str, Gate]

    reveal_type(flights.filter(lambda tail, flight: flight.delay > 0))  # KStream[str, Flight]
    delays = flights.map_values(lambda flight: flight.delay)
    reveal_type(delays)  # KStream[str, int]
    paired = flights.map_values(lambda tail, flight: (tail, flight), with_key=True)
    reveal_type(paired)  # KStream[str, tuple[str, Flight]]
    reveal_type(flights.map(lambda tail, flight: (flight.delay, tail)))  # KStream[int, str]
    reveal_type(flights.flat_map_values(lambda flight: [flight.delay]))  # KStream[str, int]
    reveal_type(flights.select_key(lambda tail, flight: flight.delay))  # KStream[int, Flight]
    reveal_type(flights.split().no_default_branch())  # dict[str, KStream[str, Flight]]

    reveal_type(flights.process(Delays))  # KStream[str, int]
    reveal_type(flights.process_values(Carriers))  # KStream[str, str]
    reveal_type(flights.process(Whatever))  # KStream[Any, Any]

    by_carrier = flights.group_by(lambda tail, flight: flight.carrier, key_serde=StringSerde())
    reveal_type(by_carrier)  # KGroupedStream[str, Flight]
    reveal_type(by_carrier.count())  # KTable[str, int]
    reveal_type(by_carrier.reduce(max_delay))  # KTable[str, Flight]
    total = by_carrier.aggregate(
        float, lambda carrier, flight, sum: sum + flight.delay, materialized=Materialized("s")
    )
    reveal_type(total)  # KTable[str, float]
    reveal_type(total.to_stream())  # KStream[str, float]
    reveal_type(total.group_by(lambda carrier, sum: (int(sum), carrier)))  # KGroupedTable[int, str]

    hourly = by_carrier.windowed_by(TimeWindows.of_size_with_no_grace(timedelta(hours=1))).count()
    reveal_type(hourly)  # WindowedKTable[str, Flight, int]
    reveal_type(hourly.late_records())  # KStream[str, Flight]
    reveal_type(hourly.filter(busy))  # KTable[Windowed[str], int]
    sessions = by_carrier.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(5))
    final = sessions.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).reduce(max_delay)
    reveal_type(final)  # WindowedKTable[str, Flight, Flight]

    near = JoinWindows.of_time_difference_with_no_grace(5)
    pairs = flights.join(delays, lambda flight, delay: (flight, delay), near)
    reveal_type(pairs)  # JoinedKStream[str, tuple[Flight, int], Flight, int]
    reveal_type(pairs.late_records("left"))  # KStream[str, Flight]
    reveal_type(pairs.late_records("right"))  # KStream[str, int]
    reveal_type(flights.join(gates, lambda flight, gate: gate.name))  # KStream[str, str]
    gated = flights.left_join(gates, lambda tail, flight, gate: gate, with_key=True)
    reveal_type(gated)  # KStream[str, Gate | None]
    landed = flights.join(
        airports, lambda flight, airport: airport, key_selector=lambda tail, flight: flight.delay
    )
    reveal_type(landed)  # KStream[str, str]
    keyed = flights.join(
        airports,
        lambda tail, flight, airport: (tail, airport),
        key_selector=lambda tail, flight: 1,
        with_key=True,
    )
    reveal_type(keyed)  # KStream[str, tuple[str, str]]
    reveal_type(gates.join(total, lambda gate, sum: (gate.name, sum)))  # KTable[str, tuple[str, float]]
    reveal_type(gates.outer_join(total, lambda gate, sum: sum))  # KTable[str, float | None]
    cogrouped = by_carrier.cogroup(count_one).cogroup(
        delays.group_by_key(), lambda key, value, sum: sum + value
    )
    reveal_type(cogrouped.aggregate(int))  # KTable[str, int]


def drive(driver: TopologyTestDriver) -> None:
    written = driver.create_input_topic("in", StringSerde(), JsonSerde(Flight))
    written.pipe_input(None, Flight("UA", 5))
    written.pipe_key_values([("N1", Flight("UA", 5)), ("N1", None)])
    read = driver.create_output_topic("out", StringSerde(), LongSerde())
    reveal_type(read.read_record())  # Record[str, int]
    reveal_type(read.read_table())  # dict[str, int]


def look(driver: TopologyTestDriver) -> None:
    reveal_type(driver.store(SEEN).get("N1"))  # int | None
    reveal_type(driver.store("seen"))  # Any


def max_delay(one: Flight, other: Flight) -> Flight:
    return one if one.delay > other.delay else other


def busy(window: Windowed[str], flights: int) -> bool:
    return window.key != "" and flights > 10


def count_one(key: str, value: Flight, count: int) -> int:
    return count + 1


def bare(window: Windowed, record: Record) -> int:
    """The bare names work as well, of any key."""
    return window.start + record.timestamp
