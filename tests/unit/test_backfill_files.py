"""The cut of a backfill whose first records come from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamapp import ConfigError, TopicPartition
from streamapp.runners.spark.archive import ParquetPart, ParquetSource
from streamapp.runners.spark.backfill_files import check_cut
from streamapp.runners.spark.batch_source import Bound

FLIGHTS = TopicPartition("flights", 0)


@pytest.fixture
def parts(tmp_path: Path) -> dict[TopicPartition, ParquetPart]:
    """The records 0 to 19 in two files with row groups of 5. Record n has the time 100 * n."""
    for first in (0, 10):
        path = tmp_path / "partition=0" / f"{first}.parquet"
        path.parent.mkdir(exist_ok=True)
        columns: dict[str, Any] = {
            "key": pa.array([b"k"] * 10, pa.binary()),
            "value": pa.array([b"v"] * 10, pa.binary()),
            "timestamp": pa.array([100 * number for number in range(first, first + 10)], pa.int64()),
            "offset": pa.array(range(first, first + 10), pa.int64()),
        }
        pq.write_table(pa.table(columns), path, row_group_size=5)
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
