"""A batch on Spark gives what the test driver gives, whatever the partitions of the topics and of the frames."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

from streamapp import (
    BufferConfig,
    EmitStrategy,
    JoinWindows,
    KStream,
    LongSerde,
    Materialized,
    Processor,
    PunctuationType,
    Record,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    Suppressed,
    TimeWindows,
    Topology,
    TopologyTestDriver,
    use_partition_time_on_invalid_timestamp,
)
from streamapp._base.partitioning import partition_for
from streamapp.errors import (
    ConfigError,
    CopartitionError,
    StreamsError,
    TopologyError,
    UnsupportedOperation,
)
from streamapp.runners.spark import ColumnSource, FrameSource, ParquetSource, SparkRunner, TableRow
from streamapp.serdes import TimeWindowedSerde

pytestmark = pytest.mark.spark

TEXT, NUMBER = StringSerde(), LongSerde()
CONFIG = StreamsConfig(
    "batch",
    statestore_cache_max_bytes=0,
    default_key_serde=TEXT,
    default_value_serde=TEXT,
    dsl_store_type="in_memory",
)
SECOND = 1000

COLUMNS = pa.schema(
    [
        ("key", pa.string()),
        ("value", pa.string()),
        ("timestamp", pa.int64()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
Event = tuple[str, str, int]
"""Key, value, timestamp in ms."""
Describe = Callable[[StreamsBuilder], object]


def events(seed: int, count: int, *, first: int, jitter: int = 0) -> list[Event]:
    """One event every two seconds, up to ``jitter`` seconds late. ``first`` 0 or 1 keeps two topics' times apart."""
    rng = random.Random(seed)
    times = [1_000_000_000 + (2 * i - rng.randint(0, jitter)) * SECOND + first for i in range(count)]
    return [(f"k{rng.randrange(12)}", f"v{rng.randrange(50)}", time) for time in times]


LEFT = events(1, 250, first=0)
LATE = events(2, 250, first=0, jitter=40)
RIGHT = events(3, 120, first=1)


def topology(describe: Describe) -> Topology:
    builder = StreamsBuilder(CONFIG)
    describe(builder)
    return builder.build()


def partitioned(data: dict[str, list[Event]], partitions: int) -> list[dict[str, list[Event]]]:
    parts: list[dict[str, list[Event]]] = [{topic: [] for topic in data} for _ in range(partitions)]
    for topic, topic_events in data.items():
        for event in topic_events:
            parts[partition_for(event[0].encode(), partitions)][topic].append(event)
    return parts


def frames(
    spark: SparkSession, data: dict[str, list[Event]], partitions: int, spread: int = 2
) -> dict[str, FrameSource]:
    """The events as DataFrames whose rows lie anywhere."""
    found = {}
    for topic in data:
        rows = [
            {"key": key, "value": value, "timestamp": time, "partition": p, "offset": offset}
            for p, part in enumerate(partitioned(data, partitions))
            for offset, (key, value, time) in enumerate(part[topic])
        ]
        random.Random(5).shuffle(rows)
        frame = spark.createDataFrame(pa.Table.from_pylist(rows, COLUMNS))
        found[topic] = FrameSource(frame.repartition(spread), partitions)
    return found


def driven(built: Topology, data: dict[str, list[Event]], globals_: Iterable[str] = ()) -> TopologyTestDriver:
    """The test driver after the events, those of all topics in the order of time."""
    driver = TopologyTestDriver(built, CONFIG)
    inputs = {topic: driver.create_input_topic(topic, TEXT, TEXT) for topic in data}
    for topic in globals_:
        for key, value, time in data[topic]:
            inputs[topic].pipe_input(key, value, timestamp=time)
    rest = [topic for topic in data if topic not in globals_]
    if len(rest) == 1:  # arrival order: records may be late
        ordered = [(rest[0], event) for event in data[rest[0]]]
    else:
        ordered = sorted(((t, e) for t in rest for e in data[t]), key=lambda pair: pair[1][2])
    for topic, (key, value, time) in ordered:
        inputs[topic].pipe_input(key, value, timestamp=time)
    return driver


Bytes = tuple[bytes | None, bytes | None, int | None]


def by_key(records: Iterable[Bytes]) -> dict[bytes | None, list[Bytes]]:
    found = defaultdict(list)
    for record in records:
        found[record[0]].append(record)
    return dict(found)


