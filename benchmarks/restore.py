"""Restore of a table from its changelog into an empty state folder: keys per second, CPU per key."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from confluent_kafka import Consumer, TopicPartition
from rich.table import Table

from benchmarks import data
from benchmarks.peers import PEERS
from benchmarks.programs.meter import Job
from benchmarks.throughput import Run, measure_process
from streamapp.broker import KafkaAdmin, KafkaSettings

__all__ = ["measure", "table"]

FILL = "abcdefghij" * 8
"""The filling of a value: key and value then have 100 bytes together."""


def measure(kafka: KafkaSettings, folder: Path, keys: int, repetitions: int) -> Iterator[Run]:
    """Runs each peer once in each repetition.

    The source topic is the changelog. The group has committed its end, so all is restored, and nothing is processed.
    """
    admin, topic = KafkaAdmin(kafka), f"bench-restore-{keys}"
    if topic not in admin.partition_counts([topic]):
        data.create(admin, topic)
        rows = ((f"key-{number:08d}", f"{number:08d}{FILL}".encode(), 0) for number in range(keys))
        data.publish(kafka, topic, rows)
    for number in range(repetitions):
        for name in ("streamapp", "kafka-streams"):
            app = f"bench-restore-{name}-{folder.name}-{number}"
            _commit_ends(kafka, app, topic)
            place = folder / app
            place.mkdir()
            job = Job("restore", kafka.bootstrap_servers, app, topic, "", "", keys, str(place / "state"))
            process = PEERS[name].start(job, folder / "build", place / "log")
            measured = measure_process(process, place / "log")
            yield Run(name, "restore", correct=None, **measured)


def _commit_ends(kafka: KafkaSettings, group: str, topic: str) -> None:
    consumer = Consumer({**kafka.librdkafka(), "group.id": group})
    partitions = [
        TopicPartition(topic, number) for number in consumer.list_topics(topic).topics[topic].partitions
    ]
    for partition in partitions:
        partition.offset = consumer.get_watermark_offsets(partition)[1]
    consumer.commit(offsets=partitions, asynchronous=False)
    consumer.close()


def table(runs: list[Run]) -> Table:
    result = Table("peer", title="Restore", title_justify="left")
    for column in ("runs", "keys/s", "CPU µs/key", "MiB"):
        result.add_column(column, justify="right")
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.peer].append(run)
    for peer, group in groups.items():
        result.add_row(
            peer,
            str(len(group)),
            f"{median(run.events_per_second for run in group):,.0f}",
            f"{median(run.cpu_us for run in group):.2f}",
            f"{median(run.memory_mib for run in group):,.0f}",
        )
    return result
