"""A year of travels on the broker of the Spark tests, and ways to run and read the application."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from streamapp import StreamsBuilder, StreamsConfig, Topology
from streamapp.broker import KafkaAdmin, KafkaSettings, LocalKafka, TopicSpec
from streamapp.runners.spark import KafkaSource, SparkRunner
from streamapp.runners.spark.backfill import Backfill
from streamapp.runners.spark.handover_survey import survey
from streamapp.testing import Backlog, WorkerProcess

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
        self._producer = Producer({"bootstrap.servers": self.servers})

    def topic(self, name: str) -> str:
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

    def config(self, application_id: str) -> StreamsConfig:
        return travels.config(application_id, self.servers, str(self.folder / application_id / "state"))

    def backfill(self, application_id: str, until: Any = None) -> Backfill:
        return Backfill(self.topology(), self.config(application_id), until=until, spark=self.spark)

    @contextmanager
    def worker(self, application_id: str) -> Iterator[Callable[[], None]]:
        """A running worker; what it gives waits until there is nothing left to do."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        folder = self.folder / application_id
        environ = {
            "TRAVELS_ID": application_id,
            "TRAVELS_BOOTSTRAP": self.servers,
            "TRAVELS_DATA": str(folder),
            "TRAVELS_PORT": str(port),
            "TRAVELS_PREFIX": self.prefix,
        }
        plan = self.topology().plan(self.config(application_id))
        with (
            WorkerProcess(travels.__name__, web_port=port, log=folder / "log", environ=environ) as worker,
            Backlog(plan, self.settings) as backlog,
        ):
            worker.wait_until_ready(timeout=300)

            def settled() -> None:
                while not backlog.empty():
                    worker.check()
                    time.sleep(0.1)

            yield settled

    def live_tables(self, application_id: str) -> Tables:
        """The tables as their changelogs have them."""
        found = survey(self.topology().plan(self.config(application_id)), None)
        assert found.records == 0
        here = {tp: end for tp, (_, end) in found.external.items()}
        runner = SparkRunner(self.topology(), self.config(application_id), self.spark)
        with runner.compute(
            {tp.topic: KafkaSource(here, here) for tp in here}, resume=replace(found.resume, tables=True)
        ).result() as result:
            return {name: sorted(table.rows(), key=repr) for name, table in result.tables.items()}

    def batch_tables(self) -> Tables:
        """The tables as a batch over everything has them."""
        with SparkRunner(self.topology(), self.config("batch"), self.spark).batch() as result:
            return {name: sorted(table.rows(), key=repr) for name, table in result.tables.items()}

    def outputs(self) -> dict[str, list[Any]]:
        return {name: sorted(read(self.servers, self.topic(name))) for name in travels.OUTPUTS}


@pytest.fixture
def cluster(kafka: LocalKafka, tmp_path: Path, spark: SparkSession) -> Cluster:
    return Cluster(kafka.bootstrap_servers, tmp_path, spark)
