"""Tables as DataFrames: those of a batch, and those of a live application, out of its changelogs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import MagicMock

import msgspec
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from streamapp import (
    AvroSerde,
    JoinWindows,
    JsonSerde,
    LongSerde,
    Materialized,
    SessionWindows,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    TimeWindows,
    Topology,
    TopologyTestDriver,
)
from streamapp.broker import LocalKafka
from streamapp.broker.admin import KafkaAdmin, TopicSpec
from streamapp.broker.settings import KafkaSettings
from streamapp.runners.spark import FrameSource, SparkRunner, create_views, live_tables
from streamapp.runners.spark.typed import arrow_type

pytestmark = pytest.mark.spark

TEXT = StringSerde()
PLACES = AvroSerde(
    {"type": "record", "name": "Place", "fields": [{"name": "name", "type": ["null", "string"]}]}
)


class Total(msgspec.Struct, frozen=True):
    flights: int
    minutes: float
    last: datetime | None = None
    tags: tuple[str, ...] = ()


def topology() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT).group_by_key(
        key_serde=TEXT, value_serde=TEXT
    )
    minutes = timedelta(minutes=1)

    def kept(name: str, serde: Any, **more: Any) -> Materialized:
        return Materialized(name, key_serde=TEXT, value_serde=serde, **more)

    stream.aggregate(
        lambda: Total(0, 0.0),
        lambda k, v, total: Total(
            total.flights + 1, total.minutes + len(v), datetime(2013, 1, 1, tzinfo=UTC), (v,)
        ),
        materialized=kept("a-total", JsonSerde(Total)),
    )
    windows = TimeWindows.of_size_with_no_grace(minutes)
    stream.windowed_by(windows).count(materialized=kept("hourly", LongSerde(), retention=timedelta(hours=1)))
    sessions = SessionWindows.of_inactivity_gap_with_no_grace(minutes)
    stream.windowed_by(sessions).count(
        materialized=kept("sessions", LongSerde(), retention=timedelta(hours=1))
    )
    stream.reduce(lambda a, b: b, materialized=kept("newest", TEXT, history_retention=timedelta(hours=1)))
    builder.global_table("places", key_serde=TEXT, value_serde=PLACES, materialized=kept("places", PLACES))
    return builder.build()


EVENTS = [("a", "x", 0), ("b", "yy", 30_000), ("a", "z", 45_000), ("a", "z", 200_000)]
MOMENT = datetime(2013, 1, 1)  # Spark gives times without a zone, in that of the session: UTC


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    config = StreamsConfig("tables-test", statestore_cache_max_bytes=0)
    with TopologyTestDriver(topology(), config) as found:
        topic = found.create_input_topic("in", TEXT, TEXT)
        for key, value, time in EVENTS:
            topic.pipe_input(key, value, timestamp=time)
        yield found


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC).replace(tzinfo=None)


def asked(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.sql(query).collect()]


def check_views(spark: SparkSession) -> None:
    totals = asked(
        spark, "select key, value.flights, value.minutes, value.last, value.tags from a_total order by key"
    )
    assert totals == [("a", 3, 3.0, MOMENT, ["z"]), ("b", 1, 2.0, MOMENT, ["yy"])]
    hourly = asked(spark, "select key, window_start, value, timestamp from hourly order by key, window_start")
    assert hourly == [
        ("a", at(0), 2, at(45_000)),
        ("a", at(180_000), 1, at(200_000)),
        ("b", at(0), 1, at(30_000)),
    ]
    sessions = asked(spark, "select key, session_start, session_end, value from sessions order by 1, 2")
    assert sessions == [
        ("a", at(0), at(45_000), 2),
        ("a", at(200_000), at(200_000), 1),
        ("b", at(30_000), at(30_000), 1),
    ]
    newest = asked(spark, "select key, value, valid_from, valid_to from newest where key = 'b'")
    assert newest == [("b", "yy", at(30_000), None)]


def test_tables_of_a_batch_are_views_with_typed_columns(spark: SparkSession) -> None:
    rows = [
        {"key": k, "value": v, "timestamp": t, "partition": 0, "offset": n}
        for n, (k, v, t) in enumerate(EVENTS)
    ]
    frame = spark.createDataFrame(pa.Table.from_pylist(rows))
    name = PLACES.bind("places", False).serialize({"name": "Kennedy"})
    rows = [
        {"key": "JFK", "value": name, "timestamp": 1, "partition": 0, "offset": 0},
        {"key": "LGA", "value": name, "timestamp": 2, "partition": 1, "offset": 0},
        {"key": "LGA", "value": None, "timestamp": 3, "partition": 1, "offset": 1},
    ]
    places = spark.createDataFrame(pa.Table.from_pylist(rows))
    config = StreamsConfig("tables-test")
    sources = {"in": FrameSource(frame, 1), "places": FrameSource(places, 2)}
    with SparkRunner(topology(), config, spark).batch(sources) as result:
        views = create_views(spark, result.tables)
        names = ("a-total", "hourly", "sessions", "newest", "places")
        assert views == {name.replace("-", "_"): name for name in names}
        check_views(spark)
        assert asked(spark, "select key, value.name from places") == [("JFK", "Kennedy")]


def test_stores_that_an_operator_has_for_itself_are_no_tables(spark: SparkSession) -> None:
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, key_serde=TEXT, value_serde=TEXT) for topic in ("left", "right"))
    near = JoinWindows.of_time_difference_and_grace(timedelta(minutes=1), timedelta(minutes=1))
    left.left_join(right, lambda a, b: f"{a}{b}", near).to("out", key_serde=TEXT, value_serde=TEXT)
    counts = Materialized("counts", key_serde=TEXT, value_serde=LongSerde())
    left.group_by_key(key_serde=TEXT, value_serde=TEXT).count(materialized=counts)
    built, config = builder.build(), StreamsConfig("joined")
    stores = [spec.name for sub in built.plan(config).subtopologies for spec in sub.stores]
    assert len(stores) == 4
    row = {"key": "a", "value": "x", "timestamp": 0, "partition": 0, "offset": 0}
    frame = FrameSource(spark.createDataFrame(pa.Table.from_pylist([row])), 1)
    with SparkRunner(built, config, spark).batch({"left": frame, "right": frame}) as result:
        assert list(result.tables) == ["counts"]


@pytest.mark.broker
def test_tables_of_a_live_application_are_read_from_its_changelogs(
    spark: SparkSession, kafka: LocalKafka, driver: TopologyTestDriver
) -> None:
    topics = [topic for topic in driver.produced if topic.endswith("-changelog")]
    admin = KafkaAdmin(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers))
    admin.ensure_topics([TopicSpec(topic, 2, {"retention.ms": "-1"}) for topic in [*topics, "places"]])
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})
    for topic in topics:
        for r in driver.produced[topic]:
            partition = ord(r.key[:1]) % 2 if r.key else 0
            producer.produce(topic, r.value, r.key, partition, None, None, r.timestamp or 0, list(r.headers))
    producer.produce("places", PLACES.bind("places", False).serialize({"name": "Kennedy"}), "JFK", 1)
    producer.flush()

    config = StreamsConfig("tables-test", bootstrap_servers=kafka.bootstrap_servers)
    create_views(spark, live_tables(topology(), config, spark))
    check_views(spark)
    assert asked(spark, "select key, value.name from places") == [("JFK", "Kennedy")]


@pytest.mark.parametrize(
    ("serde", "expected"),
    [
        (LongSerde(), pa.int64()),
        (JsonSerde(), None),
        (JsonSerde(int | str), None),
        (JsonSerde(dict[str, list[int]]), pa.map_(pa.string(), pa.list_(pa.int64()))),
        (JsonSerde(str | None), pa.string()),
        (AvroSerde('"long"'), pa.int64()),
        (PLACES, pa.struct([("name", pa.string())])),
    ],
)
def test_types(serde: Any, expected: pa.DataType | None) -> None:
    assert arrow_type(serde) == expected


def test_views_of_tables_whose_names_differ_little_are_all_there() -> None:
    tables = {name: MagicMock() for name in ("a-b", "A_b", "1x")}
    assert create_views(MagicMock(), tables) == {"a_b": "a-b", "A_b_": "A_b", "_1x": "1x"}
    tables["A_b"].typed.createOrReplaceTempView.assert_called_with("A_b_")
