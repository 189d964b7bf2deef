"""Avro, JSON Schema and Protobuf on Spark: in batches, in streams and in SQL, as on the test driver."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from streamapp import App, TopologyTestDriver
from streamapp.broker import KafkaAdmin, KafkaSettings, LocalKafka, TopicSpec
from streamapp.cli import main
from streamapp.runners.spark import SparkRunner, create_views, live_tables
from streamapp.runners.spark.streaming import SparkStream
from streamapp.serdes.framing import Framing
from streamapp.testing import Backlog

from . import formats
from .formats import MAKE, SERDES, TEXT

pytestmark = [pytest.mark.spark, pytest.mark.broker]

RECORDS = [("a", "cup", 3), ("b", "pot", 2**40), ("a", "mug", 4)]
SUMS = {"a": ("mug", 7), "b": ("pot", 2**40)}


@pytest.fixture(scope="module")
def app(kafka: LocalKafka, spark: SparkSession) -> App:
    """The topics have records, those of Avro with ids in headers. Executors get the module that protoc has generated."""
    spark.sparkContext.addPyFile(str(sys.modules["shop_pb2"].__file__))
    name = f"formats-{uuid.uuid4().hex[:6]}"
    admin = KafkaAdmin(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers))
    admin.ensure_topics([TopicSpec(f"{name}-{each}{out}", 1) for each in SERDES for out in ("", "-out")])
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})
    for each, serde in SERDES.items():
        bound = serde.bind(f"{name}-{each}", False)
        for key, item, cents in RECORDS:
            data = bound.serialize(MAKE[each](name=item, cents=cents))
            raw_key, raw, headers = Framing(TEXT, bound).parted(key.encode(), data)
            producer.produce(f"{name}-{each}", raw, raw_key, timestamp=1_000, headers=list(headers))
    assert producer.flush(60) == 0
    return formats.application(name, kafka.bootstrap_servers)


def sums(rows: Any) -> dict[str, Any]:
    return {key: (value.name, value.cents) for key, value in rows}


def test_the_driver(app: App) -> None:
    with TopologyTestDriver(app.streams.topology, app.config) as driver:
        for each, serde in SERDES.items():
            topic = driver.create_input_topic(f"{app.conf.id}-{each}", TEXT, serde)
            for key, item, cents in RECORDS:
                topic.pipe_input(key, MAKE[each](name=item, cents=cents), timestamp=1_000)
            assert sums((key, row[0]) for key, row in driver.store(f"{each}-sums").all()) == SUMS
            out = driver.create_output_topic(f"{app.conf.id}-{each}-out", TEXT, serde)
            assert [value.cents for value in out.read_values()] == [3, 2**40, 4]


def test_a_batch(app: App, spark: SparkSession) -> None:
    with SparkRunner(app.streams.topology, app.config, spark).batch() as result:
        for each, serde in SERDES.items():
            assert sums((row.key, row.value) for row in result.tables[f"{each}-sums"].rows()) == SUMS
            topic = result.topics[f"{app.conf.id}-{each}-out"]
            records = [record for _, record in topic.records(TEXT, serde)]
            assert [record.value.cents for record in records] == [3, 2**40, 4]
            assert [record.headers for record in records] == [()] * 3
            raw = next(topic.records())[1]
            names = ["__value_schema_id"] if each == "avro" else []
            assert [name for name, _ in raw.headers] == names
            frame = topic.typed(TEXT, serde)
            assert frame.columns == ["partition", "timestamp", "key", "value"]
            if each != "proto":
                assert sorted(row.value.cents for row in frame.collect()) == [3, 4, 2**40]
        views = create_views(spark, result.tables)
        assert set(views) == {f"{each}_sums" for each in SERDES}
        for each in ("avro", "json", "typed"):
            rows = spark.sql(f"select key, value.name, value.cents from {each}_sums").collect()
            assert {row.key: (row.name, row.cents) for row in rows} == SUMS
        # A message is JSON text, in which Protobuf writes numbers of 64 bits as text.
        rows = spark.sql("select key, get_json_object(value, '$.cents') as cents from proto_sums").collect()
        assert {row.key: int(row.cents) for row in rows} == {"a": 7, "b": 2**40}


@pytest.fixture(scope="module")
def streamed(app: App, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    checkpoint = str(tmp_path_factory.mktemp("checkpoint"))
    settings = KafkaSettings(bootstrap_servers=app.config.bootstrap_servers)
    stream = SparkStream(app.streams.topology, app.config, spark, checkpoint=checkpoint, interval_ms=100)
    with stream as running, Backlog(app.streams.plan, settings) as backlog:
        while not backlog.empty():
            assert not running.wait(0.1)
    return


def test_a_stream_leaves_what_a_batch_leaves(app: App, streamed: None, spark: SparkSession) -> None:
    tables = live_tables(app.streams.topology, app.config, spark)
    for each in SERDES:
        assert sums((row.key, row.value) for row in tables[f"{each}-sums"].rows()) == SUMS


def test_sql_shows_the_fields(
    app: App, streamed: None, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def running(*_: object, **options: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(import_module("streamapp.cli.sql"), "session", running)
    monkeypatch.setattr(formats, "app", app, raising=False)
    query = (
        "select a.key, a.value.cents as avro, j.value.cents as json, t.value.cents as typed from avro_sums a "
        "join json_sums j on a.key = j.key join typed_sums t on a.key = t.key order by a.key"
    )
    shown = CliRunner().invoke(main, ["sql", formats.__name__, query, "--format", "json"])
    assert shown.exit_code == 0, [line for line in str(shown.exception).splitlines() if "Error" in line]
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    assert rows == [
        {"key": key, "avro": cents, "json": cents, "typed": cents} for key, (_, cents) in SUMS.items()
    ]
