"""The flights of the benchmarks as an archive, as typed columns and as a topic: the same events, year after year."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import data
from streamapp.broker import KafkaAdmin, KafkaSettings
from streamapp.runners.spark.partitioning import key_partitions

__all__ = ["PARTITIONS", "archive", "columns", "topic"]

PARTITIONS = 4
ROW_GROUP = 100_000


def archive(folder: Path, events: int) -> Path:
    """An archive of records for `ParquetSource`, which is made if it is missing."""
    target = folder / f"records-{events}"

    def write(place: Path) -> None:
        year = _year()
        for partition in range(PARTITIONS):
            chosen = year.filter(pc.equal(year.column("partition"), partition)).drop_columns(["partition"])
            (place / f"partition={partition}").mkdir(parents=True)
            first = 0
            file = place / f"partition={partition}" / "records.parquet"
            schema = chosen.schema.append(pa.field("offset", pa.int64()))
            with pq.ParquetWriter(file, schema) as out:
                for table in _years(chosen, events, year.num_rows):
                    numbers = pa.array(np.arange(first, first + table.num_rows), pa.int64())
                    first += table.num_rows
                    out.write_table(table.append_column("offset", numbers), row_group_size=ROW_GROUP)

    return _made(target, write)


def columns(folder: Path, events: int) -> Path:
    """The events as typed columns, with ``timestamp`` in ms, made if they are missing."""
    target = folder / f"columns-{events}"

    def write(place: Path) -> None:
        place.mkdir(parents=True)
        rows = [{**msgspec.to_builtins(flight), "timestamp": at} for flight, at in data.flights()]
        year = pa.Table.from_pylist(rows)
        with pq.ParquetWriter(place / "flights.parquet", year.schema) as out:
            for table in _years(year, events, year.num_rows):
                out.write_table(table, row_group_size=ROW_GROUP)

    return _made(target, write)


def topic(kafka: KafkaSettings, events: int) -> str:
    """Writes the same events into Kafka, unless they are there, and returns the name of the topic."""
    name, admin = f"bench-spark-flights-{events}", KafkaAdmin(kafka)
    if name not in admin.partition_counts([name]):
        data.create(admin, name, partitions=PARTITIONS)
        data.publish(kafka, name, _events(events))
    return name


def _events(events: int) -> Iterator[data.Event]:
    year = _year().select(["key", "value", "timestamp"])
    for table in _years(year, events, year.num_rows):
        for batch in table.to_batches():
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _year() -> pa.Table:
    """One year in the order of time: key, value, timestamp, partition; about 290 bytes each."""
    flights = data.flights()
    keys = pa.array([(flight.tailnum or "UNKNOWN").encode() for flight, _ in flights], pa.binary())
    found = {
        "key": keys,
        "value": pa.array([msgspec.json.encode(flight) for flight, _ in flights], pa.binary()),
        "timestamp": pa.array([at for _, at in flights], pa.int64()),
        "partition": pa.array(key_partitions(keys, PARTITIONS), pa.int32()),
    }
    return pa.table(found)


def _years(part: pa.Table, events: int, year: int) -> Iterator[pa.Table]:
    """A part of the year, again and again with later times, until there are enough events. The last copy is cut."""
    for number in range(-(-events // year)):
        left = events - number * year
        table = part if left >= year else part.slice(0, part.num_rows * left // year)
        at = table.schema.get_field_index("timestamp")
        shift = pa.scalar(number * data.YEAR_MS, pa.int64())
        yield table.set_column(at, "timestamp", pc.add(table.column("timestamp"), shift))


def _made(target: Path, write: Callable[[Path], None]) -> Path:
    if not target.exists():
        writing = target.with_name(target.name + ".writing")
        shutil.rmtree(writing, ignore_errors=True)
        write(writing)
        writing.rename(target)
    return target
