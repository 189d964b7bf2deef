"""How long it takes to hand a table over from Spark to workers.

    python -m benchmarks.spark.handover --bootstrap-servers localhost:9092 --keys 1000000

One event for each key, a counted table of them, 4 partitions. ``compute`` is the batch, ``write`` the hand-over: changelog
records in Kafka, offsets committed. CPU is user and system time of this process, the JVM and all Python workers.
"""

from __future__ import annotations

import json
import uuid

import click
from confluent_kafka import Producer

from benchmarks.spark.run import cpu_seconds
from streamapp import LongSerde, Materialized, StreamsBuilder, StreamsConfig, StringSerde
from streamapp.broker import KafkaAdmin, KafkaSettings, TopicSpec
from streamapp.runners.spark import spark_session
from streamapp.runners.spark.backfill import Backfill

PARTITIONS = 4
TEXT = StringSerde()


@click.command()
@click.option("--bootstrap-servers", default="localhost:9092", show_default=True)
@click.option("--keys", default=1_000_000, show_default=True)
@click.option("--master", default="local[2]", show_default=True)
def main(bootstrap_servers: str, keys: int, master: str) -> None:
    """Measure one hand-over."""
    name = f"handover-{uuid.uuid4().hex[:6]}"
    admin = KafkaAdmin(KafkaSettings(bootstrap_servers=bootstrap_servers))
    admin.ensure_topics([TopicSpec(name, PARTITIONS, {"retention.ms": "-1"})])
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "partitioner": "murmur2_random", "linger.ms": 50}
    )
    for number in range(keys):
        while True:
            try:
                producer.produce(name, b"event", b"key-%08d" % number, timestamp=1_385_856_000_000 + number)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()

    builder = StreamsBuilder()
    events = builder.stream(name, key_serde=TEXT, value_serde=TEXT).group_by_key()
    events.count(materialized=Materialized("counts", key_serde=TEXT, value_serde=LongSerde()))
    config = StreamsConfig(f"{name}-app", bootstrap_servers=bootstrap_servers)
    spark = spark_session(name, master=master)
    spark.range(100).mapInPandas(lambda frames: frames, "id bigint").count()  # starts the Python workers
    before = cpu_seconds()
    report = Backfill(builder.build(), config, spark=spark).run()
    assert report is not None
    seconds = {f"{phase}_seconds": round(taken, 1) for phase, taken in report.seconds.items()}
    print(json.dumps({"keys": report.written, **seconds, "cpu_seconds": round(cpu_seconds() - before, 1)}))
    admin.delete_topics([name, f"{name}-app-counts-changelog"])
    spark.stop()


if __name__ == "__main__":
    main()
