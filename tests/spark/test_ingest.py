"""The flights from CSV to Kafka, and from Kafka through a batch."""

from __future__ import annotations

import csv
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from agents.cleaning import RAW_TABLES, unpack
from agents.ingest import REJECTED, IngestReport, ingest
from streamapp import AvroSerde, LongSerde, StreamsBuilder, StreamsConfig, StringSerde
from streamapp._base.partitioning import partition_for
from streamapp.broker import LocalKafka
from streamapp.runners.spark import KafkaSource, SparkRunner
from tables.schemas import FLIGHT_SCHEMA, WEATHER_SCHEMA, Flight, Weather, new_york_ms

pytestmark = [pytest.mark.broker, pytest.mark.spark]

TEXT = StringSerde()
FLIGHT = AvroSerde(FLIGHT_SCHEMA, type=Flight)
WEATHER = AvroSerde(WEATHER_SCHEMA, type=Weather)
FIRST_DAYS = new_york_ms(2013, 1, 2, 12)
RAW_FLIGHTS = 2000


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first rows of each table, with two that cannot be used."""
    folder = tmp_path_factory.mktemp("raw")
    unpack(folder)
    for name in RAW_TABLES:
        file = folder / f"{name}.csv"
        lines = file.read_text().splitlines()[: RAW_FLIGHTS + 1]
        if name == "flights":
            lines[1:1] = [lines[1].replace("EWR", "NA"), lines[1].replace("1400", "far")]
        file.write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def reports(spark: SparkSession, kafka: LocalKafka, raw: Path) -> list[IngestReport]:
    """Until noon of the second day, then all, then again."""
    servers = kafka.bootstrap_servers
    return [ingest(spark, servers, raw=raw, until=until) for until in (FIRST_DAYS, None, None)]


def test_runs_go_on_where_the_last_one_was(reports: list[IngestReport]) -> None:
    first, second, third = (report.datasets["flights"] for report in reports)
    assert first.read == RAW_FLIGHTS + 2
    assert first.written + first.left_out == RAW_FLIGHTS
    assert 0 < first.written < RAW_FLIGHTS
    assert (second.there_before, second.written, second.left_out) == (first.written, first.left_out, 0)
    assert (third.there_before, third.written) == (RAW_FLIGHTS, 0)
    assert reports[2].written == 0


def test_rows_that_cannot_be_used_are_counted_by_reason(reports: list[IngestReport]) -> None:
    assert reports[0].datasets["flights"].rejected == {
        "origin is missing or no string": 1,
        "distance is missing or no bigint": 1,
    }
    assert reports[0].datasets["weather"].rejected == {"wind faster than any ever measured": 1}


def test_kafka_has_every_flight_once_by_time_with_its_key(
    spark: SparkSession, kafka: LocalKafka, raw: Path, reports: list[IngestReport]
) -> None:
    builder = StreamsBuilder()
    builder.stream("flights", key_serde=TEXT, value_serde=FLIGHT).to("out")
    builder.stream(REJECTED, key_serde=TEXT, value_serde=TEXT).to("rejected-out")
    config = StreamsConfig("check", bootstrap_servers=kafka.bootstrap_servers)
    with SparkRunner(builder.build(), config, spark).batch() as result:
        records = list(result.topics["out"].records(TEXT, FLIGHT))
        rejected = [record for _, record in result.topics["rejected-out"].records(TEXT, TEXT)]
    rows = list(csv.DictReader((raw / "flights.csv").open()))[2:]

    def told_apart(carrier: str, flight: int, origin: str, time: int) -> tuple[str, int, str, int]:
        return carrier, flight, origin, time

    expected = Counter(
        told_apart(
            row["carrier"],
            int(row["flight"]),
            row["origin"],
            int(datetime.fromisoformat(row["time_hour"]).timestamp() + 60 * int(row["minute"])) * 1000,
        )
        for row in rows
    )
    found = [record.value for _, record in records]
    assert Counter(told_apart(f.carrier, f.flight, f.origin, f.sched_dep_time) for f in found) == expected
    for partition, record in records:
        assert record.key == record.value.tailnum
        assert record.timestamp == record.value.sched_dep_time
        assert partition == (partition_for(record.key.encode(), 4) if record.key else 0)
    for number in range(4):
        times = [record.timestamp for partition, record in records if partition == number]
        assert times == sorted(times)
    assert sum(f.cancelled for f in found) == sum(row["dep_time"] == "NA" for row in rows)
    assert {(record.key, *record.headers) for record in rejected} == {
        ("flights", ("reason", b"origin is missing or no string")),
        ("flights", ("reason", b"distance is missing or no bigint")),
        ("weather", ("reason", b"wind faster than any ever measured")),
    }


def test_a_batch_reads_exactly_the_range_and_joins_weather_by_time(
    spark: SparkSession, kafka: LocalKafka, reports: list[IngestReport]
) -> None:
    """Flights come over a repartition topic, the weather table straight from Kafka."""
    builder = StreamsBuilder()
    weather = builder.table("weather", key_serde=TEXT, value_serde=WEATHER)
    flights = builder.stream("flights", key_serde=TEXT, value_serde=FLIGHT)
    by_origin = flights.select_key(lambda k, v: v.origin)
    joined = by_origin.left_join(
        weather,
        lambda f, w: -1 if w is None else f.sched_dep_time - w.time,
        key_serde=TEXT,
        value_serde=FLIGHT,
        other_value_serde=WEATHER,
    )
    joined.to("age", key_serde=TEXT, value_serde=LongSerde())
    config = StreamsConfig("join", bootstrap_servers=kafka.bootstrap_servers)
    with SparkRunner(builder.build(), config, spark).batch(KafkaSource(until=FIRST_DAYS)) as result:
        ages = [record.value for _, record in result.topics["age"].records(TEXT, LongSerde())]
    assert len(ages) == reports[0].datasets["flights"].written
    # Weather is hourly with a few gaps; a join that ran ahead or behind would be days off. The slice of
    # weather has hourly rows of Newark only.
    known = [age for age in ages if age != -1]
    assert known
    assert min(known) >= 0
    assert max(known) <= 6 * 3_600_000
