"""Measures the hand-over of a table from Spark to workers."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass

from benchmarks import data
from benchmarks.spark.flights import PARTITIONS
from benchmarks.spark.run import Cpu, session
from streamapp import LongSerde, Materialized, StreamsBuilder, StreamsConfig, StringSerde
from streamapp.broker import KafkaAdmin, KafkaSettings
from streamapp.runners.spark.backfill import Backfill

__all__ = ["Handover", "measure"]

TEXT = StringSerde()
START_MS = 1_385_856_000_000


@dataclass(frozen=True)
class Handover:
    """``compute_seconds`` is the batch, ``write_seconds`` the hand-over: changelog records in Kafka, offsets
    committed. CPU is that of both, in this process, the JVM and the Python workers."""

    keys: int
    compute_seconds: float
    write_seconds: float
    cpu_seconds: float
    load: float


def measure(kafka: KafkaSettings, keys: int, master: str) -> Handover:
    """Hands a table over that counts events by key. Each key has one event."""
    name, admin = f"bench-handover-{uuid.uuid4().hex[:6]}", KafkaAdmin(kafka)
    data.create(admin, name, partitions=PARTITIONS)
    data.publish(kafka, name, ((f"key-{number:08d}", b"event", START_MS + number) for number in range(keys)))
    builder = StreamsBuilder()
    events = builder.stream(name, key_serde=TEXT, value_serde=TEXT).group_by_key()
    events.count(materialized=Materialized("counts", key_serde=TEXT, value_serde=LongSerde()))
    config = StreamsConfig(
        f"{name}-app", bootstrap_servers=kafka.bootstrap_servers, client_properties=kafka.librdkafka()
    )
    with session(master) as spark:
        cpu = Cpu(spark)
        before = cpu.seconds()
        report = Backfill(builder.build(), config, spark=spark).run()
        assert report is not None
        used = cpu.seconds() - before
    admin.delete_topics([name, f"{name}-app-counts-changelog"])
    seconds = report.seconds
    return Handover(report.written, seconds["compute"], seconds["write"], used, os.getloadavg()[0])
