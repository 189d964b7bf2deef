"""Files and DataFrames that cannot be topics are refused before Spark computes, with the file or the column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from streamapp import StreamsBuilder, StreamsConfig, StringSerde
from streamapp.errors import ConfigError
from streamapp.runners.spark import ColumnSource, FrameSource, ParquetSource, SparkRunner

pytestmark = pytest.mark.spark

TEXT = StringSerde()
# A handler would drop records that a task cannot read. So a wrong type must not reach the tasks.
CONFIG = StreamsConfig(
    "bad-sources",
    default_key_serde=TEXT,
    default_value_serde=TEXT,
    deserialization_exception_handler="skip",
)
PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ROWS = {
    "key": pa.array([b"k", None]),
    "value": pa.array([b"v", b"w"]),
    "timestamp": pa.array([5, 6], pa.int64()),
    "offset": pa.array([0, 1], pa.int64()),
    "headers": pa.array([[("trace", b"1")], None], PAIRS),
}
ROW = {
    "key": "'k'",
    "value": "'v'",
    "timestamp": "5L",
    "partition": "0",
    "offset": "0L",
}


def archive(folder: Path, columns: dict[str, pa.Array], **options: Any) -> ParquetSource:
    (folder / "partition=0").mkdir()
    pq.write_table(pa.table(columns), folder / "partition=0" / "a.parquet", **options)
    return ParquetSource(str(folder))


def copied(spark: SparkSession, source: Any) -> list[Any]:
    builder = StreamsBuilder(CONFIG)
    builder.stream("in").to("out")
    with SparkRunner(builder.build(), CONFIG, spark).batch({"in": source}) as result:
        return [record for _, record in result.topics["out"].records(TEXT, TEXT)]


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ({"key": pa.array(["k", None])}, "column key of .*a.parquet is string, but has to be binary"),
        ({"value": pa.array([1, 2])}, "column value of .*a.parquet is int64, but has to be binary"),
        (
            {"timestamp": pa.array([5, 6], pa.timestamp("ms"))},
            r"is timestamp\[ms\], but has to be int64, in ms",
        ),
        ({"offset": pa.array([0, 1], pa.int32())}, "is int32, but has to be int64"),
        ({"offset": pa.array([0, None], pa.int64())}, "column offset of .*a.parquet is null in 1 row: give"),
        (
            {"headers": pa.array([[("trace", b"1")], None], pa.map_(pa.string(), pa.binary()))},
            r"column headers .* is map<.*>, but has to be list<struct<key: string, value: binary>>",
        ),
        (
            {"headers": pa.array([[{"key": "trace", "value": "1"}], None])},
            r"column headers .*, but has to be list<struct<key: string, value: binary>>",
        ),
    ],
)
@pytest.mark.parametrize("statistics", [True, False])
def test_a_file_with_a_wrong_column_is_refused(
    tmp_path: Path, column: dict[str, pa.Array], said: str, statistics: bool
) -> None:
    with pytest.raises(ConfigError, match=said):
        archive(tmp_path, ROWS | column, write_statistics=statistics).parts("in")


@pytest.mark.parametrize("statistics", [True, False])
def test_files_of_other_writers_are_read(spark: SparkSession, tmp_path: Path, statistics: bool) -> None:
    large = ROWS["key"].cast(pa.large_binary()).dictionary_encode()
    source = archive(tmp_path, ROWS | {"key": large}, write_statistics=statistics)
    first, second = copied(spark, source)
    assert (first.key, first.value, first.timestamp, first.headers) == ("k", "v", 5, (("trace", b"1"),))
    assert (second.key, second.value, second.timestamp, second.headers) == (None, "w", 6, ())


@pytest.mark.parametrize("content", [b"", b"PAR1 and no footer", b"PAR1 no footer\4\0\0\0PAR1"])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "partition=0").mkdir()
    (tmp_path / "partition=0" / "a.parquet").write_bytes(content)
    with pytest.raises(ConfigError, match=r"partition=0/a.parquet cannot be read \(.*replace the file"):
        ParquetSource(str(tmp_path)).parts("in")


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ({"key": "7"}, "column key of the frame for topic in is int, but has to be binary or string"),
        ({"value": "struct(1)"}, r"column value .* is struct<col1:int>, but has to be binary or string"),
        ({"timestamp": "date'2013-01-01'"}, "is date, but has to be timestamp, or bigint in ms"),
        ({"timestamp": "'2013-01-01'"}, "column timestamp .* is string, but has to be timestamp"),
        ({"timestamp": "5.5D"}, "column timestamp .* is double, but has to be timestamp"),
        ({"offset": "'0'"}, "column offset .* is string, but has to be int or bigint"),
        ({"partition": "cast(null as int)"}, "has 1 row whose partition is null or negative: give each row"),
        ({"partition": "-1"}, "has 1 row whose partition is null or negative"),
        ({"offset": "cast(null as bigint)"}, "has 1 row whose offset is null: give each row its place"),
        ({"headers": "'trace'"}, "column headers .* is string, but has to be array<struct<"),
        (
            {"headers": "map('trace', binary('1'))"},
            "column headers .* is map<string,binary>, but has to be array",
        ),
    ],
)
def test_a_frame_with_a_wrong_column_is_refused(
    spark: SparkSession, column: dict[str, str], said: str
) -> None:
    columns = ", ".join(f"{value} as {name}" for name, value in (ROW | column).items())
    with pytest.raises(ConfigError, match=said):
        copied(spark, spark.sql(f"select {columns}"))


@pytest.mark.parametrize("time", ["timestamp", "timestamp_ntz"])
def test_times_with_and_without_a_zone_are_read(spark: SparkSession, time: str) -> None:
    columns = ", ".join(f"{value} as {name}" for name, value in ROW.items() if name != "timestamp")
    (record,) = copied(spark, spark.sql(f"select {columns}, {time}'1970-01-01 00:00:05' as timestamp"))
    assert record.timestamp == 5_000


def test_a_time_of_typed_columns_is_checked_too(spark: SparkSession) -> None:
    frame = spark.sql("select 'k' as key, 'v' as value, date'2013-01-01' as time")
    with pytest.raises(
        ConfigError, match="column time of the frame for topic in is date, but has to be timestamp"
    ):
        copied(spark, ColumnSource(frame, key="key", timestamp="time", value="value"))


def test_a_topic_has_at_least_one_partition(spark: SparkSession) -> None:
    frame = spark.range(1)
    for source in (FrameSource, lambda frame, count: ColumnSource(frame, None, "id", count)):
        with pytest.raises(ConfigError, match="partitions of a source has to be at least 1, got 0"):
            source(frame, 0)
    with pytest.raises(ConfigError, match="partitions of a source has to be at least 1, got -1"):
        ParquetSource("archive", -1)
