"""The application of the chaos runs: every family of operator in one topology. The judge checks each sink by its name.

With ``FORGET_AT=n``, operators and agents of a worker forget each nth event. The judge must find such a run wrong.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from streamapp import (
    BufferConfig,
    EmitStrategy,
    JoinWindows,
    JsonSerde,
    KStream,
    Materialized,
    Processor,
    PunctuationType,
    Record,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamJoined,
    StreamsBuilder,
    StringSerde,
    Suppressed,
    TimeWindows,
)

__all__ = [
    "AGENTS",
    "EXACT",
    "FREE",
    "GONE",
    "INPUTS",
    "JOIN_MS",
    "READ_BY_AGENTS",
    "SINKS",
    "TABLES",
    "check",
    "describe",
    "describe_exact",
    "group",
    "is_forgotten",
]

INPUTS = ("events", "others", "left", "right", "refs", "copies", "asked")
READ_BY_AGENTS = ("asked", "counted")
"""The topics of the agents. The second one is a sink of the topology."""
EXACT = ("plain", "counted", "tumbling", "tumbling-final", "hopping-final", "sliding", "session")
"""Sinks whose results depend only on the order of the records in one partition, as in `TopologyTestDriver`."""
FREE = ("groups", "pairs", "looked-up", "both", "foreign", "per-ref", "batched", "copied")
"""Sinks whose results depend on the order in which records of several partitions arrive."""
AGENTS = ("told", "seen")
"""Topics with results of the agents: those of the first topic come in order, those of the second one in any order."""
SINKS = (*EXACT, *FREE, *AGENTS)
TABLES = ("counts", "tumbling", "session", "groups", "both", "foreign", "per-ref")
"""Stores that are compared over HTTP."""
GONE = "gone"
JOIN_MS = 4_000

TEXT: StringSerde = StringSerde()
JSON: JsonSerde[Any] = JsonSerde()
_DAY = timedelta(days=1)
_TEN, _FIVE = timedelta(seconds=10), timedelta(seconds=5)
_PENDING = Stores.key_value("pending", TEXT, TEXT)


class Batches(Processor[str, Any, str, str]):
    """Collects the numbers of each key. Two punctuators, of stream time and of the wall clock, send the numbers on."""

    stores = (_PENDING,)

    def init(self, context: Any) -> None:
        self.context = context
        self.pending = context.get_state_store(_PENDING)
        context.schedule(5_000, PunctuationType.STREAM_TIME, self.give_out)
        context.schedule(2_000, PunctuationType.WALL_CLOCK_TIME, self.give_out)

    def process(self, record: Record[str, Any]) -> None:
        before = self.pending.get(record.key)
        number = str(record.value["n"])
        self.pending.put(record.key, number if before is None else f"{before},{number}")
        self.latest = record.timestamp

    def give_out(self, now: int) -> None:
        for key, numbers in list(self.pending.all()):
            # The clock's time is no event time: results keep to the time of the input.
            self.context.forward(Record(key, numbers, getattr(self, "latest", 0)))
            self.pending.delete(key)


def describe(builder: StreamsBuilder, prefix: str) -> None:
    """Describes the whole topology. The module `expected` computes the right results."""
    events = describe_exact(builder, prefix)
    others = _stream(builder, prefix, "others").peek(check)
    left, right, refs = (
        builder.table(
            f"{prefix}-{name}",
            key_serde=TEXT,
            value_serde=JSON,
            materialized=Materialized(f"{name}-rows", key_serde=TEXT, value_serde=JSON, caching=False),
        )
        for name in ("left", "right", "refs")
    )
    groups = (
        events.select_key(lambda key, value: group(value["n"]))
        .group_by_key(key_serde=TEXT, value_serde=JSON, name="regrouped")
        .aggregate(lambda: "0:0:0", _fold, materialized=_stored("groups"))
    )
    _out(groups.to_stream(), prefix, "groups")
    pairs = events.join(
        others,
        lambda event, other: f"{event['n']}+{other['n']}",
        JoinWindows.of_time_difference_and_grace(timedelta(milliseconds=JOIN_MS), _DAY),
        stream_joined=StreamJoined(
            "pairs", "pairs", key_serde=TEXT, value_serde=JSON, other_value_serde=JSON
        ),
    )
    _out(pairs, prefix, "pairs")
    _out(events.left_join(left, lambda event, row: f"{event['n']}|{row and row['n']}"), prefix, "looked-up")
    both = left.join(right, lambda a, b: f"{a['n']}|{b['n']}", materialized=_stored("both"))
    _out(both.to_stream(), prefix, "both")
    foreign = left.join(
        refs,
        lambda a, b: f"{a['n']}|{b['n']}",
        foreign_key=lambda row: row["ref"],
        materialized=_stored("foreign"),
        name="by-ref",
    )
    _out(foreign.to_stream(), prefix, "foreign")
    per_ref = left.group_by(
        lambda key, row: (row["ref"], row), key_serde=TEXT, value_serde=JSON, name="per-ref"
    ).aggregate(
        lambda: "0",
        lambda key, row, count: str(int(count) + 1),
        lambda key, row, count: str(int(count) - 1),
        materialized=_stored("per-ref"),
    )
    _out(per_ref.to_stream(), prefix, "per-ref")
    _out(events.process(Batches, name="batches"), prefix, "batched")
    copies = _stream(builder, prefix, "copies").peek(check)
    _out(copies.map_values(lambda value: str(value["n"])), prefix, "copied")


def describe_exact(builder: StreamsBuilder, prefix: str) -> KStream[str, Any]:
    """Describes the operators whose results follow from the log of one partition alone."""
    events = _stream(builder, prefix, "events").filter(lambda key, value: not is_forgotten(value)).peek(check)
    plain = events.filter(lambda key, value: value["n"] % 3 != 0)
    _out(plain.map_values(lambda value: str(value["n"])), prefix, "plain")
    grouped = events.group_by_key(key_serde=TEXT, value_serde=JSON)
    counted = grouped.aggregate(lambda: "0", _count, materialized=_stored("counts"))
    _out(counted.to_stream(), prefix, "counted")
    tens = TimeWindows.of_size_and_grace(_TEN, _FIVE)
    tumbling = grouped.windowed_by(tens).aggregate(
        lambda: "0", _count, materialized=_stored("tumbling", _DAY)
    )
    _out_windows(tumbling, prefix, "tumbling")
    final = tumbling.suppress(Suppressed.until_window_closes(BufferConfig.unbounded(), name="final"))
    _out_windows(final, prefix, "tumbling-final")
    hopping = (
        grouped.windowed_by(tens.advance_by(_FIVE))
        .emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        .aggregate(lambda: "0", _count, materialized=_stored("hopping", _DAY))
    )
    _out_windows(hopping, prefix, "hopping-final")
    sliding = grouped.windowed_by(SlidingWindows.of_time_difference_and_grace(_FIVE, _FIVE)).aggregate(
        lambda: "0", _count, materialized=_stored("sliding", _DAY)
    )
    _out_windows(sliding, prefix, "sliding")
    session = grouped.windowed_by(SessionWindows.of_inactivity_gap_and_grace(_FIVE, _FIVE)).aggregate(
        lambda: "0:0", _add, _merge, materialized=_stored("session", _DAY)
    )
    _out_windows(session, prefix, "session")
    return events


def group(number: int) -> str:
    return f"g{number % 10}"


def _stream(builder: StreamsBuilder, prefix: str, name: str) -> KStream[str, Any]:
    return builder.stream(f"{prefix}-{name}", key_serde=TEXT, value_serde=JSON)


def _out(results: KStream[str, Any], prefix: str, name: str) -> None:
    shown = results.map_values(lambda value: GONE if value is None else value)
    shown.to(f"{prefix}-{name}", key_serde=TEXT, value_serde=TEXT)


def _out_windows(table: Any, prefix: str, name: str) -> None:
    rows = table.to_stream().map(
        lambda window, value: (window.key, f"{window.start}-{window.end}={value or GONE}")
    )
    rows.to(f"{prefix}-{name}", key_serde=TEXT, value_serde=TEXT)


def _stored(name: str, retention: timedelta | None = None) -> Materialized:
    return Materialized(name, key_serde=TEXT, value_serde=TEXT, caching=False, retention=retention)


def check(key: str, value: Any) -> None:
    if not isinstance(value, dict) or not isinstance(value.get("n"), int):
        raise ValueError("not an event")


def is_forgotten(value: Any) -> bool:
    return (
        "FORGET_AT" in os.environ
        and isinstance(value, dict)
        and isinstance(value.get("n"), int)
        and value["n"] % int(os.environ["FORGET_AT"]) == 0
    )


def _count(key: str, value: Any, count: str) -> str:
    return f"{int(count.partition(':')[0]) + 1}:{value['n']}"


def _add(key: str, value: Any, total: str) -> str:
    return _merge(key, total, f"1:{value['n']}")


def _merge(key: str, one: str, other: str) -> str:
    return ":".join(str(sum(map(int, parts))) for parts in zip(one.split(":"), other.split(":"), strict=True))


def _fold(key: str, value: Any, total: str) -> str:
    """Computes count, sum and exclusive or, which are the same in any order of the records."""
    count, total_of, bits = map(int, total.split(":"))
    return f"{count + 1}:{total_of + value['n']}:{bits ^ value['n']}"
