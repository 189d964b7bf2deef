"""A run goes on at once after one that was killed in the middle of its transactions."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from streamapp import StreamsBuilder, StreamsConfig, StringSerde
from streamapp.broker import KafkaAdmin
from streamapp.runners.spark.streaming import SparkStream
from streamapp.runners.spark.streaming_transaction import output_client
from streamapp.topology import Plan

from ..backfill.cluster import Cluster
from ..backfill.support import read

pytestmark = [pytest.mark.spark, pytest.mark.broker]
TEXT = StringSerde()
PARTITIONS = 2
TIMEOUT_SECONDS = 600
"""The time-out of the transactions that are left open."""
PATIENCE_SECONDS = 240
"""The patience of the test: less than a wait for a transaction's time-out."""

LEAVE_OPEN = """
import json, sys, time
from confluent_kafka import Producer

producers = []
for settings, topic, partition in json.loads(sys.argv[1]):
    producer = Producer(settings)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"unfinished", b"key", partition)
    assert producer.flush(60) == 0
    producers.append(producer)
print("open", flush=True)
time.sleep(600)
"""


def leave_transactions_open(plan: Plan) -> None:
    """Does as a run that is killed while each of its tasks has an open transaction, with records that others read."""
    open_ = [
        (
            output_client(plan.config, sub.id, partition)
            | {"transaction.timeout.ms": TIMEOUT_SECONDS * 1000},
            topic.name,
            partition,
        )
        for sub in plan.subtopologies
        for reader in plan.subtopologies
        if reader is not sub
        for topic in reader.repartition_topics
        for partition in range(PARTITIONS)
    ]
    assert len(open_) == 2 * PARTITIONS
    command = [sys.executable, "-c", LEAVE_OPEN, json.dumps(open_)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        process.kill()


def test_stages_that_read_each_other_s_answers_do_not_wait_for_transactions_of_a_killed_run(
    cluster: Cluster,
) -> None:
    orders, customers, answers = (f"{cluster.prefix}-{name}" for name in ("orders", "customers", "answers"))
    KafkaAdmin(cluster.settings).ensure_topics([(t, PARTITIONS, {}) for t in (orders, customers, answers)])
    producer = Producer(
        {"bootstrap.servers": cluster.servers, "partitioner": "murmur2_random", "enable.idempotence": True}
    )
    config = StreamsConfig(
        f"{cluster.prefix}-foreign", bootstrap_servers=cluster.servers, state_dir=str(cluster.folder)
    )
    builder = StreamsBuilder(config)
    given = {"key_serde": TEXT, "value_serde": TEXT}
    builder.table(orders, **given).join(
        builder.table(customers, **given),
        lambda order, name: f"{order} by {name}",
        foreign_key=lambda order: order.partition("-")[0],
    ).to_stream().to(answers, **given)
    topology = builder.build()

    @contextmanager
    def running() -> Iterator[SparkStream]:
        with SparkStream(
            topology,
            config,
            cluster.spark,
            checkpoint=str(cluster.folder / "checkpoint"),
            interval_ms=100,
        ) as stream:
            yield stream

    def answered(stream: SparkStream, wanted: set[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not wanted <= (found := {value for _, value, _ in read(cluster.servers, answers)}):
            assert time.monotonic() < deadline, found
            assert not stream.wait(0.2)

    for number in range(8):
        producer.produce(customers, f"Name {number}", f"c{number}")
        producer.produce(orders, f"c{number}-book", f"o{number}")
    assert producer.flush(60) == 0
    with running() as stream:
        answered(stream, {f"c{number}-book by Name {number}".encode() for number in range(8)})
    leave_transactions_open(topology.plan(config))
    for number in range(8):
        producer.produce(orders, f"c{number}-pen", f"o{number}")
    assert producer.flush(60) == 0
    with running() as stream:
        answered(stream, {f"c{number}-pen by Name {number}".encode() for number in range(8)})
