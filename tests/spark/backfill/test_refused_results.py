"""Results that brokers would refuse end a backfill before it begins to write, so workers may still start."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from streamapp import KStream, Materialized, Processor, Record, StreamsBuilder, StreamsConfig, StringSerde
from streamapp.broker import KafkaAdmin, KafkaSettings, LocalKafka, TopicSpec
from streamapp.errors import ConfigError
from streamapp.records import TopicPartition
from streamapp.runners.spark.backfill import Backfill
from streamapp.runners.spark.handover_group import Group
from streamapp.runners.spark.stage import COMMIT_EVERY

pytestmark = [pytest.mark.spark, pytest.mark.broker]

TEXT = StringSerde()
KEEP = {"retention.ms": "-1"}
FAR = 4_000_000_000_000
"""A time in the year 2096, as of a device whose clock is wrong."""


class FarAhead(Processor[str, str, str, str]):
    def init(self, context: object) -> None:
        self._forward = context.forward  # type: ignore[attr-defined]

    def process(self, record: Record[str, str]) -> None:
        self._forward(record.with_timestamp(FAR))


class Refusing:
    """An application whose output topics each refuse one of its results, for a reason of their own."""

    def __init__(self, servers: str) -> None:
        self.prefix = f"refused-{uuid.uuid4().hex[:6]}"
        self.config = StreamsConfig(
            self.prefix, bootstrap_servers=servers, default_key_serde=TEXT, default_value_serde=TEXT
        )
        self.admin = KafkaAdmin(KafkaSettings(bootstrap_servers=servers))
        settings = {
            "in": {},
            "small": {"max.message.bytes": "1000"},
            "large": {"max.message.bytes": "5000000"},
            "keyed": {"cleanup.policy": "compact"},
            "recent": {"message.timestamp.before.max.ms": "60000"},
            "present": {"message.timestamp.after.max.ms": "60000"},
            "stamped": {"message.timestamp.after.max.ms": "60000", "message.timestamp.type": "LogAppendTime"},
        }
        self.admin.ensure_topics(
            [TopicSpec(self.topic(name), 1, KEEP | own) for name, own in settings.items()]
        )
        producer = Producer({"bootstrap.servers": servers})
        producer.produce(self.topic("in"), b"v", b"k", 0, timestamp=int(time.time() * 1000) - 86_400_000)
        producer.flush()

    def topic(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def backfill(self, spark: SparkSession, *outputs: str) -> Backfill:
        builder = StreamsBuilder(self.config)
        stream: KStream[str, str] = builder.stream(self.topic("in"))
        stream.group_by_key().count(materialized=Materialized("counts"))
        results: dict[str, KStream[Any, Any]] = {
            "small": stream.map_values(lambda v: v * 2_000),
            "large": stream.map_values(lambda v: v * 2_000_000),
            "keyed": stream.select_key(lambda k, v: None),
            "recent": stream,
            "present": stream.process(FarAhead),
            "stamped": stream.process(FarAhead),
        }
        for name in outputs:
            results[name].to(self.topic(name))
        return Backfill(builder.build(), self.config, spark=spark)


def test_results_that_brokers_would_refuse_are_named_before_one_is_written(
    kafka: LocalKafka, spark: SparkSession
) -> None:
    application = Refusing(kafka.bootstrap_servers)
    with pytest.raises(ConfigError) as caught:
        application.backfill(spark, "small", "large", "keyed", "recent", "present", "stamped").run()
    said = str(caught.value)
    reasons = (
        "-small has a result of 2,001 bytes, and max.message.bytes is 1,000",
        "-large has a result of 2,000,001 bytes, and message.max.bytes of the client is 1,000,000;",
        "-keyed is compacted, and has 1 result without a key;",
        "-present has a result with the time 2096-10-02 07:06:40 (UTC), which is in the future",
        "(UTC), which is too old;",
        "Raise max.message.bytes of the topic",
        "A compacted topic takes no records without a key",
        "a timestamp_extractor of the source. Then run the backfill again",
    )
    assert [reason for reason in reasons if reason not in said] == []
    assert "-stamped" not in said
    assert Group(application.config).read([TopicPartition(application.topic("in"), 0)]) == {}
    # Nothing has begun, so another version of the application may do the work.
    report = application.backfill(spark, "stamped").run()
    assert report is not None
    assert (report.processed, report.rows) == (1, 2)


def test_rows_of_changelogs_that_are_not_written_may_be_too_large(
    kafka: LocalKafka, spark: SparkSession
) -> None:
    application = Refusing(kafka.bootstrap_servers)
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "queue.buffering.max.messages": 300_000}
    )
    for key in [b"other"] * COMMIT_EVERY + [b"k"]:  # so the two rows of k belong to two commits
        producer.produce(application.topic("in"), b"v", key, 0)
    producer.flush()
    config = application.config.replace(statestore_cache_max_bytes=0)
    builder = StreamsBuilder(config)
    stream: KStream[str, str] = builder.stream(application.topic("in"))
    grouped = stream.group_by_key()
    grouped.aggregate(
        str,
        lambda k, v, old: "small" if old or k == "other" else "v" * 2_000_000,
        materialized=Materialized("sizes", value_serde=TEXT),
    )
    report = Backfill(builder.build(), config, spark=spark).run()
    assert report is not None
    assert (report.processed, report.rows) == (COMMIT_EVERY + 2, 2)
