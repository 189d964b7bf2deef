"""A year of travels on the broker of the Spark tests, and ways to run and read the application."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from streamapp import StreamsBuilder, StreamsConfig, Topology
from streamapp.broker import KafkaAdmin, KafkaSettings, TopicSpec
from streamapp.runners.spark import SparkRunner
from streamapp.runners.spark.backfill import Backfill
from streamapp.runners.spark.table_frames import live_tables
from streamapp.testing import Backlog, WorkerProcess

from ...processes import free_port
from . import travels
from .support import read

Tables = dict[str, list[Any]]


@dataclass
class Cluster:
    """Topics with a prefix of their own, and applications that read them."""

    servers: str
    folder: Path
    spark: SparkSession
    settings: KafkaSettings = field(init=False)
    prefix: str = field(default_factory=lambda: uuid.uuid4().hex[:6])

    def __post_init__(self) -> None:
        self.settings = KafkaSettings(bootstrap_servers=self.servers)
        names = [self.topic(name) for name in (*travels.INPUTS, *travels.OUTPUTS)]
        keep = {"retention.ms": "-1"}
        KafkaAdmin(self.settings).ensure_topics([TopicSpec(n, travels.PARTITIONS, keep) for n in names])
        self._producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True})

    def topic(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def application_id(self, name: str) -> str:
        """An id that no other test uses, nor this one when it is tried again: its state would be taken over."""
        return f"{self.prefix}-{name}"

    def send(self, events: list[travels.Event]) -> None:
        for event in events:
            self._producer.produce(
                self.topic(event.topic), event.value, event.key, event.partition, timestamp=event.time
            )
        self._producer.flush()

    def topology(self) -> Topology:
        builder = StreamsBuilder(travels.config("any", self.servers, str(self.folder)))
        travels.describe(builder, self.prefix)
        return builder.build()

    def config(self, application: str) -> StreamsConfig:
        folder = str(self.folder / application / "state")
        return travels.config(self.application_id(application), self.servers, folder)

    def backfill(self, application: str, until: Any = None, files: dict[str, str] | None = None) -> Backfill:
        config = self.config(application)
        return Backfill(self.topology(), config, until=until, files=files, spark=self.spark)

    def interrupted(self, application: str, files: dict[str, str] | None = None) -> None:
        """A backfill that is killed after it has begun."""
        begun = self.backfill(application, files=files)
        configs = {topic.name: dict(topic.config) for topic in begun.survey.plan.internal_topics}
        missing = [TopicSpec(topic, count, configs[topic]) for topic, count in begun.survey.missing.items()]
        KafkaAdmin(self.settings).ensure_topics(missing)
        begun._begin(0)

    def delete_before(self, topic: str, offset: int) -> None:
        """As retention would."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        partitions = [TopicPartition(topic, p, offset) for p in range(travels.PARTITIONS)]
        for future in admin.delete_records(partitions).values():
            future.result()

    def environ(self, application: str, port: int = 6066) -> dict[str, str]:
        """What makes `travels` an application, for a process."""
        return {
            "TRAVELS_ID": self.application_id(application),
            "TRAVELS_BOOTSTRAP": self.servers,
            "TRAVELS_DATA": str(self.folder / application),
            "TRAVELS_PORT": str(port),
            "TRAVELS_PREFIX": self.prefix,
        }

    @contextmanager
    def worker(self, application: str) -> Iterator[Callable[[], None]]:
        """A running worker; what it gives waits until there is nothing left to do."""
        port = free_port()
        log = self.folder / application / "log"
        environ = self.environ(application, port)
        plan = self.topology().plan(self.config(application))
        with (
            WorkerProcess(travels.__name__, web_port=port, log=log, environ=environ) as worker,
            Backlog(plan, self.settings) as backlog,
        ):
            worker.wait_until_ready(timeout=300)

            def settled() -> None:
                while not backlog.empty():
                    worker.check()
                    time.sleep(0.1)

            yield settled

    def live_tables(self, application: str) -> Tables:
        """The tables as their changelogs have them."""
        tables = live_tables(self.topology(), self.config(application), self.spark)
        return {name: sorted(table.rows(), key=repr) for name, table in tables.items()}

    def batch_tables(self) -> Tables:
        """The tables as a batch over everything has them."""
        with SparkRunner(self.topology(), self.config("batch"), self.spark).batch() as result:
            return {name: sorted(table.rows(), key=repr) for name, table in result.tables.items()}

    def batch_outputs(self) -> dict[str, list[Any]]:
        """The output records as a batch over everything has them."""
        with SparkRunner(self.topology(), self.config("batch"), self.spark).batch() as result:
            found = {name: result.topics[self.topic(name)].records() for name in travels.OUTPUTS}
            return {
                name: sorted((r.key, r.value, r.timestamp) for _, r in records)
                for name, records in found.items()
            }

    def outputs(self) -> dict[str, list[Any]]:
        return {name: sorted(read(self.servers, self.topic(name))) for name in travels.OUTPUTS}
