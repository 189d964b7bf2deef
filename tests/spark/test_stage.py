"""Stages without Spark: the shuffle between them is done by hand here, with batches cut anywhere.

What comes out must not depend on the cuts; and with one partition it is what the test driver gives.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamapp import (
    JoinWindows,
    LongSerde,
    Materialized,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    TimeWindows,
    TopologyTestDriver,
)
from streamapp._base.partitioning import partition_for
from streamapp.errors import StreamsError, UnsupportedOperation
from streamapp.records import TopicPartition
from streamapp.runners.spark.frames import COUNTS, INPUT_COLUMNS, PACK, RECORD, ROW
from streamapp.runners.spark.run_order import in_order
from streamapp.runners.spark.stage import Stage
from streamapp.serdes import TimeWindowedSerde
from streamapp.topology import Plan

pytestmark = pytest.mark.spark

TEXT, NUMBER = StringSerde(), LongSerde()
CONFIG = StreamsConfig(
    "stages", statestore_cache_max_bytes=0, default_key_serde=TEXT, default_value_serde=TEXT
)
TYPES = {
    "task": pa.int32(), "input": pa.int32(), "mx": pa.int64(), "src": pa.int32(), "seq": pa.int64(),
    "key": pa.binary(), "value": pa.binary(), "timestamp": pa.int64(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}  # fmt: skip
assert tuple(TYPES) == INPUT_COLUMNS

Event = tuple[str, str, int]
"""Key, value, timestamp."""


class Outcome(NamedTuple):
    records: dict[str, list[tuple[Any, ...]]]
    """By topic: (mx, src, seq, partition, key, value, timestamp)."""
    tables: dict[str, list[tuple[Any, ...]]]
    counts: dict[str, int]


def input_rows(data: dict[str, list[Event]], partitions: int) -> dict[str, list[dict[str, Any]]]:
    """Each topic's events as rows, in the partitions of their keys."""
    found: dict[str, list[dict[str, Any]]] = {}
    for topic, events in data.items():
        parts: dict[int, list[Event]] = defaultdict(list)
        for event in events:
            parts[partition_for(event[0].encode(), partitions)].append(event)
        found[topic] = [
            {
                "task": p, "mx": mx, "src": p, "seq": number, "key": key.encode(), "value": value.encode(),
                "timestamp": time, "headers": None,
            }
            for p, part in parts.items()
            for number, ((key, value, time), mx) in enumerate(
                zip(part, accumulate((e[2] for e in part), max), strict=True)
            )
        ]  # fmt: skip
    return found


def computed(
    plan: Plan, data: dict[str, list[Event]], partitions: int, cuts: Callable[[int], Sequence[int]]
) -> Outcome:
    """All stages of a plan over the events; ``cuts`` says where the rows for a task are cut into batches."""
    counts = plan.partition_counts(dict.fromkeys(data, partitions)) | dict.fromkeys(data, partitions)
    packed = frozenset(t.name for sub in plan.subtopologies for t in sub.repartition_topics)
    rows, outcome = (
        input_rows(data, partitions),
        Outcome(defaultdict(list), defaultdict(list), defaultdict(int)),
    )
    for group in in_order(plan, tuple(data)):
        sub, cycle = group.subtopology, group.cycle
        topics = tuple(topic for topic in sub.source_topics if topic not in cycle)
        tasks = 1 if cycle else max(counts[topic] for topic in topics)
        given = [
            {**row, "input": number, "task": 0 if cycle else row["task"]}
            for number, topic in enumerate(topics)
            for row in rows.get(topic, [])
        ]
        totals: dict[TopicPartition, int] = defaultdict(int)
        for row in given:
            topic = topics[row["input"]]
            totals[TopicPartition(topic, row["task"])] += row["timestamp"] if topic in packed else 1
        stage = Stage(
            plan, sub, tasks, counts, sub.source_topics, row_topics=topics, row_totals=totals, packed=packed, cycle=cycle
        )  # fmt: skip
        for task in range(tasks):
            mine = sorted(
                (r for r in given if r["task"] == task),
                key=lambda r: [r[n] for n in ("mx", "input", "src", "seq")],
            )
            places = sorted({0, len(mine), *cuts(len(mine))})
            batches = [
                pa.RecordBatch.from_pylist(mine[a:b], pa.schema(list(TYPES.items())))
                for a, b in pairwise(places)
            ]
            for out in stage.run(task, iter(batches)):
                collect(out, outcome, rows)
    return outcome


