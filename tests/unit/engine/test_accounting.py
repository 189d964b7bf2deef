"""Each record that goes in is in one place: it came out, a filter took it, it waits, or a counter names why it was dropped."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from streamapp import (
    Backoff,
    KStream,
    Materialized,
    Retry,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    TimeWindows,
    TopologyTestDriver,
)

TEXT = StringSerde()
CONFIG = StreamsConfig(
    "app",
    statestore_cache_max_bytes=0,
    dead_letter_queue_topic="dead",
    default_key_serde=TEXT,
    default_value_serde=TEXT,
)
TEXTS: dict[str, Any] = {"key_serde": TEXT, "value_serde": TEXT}

STEPS = (
    "filter",
    "skip",
    "dead_letter",
    "continue",
    "chosen",
    "by_key",
    "in_place",
    "bounded",
    "null_key",
    "count",
    "late",
    "join",
    "none",
)
"""Kinds of steps; each gives at most one record for a record."""


class Books:
    """A random chain of steps, and what its functions have seen."""

    def __init__(self, steps: list[str], hard: frozenset[int]) -> None:
        self.filtered = 0
        self._hard = hard
        builder = StreamsBuilder(CONFIG)
        stream: KStream[str, str] = builder.stream("in", **TEXTS, on_error="skip")
        for number, step in enumerate(steps):
            stream = self._step(builder, stream, step, number)
        stream.to("out", **TEXTS)
        self.driver = TopologyTestDriver(builder.build())

    def _step(
        self, builder: StreamsBuilder, stream: KStream[str, str], step: str, number: int
    ) -> KStream[str, str]:
        match step:
            case "filter":
                return stream.filter(self._keeps)
            case "null_key":
                return stream.select_key(lambda key, value: None if int(value) % 11 == number else key)
            case "none":
                return stream.map_values(lambda value: value)
            case "count":
                table = stream.group_by_key(**TEXTS).reduce(
                    lambda old, new: new, materialized=Materialized(f"s{number}", **TEXTS)
                )
                return table.to_stream()
            case "late":
                windows = TimeWindows.of_size_with_no_grace(5)
                windowed = (
                    stream.group_by_key(**TEXTS)
                    .windowed_by(windows)
                    .reduce(lambda old, new: new, materialized=Materialized(f"s{number}", **TEXTS))
                )
                return windowed.to_stream().map(lambda window, value: (window.key, value))
            case "join":
                table = builder.table(f"rows-{number}", **TEXTS)
                return stream.left_join(table, lambda value, row: value)
            case "skip" | "dead_letter" | "continue":
                return stream.map_values(self._works, on_error=step)
            case "chosen":
                return stream.map_values(
                    self._works,
                    on_error=lambda context, error: "skip" if context.offset % 2 else "dead_letter",
                )
        backoff = Backoff(10, limit=10, jitter=0)
        retries = {
            "by_key": Retry.by_key(times=1, backoff=backoff, **TEXTS),
            "in_place": Retry.in_place(times=1, backoff=backoff, then="skip", **TEXTS),
            "bounded": Retry.by_key(times=2, backoff=backoff, max_records=2, when_full="skip", **TEXTS),
        }
        return stream.map_values(self._works, on_error=retries[step])

    def _keeps(self, key: str, value: str) -> bool:
        kept = int(value) % 5 != 0
        self.filtered += not kept
        return kept

    def _works(self, value: str) -> str:
        if int(value) % 13 in self._hard:
            raise ValueError(value)
        return value

    def balance(self) -> int:
        """Where the records are, in all."""
        driver = self.driver
        letters = len(driver.produced.get("dead", []))
        assert letters == sum(count for (_, reason), count in driver.drops.items() if reason == "dead_letter")
        assert driver.dropped_records <= sum(driver.drops.values())
        return (
            len(driver.produced.get("out", []))
            + self.filtered
            + sum(driver.drops.values())
            + sum(each.records for each in driver.parked)
            + sum(driver.buffered.values())
        )


RECORDS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(0, 60), st.integers(0, 40)), max_size=25
)


@settings(max_examples=300, deadline=None)
@given(
    steps=st.lists(st.sampled_from(STEPS), min_size=1, max_size=5),
    hard=st.frozensets(st.integers(0, 12), max_size=5),
    records=RECORDS,
    undecodable=st.booleans(),
)
def test_the_sums_agree(
    steps: list[str], hard: frozenset[int], records: list[tuple[str | None, int, int]], undecodable: bool
) -> None:
    books = Books(steps, hard)
    if undecodable:
        books.driver.pipe_raw("in", b"a", b"\xff", 0)
    for key, value, timestamp in records:
        books.driver.pipe_raw("in", None if key is None else key.encode(), str(value).encode(), timestamp)
    fed = len(records) + undecodable
    assert books.balance() == fed
    for _ in range(30):
        books.driver.advance_wall_clock_time(10)
        assert books.balance() == fed
