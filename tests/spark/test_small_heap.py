"""A history that is several times as large as what Spark may use of its heap: a JVM of its own, with little of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamapp import BytesSerde, StreamsBuilder, StreamsConfig
from streamapp.runners.spark import ParquetSource, SparkRunner, spark_session

pytestmark = pytest.mark.spark

PARTITIONS, RECORDS, BYTES = 4, 100_000, 1_500
HEAP = "480m"
"""The least that Spark takes. The records are 600 MB, and each pack of them was as large as 15 once."""


def write_archive(folder: Path) -> None:
    noise = np.random.default_rng(1).integers(0, 256, RECORDS + BYTES, np.uint8)
    views = np.lib.stride_tricks.sliding_window_view(noise, BYTES)[:RECORDS]
    numbers = pa.array(range(RECORDS), pa.int64())
    values = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(BYTES), RECORDS, [None, pa.py_buffer(views.tobytes())]
    )
    keys = pa.array([b"%d" % number for number in range(RECORDS)], pa.binary())
    table = pa.table(
        {"key": keys, "value": values.cast(pa.binary()), "timestamp": numbers, "offset": numbers}
    )
    for partition in range(PARTITIONS):
        place = folder / f"partition={partition}"
        place.mkdir(parents=True)
        pq.write_table(table, place / "records.parquet", compression="none", row_group_size=10_000)


def through_a_shuffle(folder: str) -> None:
    """What the process does."""
    raw, builder = BytesSerde(), StreamsBuilder()
    source = builder.stream("in", key_serde=raw, value_serde=raw)
    source.repartition(name="again", key_serde=raw, value_serde=raw).to("out", key_serde=raw, value_serde=raw)
    # With the compiled stages that users have, which tests/java.py switches off for all other tests.
    settings = {"spark.driver.memory": HEAP, "spark.sql.codegen.wholeStage": "true"}
    spark = spark_session("small-heap", settings=settings)
    with SparkRunner(builder.build(), StreamsConfig("small-heap"), spark).batch(
        {"in": ParquetSource(folder)}
    ) as result:
        assert result.processed == 2 * PARTITIONS * RECORDS
        rows, size = result.topics["out"].frame.selectExpr("count(*)", "sum(length(value))").collect()[0]
        assert (rows, size) == (PARTITIONS * RECORDS, PARTITIONS * RECORDS * BYTES)
    spark.stop()


def test_a_history_larger_than_the_heap(tmp_path: Path) -> None:
    write_archive(tmp_path)
    environ = {**os.environ, "SPARK_LOCAL_DIRS": str(tmp_path)}
    command = [sys.executable, "-m", __name__, str(tmp_path)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]


if __name__ == "__main__":
    through_a_shuffle(sys.argv[1])