def collect(batch: pa.RecordBatch, outcome: Outcome, rows: dict[str, list[dict[str, Any]]]) -> None:
    for row in batch.to_pylist():
        name = row["name"]
        if row["kind"] == PACK:
            rows.setdefault(name, []).append({column: row.get(column) for column in INPUT_COLUMNS})
        elif row["kind"] == RECORD:
            order = row["mx"], row["src"], row["seq"]
            outcome.records[name].append((*order, row["task"], row["key"], row["value"], row["timestamp"]))
        elif row["kind"] == ROW:
            outcome.tables[name].append(
                (row["key"], row["start"], row["end"], row["value"], row["timestamp"])
            )
        elif row["kind"] == COUNTS:
            outcome.counts[name] += row["seq"]


def rekeyed_windows(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of_size_and_grace(timedelta(seconds=10), timedelta(seconds=5))
    by_value = builder.stream("in").group_by(lambda k, v: v)
    kept = Materialized("counts", retention=timedelta(hours=1))
    counts = by_value.windowed_by(windows).count(materialized=kept)
    counts.to_stream().to("out", key_serde=TimeWindowedSerde(TEXT, 10_000), value_serde=NUMBER)


def rekeyed_join(builder: StreamsBuilder) -> None:
    table = builder.stream("other").select_key(lambda k, v: v).to_table()
    builder.stream("in").select_key(lambda k, v: v).left_join(table, lambda a, b: f"{a}-{b}").to("out")


def stream_join(builder: StreamsBuilder) -> None:
    windows = JoinWindows.of_time_difference_and_grace(timedelta(seconds=6), timedelta(seconds=2))
    builder.stream("in").outer_join(builder.stream("other"), lambda a, b: f"{a}-{b}", windows).to("out")


def foreign_key(builder: StreamsBuilder) -> None:
    left, right = builder.table("in"), builder.table("other")
    left.left_join(right, lambda a, b: f"{a}-{b}", foreign_key=lambda v: v).to_stream().to("out")


def plan_of(describe: Callable[[StreamsBuilder], None]) -> tuple[Any, Plan]:
    builder = StreamsBuilder(CONFIG)
    describe(builder)
    topology = builder.build()
    return topology, topology.plan(CONFIG)


names = st.sampled_from(["a", "b", "c", "d"])
events = st.lists(st.tuples(names, names, st.integers(0, 40).map(lambda second: second * 1000)), max_size=40)


@pytest.mark.parametrize("describe", [rekeyed_windows, rekeyed_join, stream_join, foreign_key])
@settings(max_examples=25, deadline=None)
@given(first=events, second=events, partitions=st.integers(1, 3), cutter=st.randoms(use_true_random=False))
def test_results_do_not_depend_on_how_batches_are_cut(
    describe: Callable[[StreamsBuilder], None],
    first: list[Event],
    second: list[Event],
    partitions: int,
    cutter: Any,
) -> None:
    _, plan = plan_of(describe)
    data = {topic: e for topic, e in (("in", first), ("other", second)) if topic in plan.source_topics}
    whole = computed(plan, data, partitions, lambda size: [])
    single = computed(plan, data, partitions, range)
    somewhere = computed(plan, data, partitions, lambda size: [cutter.randint(0, size) for _ in range(3)])
    assert single == whole
    assert somewhere == whole


@settings(max_examples=25, deadline=None)
@given(events)
def test_one_partition_gives_what_the_test_driver_gives(piped: list[Event]) -> None:
    """In arrival order, late records and drops included."""
    topology, plan = plan_of(rekeyed_windows)
    with TopologyTestDriver(topology, CONFIG) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        for key, value, time in piped:
            topic.pipe_input(key, value, timestamp=time)
        expected = [(r.key, r.value, r.timestamp) for r in driver.produced.get("out", [])]
        dropped = driver.dropped_records
    outcome = computed(plan, {"in": piped}, 1, lambda size: [])
    assert [record[-3:] for record in sorted(outcome.records["out"])] == expected
    assert outcome.counts["dropped"] == dropped


@settings(max_examples=25, deadline=None)
@given(left=events, right=events, partitions=st.integers(1, 3))
def test_foreign_key_joins_end_with_the_join_of_the_last_rows(
    left: list[Event], right: list[Event], partitions: int
) -> None:
    """A table's last row is the one that came last, whatever its time."""
    _, plan = plan_of(foreign_key)
    outcome = computed(plan, {"in": left, "other": right}, partitions, lambda size: [])
    lefts, rights = ({key.encode(): value for key, value, _ in side} for side in (left, right))
    expected = {key: f"{value}-{rights.get(value.encode())}".encode() for key, value in lefts.items()}
    assert {record[4]: record[5] for record in sorted(outcome.records["out"])} == expected


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(names, names, st.integers(1, 40).map(lambda second: second * 1000)), max_size=30))
def test_each_change_of_a_left_row_is_joined_as_in_the_test_driver(left: list[Event]) -> None:
    """A left row that changed before its answer came lost a result, if timestamps were not in order."""
    config = CONFIG.replace(statestore_cache_max_bytes=0)
    topology, _ = plan_of(foreign_key)
    right = [(name, name.upper(), 0) for name in "abc"]
    with TopologyTestDriver(topology, config) as driver:
        for topic, events in (("other", right), ("in", left)):
            for key, value, time in events:
                driver.create_input_topic(topic, TEXT, TEXT).pipe_input(key, value, timestamp=time)
        expected = [(r.key, r.value, r.timestamp) for r in driver.produced.get("out", [])]
    outcome = computed(topology.plan(config), {"in": left, "other": right}, 1, lambda size: [])
    assert [record[-3:] for record in sorted(outcome.records["out"])] == expected


