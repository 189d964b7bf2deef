"""Expressions as columns of Spark SQL: the results of Python, or an error that names the way out."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import msgspec
import numpy as np
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from streamapp import JsonSerde, Materialized, StreamsBuilder, StreamsConfig, StringSerde, Topology
from streamapp import expressions as ex
from streamapp.errors import StreamsError, UnsupportedOperation
from streamapp.expressions import Aggregates, Expression, key, value
from streamapp.runners.spark import ColumnSource, SparkRunner

pytestmark = pytest.mark.spark

TEXT, JSON = StringSerde(), JsonSerde()
COLUMNS = "k string, a double, b float, n int, m bigint, t string, u string, f boolean, time bigint"
FLOATS = [None, math.nan, math.inf, -math.inf, -0.0, 0.0, 1.5, 1e300]
INTEGERS = [None, -3, 0, 2, 2**31 - 1]


@pytest.fixture(scope="module")
def odd(spark: SparkSession) -> DataFrame:
    """Rows with floats that are no number, and with large numbers."""
    rows = []
    for a, b, n in product(FLOATS, [None, math.nan, 0.1, -0.0], INTEGERS):
        i = len(rows)
        rows.append(
            (
                f"k{i}",
                a,
                b,
                n,
                i * 10**9,
                [None, "", "a", "10"][i % 4],
                "9é"[i % 2],
                [None, True, False][i % 3],
                i,
            )
        )
    return spark.createDataFrame(rows, COLUMNS).repartition(2).persist()


def topology(
    condition: Expression | None = None, by: Expression | None = None, **parts: ex.Aggregate
) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key_serde=TEXT, value_serde=JSON)
    if condition is not None:
        stream = stream.filter(condition, name="some")
    grouped = (
        stream.group_by_key()
        if by is None
        else stream.group_by(by, key_serde=JSON, value_serde=JSON, name="by")
    )
    totals = Aggregates(**parts or {"count": ex.count()})
    serde = TEXT if by is None else JSON
    kept = Materialized("table", key_serde=serde, value_serde=JSON)
    grouped.aggregate(totals.initializer, totals, materialized=kept, name="sums")
    return builder.build()


def answers(spark: SparkSession, frame: DataFrame, built: Topology) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """The rows of the table: of the engine, and of Spark SQL."""
    source = ColumnSource(frame, key="k", timestamp="time")
    runner = SparkRunner(built, StreamsConfig("odd"), spark)
    native = {row.key: row.value.asDict() for row in runner.native("table", source).collect()}
    with runner.batch({"in": source}) as result:
        rows = result.tables["table"].typed.collect()
    decode = msgspec.json.decode
    text = isinstance(next(iter(native), ""), str) and "by" not in str(built.describe())
    return {row.key if text else decode(row.key): decode(row.value) for row in rows}, native


@pytest.mark.parametrize("symbol", ["<", "<=", "==", "!=", ">=", ">"])
def test_comparisons(spark: SparkSession, odd: DataFrame, symbol: str) -> None:
    compare = ex.OPERATORS[symbol]
    one, other = value.a, value.b
    parts = {
        "floats": compare(one, other),
        "mixed": compare(value.n, one),
        "infinite": compare(one, math.inf),
        "never": compare(one, math.nan),
        "computed": compare(one * one - one * one, 0),
        "texts": compare(value.t, value.u),
        "bools": compare(value.f, True),
        "large": compare(value.m * 9 + value.n, 10**11),
        "float32": compare(value.b, 0.1),
        "keys": compare(key, "k50"),
        "nulls": compare(value.n, None),
    }
    # An aggregate of a condition shows True, False and null.
    aggregates = {f"{name}_is": ex.max_of(part) for name, part in parts.items()}
    engine, native = answers(spark, odd, topology(**aggregates))
    assert len(engine) == len(FLOATS) * 4 * len(INTEGERS)
    assert native == engine


@pytest.mark.parametrize("symbol", ["<", "<=", "==", "!=", ">=", ">"])
def test_large_integers_are_not_rounded_for_a_comparison(spark: SparkSession, symbol: str) -> None:
    pairs = [
        (near + step, number)
        for near, number in (
            (2**53, 2.0**53),
            (-(2**60), -(2.0**60)),
            (2**63 - 2, 2.0**63),
            (7, 7.0),
            (7, 7.5),
        )
        for step in (-1, 0, 1)
    ]
    rows = [
        (f"k{i}", m, a, i) for i, (m, a) in enumerate([*pairs, (1, None), (None, 1.0), (2**62, math.nan)])
    ]
    frame = spark.createDataFrame(rows, "k string, m bigint, a double, time bigint").repartition(2)
    compare = ex.OPERATORS[symbol]
    parts = {
        "is": ex.max_of(compare(value.m, value.a)),
        "turned": ex.max_of(compare(value.a, value.m)),
        "constant": ex.max_of(compare(value.m, 2.0**53)),
        "whole": ex.max_of(compare(value.a, 2**53 + 1)),
    }
    engine, native = answers(spark, frame, topology(**parts))
    assert len(engine) == len(rows)
    assert native == engine


def test_conditions(spark: SparkSession, odd: DataFrame) -> None:
    conditions = (
        ~(value.a > value.b) | value.f,
        value.a.is_null() & ~value.f,
        (value.a != value.a) | (value.t + value.u == "a9"),
        (value.n + 1 > np.float64(2.5)) & (value.n * np.int64(2) != 4),
    )
    for condition in conditions:
        engine, native = answers(spark, odd, topology(condition))
        assert engine
        assert native == engine


def test_aggregates(spark: SparkSession, odd: DataFrame) -> None:
    parts = {
        "n": ex.sum_of(value.n),
        "large": ex.sum_of(value.n * 3 + value.m),
        "mean": ex.avg(value.n),
        "none": ex.avg(value.n + None),
        "first": ex.min_of(value.u),
        "b": ex.max_of(value.b),
        "least": ex.min_of(value.b * 2),
        "texts": ex.max_of(value.t + value.u),
    }
    known = odd.where("m < 100e9")
    for by in (value.t, value.n, value.f, value.u + "x"):
        engine, native = answers(spark, known, topology(by=by, **parts))
        assert len(engine) >= 2
        assert native == engine


REFUSED: dict[str, Any] = {
    "text and number": (topology(value.t == 1), "some cannot run on Spark SQL.*== of integers and texts"),
    "boolean and number": (topology(value.f != 0.5), "!= of booleans and floats"),
    "product of texts": (topology(value.t * value.u == "a"), r"\* of texts"),
    "sum of booleans": (topology(value.f + value.f == True), r"\+ of booleans"),  # noqa: E712
    "number as condition": (topology(value.n), "a condition is made of integers"),
    "number in a condition": (topology(value.f & value.n), "a condition is made of integers"),
    "constant": (topology(value.n < 2**70), "the constant 1180591620717411303424 is neither"),
    "list": (topology(value.n == [1]), r"the constant \[1\] is neither"),
    "floats as keys": (topology(by=value.a), "its keys are floats"),
    "sum of texts": (topology(s=ex.sum_of(value.t)), "another result than Python for sum of texts"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_spark_computes_differently_is_refused(spark: SparkSession, odd: DataFrame, name: str) -> None:
    built, message = REFUSED[name]
    source = ColumnSource(odd, key="k", timestamp="time")
    with pytest.raises(UnsupportedOperation, match=f"{message}.*SparkRunner.batch"):
        SparkRunner(built, StreamsConfig("odd"), spark).native("table", source)


def test_columns_that_json_makes_texts_are_refused(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 'k' AS k, date'2024-01-01' AS d, 1.5BD AS p, 7L AS time")
    source = ColumnSource(frame, key="k", timestamp="time")
    for built in (topology(value.d == "2024-01-01"), topology(s=ex.sum_of(value.p)), topology(by=value.d)):
        with pytest.raises(UnsupportedOperation, match="neither booleans, nor numbers, nor texts"):
            SparkRunner(built, StreamsConfig("odd"), spark).native("table", source)
    counted = topology(~value.d.is_null(), c=ex.count(value.p))
    native = SparkRunner(counted, StreamsConfig("odd"), spark).native("table", source)
    assert native.collect()[0].value.c == 1


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (ex.sum_of(value.m * value.m), "an integer has more than 64 bits.*SparkRunner.batch"),
        (ex.sum_of(value.m * 30_000_000), "an integer has more than 64 bits.*SparkRunner.batch"),
        (ex.sum_of(value.a * 1e300), "is infinite or NaN.*SparkRunner.batch"),
        (ex.max_of(value.a * 1e300 - value.a * 1e300), "is infinite or NaN.*SparkRunner.batch"),
    ],
)
def test_numbers_for_which_the_order_or_the_size_matters_end_the_query(
    spark: SparkSession, odd: DataFrame, part: ex.Aggregate, message: str
) -> None:
    built = topology(by=value.u, part=part)
    source = ColumnSource(odd, key="k", timestamp="time")
    native = SparkRunner(built, StreamsConfig("odd"), spark).native("table", source)
    with pytest.raises(PySparkException, match=message):
        native.collect()


def test_fields_of_a_single_column(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 'k' AS k, named_struct('n', 5) AS v, 'x' AS t, 7L AS time")
    built = topology(s=ex.sum_of(value.n))
    whole = ColumnSource(frame, key="k", timestamp="time", value="v")
    runner = SparkRunner(built, StreamsConfig("odd"), spark)
    assert [row.value.s for row in runner.native("table", whole).collect()] == [5]
    with pytest.raises(StreamsError, match="names the field n, but the columns are none"):
        runner.native("table", ColumnSource(frame, key="k", timestamp="time", value="t"))
