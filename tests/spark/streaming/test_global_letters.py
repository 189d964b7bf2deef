"""Records of a global table that fail in micro-batches: the first task writes the letters, once over runs."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer

from streamapp import StreamsBuilder, StreamsConfig, StringSerde
from streamapp.broker import KafkaAdmin
from streamapp.records import TopicPartition
from streamapp.runners.spark.handover_group import Group
from streamapp.runners.spark.streaming import SparkStream

from ..backfill.cluster import Cluster
from ..backfill.support import read

pytestmark = [pytest.mark.spark, pytest.mark.broker]
TEXT = StringSerde()


def test_a_letter_and_its_position_are_one_commit(cluster: Cluster) -> None:
    names = [f"{cluster.prefix}-{name}" for name in ("trips", "planes", "known", "dead")]
    trips, planes, known, dead = names
    KafkaAdmin(cluster.settings).ensure_topics([(name, 2 if name == trips else 1, {}) for name in names])
    producer = Producer({"bootstrap.servers": cluster.servers, "enable.idempotence": True})
    config = StreamsConfig(
        f"{cluster.prefix}-letters",
        bootstrap_servers=cluster.servers,
        state_dir=str(cluster.folder),
        dead_letter_queue_topic=dead,
    )
    builder = StreamsBuilder(config)
    table = builder.global_table(planes, key_serde=TEXT, value_serde=TEXT, on_error="dead_letter")
    stream = builder.stream(trips, key_serde=TEXT, value_serde=TEXT)
    joined = stream.join(
        table, lambda flight, plane: f"{flight} {plane}", key_selector=lambda key, value: key
    )
    joined.to(known, key_serde=TEXT, value_serde=TEXT)
    topology = builder.build()
    deadline = time.monotonic() + 300
    for run in (1, 2):
        producer.produce(planes, b"\xff%d" % run, "bad", 0)
        producer.produce(planes, f"plane{run}", "N1", 0)
        producer.flush(60)
        for partition in (0, 1):
            producer.produce(trips, f"UA{run}", "N1", partition)
        producer.flush(60)
        checkpoint = str(cluster.folder / "checkpoint")
        with SparkStream(topology, config, cluster.spark, checkpoint=checkpoint, interval_ms=100) as running:
            while len(read(cluster.servers, known)) < 2 * run:
                assert time.monotonic() < deadline
                assert not running.wait(0.2)
        letters = [value for _, value, _ in read(cluster.servers, dead)]
        assert letters == [b"\xff%d" % number for number in range(1, run + 1)]
        at = Group(config).read([TopicPartition(planes, 0)])[TopicPartition(planes, 0)]
        assert at.offset == 2 * run - 1