def run(
    spark: SparkSession, built: Topology, sources: Mapping[str, Any]
) -> tuple[list[Bytes], dict[str, list[TableRow]]]:
    with SparkRunner(built, CONFIG, spark).batch(sources) as result:
        out = [(r.key, r.value, r.timestamp) for _, r in result.topics["out"].records()]
        return out, {name: sorted(table.rows(), key=repr) for name, table in result.tables.items()}


def stateless(builder: StreamsBuilder) -> None:
    stream = builder.stream("in").filter(lambda k, v: v != "v7").flat_map_values(lambda v: [v, v.upper()])
    stream.map(lambda k, v: (k, v + k)).to("out")


def windowed(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of_size_and_grace(10 * SECOND, 15 * SECOND)
    counts = builder.stream("in").group_by_key().windowed_by(windows).count()
    counts.to_stream().to("out", key_serde=TimeWindowedSerde(TEXT, 10 * SECOND), value_serde=NUMBER)


def suppressed(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of_size_and_grace(20 * SECOND, 5 * SECOND)
    counts = builder.stream("in").group_by_key().windowed_by(windows).count()
    final = counts.suppress(Suppressed.until_window_closes(BufferConfig.unbounded())).to_stream()
    final.to("out", key_serde=TimeWindowedSerde(TEXT, 20 * SECOND), value_serde=NUMBER)


def late(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of_size_with_no_grace(5 * SECOND)
    builder.stream("in").group_by_key().windowed_by(windows).count().late_records().to("out")


def expiring(builder: StreamsBuilder) -> None:
    builder.table("in", materialized=Materialized(ttl=20 * SECOND)).to_stream().to("out")


def stream_table(builder: StreamsBuilder) -> None:
    table = builder.table("table")
    builder.stream("in").left_join(table, lambda left, right: f"{left}-{right}").to("out")


def stream_stream(builder: StreamsBuilder) -> None:
    windows = JoinWindows.of_time_difference_and_grace(6 * SECOND, SECOND)
    builder.stream("in").left_join(builder.stream("table"), lambda a, b: f"{a}-{b}", windows).to("out")


def global_join(builder: StreamsBuilder) -> None:
    table = builder.global_table("table")
    builder.stream("in").join(
        table, lambda left, right: f"{left}-{right}", key_selector=lambda k, v: "k" + v[1:]
    ).to("out")


@pytest.mark.parametrize(
    ("describe", "data", "globals_"),
    [
        (stateless, {"in": LEFT}, ()),
        (windowed, {"in": LATE}, ()),
        (suppressed, {"in": LATE}, ()),
        (late, {"in": LATE}, ()),
        (expiring, {"in": LATE}, ()),
        (stream_table, {"in": LEFT, "table": RIGHT}, ()),
        (stream_stream, {"in": LEFT, "table": RIGHT}, ()),
        (global_join, {"in": LEFT, "table": RIGHT}, ("table",)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_partition_gives_what_the_test_driver_gives(
    spark: SparkSession, describe: Describe, data: dict[str, list[Event]], globals_: tuple[str, ...]
) -> None:
    built = topology(describe)
    expected: list[Bytes] = []
    rows: dict[str, list[TableRow]] = defaultdict(list)
    for part in partitioned(data, 3):
        with driven(built, {t: data[t] if t in globals_ else e for t, e in part.items()}, globals_) as driver:
            expected += [(r.key, r.value, r.timestamp) for r in driver.produced.get("out", [])]
            if describe is windowed:
                rows["counts"] += [
                    TableRow(window.key, value, time, window.start, window.end)
                    for window, value, time in driver.store(driver.plan.subtopologies[0].stores[0].name).all()
                ]
    out, tables = run(spark, built, frames(spark, data, 3))
    assert expected
    assert by_key(out) == by_key(expected)
    if describe is windowed:
        (table,) = tables.values()
        assert table == sorted(rows["counts"], key=repr)


def test_a_wrapper_sees_the_records_of_each_processor(spark: SparkSession) -> None:
    def marking(name: str, process: Callable[[Record], None]) -> Callable[[Record], None]:
        return lambda record: process(record.with_headers((*record.headers, (name, None))))

    config = CONFIG.replace(processor_wrapper=marking)

    def describe(builder: StreamsBuilder) -> None:
        loud = builder.stream("in").map_values(str.upper, name="loud")
        loud.select_key(lambda k, v: v, name="keyed").repartition(name="again").filter(
            lambda k, v: True, name="all"
        ).to("out")

    with SparkRunner(topology(describe), config, spark).batch(frames(spark, {"in": LEFT}, 2)) as result:
        headers = {tuple(name for name, _ in r.headers) for _, r in result.topics["out"].records()}
    assert headers == {("loud", "keyed", "again-repartition-filter", "all")}


def test_one_partition_gives_the_same_records_in_the_same_order(spark: SparkSession) -> None:
    """Through a repartition topic, late records included: how the frame's rows are spread does not matter."""

    def describe(builder: StreamsBuilder) -> None:
        windows = TimeWindows.of_size_and_grace(10 * SECOND, 15 * SECOND)
        stream: KStream = builder.stream("in").select_key(lambda k, v: v[:2])
        counts = stream.group_by_key().windowed_by(windows).count()
        counts.to_stream().to("out", key_serde=TimeWindowedSerde(TEXT, 10 * SECOND), value_serde=NUMBER)

    built = topology(describe)
    with driven(built, {"in": LATE}) as driver:
        expected = [(r.key, r.value, r.timestamp) for r in driver.produced["out"]]
    assert run(spark, built, frames(spark, {"in": LATE}, 1, spread=1))[0] == expected
    assert run(spark, built, frames(spark, {"in": LATE}, 1, spread=5))[0] == expected


@pytest.mark.parametrize("partitions", [1, 2, 5])
def test_counts_over_a_repartition_topic_do_not_depend_on_partitions(
    spark: SparkSession, partitions: int
) -> None:
    def describe(builder: StreamsBuilder) -> None:
        counts = builder.stream("in").group_by(lambda k, v: v).count()
        counts.to_stream().to("out", value_serde=NUMBER)

    built = topology(describe)
    with driven(built, {"in": LEFT}) as driver:
        expected = sorted(
            (key, value)
            for key, (value, _) in driver.store(driver.plan.subtopologies[1].stores[0].name).all()
        )
        produced = by_key((r.key, r.value, None) for r in driver.produced["out"])
    out, tables = run(spark, built, frames(spark, {"in": LEFT}, partitions))
    (table,) = tables.values()
    assert sorted((row.key, row.value) for row in table) == expected
    assert by_key((key, value, None) for key, value, _ in out) == produced


def test_a_rekeyed_stream_joins_a_table_by_time(spark: SparkSession) -> None:
    """Rows of a repartition topic and of a frame meet in one task."""

    def describe(builder: StreamsBuilder) -> None:
        table = builder.table("table")
        stream = builder.stream("in").select_key(lambda k, v: "k" + v[1:])
        stream.join(table, lambda left, right: f"{left}-{right}").to("out")

    built = topology(describe)
    data = {"in": LEFT, "table": RIGHT}
    with driven(built, data) as driver:
        expected = by_key((r.key, r.value, r.timestamp) for r in driver.produced["out"])
    for partitions in (1, 3):
        assert by_key(run(spark, built, frames(spark, data, partitions))[0]) == expected


def test_records_are_in_the_partition_of_their_key(spark: SparkSession) -> None:
    built = topology(stateless)
    with SparkRunner(built, CONFIG, spark).batch(frames(spark, {"in": LEFT}, 3)) as result:
        placed = [(p, r.key) for p, r in result.topics["out"].records()]
        assert result.processed == len(LEFT)
    assert {p for p, _ in placed} == {0, 1, 2}
    assert all(p == partition_for(key, 3) for p, key in placed)


def test_headers_go_through(spark: SparkSession) -> None:
    row = ("k", "v", 5, 0, 0, [("trace", b"1"), ("empty", None)])
    columns = "key string, value string, timestamp bigint, partition int, offset bigint, "
    frame = spark.createDataFrame([row], columns + "headers array<struct<key:string,value:binary>>")
    built = topology(lambda builder: builder.stream("in").to("out"))
    with SparkRunner(built, CONFIG, spark).batch({"in": frame}) as result:
        ((partition, record),) = result.topics["out"].records(TEXT, TEXT)
    assert (partition, record) == (0, Record("k", "v", 5, (("trace", b"1"), ("empty", None))))


def test_empty_bytes_are_bytes(spark: SparkSession) -> None:
    row = ("", "", 5, 0, 0, [("empty", b"")])
    columns = "key string, value string, timestamp bigint, partition int, offset bigint, "
    frame = spark.createDataFrame([row], columns + "headers array<struct<key:string,value:binary>>")
    built = topology(lambda builder: builder.stream("in").to("out"))
    with SparkRunner(built, CONFIG, spark).batch({"in": frame}) as result:
        ((_, record),) = result.topics["out"].records()
    assert record == Record(b"", b"", 5, (("empty", b""),))
    assert [type(each) for each in (record.key, record.value, record.headers[0][1])] == [bytes] * 3


def test_a_join_of_equal_timestamps_has_windows_without_length(spark: SparkSession) -> None:
    """They cannot be shown as rows of a table."""

    def describe(builder: StreamsBuilder) -> None:
        windows = JoinWindows.of_time_difference_and_grace(0, 5)
        builder.stream("left").join(builder.stream("right"), "{}|{}".format, windows).to("out")

    data = {"left": [("k", "a", 5), ("k", "b", 6)], "right": [("k", "x", 6), ("k", "y", 7)]}
    out, tables = run(spark, topology(describe), frames(spark, data, 1))
    assert out == [(b"k", b"b|x", 6)]
    assert tables == {}


def test_a_topic_that_is_written_and_read_stays_inside(spark: SparkSession) -> None:
    def describe(builder: StreamsBuilder) -> None:
        builder.stream("in").map_values(str.upper).to("middle")
        builder.stream("middle").group_by_key().count().to_stream().to("out", value_serde=NUMBER)

    out, _ = run(spark, topology(describe), frames(spark, {"in": LEFT}, 2))
    assert len(out) == len(LEFT)


def test_an_empty_topic_is_an_empty_result(spark: SparkSession) -> None:
    out, tables = run(spark, topology(windowed), frames(spark, {"in": []}, 2))
    assert out == []
    assert list(tables.values()) == [[]]


def foreign_key(builder: StreamsBuilder) -> None:
    left, right = builder.table("in"), builder.table("table")
    left.left_join(right, lambda a, b: f"{a}-{b}", foreign_key=lambda v: "k" + v[1:]).to_stream().to("out")


def counted_down(builder: StreamsBuilder) -> None:
    """Reads what it writes, until nothing is left to write."""
    numbers = builder.stream("in").map_values(lambda v: int(v[1:]) % 5).map_values(str)
    again = numbers.merge(builder.stream("again")).filter(lambda k, v: v != "0")
    again.map_values(lambda v: str(int(v) - 1)).to("again")
    again.to("out")


@pytest.mark.parametrize("partitions", [1, 3])
def test_foreign_keys_are_joined_over_all_partitions(spark: SparkSession, partitions: int) -> None:
    """Its sub-topologies feed each other. The last result per key does not depend on who is ahead of whom."""
    built, data = topology(foreign_key), {"in": LEFT, "table": RIGHT}
    with driven(built, data) as driver:
        expected = {r.key: r.value for r in driver.produced["out"]}
    out, _ = run(spark, built, frames(spark, data, partitions))
    assert {key: value for key, value, _ in out} == expected


def test_a_topology_may_read_what_it_writes(spark: SparkSession) -> None:
    built = topology(counted_down)
    with driven(built, {"in": LEFT}) as driver:
        expected = {t: sorted((r.key, r.value) for r in driver.produced[t]) for t in ("out", "again")}
    with SparkRunner(built, CONFIG, spark).batch(frames(spark, {"in": LEFT}, 2)) as result:
        for topic, records in expected.items():
            assert sorted((r.key, r.value) for _, r in result.topics[topic].records()) == records


def test_an_archive_of_a_topic_gives_the_same_again(spark: SparkSession, tmp_path: Path) -> None:
    """Written by one batch, read by the tasks of the next."""
    copy = topology(lambda builder: builder.stream("in").to("copy"))
    folder = str(tmp_path / "archive")
    with SparkRunner(copy, CONFIG, spark).batch(frames(spark, {"in": LATE}, 3)) as result:
        result.topics["copy"].write_parquet(folder)
    built = topology(windowed)
    expected, tables = run(spark, built, frames(spark, {"in": LATE}, 3))
    out, again = run(spark, built, {"in": ParquetSource(folder)})
    assert by_key(out) == by_key(expected)
    assert again == tables


def test_an_archive_out_of_order_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    rows = {"key": [b"k"] * 3, "value": [b"v"] * 3, "timestamp": [1, 2, 3]}
    (tmp_path / "partition=0").mkdir()
    for name, offsets in (("a", [0, 1, 5]), ("b", [3, 4, 6])):
        pq.write_table(pa.table({**rows, "offset": offsets}), tmp_path / f"partition=0/{name}.parquet")
    with pytest.raises(ConfigError, match=r"both have offsets from 3 on.*FrameSource"):
        SparkRunner(topology(stateless), CONFIG, spark).batch({"in": ParquetSource(str(tmp_path))})
    (tmp_path / "partition=0/b.parquet").unlink()
    pq.write_table(pa.table({**rows, "offset": [2, 1, 0]}), tmp_path / "partition=0/a.parquet")
    with pytest.raises(ConfigError, match=r"not in the order of its offsets.*FrameSource"):
        SparkRunner(topology(stateless), CONFIG, spark).batch({"in": ParquetSource(str(tmp_path))})


@pytest.mark.parametrize("archive", [True, False])
def test_a_null_timestamp_is_that_of_a_record_without_one(
    spark: SparkSession, tmp_path: Path, archive: bool
) -> None:
    rows = {
        "key": pa.array([b"k", b"l"]), "value": pa.array([b"v", b"w"]), "timestamp": pa.array([7, None], pa.int64()),
        "offset": [0, 1],
    }  # fmt: skip
    (tmp_path / "partition=0").mkdir()
    pq.write_table(pa.table(rows), tmp_path / "partition=0/a.parquet")
    source = ParquetSource(str(tmp_path)) if archive else FrameSource(spark.read.parquet(str(tmp_path)))

    def copy(extractor: Any) -> Topology:
        return topology(lambda builder: builder.stream("in", timestamp_extractor=extractor).to("out"))

    with SparkRunner(copy(use_partition_time_on_invalid_timestamp), CONFIG, spark).batch(
        {"in": source}
    ) as result:
        records = [record for _, record in result.topics["out"].records()]
    assert [(record.key, record.timestamp) for record in records] == [(b"k", 7), (b"l", 7)]
    with pytest.raises(StreamsError, match="in-0 at offset 1 has timestamp -1.*timestamp_extractor"):
        SparkRunner(copy(None), CONFIG, spark).batch({"in": source})


# ---------------------------------------------------------------- what is refused, and how


class Ticking(Processor):
    def init(self, context: object) -> None:
        context.schedule(1000, PunctuationType.WALL_CLOCK_TIME, lambda now: None)  # type: ignore[attr-defined]

    def process(self, record: Record) -> None: ...


def test_wall_clock_punctuators_are_refused_before_anything_runs(spark: SparkSession) -> None:
    built = topology(lambda builder: builder.stream("in").process(Ticking, name="ticking"))
    with pytest.raises(
        UnsupportedOperation, match=r"ticking cannot run on Spark: it asks for the wall clock.*STREAM_TIME"
    ):
        SparkRunner(built, CONFIG, spark).batch(frames(spark, {"in": []}, 1))


def test_windows_that_close_when_it_is_quiet_are_refused_too(spark: SparkSession) -> None:
    def idle(builder: StreamsBuilder) -> None:
        windowed = builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(SECOND))
        windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE, idle_timeout=SECOND).count(name="hourly")

    with pytest.raises(
        UnsupportedOperation, match=r"hourly cannot run on Spark: it asks for the wall clock.*idle_timeout"
    ):
        SparkRunner(topology(idle), CONFIG, spark).batch(frames(spark, {"in": []}, 1))


def test_a_topic_without_source_is_named(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="no source for table"):
        SparkRunner(topology(stream_table), CONFIG, spark).batch(frames(spark, {"in": []}, 1))


def test_a_topic_that_two_patterns_match_is_refused(spark: SparkSession) -> None:
    def overlapping(builder: StreamsBuilder) -> None:
        for pattern in ("i.*", ".*n"):
            builder.stream(re.compile(pattern)).foreach(print)

    with pytest.raises(TopologyError, match=r"topic in matches the patterns i\.\* of source"):
        SparkRunner(topology(overlapping), CONFIG, spark).batch(frames(spark, {"in": []}, 1))


def test_a_source_for_one_topic_wants_its_name(spark: SparkSession) -> None:
    with pytest.raises(
        ConfigError, match=r"a ParquetSource is a source for one topic: name the topic, as \{'in': \.\.\.\}"
    ):
        SparkRunner(topology(stateless), CONFIG, spark).batch(ParquetSource("archive"))  # type: ignore[arg-type]


def test_a_frame_without_offsets_is_refused(spark: SparkSession) -> None:
    frame: DataFrame = spark.createDataFrame([("k", "v", 1)], "key string, value string, timestamp bigint")
    with pytest.raises(ConfigError, match="topic in has no column partition, offset"):
        SparkRunner(topology(stateless), CONFIG, spark).batch({"in": frame})


def test_inputs_of_a_join_have_the_same_number_of_partitions(spark: SparkSession) -> None:
    sources = {**frames(spark, {"in": LEFT}, 2), **frames(spark, {"table": RIGHT}, 3)}
    with pytest.raises(CopartitionError, match="in has 2, table has 3"):
        SparkRunner(topology(stream_table), CONFIG, spark).batch(sources)


def test_a_record_that_fails_is_named_as_on_workers(spark: SparkSession) -> None:
    built = topology(
        lambda builder: builder.stream("in").map_values(lambda v: 1 / 0, name="broken").to("out")
    )
    with pytest.raises(StreamsError, match=r"broken.*in.*division by zero"):
        SparkRunner(built, CONFIG, spark).batch(frames(spark, {"in": LEFT}, 1))


@pytest.mark.parametrize("answer", ["dead_letter", "skip"])
def test_a_record_of_a_table_that_fails_is_counted_and_one_letter(spark: SparkSession, answer: Any) -> None:
    """The executors of three partitions each fill the global table; the driver has its letter."""
    config = CONFIG.replace(dead_letter_queue_topic="dead")
    builder = StreamsBuilder(config)
    table = builder.global_table("table", value_serde=NUMBER, on_error=answer)
    stream = builder.stream("in")
    stream.join(table, lambda left, right: left, key_selector=lambda key, value: key).to("out")
    builder.table("rows", value_serde=NUMBER, materialized=Materialized("rows"), on_error=answer)
    bad = [("k2", "longtext", 7), ("k1", "no long", 8)]
    data = {"in": LEFT[:20], "table": bad, "rows": bad}
    with SparkRunner(builder.build(), config, spark).batch(frames(spark, data, 3)) as result:
        assert result.dropped == 2
        assert [row.key for row in result.tables["rows"].rows()] == ["k2"]
        letters = result.topics["dead"].frame.collect() if "dead" in result.topics else []
    found = {}
    for letter in letters:
        headers = {item["key"]: item["value"] for item in letter["headers"]}
        assert headers["__streamapp.errors.what"] == b"could not be deserialized"
        found[bytes(headers["__streams.errors.topic"])] = letter["key"], letter["value"], letter["partition"]
    letter = b"k1", b"no long", partition_for(b"k1", 3)
    assert found == ({b"table": letter, b"rows": letter} if answer == "dead_letter" else {})


@pytest.mark.parametrize("kind", ["columns", "frame"])
def test_batches_of_large_rows_have_a_limit_of_bytes(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Spark's Java has no memory for thousands of large rows in one batch."""
    limits = []
    original = ClassicFrame.mapInArrow

    def noted(frame: Any, *arguments: Any) -> DataFrame:
        limits.append(int(str(spark.conf.get("spark.sql.execution.arrow.maxBytesPerBatch"))))
        return original(frame, *arguments)

    monkeypatch.setattr(ClassicFrame, "mapInArrow", noted)
    value = "concat(id, repeat('x', 3000000))"
    frame = spark.range(40).selectExpr(
        "'k' key", f"{value} value", "1000 + id timestamp", "0 partition", "id offset"
    )
    columns = ColumnSource(frame, key="key", timestamp="timestamp", value="value")
    given = {"frame": FrameSource(frame), "columns": columns}
    built = topology(lambda b: b.stream("left").map_values(len).to("out", key_serde=TEXT, value_serde=NUMBER))
    with SparkRunner(built, CONFIG, spark).batch({"left": given[kind]}) as result:
        assert (
            sorted(record.value for _, record in result.topics["out"].records(TEXT, NUMBER))[-1] == 3_000_002
        )
    assert max(limits) <= 2**25
