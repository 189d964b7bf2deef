"""Typed columns as topics: through the engine and by Spark SQL alone, with the same result."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from streamapp import (
    ErrorContext,
    JsonSerde,
    KStream,
    LongSerde,
    Materialized,
    OutputRecord,
    Response,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    TimeWindows,
    Topology,
)
from streamapp import (
    expressions as ex,
)
from streamapp.errors import ConfigError, StreamsError, UnsupportedOperation
from streamapp.expressions import Aggregates, value
from streamapp.runners.spark import ColumnSource, SparkRunner

pytestmark = pytest.mark.spark

TEXT, JSON = StringSerde(), JsonSerde()
CONFIG = StreamsConfig("columns-test")
LONG_AGO = datetime(2013, 1, 1, tzinfo=UTC)


class Departure(msgspec.Struct, frozen=True):
    origin: str
    delay: int | None


@pytest.fixture(scope="module")
def flights(spark: SparkSession) -> DataFrame:
    rng = random.Random(3)
    rows = [
        (
            rng.choice(["N1", "N2", "N3", None]),
            rng.choice(["JFK", "EWR", "LGA", None]),
            rng.choice([None, *range(-10, 60)]),
            LONG_AGO + timedelta(seconds=rng.randrange(7200)),
        )
        for _ in range(400)
    ]
    frame = spark.createDataFrame(rows, "tailnum string, origin string, delay int, time timestamp")
    return frame.repartition(3).persist()


def source(frame: DataFrame, **more: Any) -> ColumnSource:
    return ColumnSource(
        frame, key="tailnum", timestamp="time", partitions=3, value=("origin", "delay"), **more
    )


def kept(serde: Any = JSON) -> Materialized:
    return Materialized("table", key_serde=TEXT, value_serde=serde, retention=timedelta(days=1))


TOTALS = Aggregates(
    flights=ex.count(),
    known=ex.count(value.delay),
    minutes=ex.sum_of(value.delay),
    best=ex.min_of(value.delay),
    worst=ex.max_of(value.delay),
    mean=ex.avg(value.delay),
    double=ex.sum_of(value.delay * 2 + 1),
)
MINUTES = timedelta(minutes=1)


def grouped(stream: KStream[Any, Any]) -> Any:
    return stream.group_by(value.origin, key_serde=TEXT, value_serde=JSON)


CASES: dict[str, Any] = {
    "count by key": lambda s: s.group_by_key().count(
        materialized=Materialized("table", key_serde=TEXT, value_serde=LongSerde())
    ),
    "filtered count of a new key": lambda s: grouped(
        s.filter((value.delay > 15) | value.delay.is_null()).filter_not(value.origin == "LGA")
    ).count(materialized=Materialized("table", key_serde=TEXT, value_serde=LongSerde())),
    "all aggregates": lambda s: grouped(s).aggregate(
        TOTALS.initializer, TOTALS, materialized=Materialized("table", key_serde=TEXT, value_serde=JSON)
    ),
    "tumbling windows": lambda s: (
        grouped(s)
        .windowed_by(TimeWindows.of_size_with_no_grace(10 * MINUTES))
        .aggregate(TOTALS.initializer, TOTALS, materialized=kept())
    ),
    "hopping windows": lambda s: (
        s.filter(~(value.delay < 0))
        .group_by_key()
        .windowed_by(TimeWindows.of_size_and_grace(10 * MINUTES, MINUTES).advance_by(3 * MINUTES))
        .count(materialized=kept(LongSerde()))
    ),
}


def topology(describe: Any) -> Topology:
    builder = StreamsBuilder()
    describe(builder.stream("flights", key_serde=TEXT, value_serde=JSON))
    return builder.build()


@pytest.mark.parametrize("name", CASES)
def test_spark_sql_gives_what_the_engine_gives(spark: SparkSession, flights: DataFrame, name: str) -> None:
    runner = SparkRunner(topology(CASES[name]), CONFIG, spark)
    columns = ["key", "window_start", "window_end", "timestamp"]
    native = runner.native("table", source(flights))
    with runner.batch({"flights": source(flights)}) as result:
        typed = result.tables["table"].typed
        columns = [column for column in columns if column in typed.columns]
        expected = sorted((*row[:-1], as_value(row[-1])) for row in typed.select(*columns, "value").collect())
    found = sorted((*row[:-1], as_value(row[-1])) for row in native.select(*columns, "value").collect())
    assert len(expected) >= 2
    assert found == expected


BAD_TIMES = [("N1", "JFK", 1, None), ("N1", "JFK", 2, -1), ("N2", "EWR", 3, None), ("N1", "LGA", 4, 7)]


@pytest.mark.parametrize("answer", ["skip", "continue"])
@pytest.mark.parametrize("windowed", [False, True])
def test_spark_sql_drops_the_rows_without_a_time_that_the_engine_drops(
    spark: SparkSession, answer: Any, windowed: bool
) -> None:
    frame = spark.createDataFrame(BAD_TIMES, "tailnum string, origin string, delay int, time bigint")
    runner = SparkRunner(
        topology(CASES["hopping windows" if windowed else "count by key"]),
        CONFIG.replace(deserialization_exception_handler=answer),
        spark,
    )
    with runner.batch({"flights": source(frame)}) as result:
        assert result.dropped == 3
        expected = [(row.key, row.value) for row in result.tables["table"].typed.collect()]
    assert [(row.key, row.value) for row in runner.native("table", source(frame)).collect()] == expected
    assert expected == [("N1", 1)]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"deserialization_exception_handler": "continue", "dead_letter_queue_topic": "letters"},
        {"deserialization_exception_handler": lambda context, error: "skip"},
    ],
)
def test_spark_sql_refuses_a_row_without_a_time_if_the_answer_is_no_plain_drop(
    spark: SparkSession, more: dict[str, Any]
) -> None:
    frame = spark.createDataFrame(BAD_TIMES, "tailnum string, origin string, delay int, time bigint")
    runner = SparkRunner(topology(CASES["count by key"]), CONFIG.replace(**more), spark)
    with pytest.raises(PySparkException, match=r"a row for flights is no record.*SparkRunner.batch"):
        runner.native("table", source(frame)).collect()


def as_value(found: Any) -> Any:
    """A value as text: the engine's is JSON, Spark's a struct."""
    if isinstance(found, int):
        return str(found)
    as_dict = msgspec.json.decode(found) if isinstance(found, str) else found.asDict()
    return str(sorted(as_dict.items()))


def test_what_only_the_engine_computes_is_named(spark: SparkSession, flights: DataFrame) -> None:
    counted = topology(
        lambda s: (
            s.filter(lambda k, v: True, name="some").group_by_key().count(materialized=kept(LongSerde()))
        )
    )
    with pytest.raises(UnsupportedOperation, match=r"some cannot run on Spark SQL.*SparkRunner.batch"):
        SparkRunner(counted, CONFIG, spark).native("table", source(flights))
    added = topology(
        lambda s: s.group_by_key().aggregate(int, lambda k, v, n: n + 1, materialized=kept(), name="sum")
    )
    with pytest.raises(UnsupportedOperation, match=r"sum cannot run on Spark SQL.*Aggregates"):
        SparkRunner(added, CONFIG, spark).native("table", source(flights))
    with pytest.raises(StreamsError, match="there is no table other"):
        SparkRunner(added, CONFIG, spark).native("other", source(flights))


def test_columns_become_the_types_of_the_topology(spark: SparkSession, flights: DataFrame) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("flights", key_serde=TEXT, value_serde=JsonSerde(Departure))
    stream.map_values(lambda d: d.delay or 0).to("out", key_serde=TEXT, value_serde=LongSerde())
    known = flights.where("origin is not null")
    with SparkRunner(builder.build(), CONFIG, spark).batch({"flights": source(known)}) as result:
        found = [(r.key, r.value, r.timestamp) for _, r in result.topics["out"].records(TEXT, LongSerde())]
    expected = [
        (row.tailnum, row.delay or 0, int(row.time.replace(tzinfo=UTC).timestamp() * 1000))
        for row in known.collect()
    ]
    assert sorted(found, key=repr) == sorted(expected, key=repr)


CSV = (
    "N1,JFK,5,2013-01-01T00:00:00Z\nN2,EWR,far,2013-01-01T00:00:10Z\nN3,,7,2013-01-01T00:00:20Z\nN4,LGA,9,\n"
)


@pytest.fixture(scope="module")
def dirty(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ColumnSource:
    """One good row, one that is not parsed, one that the serde refuses, one without time."""
    file: Path = tmp_path_factory.mktemp("csv") / "flights.csv"
    file.write_text(CSV)
    schema = "tailnum string, origin string, delay int, time timestamp, bad string"
    frame = spark.read.schema(schema).option("columnNameOfCorruptRecord", "bad").csv(str(file))
    return source(frame, corrupt="bad")


def typed_copy() -> Topology:
    builder = StreamsBuilder()
    serde = JsonSerde(Departure)
    builder.stream("flights", key_serde=TEXT, value_serde=serde, name="read").to(
        "out", key_serde=TEXT, value_serde=serde
    )
    return builder.build()


def test_rows_that_are_no_records_are_counted_and_kept(spark: SparkSession, dirty: ColumnSource) -> None:
    config = CONFIG.replace(deserialization_exception_handler="continue", dead_letter_queue_topic="letters")
    with SparkRunner(typed_copy(), config, spark).batch({"flights": dirty}) as result:
        assert [r.key for _, r in result.topics["out"].records(TEXT)] == ["N1"]
        assert (result.processed, result.dropped) == (1, 3)
        letters = [(r.value, dict(r.headers)) for _, r in result.topics["letters"].records()]
    assert len(letters) == 3
    texts = b" ".join(text for text, _ in letters)
    assert b"N2,EWR,far" in texts
    assert all(headers["__streams.errors.topic"] == b"flights" for _, headers in letters)


def test_rows_are_dropped_without_letters_or_with_letters_of_the_handler(
    spark: SparkSession, dirty: ColumnSource
) -> None:
    def handler(context: ErrorContext, error: Exception) -> Any:
        if b"EWR" in (context.value or b""):
            return Response.resume(*(OutputRecord(topic, b"N2", b"far", 7) for topic in ("letters", "own")))
        return "skip"

    config = CONFIG.replace(deserialization_exception_handler=handler, dead_letter_queue_topic="letters")
    with SparkRunner(typed_copy(), config, spark).batch({"flights": dirty}) as result:
        assert (result.processed, result.dropped) == (1, 3)
        for topic in ("letters", "own"):
            (found,) = [record for _, record in result.topics[topic].records()]
            assert (found.key, found.value, found.timestamp) == (b"N2", b"far", 7)


def test_the_first_row_that_is_no_record_is_named(spark: SparkSession, dirty: ColumnSource) -> None:
    with pytest.raises(
        StreamsError, match=r"read: a row for flights is no record.*deserialization_exception_handler"
    ):
        SparkRunner(typed_copy(), CONFIG, spark).batch({"flights": dirty})


def test_a_column_that_is_not_there_is_named(spark: SparkSession, flights: DataFrame) -> None:
    wrong = ColumnSource(flights, key="plane", timestamp="time")
    with pytest.raises(ConfigError, match="no column plane; it has tailnum"):
        SparkRunner(typed_copy(), CONFIG, spark).batch({"flights": wrong})


@pytest.mark.parametrize("windowed", [False, True])
def test_names_of_columns_may_have_dots_and_quotes(spark: SparkSession, windowed: bool) -> None:
    frame = spark.createDataFrame(
        [("N1", 1_000, 5, 7), ("N1", 2_000, 6, 8)], "`tail.num` string, `at.ms` long, `min``s` int, `a.b` int"
    )
    given = ColumnSource(frame, key="tail.num", timestamp="at.ms", value=("min`s", "a.b"))
    totals = Aggregates(minutes=ex.sum_of(getattr(value, "min`s")), other=ex.max_of(getattr(value, "a.b")))

    def describe(stream: KStream[Any, Any]) -> None:
        groups: Any = stream.group_by_key()
        if windowed:
            groups = groups.windowed_by(TimeWindows.of_size_with_no_grace(MINUTES))
        groups.aggregate(totals.initializer, totals, materialized=kept())

    runner = SparkRunner(topology(describe), CONFIG, spark)
    expected = {"minutes": 11, "other": 8}
    with runner.batch({"flights": given}) as result:
        assert [row.value for row in result.tables["table"].rows()] == [expected]
    assert [row.value.asDict() for row in runner.native("table", given).collect()] == [expected]


def test_a_column_of_maps_becomes_dicts(spark: SparkSession) -> None:
    frame = spark.sql(
        "select 'N1' tailnum, 1000L time, map('JFK', 2) gates, array(map('a', named_struct('m', map('b', 1)))) deep"
    )
    given = ColumnSource(frame, key="tailnum", timestamp="time", value=("gates", "deep"))
    expected = {"gates": {"JFK": 2}, "deep": [{"a": {"m": {"b": 1}}}]}
    built = topology(lambda s: s.to("out", key_serde=TEXT, value_serde=JSON))
    with SparkRunner(built, CONFIG, spark).batch({"flights": given}) as result:
        assert [record.value for _, record in result.topics["out"].records(TEXT, JSON)] == [expected]