def test_state_that_outgrows_its_limit_moves_to_disk_and_stays_right() -> None:
    config = CONFIG.replace(state_memory_bytes=20_000)
    builder = StreamsBuilder(config)
    builder.stream("in").group_by_key().count(materialized=Materialized("counts"))
    plan = builder.build().plan(config)
    piped = [(f"k{number % 700}", "v", number) for number in range(2_100)]
    outcome = computed(plan, {"in": piped}, 1, lambda size: [])
    assert {key: int.from_bytes(value) for key, _, _, value, _ in outcome.tables["counts"]} == {
        f"k{number}".encode(): 3 for number in range(700)
    }


def failing_behind_a_shuffle(builder: StreamsBuilder) -> None:
    def fail(key: str, value: str, total: str) -> str:
        raise ValueError("no such total")

    builder.stream("in").group_by(lambda k, v: v, name="by-value").aggregate(lambda: "", fail)


def failing_in_a_frame(builder: StreamsBuilder) -> None:
    def fail(value: str) -> str:
        raise ValueError("no such value")

    builder.stream("in").map_values(fail).to("out")


@pytest.mark.parametrize(
    ("describe", "topic"),
    [(failing_behind_a_shuffle, "stages-by-value-repartition"), (failing_in_a_frame, "in")],
)
def test_an_error_names_no_command_for_a_record_that_kafka_does_not_have(
    describe: Callable[[StreamsBuilder], None], topic: str
) -> None:
    _, plan = plan_of(describe)
    with pytest.raises(StreamsError) as caught:
        computed(plan, {"in": [("a", "b", 0)]}, 1, lambda size: [])
    assert f"record of {topic}-0 at offset 0 failed: ValueError" in str(caught.value)
    assert str(caught.value).endswith("The offset is a number of this run, and not an offset in Kafka")


def join_on_both_sides(builder: StreamsBuilder) -> None:
    """The join uses the table before the repartition topic, and the join of the counts behind it."""
    table, stream = builder.table("other", materialized=Materialized("rows")), builder.stream("in")
    stream.join(table, lambda a, b: f"{a}-{b}").to("out")
    counts = stream.group_by(lambda k, v: v, name="by-value").count(materialized=Materialized("counts"))
    counts.join(table, lambda a, b: f"{a}-{b}")


def test_a_cycle_through_a_store_is_refused_with_the_name_of_the_store() -> None:
    _, plan = plan_of(join_on_both_sides)
    with pytest.raises(UnsupportedOperation) as caught:
        in_order(plan, (), whole=False)
    said = str(caught.value)
    assert "steps before and behind stages-by-value-repartition use the store rows," in said
    assert "Move all steps with this store behind the topic, for example the join with rows." in said


def test_a_cycle_of_several_sub_topologies_is_refused_without_the_name_of_a_store() -> None:
    _, plan = plan_of(foreign_key)
    with pytest.raises(UnsupportedOperation, match="those of foreign-key joins.*Use SparkRunner.batch"):
        in_order(plan, (), whole=False)
