"""Proof by addition: a new kind of window is one file, and all of the DSL takes it. This is that file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from functools import partial

import pytest

from streamapp import (
    BufferConfig,
    EmitStrategy,
    Materialized,
    StreamsBuilder,
    StringSerde,
    Suppressed,
    TopologyError,
    TopologyTestDriver,
    Windowed,
    Windows,
)
from streamapp.dsl.materialize import WindowLayout
from streamapp.dsl.window_kinds import WindowKind, window_kind
from streamapp.engine.operators.views import WindowView
from streamapp.engine.operators.window_aggregate import WindowedAggregate
from streamapp.serdes.windowed import TimeWindowedSerde
from streamapp.state.kinds import TimestampedWindow
from streamapp.testing import try_out

TEXT = {"key_serde": StringSerde(), "value_serde": StringSerde()}


@dataclass(frozen=True)
class Shifts(Windows):
    """Aligned windows of a user: eight hours from six o'clock on, here 8 ms from 6 on."""

    size_ms: int = 8
    grace_ms: int = 2

    def windows_for(self, timestamp):
        start = timestamp - (timestamp - 6) % 8
        return [start] if start >= 0 else []


@dataclass(frozen=True)
class Bursts:
    """Windows by arrival, which no timestamp tells: a record opens a window of ``length_ms`` unless one of its key is open."""

    length_ms: int


@dataclass(frozen=True)
class BurstAggregate(WindowedAggregate):
    persistent_name = "toy-bursts"

    windows: Bursts
    _: KW_ONLY

    @property
    def closes_after_ms(self) -> int:
        return 0

    def bind_windows(self, store, forward):
        fold, length = store.folder(self.initializer, self.aggregator), self.windows.length_ms

        def place(key, value, timestamp, headers, close_time):
            rows = store.fetch(key, max(0, timestamp - length + 1), timestamp)
            start = next((row[0] for row in rows), timestamp)
            if start + length <= close_time:
                return 1
            new, old, latest = fold(key, start, value, timestamp)
            forward(Windowed(key, start, start + length), new, old, latest, headers)
            return 0

        return place

    def closed_rows(self, store, last_close, close_time) -> Iterable | None:
        upper = close_time - self.windows.length_ms
        lower = max(0, last_close - self.windows.length_ms + 1) if last_close >= 0 else 0
        return store.fetch_all(lower, upper) if upper >= lower else None


class BurstKind(WindowKind):
    def __init__(self, windows):
        self.windows = windows
        self.final_after_ms = 0

    final_after_ms = 0

    def key_serde(self, inner):
        return TimeWindowedSerde(inner, self.windows.length_ms)

    @property
    def layout(self):
        length = self.windows.length_ms
        kind = partial(TimestampedWindow, size_ms=length)
        return WindowLayout(kind, length, "the length of a burst", final_cached=True)

    def view(self, store):
        return WindowView(store)

    def operator(self, merger, **aggregation):
        return BurstAggregate(self.windows, **aggregation)


window_kind.register(Bursts, BurstKind)

RECORDS = [("a", "x", 6), ("a", "y", 13), ("a", "z", 14), ("b", "x", 30), ("a", "late", 7)]


def results(windows, final=False):
    def describe(words):
        windowed = words.group_by_key().windowed_by(windows)
        return (windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE) if final else windowed).count()

    return [(str(window), count) for window, count in try_out(describe, RECORDS)]


def test_windows_of_a_users_own():
    assert results(Shifts()) == [("[a@6/14]", 1), ("[a@6/14]", 2), ("[a@14/22]", 1), ("[b@30/38]", 1)]
    assert results(Shifts(), final=True) == [("[a@6/14]", 2), ("[a@14/22]", 1)]


def test_a_kind_of_window_of_its_own():
    assert results(Bursts(5)) == [("[a@6/11]", 1), ("[a@13/18]", 1), ("[a@13/18]", 2), ("[b@30/35]", 1)]
    assert results(Bursts(5), final=True) == [("[a@6/11]", 1), ("[a@13/18]", 2)]


@pytest.mark.parametrize("windows", [Shifts(grace_ms=0), Bursts(8)], ids=["windows", "kind"])
def test_everything_behind_it_takes_it(windows):
    """Late records, suppression, co-grouping, the store by name."""
    builder = StreamsBuilder()
    words = builder.stream("words", **TEXT).group_by_key()
    counts = words.windowed_by(windows).count(materialized=Materialized("counts"))
    counts.late_records().to("late", **TEXT)
    final = counts.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))
    final.to_stream(lambda window, count: str(window)).map_values(str).to("final", **TEXT)
    cogrouped = (
        words.cogroup(lambda key, word, sum: sum + word)
        .windowed_by(windows)
        .aggregate(str, materialized=Materialized("joined", value_serde=StringSerde()))
    )
    cogrouped.to_stream(lambda window, words: str(window)).to("joined", **TEXT)
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("words", **TEXT)
        for record in RECORDS:
            topic.pipe_input(*record)

        def read(topic):
            return driver.create_output_topic(topic, **TEXT).read_key_values()

        assert read("late") == [("a", "late")]
        assert read("final") == [("[a@6/14]", "2"), ("[a@14/22]", "1")]
        assert read("joined")[:3] == [("[a@6/14]", "x"), ("[a@6/14]", "xy"), ("[a@14/22]", "z")]
        assert [row[:2] for row in driver.store("counts").fetch("a", 0, 100)] == [(6, 2), (14, 1)]


@pytest.mark.parametrize("windows", [Shifts(size_ms=0), Shifts(grace_ms=-1), timedelta(hours=1), 8])
def test_what_is_no_window_is_refused_when_it_is_described(windows):
    words = StreamsBuilder().stream("words", **TEXT).group_by_key()
    with pytest.raises(TopologyError, match="windowed_by|has to be an int"):
        words.windowed_by(windows)
