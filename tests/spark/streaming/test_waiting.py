"""Records of a repartition topic wait for those of a source that are for a later micro-batch."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from confluent_kafka import Producer

from streamapp import JoinWindows, StreamsBuilder, StreamsConfig, StringSerde
from streamapp.broker import KafkaAdmin
from streamapp.runners.spark.streaming import SparkStream

from ..backfill.cluster import Cluster
from ..backfill.support import read

pytestmark = [pytest.mark.spark, pytest.mark.broker]
TEXT = StringSerde()
START = 1_700_000_000_000


def test_a_sub_topology_with_a_source_and_a_repartition_topic_goes_on_with_the_next_micro_batch(
    cluster: Cluster,
) -> None:
    names = [f"{cluster.prefix}-{name}" for name in ("orders", "stock", "answers")]
    orders, stock, answers = names
    KafkaAdmin(cluster.settings).ensure_topics([(name, 1, {}) for name in names])
    producer = Producer({"bootstrap.servers": cluster.servers, "enable.idempotence": True})
    for second in range(40):  # more of them than a micro-batch takes, and older than the last order
        producer.produce(stock, str(second), "apple", 0, timestamp=START + second * 1_000)
    for second in (5, 25, 39):
        producer.produce(orders, "apple", f"order-{second}", 0, timestamp=START + second * 1_000)
    assert producer.flush(60) == 0

    config = StreamsConfig(
        f"{cluster.prefix}-waits", bootstrap_servers=cluster.servers, state_dir=str(cluster.folder)
    )
    builder = StreamsBuilder(config)
    by_item = builder.stream(orders, key_serde=TEXT, value_serde=TEXT).map(lambda order, item: (item, order))
    together = JoinWindows.of_time_difference_and_grace(timedelta(0), timedelta(seconds=1))
    by_item.repartition(key_serde=TEXT, value_serde=TEXT).join(
        builder.stream(stock, key_serde=TEXT, value_serde=TEXT),
        lambda order, left: f"{order}: {left}",
        together,
    ).to(answers, key_serde=TEXT, value_serde=TEXT)
    stream = SparkStream(
        builder.build(),
        config,
        cluster.spark,
        checkpoint=str(cluster.folder / "checkpoint"),
        interval_ms=100,
        records_per_batch=10,
    )
    deadline = time.monotonic() + 300
    with stream as running:
        while len(found := read(cluster.servers, answers)) < 3:
            assert time.monotonic() < deadline, found
            assert not running.wait(0.2)
    assert sorted(value for _, value, _ in found) == [b"order-25: 25", b"order-39: 39", b"order-5: 5"]
