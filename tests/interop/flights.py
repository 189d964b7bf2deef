"""The topology of `java/FlightsTopology.java` in Python, statement by statement, so that generated names are the same.

As a module that ``faust -A`` runs it is told by its environment which application it is.
"""

from __future__ import annotations

import os
from datetime import timedelta

from streamapp import (
    App,
    BufferConfig,
    EmitStrategy,
    JoinWindows,
    KGroupedStream,
    KStream,
    KTable,
    LongSerde,
    Materialized,
    Processor,
    ProcessorContext,
    Record,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamJoined,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    Suppressed,
    TimeWindows,
    Windowed,
)
from streamapp.engine.queues import ConsumedRecord

__all__ = ["INPUTS", "OUTPUTS", "UNORDERED", "describe_flights"]

TEXT, NUMBER = StringSerde(), LongSerde()
BOTH_TEXT = {"key_serde": TEXT, "value_serde": TEXT}
MINUTE = timedelta(minutes=1)

INPUTS = {"flights": 3, "landings": 3, "planes": 3, "ratings": 3, "fares": 3, "owners": 2, "carriers": 1}
"""The input topics behind the prefix, with their partitions."""
OUTPUTS = (
    *(
        "departures",
        "leg-delays",
        "slowest",
        "recent",
        "hourly",
        "hourly-final",
        "trails",
        "sliding",
        "closed",
        "sessions",
    ),
    *(
        "with-plane",
        "trips",
        "arrived",
        "priced",
        "by-carrier",
        "rated",
        "owned",
        "models",
        "settled",
        "numbered",
    ),
)
UNORDERED = frozenset({"departures", "models", "owned"})
"""Outputs whose keys get records over several partitions of an internal topic: only the last value is certain."""

Flights = KStream[str, str]


def describe_flights(builder: StreamsBuilder, prefix: str) -> None:
    flights = builder.stream(f"{prefix}flights", **BOTH_TEXT)
    landings = builder.stream(f"{prefix}landings", **BOTH_TEXT)
    planes = builder.table(f"{prefix}planes", **BOTH_TEXT)
    _count(flights, prefix)
    _windows(flights.group_by_key(**BOTH_TEXT), prefix)
    _joins(builder, flights, landings, planes, prefix)
    _tables(builder, planes, prefix)
    _processors(builder, flights, prefix)


def _count(flights: Flights, prefix: str) -> None:
    by_origin = flights.group_by(lambda tail, flight: _field(flight, 0), **BOTH_TEXT)
    departures = by_origin.count(materialized=Materialized("departures", value_serde=NUMBER))
    departures.to_stream().to(f"{prefix}departures", key_serde=TEXT, value_serde=NUMBER)
    legs = flights.select_key(lambda tail, flight: f"{tail}@{_field(flight, 0)}")
    legs = legs.repartition(**BOTH_TEXT, partitions=5, name="legs")
    delays = legs.group_by_key(**BOTH_TEXT).aggregate(
        lambda: 0,
        lambda leg, flight, total: total + _delay(flight),
        materialized=Materialized(key_serde=TEXT, value_serde=NUMBER),
    )
    delays.to_stream().to(f"{prefix}leg-delays", key_serde=TEXT, value_serde=NUMBER)
    slowest = flights.group_by_key(**BOTH_TEXT).reduce(
        lambda slowest, flight: flight if _delay(flight) > _delay(slowest) else slowest,
        materialized=Materialized("slowest", **BOTH_TEXT, store_type="in_memory"),
    )
    slowest.to_stream().to(f"{prefix}slowest", **BOTH_TEXT)
    recent = flights.group_by_key(**BOTH_TEXT).count(
        materialized=Materialized(
            "recent", key_serde=TEXT, value_serde=NUMBER, store_type="lru", max_entries=5
        )
    )
    recent.to_stream().to(f"{prefix}recent", key_serde=TEXT, value_serde=NUMBER)


def _windows(flights: KGroupedStream[str, str], prefix: str) -> None:
    hours = TimeWindows.of_size_and_grace(60 * MINUTE, 10 * MINUTE)
    hourly = flights.windowed_by(hours).count(materialized=Materialized("hourly", value_serde=NUMBER))
    hourly.to_stream().to(f"{prefix}hourly", value_serde=NUMBER)
    final = hourly.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))
    final.to_stream().to(f"{prefix}hourly-final", value_serde=NUMBER)
    trails = flights.windowed_by(hours.advance_by(20 * MINUTE)).aggregate(
        lambda: "",
        lambda tail, flight, trail: f"{trail}{_field(flight, 0)}>",
        materialized=Materialized(**BOTH_TEXT),
    )
    trails.to_stream().to(f"{prefix}trails", value_serde=TEXT)
    sliding = SlidingWindows.of_time_difference_and_grace(30 * MINUTE, 10 * MINUTE)
    close = flights.windowed_by(sliding).count(materialized=Materialized(key_serde=TEXT, value_serde=NUMBER))
    close.to_stream().to(f"{prefix}sliding", value_serde=NUMBER)
    halves = flights.windowed_by(TimeWindows.of_size_and_grace(30 * MINUTE, 5 * MINUTE))
    closed: KTable[Windowed, int] = halves.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(
        materialized=Materialized("closed", value_serde=NUMBER, retention=240 * MINUTE)
    )
    closed.to_stream().to(f"{prefix}closed", value_serde=NUMBER)
    gap = SessionWindows.of_inactivity_gap_and_grace(25 * MINUTE, 10 * MINUTE)
    sessions = flights.windowed_by(gap).count(materialized=Materialized("sessions", value_serde=NUMBER))
    sessions.to_stream().to(f"{prefix}sessions", value_serde=NUMBER)


