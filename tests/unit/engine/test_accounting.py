"""Each record that goes in is in one place: it came out, a filter took it, it waits, or a counter names why it was dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from streamapp import (
    Backoff,
    FixedKeyProcessor,
    KStream,
    Materialized,
    Record,
    Retry,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    TimeWindows,
    TopologyTestDriver,
)
from streamapp.errors import SerializationError

CONFIG = StreamsConfig(
    "app",
    statestore_cache_max_bytes=0,
    dead_letter_queue_topic="dead",
    default_key_serde=StringSerde(),
    default_value_serde=StringSerde(),
)
TEXTS: dict[str, Any] = {"key_serde": StringSerde(), "value_serde": StringSerde()}
BACKOFF = Backoff(10, limit=10, jitter=0)
Stream = KStream[str, str]


class Picky(StringSerde):
    """Does not write every value."""

    def serialize(self, value: str) -> bytes:
        if int(value) % 17 == 3:
            raise SerializationError(f"{value} is not for this topic")
        return super().serialize(value)


class Books:
    """A random topology, and what its functions have seen.

    The topology begins with a stream and a table of two topics. A step takes one of the open streams. At the end, each
    open stream has a sink of its own.
    """

    def __init__(self, steps: list[tuple[str, int, int]], hard: frozenset[int]) -> None:
        self.more = self.filtered = 0
        """Records that a topology makes of others (forks, `flat_map`), and those that filters take."""
        self._hard = hard
        self._builder = builder = StreamsBuilder(CONFIG)
        self._open: list[Stream] = [
            builder.stream("in", on_error="skip"),
            builder.table("rows", on_error="dead_letter", materialized=Materialized("rows")).to_stream(),
        ]
        builder.global_table("airports", on_error="skip")
        for number, (step, which, other) in enumerate(steps):
            self._number = number
            stream = self._open.pop(which % len(self._open))
            getattr(self, f"_{step}", self._one_to_one(step))(stream, other)
        for number, stream in enumerate(self._open):
            stream.to(f"out-{number}", value_serde=Picky(), on_error="skip" if number % 2 else "dead_letter")
        self.driver = TopologyTestDriver(builder.build())

    # ------------------------------------------------------------------ steps that change the number of records

    def _fork(self, stream: Stream, other: int) -> None:
        self._open += [self._counted(stream)] * 2

    def _merge(self, stream: Stream, other: int) -> None:
        if self._open and self._open[other % len(self._open)] is not stream:
            stream = stream.merge(self._open.pop(other % len(self._open)))
        self._open.append(stream)

    def _split(self, stream: Stream, other: int) -> None:
        branches = stream.split(f"s{self._number}-", on_error="dead_letter").branch(
            lambda key, value: int(self._works(value)) % 2 == 0
        )
        self._open += branches.default_branch().values()

    def _flat_map_values(self, stream: Stream, other: int) -> None:
        def some(value: str) -> list[str]:
            found = [self._works(value)] * (int(value) % 4)
            self.more += len(found) - 1
            return found

        self._open.append(stream.flat_map_values(some, on_error=Retry.by_key(times=1, backoff=BACKOFF)))

    def _counted(self, stream: Stream) -> Stream:
        def count(key: str, value: str) -> None:
            self.more += 1

        return stream.peek(count)

    # ------------------------------------------------------------------ steps that give at most one record for a record

    def _one_to_one(self, step: str) -> Callable[[Stream, int], None]:
        return lambda stream, other: self._open.append(self._step(stream, step, other))

    def _step(self, stream: Stream, step: str, other: int) -> Stream:
        number, store = self._number, Materialized(f"s{self._number}", **TEXTS)
        match step:
            case "filter":
                return stream.filter(self._keeps)
            case "null_key":
                return stream.select_key(lambda key, value: None if int(value) % 11 == number else key)
            case "new_key":
                return stream.select_key(lambda key, value: f"k{int(value) % 3}")
            case "through":
                return stream.repartition(name=f"t{number}")
            case "table":
                return stream.to_table(materialized=store).to_stream()
            case "rows":
                doubled = stream.to_table().map_values(self._works, on_error="skip", materialized=store)
                return doubled.to_stream().filter(self._is_a_row)
            case "reduce":
                reduced = stream.group_by_key(**TEXTS).reduce(
                    self._newest, materialized=store, on_error="skip"
                )
                return reduced.to_stream()
            case "late":
                windows = TimeWindows.of_size_with_no_grace(5)
                windowed = stream.group_by_key(**TEXTS).windowed_by(windows)
                reduced_by_time = windowed.reduce(self._newest, materialized=store, on_error="dead_letter")
                return reduced_by_time.to_stream().map(lambda window, value: (window.key, value))
            case "join":
                table = self._builder.table(f"rows-{number}")
                return stream.left_join(table, lambda value, row: self._works(value), on_error="skip")
            case "coroutine":
                return stream.map_values_async(self._works_later, on_error="dead_letter")
            case "processor":
                works = self._works

                class Works(FixedKeyProcessor[str, str, str]):
                    def process(self, record: Record[str, str]) -> None:
                        works(record.value)
                        self.context.forward(record)

                return stream.process_values(Works, on_error="skip")
            case "chosen":
                return stream.map_values(
                    self._works,
                    on_error=lambda context, error: "skip" if context.offset % 2 else "dead_letter",
                )
        answers: dict[str, Any] = {
            "by_key": Retry.by_key(times=1, backoff=BACKOFF, **TEXTS),
            "in_place": Retry.in_place(times=1, backoff=BACKOFF, then="skip", **TEXTS),
            "bounded": Retry.by_key(times=2, backoff=BACKOFF, max_records=2, when_full="skip", **TEXTS),
            "topics": Retry.topics(10, 20, **TEXTS),
        }
        return stream.map_values(self._works, on_error=answers.get(step, step), name=f"m{number}")

    def _keeps(self, key: str, value: str) -> bool:
        kept = int(value) % 5 != 0
        self.filtered += not kept
        return kept

    def _is_a_row(self, key: str, value: str | None) -> bool:
        """False for a tombstone: the row of a record that failed has gone."""
        if value is None:
            self.more += 1
            self.filtered += 1
        return value is not None

    def _works(self, value: str) -> str:
        if int(value) % 13 in self._hard:
            raise ValueError(value)
        return value

    async def _works_later(self, value: str) -> str:
        return self._works(value)

    def _newest(self, old: str, new: str) -> str:
        return self._works(new)

    def check(self, fed: int) -> None:
        """Compares the records that are somewhere with those that came in."""
        driver = self.driver
        letters = len(driver.produced.get("dead", []))
        assert letters == sum(count for (_, reason), count in driver.drops.items() if reason == "dead_letter")
        assert driver.dropped_records <= sum(driver.drops.values())
        out = sum(len(records) for topic, records in driver.produced.items() if topic.startswith("out-"))
        parked = sum(each.records for each in driver.parked)
        places = out + self.filtered + sum(driver.drops.values()) + parked + sum(driver.buffered.values())
        assert places == fed + self.more


STEPS = (
    *(
        "fork",
        "merge",
        "split",
        "flat_map_values",
        "filter",
        "null_key",
        "new_key",
        "through",
        "table",
        "rows",
    ),
    *("reduce", "late", "join", "coroutine", "processor", "chosen", "skip", "dead_letter", "continue"),
    *("by_key", "in_place", "bounded", "topics"),
)
INPUTS = ("in", "rows", "airports")
RECORDS = st.lists(
    st.tuples(
        st.sampled_from(INPUTS),
        st.sampled_from(["a", "b", "c", None]),
        st.integers(0, 60),
        st.integers(0, 40),
    ),
    max_size=25,
)


@settings(max_examples=300, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(STEPS), st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=7
    ),
    hard=st.frozensets(st.integers(0, 12), max_size=5),
    records=RECORDS,
    undecodable=st.sets(st.sampled_from(INPUTS)),
)
def test_the_sums_agree(
    steps: list[tuple[str, int, int]],
    hard: frozenset[int],
    records: list[tuple[str, str | None, int, int]],
    undecodable: set[str],
) -> None:
    books = Books(steps, hard)
    kept = 0
    for topic in undecodable:
        books.driver.pipe_raw(topic, b"a", b"\xff", 0)
    for topic, key, value, timestamp in records:
        books.driver.pipe_raw(topic, None if key is None else key.encode(), str(value).encode(), timestamp)
        kept += topic == "airports" and key is not None
    fed = len(records) + len(undecodable) - kept
    books.check(fed)
    for _ in range(30):
        books.driver.advance_wall_clock_time(10)
        books.check(fed)
