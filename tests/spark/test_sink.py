"""Every row is in Kafka once, whatever happened to earlier runs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import NoReturn

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from pyspark.sql import SparkSession

from streamapp import StreamsBuilder, StreamsConfig, StringSerde
from streamapp.broker import LocalKafka
from streamapp.broker.admin import KafkaAdmin, TopicSpec
from streamapp.broker.settings import KafkaSettings
from streamapp.errors import ConfigError
from streamapp.records import TopicPartition
from streamapp.runners.spark import SparkRunner
from streamapp.runners.spark import kafka_sink as sink
from streamapp.runners.spark.kafka_sink import Published, _Ledger, _Writer, publish

from ..topic_reader import read_topic

pytestmark = [pytest.mark.broker, pytest.mark.spark]

_names = count()
Row = tuple[int, bytes, bytes, int]
"""Partition, key, value, timestamp."""
ROWS: list[Row] = [(i % 2, b"k%d" % i, b"v%d" % i, 1_357_000_000_000 + i) for i in range(1000)]


@pytest.fixture
def settings(kafka: LocalKafka) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)


@pytest.fixture
def topic(settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sink, "RECORDS_PER_TRANSACTION", 100)
    name = f"sink-{next(_names)}"
    KafkaAdmin(settings).ensure_topics([TopicSpec(name, 2, {"retention.ms": "-1"})])
    return name


def batches(
    topic: str, rows: list[Row], stop_after: int | None = None, stop: Callable[[], None] = lambda: None
) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(rows), 50):
        if first == stop_after:
            stop()
        partition, key, value, timestamp = zip(*rows[first : first + 50], strict=True)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([topic] * len(key)),
                pa.array(partition, pa.int32()),
                pa.array(key, pa.binary()),
                pa.array(value, pa.binary()),
                pa.array(timestamp, pa.int64()),
            ],
            ["topic", "partition", "key", "value", "timestamp"],
        )


def write(
    settings: KafkaSettings,
    topic: str,
    rows: list[Row],
    stop_after: int | None = None,
    stop: Callable[[], None] = lambda: None,
) -> int:
    """One run of a job; how many records it wrote."""
    ledger = _Ledger(settings, topic)
    ledger.begin([topic], 1)
    ledger.close()
    result = _Writer(settings, topic).run(0, batches(topic, rows, stop_after, stop))
    return sum(result.column("written").to_pylist())


def fail_after(seconds: float) -> NoReturn:
    time.sleep(seconds)
    raise RuntimeError("the input cannot be read")


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def write_until_killed(settings: KafkaSettings, topic: str, rows: list[Row], stop_after: int) -> None:
    """In a process of its own."""
    sink.RECORDS_PER_TRANSACTION = 100
    write(settings, topic, rows, stop_after, kill)


def read(settings: KafkaSettings, topic: str) -> list[Row]:
    """All committed records, partition by partition in order of offset."""
    return [
        (message.partition(), message.key(), message.value(), message.timestamp()[1])
        for message in read_topic(settings.bootstrap_servers, topic)
    ]


def in_partitions(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row[0])


def test_rows_keep_partition_order_and_timestamp(settings: KafkaSettings, topic: str) -> None:
    assert write(settings, topic, ROWS) == 1000
    assert read(settings, topic) == in_partitions(ROWS)


def test_a_second_run_writes_nothing_and_a_longer_one_the_rest(settings: KafkaSettings, topic: str) -> None:
    assert write(settings, topic, ROWS[:600]) == 600
    assert write(settings, topic, ROWS[:600]) == 0
    assert write(settings, topic, ROWS) == 400
    assert read(settings, topic) == in_partitions(ROWS)


@pytest.mark.parametrize("backwards", [False, True])
def test_rows_that_differ_in_their_headers_only_have_an_order(
    spark: SparkSession, settings: KafkaSettings, topic: str, backwards: bool
) -> None:
    numbers = sorted(range(20), reverse=backwards)
    rows = [(topic, 0, b"k", b"v", ROWS[0][3], [(f"h{number:02}", b"x")]) for number in numbers]
    columns = (
        "topic string, partition int, key binary, value binary, timestamp long, "
        "headers array<struct<key:string,value:binary>>"
    )
    publish(spark.createDataFrame(rows, columns).coalesce(1), settings, job=topic, topics=[topic])
    messages = read_topic(settings.bootstrap_servers, topic)
    found = [name for message in messages for name, _ in message.headers() or ()]
    assert found == [f"h{number:02}" for number in range(20)]


def test_rows_that_earlier_runs_have_passed_over_are_not_there(
    spark: SparkSession, settings: KafkaSettings, topic: str
) -> None:
    columns = "topic string, partition int, key binary, value binary, timestamp long, wanted boolean"

    def run(rows: list[Row], since: int) -> Published:
        frame = spark.createDataFrame([(topic, *row, row[3] >= since) for row in rows], columns)
        return publish(frame, settings, job=topic, topics=[topic])

    assert run(ROWS[:100], ROWS[60][3]) == Published({topic: 100}, {topic: 40}, {topic: 0})
    assert run(ROWS[:100], ROWS[60][3]) == Published({topic: 100}, {topic: 0}, {topic: 40})
    assert run(ROWS[:150], 0) == Published({topic: 150}, {topic: 50}, {topic: 40})
    assert run(ROWS[:150], 0) == Published({topic: 150}, {topic: 0}, {topic: 90})


def test_a_job_of_an_earlier_version_is_continued(settings: KafkaSettings, topic: str) -> None:
    """Its ledger has no number of written rows."""
    write(settings, topic, ROWS[:600])
    tp = TopicPartition(topic, 0)
    ledger = _Ledger(settings, topic)
    (at,) = ledger.read([tp]).values()
    ledger.consumer.commit(offsets=[KafkaPartition(*tp, at.rows, metadata=at.checksum)], asynchronous=False)
    assert ledger.read([tp]) == {tp: at}
    ledger.close()
    assert write(settings, topic, ROWS) == 400


def test_a_killed_run_is_continued_exactly(settings: KafkaSettings, topic: str) -> None:
    process = multiprocessing.get_context("spawn").Process(
        target=write_until_killed, args=(settings, topic, ROWS, 350)
    )
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert len(read(settings, topic)) == 300
    assert write(settings, topic, ROWS) == 700
    assert read(settings, topic) == in_partitions(ROWS)


def test_a_failed_run_leaves_nothing_open(settings: KafkaSettings, topic: str) -> None:
    # A producer that is destroyed within about a millisecond of its first record ends the process with it, if it did not abort.
    for seconds in (*(n / 10_000 for n in range(20)), 0.2):
        with pytest.raises(RuntimeError, match="the input cannot be read"):
            write(settings, topic, ROWS, 350, lambda wait=seconds: fail_after(wait))
    producer = Producer(settings.librdkafka())
    producer.produce(topic, b"behind", partition=0)
    assert producer.flush(30) == 0
    assert [row[2] for row in read(settings, topic) if row[0] == 0][150:] == [b"behind"]


def test_another_input_is_refused(settings: KafkaSettings, topic: str) -> None:
    write(settings, topic, ROWS[:600])
    with pytest.raises(ConfigError, match="the input has changed"):
        write(settings, topic, [(p, key, b"other", time) for p, key, _, time in ROWS])
    assert read(settings, topic) == in_partitions(ROWS[:600])


def test_records_of_somebody_else_are_refused(settings: KafkaSettings, topic: str) -> None:
    write(settings, topic, ROWS[:10])
    ledger = _Ledger(settings, "another-job")
    with pytest.raises(ConfigError, match="has records .* no progress of the job 'another-job'"):
        ledger.begin([topic], 1)
    assert ledger.read([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): (-1, "", 0)}
    ledger.close()


def test_a_missing_topic_is_named(settings: KafkaSettings) -> None:
    ledger = _Ledger(settings, "job")
    with pytest.raises(ConfigError, match=r"no topics \['nowhere'\]"):
        ledger.begin(["nowhere"], 1)
    ledger.close()


def test_the_results_of_a_batch_keep_their_order(
    settings: KafkaSettings, topic: str, spark: SparkSession
) -> None:
    """Counts of one time, and of late records: the last count of a key is the largest, as in the batch."""
    text = StringSerde()
    builder = StreamsBuilder()
    clicks = builder.stream("clicks", key_serde=text, value_serde=text)
    counts = clicks.group_by_key().count().to_stream().map_values(str)
    counts.to(topic, key_serde=text, value_serde=text)
    times = [5_000] * 12 + [9_000, 1_000, 9_000]
    rows = [("k", "v", time, 0, number) for number, time in enumerate(times)]
    frame = spark.createDataFrame(
        rows, "key string, value string, timestamp long, partition int, offset long"
    )
    servers = settings.bootstrap_servers
    config = StreamsConfig("counting", bootstrap_servers=servers, statestore_cache_max_bytes=0)
    with SparkRunner(builder.build(), config, spark).batch({"clicks": frame}) as result:
        publish(result.topics[topic].frame, settings, job=topic, topics=[topic])
    assert [int(value) for _, _, value, _ in read(settings, topic)] == [*range(1, 16)]


def test_texts_and_times_of_spark_are_records(
    settings: KafkaSettings, topic: str, spark: SparkSession
) -> None:
    frame = spark.sql(
        f"select '{topic}' as topic, 1L as partition, 'k' as key, 'v' as value, "
        "timestamp'1970-01-01 00:00:05' as timestamp, array(struct('trace' as key, '1' as value)) as headers"
    )
    assert publish(frame, settings, job=topic, topics=[topic]).written == {topic: 1}
    assert read(settings, topic) == [(1, b"k", b"v", 5_000)]
    for wrong, said in (
        (frame.drop("timestamp"), f"the frame for topic {topic} has no column timestamp; it has topic"),
        (frame.withColumn("key", frame.partition), "column key .* is bigint, but has to be binary"),
    ):
        with pytest.raises(ConfigError, match=said):
            publish(wrong, settings, job=topic, topics=[topic])