def _joins(
    builder: StreamsBuilder, flights: Flights, landings: Flights, planes: KTable[str, str], prefix: str
) -> None:
    serdes = {**BOTH_TEXT, "other_value_serde": TEXT}
    with_plane = flights.left_join(planes, _pair, **serdes)
    with_plane.to(f"{prefix}with-plane", **BOTH_TEXT)
    hour = JoinWindows.of_time_difference_and_grace(60 * MINUTE, 5 * MINUTE)
    trips = flights.outer_join(landings, _pair, hour, stream_joined=StreamJoined(**serdes))
    trips.to(f"{prefix}trips", **BOTH_TEXT)
    named = StreamJoined(**serdes, name="arrived", store_name="arrived")
    flights.join(landings, _pair, hour, stream_joined=named).to(f"{prefix}arrived", **BOTH_TEXT)
    history = Materialized("fares", **BOTH_TEXT, history_retention=240 * MINUTE)
    fares = builder.table(f"{prefix}fares", **BOTH_TEXT, materialized=history)
    priced = flights.join(fares, _pair, **serdes, grace=10 * MINUTE, name="priced")
    priced.to(f"{prefix}priced", **BOTH_TEXT)
    carriers = builder.global_table(f"{prefix}carriers", **BOTH_TEXT)
    by_carrier = flights.join(carriers, _pair, key_selector=lambda tail, flight: _field(flight, 2))
    by_carrier.to(f"{prefix}by-carrier", **BOTH_TEXT)


def _tables(builder: StreamsBuilder, planes: KTable[str, str], prefix: str) -> None:
    ratings = builder.table(f"{prefix}ratings", **BOTH_TEXT, timestamp_extractor=_time_of_rating)
    planes.outer_join(ratings, _pair).to_stream().to(f"{prefix}rated", **BOTH_TEXT)
    owners = builder.table(f"{prefix}owners", **BOTH_TEXT)
    owned = planes.left_join(
        owners, _pair, foreign_key=lambda plane: _field(plane, 1), materialized=Materialized(**BOTH_TEXT)
    )
    owned.to_stream().to(f"{prefix}owned", **BOTH_TEXT)
    by_model = planes.group_by(lambda tail, plane: (_field(plane, 0), plane), **BOTH_TEXT)
    models = by_model.count(materialized=Materialized("models", value_serde=NUMBER))
    models.to_stream().to(f"{prefix}models", key_serde=TEXT, value_serde=NUMBER)
    settled = planes.suppress(Suppressed.until_time_limit(MINUTE, BufferConfig.unbounded()))
    settled.to_stream().to(f"{prefix}settled", **BOTH_TEXT)


def _processors(builder: StreamsBuilder, flights: Flights, prefix: str) -> None:
    seen = Stores.window("seen", TEXT, TEXT, retention=240 * MINUTE, window_size=5 * MINUTE)
    builder.add_state_store(seen)
    builder.add_state_store(Stores.key_value("numbers", TEXT, NUMBER))
    flights.process(Numbering, "seen", "numbers").to(f"{prefix}numbered", **BOTH_TEXT)


class Numbering(Processor):
    """Numbers the flights of each plane, leaving out those that say what another one said within 5 minutes."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.seen = context.get_state_store("seen")
        self.numbers = context.get_state_store("numbers")

    def process(self, record: Record) -> None:
        reach = 5 * 60_000
        said = f"{record.key}/{_field(record.value, 0)}"
        if any(self.seen.fetch(said, record.timestamp - reach, record.timestamp + reach)):
            return
        self.seen.put(said, record.value, record.timestamp)
        number = (self.numbers.get(record.key) or 0) + 1
        self.numbers.put(record.key, number)
        self.context.forward(record.with_value(f"{number}:{record.value}"))


def _time_of_rating(rating: ConsumedRecord, partition_time: int) -> int:
    """A rating that does not say when it was given counts as given at the partition's time, which the group commits."""
    return partition_time if rating.value == "undated" else rating.timestamp


def _field(value: str, number: int) -> str:
    return value.split(",")[number]


def _delay(flight: str) -> int:
    return int(_field(flight, 3))


def _pair(left: str | None, right: str | None) -> str:
    return f"{_text(left)}|{_text(right)}"


def _text(value: str | None) -> str:
    return "null" if value is None else value


if "INTEROP_APP" in os.environ:
    prefix = os.environ["INTEROP_PREFIX"]
    app = App(
        os.environ["INTEROP_APP"],
        topology=lambda builder: describe_flights(builder, prefix),
        config=StreamsConfig(
            os.environ["INTEROP_APP"],
            bootstrap_servers=os.environ["INTEROP_BOOTSTRAP"],
            processing_guarantee=os.environ["INTEROP_GUARANTEE"],  # type: ignore[arg-type]
            commit_interval_ms=200,
            statestore_cache_max_bytes=0,
            session_timeout_ms=6_000,
        ),
        datadir=os.environ["INTEROP_DATA"],
        web_port=int(os.environ["INTEROP_WEB_PORT"]),
    )
