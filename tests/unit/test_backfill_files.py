"""The cut of a backfill whose first records come from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamapp import BytesSerde, ConfigError, StreamsBuilder, StreamsConfig, TopicPartition
from streamapp.runners.spark.archive import ParquetPart, ParquetSource, gap_warnings
from streamapp.runners.spark.backfill_files import archives, check_cut, gaps_within
from streamapp.runners.spark.batch_source import Bound
from streamapp.runners.spark.inputs import resolve

FLIGHTS = TopicPartition("flights", 0)


def write(path: Path, offsets: range) -> None:
    path.parent.mkdir(exist_ok=True, parents=True)
    columns: dict[str, Any] = {
        "key": pa.array([b"k"] * len(offsets), pa.binary()),
        "value": pa.array([b"v"] * len(offsets), pa.binary()),
        "timestamp": pa.array([100 * number for number in offsets], pa.int64()),
        "offset": pa.array(offsets, pa.int64()),
    }
    pq.write_table(pa.table(columns), path, row_group_size=5)


@pytest.fixture
def parts(tmp_path: Path) -> dict[TopicPartition, ParquetPart]:
    """The records 0 to 19 in two files with row groups of 5. Record n has the time 100 * n."""
    for first in (0, 10):
        write(tmp_path / "partition=0" / f"{first}.parquet", range(first, first + 10))
    return ParquetSource(str(tmp_path), 1).parts("flights")


@pytest.mark.parametrize("until", [{FLIGHTS: 7}, 700, 650, {FLIGHTS: 14}, 1400, 1301, 0])
def test_a_cut_among_records_that_only_files_have_is_refused(
    parts: dict[TopicPartition, ParquetPart], until: Bound
) -> None:
    with pytest.raises(
        ConfigError, match=r"until ends flights-0 at offset \d+, but Kafka does not have .* from 15 on"
    ):
        check_cut(until, parts, {FLIGHTS: (0, 15)})


@pytest.mark.parametrize("until", [{FLIGHTS: 15}, 1500, 1401, 10**13, None, {}])
def test_a_cut_at_records_of_kafka_is_fine(parts: dict[TopicPartition, ParquetPart], until: Bound) -> None:
    check_cut(until, parts, {FLIGHTS: (0, 15)})


def test_a_group_that_is_behind_the_cut_already_reads_nothing(
    parts: dict[TopicPartition, ParquetPart],
) -> None:
    check_cut({FLIGHTS: 7}, parts, {FLIGHTS: (16, 16)})
    check_cut(700, parts, {FLIGHTS: (16, 16)})


def test_the_first_record_since_a_time_in_files(parts: dict[TopicPartition, ParquetPart]) -> None:
    part = parts[FLIGHTS]
    assert [part.first_since(time, 0, 20) for time in (0, 401, 500, 1000, 1900, 1901)] == [
        0,
        5,
        5,
        10,
        19,
        None,
    ]
    assert part.first_since(0, 12, 20) == 12
    assert part.first_since(1500, 0, 15) is None


def test_a_file_that_is_missing_between_others_is_told(tmp_path: Path) -> None:
    """The last offset of one file and the first of the next tell. The end of a transaction takes one offset."""
    for first in (0, 10, 31, 42, 70):
        write(tmp_path / "partition=0" / f"{first}.parquet", range(first, first + 10))
    archived, spans = archives({"flights": str(tmp_path)}, {"flights": 1})
    assert spans == {FLIGHTS: (0, 80)}

    def told(start: int, end: int) -> list[str]:
        return gap_warnings(gaps_within(archived, {FLIGHTS: (start, end)}))

    (warning,) = told(0, 80)
    assert warning.startswith("the files have no records of flights-0 with the offsets 20 to 30, which lie ")
    assert "10.parquet and" in warning
    assert "31.parquet. flights has 1 further gap. If a file is" in warning
    assert "the offsets 52 to 69" in told(31, 80)[0]
    assert told(0, 20) == told(31, 52) == told(70, 90) == []


def test_a_batch_tells_a_file_that_is_missing_between_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for first in (0, 20):
        write(tmp_path / "partition=0" / f"{first}.parquet", range(first, first + 10))
    builder = StreamsBuilder()
    builder.stream("flights", key_serde=BytesSerde(), value_serde=BytesSerde()).to("out")
    plan = builder.build().plan(StreamsConfig("app"))
    resolve(plan, {"flights": ParquetSource(str(tmp_path))})
    assert "no records of flights-0 with the offsets 10 to 19" in caplog.text


@pytest.mark.parametrize("folder", ["archive", "_archive", "archive/", "./archive"])
def test_files_of_an_unfinished_write_are_left_out(
    tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark moves the files out of the folder ``_temporary`` at the end of the write."""
    monkeypatch.chdir(tmp_path)
    write(Path(folder) / "partition=0" / "0.parquet", range(10))
    for hidden in (
        "_temporary/0/task_1/partition=0/1.parquet",
        "partition=0/.1.parquet",
        "partition=0/_1.parquet",
    ):
        write(Path(folder) / hidden, range(10, 20))
    assert ParquetSource(folder).parts("flights")[FLIGHTS].size == 10
