"""Aggregators that change the aggregate in place and return the same object, beside ones that return a new object.

A second aggregation behind the table notes new and old value of each change.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from streamapp import (
    BufferConfig,
    EmitStrategy,
    JsonSerde,
    KTable,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    Suppressed,
    TimeWindows,
    TopologyTestDriver,
)

TEXT, LISTS = StringSerde(), JsonSerde()
SERDES = {"key_serde": TEXT, "value_serde": LISTS}


class Functions(NamedTuple):
    """The functions of an aggregation of lists."""

    add: object
    subtract: object
    merge: object
    join: object


def _added(key, value, aggregate):
    aggregate.extend(value)
    return aggregate


def _subtracted(key, value, aggregate):
    for item in value:
        aggregate.remove(item)
    return aggregate


def _merged(key, first, second):
    second[:0] = first
    return second


def _joined(aggregate, value):
    aggregate.extend(value)
    return aggregate


IN_PLACE = Functions(_added, _subtracted, _merged, _joined)
ANEW = Functions(
    lambda key, value, aggregate: _added(key, value, list(aggregate)),
    lambda key, value, aggregate: _subtracted(key, value, list(aggregate)),
    lambda key, first, second: first + second,
    lambda aggregate, value: aggregate + value,
)

SLIDING = SlidingWindows.of_time_difference_and_grace(10, 100)
SESSIONS = SessionWindows.of_inactivity_gap_and_grace(3, 100)


def by_key(stream):
    return stream.group_by_key()


def cogrouped(stream, functions):
    evens = stream.filter(lambda key, value: value[0] % 2 == 0).group_by_key()
    odds = stream.filter(lambda key, value: value[0] % 2 == 1).group_by_key()
    return evens.cogroup(functions.add).cogroup(odds, functions.add)


def aggregated(windows):
    return lambda stream, f, m: by_key(stream).windowed_by(windows).aggregate(list, f.add, materialized=m)


def of_a_table(stream, functions, materialized):
    """Each record is a row of a table. So an update is subtracted from its group, then added again."""
    table = stream.to_table().group_by(lambda key, value: ("group", value), **SERDES)
    return table.aggregate(list, functions.add, functions.subtract, materialized=materialized)


def reduced_of_a_table(stream, functions, materialized):
    table = stream.to_table().group_by(lambda key, value: ("group", value), **SERDES)
    return table.reduce(
        functions.join,
        lambda aggregate, old: functions.subtract(None, old, aggregate),
        materialized=materialized,
    )


KINDS = {
    "aggregate": lambda s, f, m: by_key(s).aggregate(list, f.add, materialized=m),
    "reduce": lambda s, f, m: by_key(s).reduce(f.join, materialized=m),
    "cogroup": lambda s, f, m: cogrouped(s, f).aggregate(list, materialized=m),
    "table": of_a_table,
    "table-reduce": reduced_of_a_table,
    "tumbling": aggregated(TimeWindows.of_size_and_grace(10, 100)),
    "hopping": aggregated(TimeWindows.of_size_and_grace(10, 100).advance_by(4)),
    "sliding": aggregated(SLIDING),
    "sliding-reduce": lambda s, f, m: by_key(s).windowed_by(SLIDING).reduce(f.join, materialized=m),
    "sliding-cogroup": lambda s, f, m: cogrouped(s, f).windowed_by(SLIDING).aggregate(list, materialized=m),
    "sessions": lambda s, f, m: (
        by_key(s).windowed_by(SESSIONS).aggregate(list, f.add, f.merge, materialized=m)
    ),
    "sessions-cogroup": lambda s, f, m: (
        cogrouped(s, f).windowed_by(SESSIONS).aggregate(list, f.merge, materialized=m)
    ),
}
TIMES = [20, 15, 26, 21, 3, 1, 4, 40, 36, 30, 33, 15, 2, 43]
RECORDS = [("ab"[number % 3 % 2], [number], time) for number, time in enumerate(TIMES)]


def outcome(kind, functions, materialized, records=RECORDS, *, behind=None, config=None):
    """The changes of a second aggregation behind the table, and the rows of the table."""
    builder = StreamsBuilder(config or StreamsConfig("app"))
    stream = builder.stream("in", **SERDES)
    table = KINDS[kind](stream, functions, materialized)
    changes = (
        (behind(table) if behind else table)
        .group_by(lambda key, value: ("all", value), **SERDES)
        .aggregate(
            list,
            lambda key, value, seen: [*seen, ["new", value]],
            lambda key, value, seen: [*seen, ["old", value]],
            materialized=Materialized("changes", value_serde=LISTS, caching=False),
        )
    )
    changes.to_stream().to("out", **SERDES)
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", TEXT, LISTS)
        for record in records:
            topic.pipe_input(*record)
        out = driver.create_output_topic("out", TEXT, LISTS).read_records()
        return out[-1].value, [*driver.store("s").all()]


@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_an_aggregate_that_is_changed_in_place(kind, caching):
    materialized = Materialized("s", value_serde=LISTS, caching=caching)
    assert outcome(kind, IN_PLACE, materialized) == outcome(kind, ANEW, materialized)


@pytest.mark.parametrize("kind", ["aggregate", "reduce", "cogroup", "table", "table-reduce"])
def test_an_aggregate_of_a_versioned_table(kind):
    materialized = Materialized("s", value_serde=LISTS, history_retention=1_000)
    assert outcome(kind, IN_PLACE, materialized) == outcome(kind, ANEW, materialized)


@pytest.mark.parametrize("kind", ["aggregate", "reduce", "cogroup"])
def test_an_aggregate_of_a_table_with_a_ttl(kind):
    materialized = Materialized("s", value_serde=LISTS, ttl=12)
    assert outcome(kind, IN_PLACE, materialized) == outcome(kind, ANEW, materialized)


@pytest.mark.parametrize("kind", ["aggregate", "reduce", "table"])
@pytest.mark.parametrize(
    "settings",
    [{"store_type": "lru", "max_entries": 10}, {"store_type": "in_memory"}, {"timestamped": False}],
)
def test_an_aggregate_in_another_kind_of_store(kind, settings):
    materialized = Materialized("s", value_serde=LISTS, caching=False, **settings)
    assert outcome(kind, IN_PLACE, materialized) == outcome(kind, ANEW, materialized)


@pytest.mark.parametrize("kind", ["aggregate", "sliding", "sessions"])
def test_an_aggregate_without_any_record_cache(kind):
    config = StreamsConfig("app", statestore_cache_max_bytes=0)
    materialized = Materialized("s", value_serde=LISTS)
    assert outcome(kind, IN_PLACE, materialized, config=config) == outcome(
        kind, ANEW, materialized, config=config
    )


@pytest.mark.parametrize("kind", ["aggregate", "tumbling", "sliding", "sessions", "table"])
def test_an_aggregate_before_a_suppression(kind):
    materialized = Materialized("s", value_serde=LISTS, caching=False)

    def suppressed(table: KTable) -> KTable:
        return table.suppress(Suppressed.until_time_limit(5, BufferConfig.unbounded()))

    expected = outcome(kind, ANEW, materialized, behind=suppressed)
    assert outcome(kind, IN_PLACE, materialized, behind=suppressed) == expected


@pytest.mark.parametrize(
    "windows",
    [SlidingWindows.of_time_difference_and_grace(10, 30), TimeWindows.of_size_and_grace(10, 30), SESSIONS],
)
def test_final_results_of_windows(windows):
    def final(functions):
        builder = StreamsBuilder()
        windowed = builder.stream("in", **SERDES).group_by_key().windowed_by(windows)
        closed = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        merge = (functions.merge,) if windows is SESSIONS else ()
        table = closed.aggregate(
            list, functions.add, *merge, materialized=Materialized("s", value_serde=LISTS)
        )
        table.to_stream(lambda key, value: str(key)).to("out", **SERDES)
        with TopologyTestDriver(builder.build()) as driver:
            topic = driver.create_input_topic("in", TEXT, LISTS)
            for record in [*RECORDS, *(("c", [0], time) for time in range(50, 200, 5))]:
                topic.pipe_input(*record)
            out = driver.create_output_topic("out", TEXT, LISTS).read_records()
            return [(record.key, record.value) for record in out]

    assert final(ANEW)
    assert final(IN_PLACE) == final(ANEW)


def test_a_late_record_in_sliding_windows_is_not_in_the_window_behind_it():
    builder = StreamsBuilder()
    stream = builder.stream("in", **SERDES)
    table = aggregated(SLIDING)(stream, IN_PLACE, Materialized("s", value_serde=LISTS))
    with TopologyTestDriver(builder.build()) as driver:
        assert table is not None
        topic = driver.create_input_topic("in", TEXT, LISTS)
        topic.pipe_input("a", [1], 20)
        topic.pipe_input("a", [2], 15)
        rows = {key.start: value for key, value, _ in driver.store("s").all()}
    assert rows == {5: [2], 10: [1, 2], 16: [1]}


class Decoded(JsonSerde):
    """Counts the values that it decodes."""

    def __init__(self, immutable: bool) -> None:
        super().__init__()
        self.immutable, self.count = immutable, 0

    def deserialize(self, data):
        self.count += 1
        return super().deserialize(data)


@pytest.mark.parametrize("kind", ["aggregate", "reduce", "tumbling", "table"])
def test_values_are_decoded_a_second_time_only_if_they_may_change(kind):
    mutable, immutable, alone = Decoded(False), Decoded(True), Decoded(False)
    expected = outcome(kind, ANEW, Materialized("s", value_serde=immutable, caching=False))
    assert outcome(kind, ANEW, Materialized("s", value_serde=mutable, caching=False)) == expected
    assert mutable.count > immutable.count > 0

    builder = StreamsBuilder()
    stream = builder.stream("in", **SERDES)
    KINDS[kind](stream, ANEW, Materialized("s", value_serde=alone, caching=False))
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", TEXT, LISTS)
        for record in RECORDS:
            topic.pipe_input(*record)
        assert driver.store("s")
    assert alone.count < mutable.count


def test_an_initializer_that_gives_a_value_which_the_serde_refuses():
    """Only results of the aggregator are serialized, never the initializer's value."""
    numbers = JsonSerde(list[int])
    builder = StreamsBuilder()
    stream = builder.stream("in", **SERDES)
    table = stream.group_by_key().aggregate(
        tuple,
        lambda key, value, seen: [*seen, *value],
        materialized=Materialized("s", value_serde=numbers, caching=False),
    )
    totals = table.group_by(lambda key, value: ("all", value), **SERDES).aggregate(
        list, ANEW.add, lambda key, value, seen: seen, materialized=Materialized(value_serde=LISTS)
    )
    totals.to_stream().to("out", **SERDES)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", TEXT, LISTS).pipe_input("a", [1], 20)
        assert driver.create_output_topic("out", TEXT, LISTS).read_records()
