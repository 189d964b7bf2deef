"""An application that is well, on brokers that are; each test makes it sick in one way, and asks the doctor."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from streamapp import App, StreamsConfig
from streamapp.broker.requests import LastingAdmin
from streamapp.cli import main
from streamapp.runners.worker.topics import prepare_topics

from ..brokers import LightKafka, SteadyKafka, set_settings
from ..group_offsets import commit_offsets
from ..processes import until
from ..worker.counting import counting

__all__ = ["Patient", "SickKafka", "ThreeRacks", "provokes"]

T = TypeVar("T", bound=Callable[..., Any])
PARTITIONS = 3
_IDLE = {"metadata.max.idle.interval.ms": "0", "replica.fetch.wait.max.ms": "5000"}
"""Three idle brokers ask each other less often: they take 0.11 s of CPU per second instead of 0.19 s."""


def provokes(*codes: str) -> Callable[[T], T]:
    """Says which findings a test makes; docs/doctor.md has the list."""
    return lambda test: test


class ThreeRacks(LightKafka):
    """Three brokers, two of them in one rack."""

    def _write_cluster(self, cluster: Any) -> None:
        super()._write_cluster(cluster)
        for number, rack in enumerate(("a", "a", "b"), 1):
            set_settings(self, number, {"broker.rack": rack, **_IDLE})


class SickKafka(SteadyKafka):
    """One broker, set up badly."""

    more_settings: ClassVar[Mapping[str, str]] = {
        "auto.create.topics.enable": "true",
        "offsets.retention.minutes": "60",
        "transaction.max.timeout.ms": "5000",
        "group.max.session.timeout.ms": "30000",
        "transaction.partition.verification.enable": "false",
    }


def _topics(address: str) -> set[str]:
    """The topics that one broker has heard of."""
    return set(AdminClient({"bootstrap.servers": address}).list_topics(timeout=10).topics)


def _settings(address: str, topic: str) -> dict[str, str]:
    """The settings of a topic, as one broker has heard of them."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": address})
    found = admin.describe_configs([resource])[resource].result()
    return {name: entry.value for name, entry in found.items()}


@dataclass
class Patient:
    """Counts records by key: an input, an output, one table. ``settings`` are those of its `StreamsConfig`."""

    bootstrap: str
    folder: Path
    monkeypatch: pytest.MonkeyPatch
    replicas: int = 3
    id: str = field(default_factory=lambda: f"p-{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})
        self.source, self.sink = f"{self.id}-in", f"{self.id}-out"
        self.changelog = f"{self.id}-counts-changelog"
        self.create(self.source)
        self.create(self.sink)
        self.configure()
        self.prepare()
        self.monkeypatch.setenv("STREAMAPP_BOOTSTRAP_SERVERS", self.bootstrap)

    def create(self, name: str, **more: Any) -> None:
        more = {"num_partitions": PARTITIONS, "replication_factor": self.replicas, **more}
        if "replica_assignment" in more:
            del more["replication_factor"]
        for future in self.admin.create_topics([NewTopic(name, **more)]).values():
            future.result()
        self.wait_for([name])

    def prepare(self) -> None:
        """Creates the internal topics, as a worker does at its start."""
        plan = self.app.streams.plan
        prepare_topics(plan, LastingAdmin({"bootstrap.servers": self.bootstrap}))
        self.wait_for(topic.name for topic in plan.internal_topics)

    def wait_for(self, names: Iterable[str]) -> None:
        """Waits until each broker knows these topics."""
        wanted = set(names)
        until(
            lambda: all(wanted <= _topics(address) for address in self.bootstrap.split(",")),
            30,
            lambda: f"not all brokers know {wanted}",
        )

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result()
        until(
            lambda: all(name not in _topics(address) for address in self.bootstrap.split(",")),
            30,
            lambda: f"not all brokers have forgotten {name}",
        )

    def configure(self, topology: Any = None, faust: dict[str, Any] | None = None, **settings: Any) -> None:
        """The application with other settings, or another topology."""
        config = StreamsConfig(self.id, bootstrap_servers=self.bootstrap, **settings)
        topology = topology or counting(self.source, self.sink)
        self.app = App(
            self.id, topology=topology, config=config, datadir=self.folder / "data", **(faust or {})
        )
        self.monkeypatch.setitem(sys.modules, "it", SimpleNamespace(app=self.app))

    def alter(self, topic: str, **settings: str) -> None:
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        for future in self.admin.incremental_alter_configs([resource]).values():
            future.result()
        wanted = {name.replace("_", "."): value for name, value in settings.items()}
        until(
            lambda: all(
                wanted.items() <= _settings(address, topic).items() for address in self.bootstrap.split(",")
            ),
            30,
            lambda: f"not all brokers have {wanted} of {topic}",
        )

    def feed(
        self, count: int, *, key: Callable[[int], str] = lambda n: f"k{n}", topic: str = "", **more: Any
    ) -> None:
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "partitioner": "murmur2_random", "enable.idempotence": True}
        )
        for number in range(count):
            producer.produce(topic or self.source, b"v", key(number), **more)
        producer.flush()

    def commit(self, *offsets: int) -> None:
        at = [TopicPartition(self.source, number, to) for number, to in enumerate(offsets)]
        commit_offsets(self.bootstrap, self.id, at)

    def report(
        self, *arguments: str, subject: tuple[str, ...] = ("it",), code: int | None = None
    ) -> dict[str, Any]:
        """What ``streamapp doctor ... --json`` says."""
        result = CliRunner().invoke(main, ["doctor", *subject, *arguments, "--json"])
        assert isinstance(result.exception, SystemExit | None), repr(result.exception)
        assert result.exit_code in ((0, 1) if code is None else (code,)), (
            f"{result.output}\n{result.exception!r}"
        )
        report: dict[str, Any] = json.loads(result.stdout)
        assert result.exit_code == (1 if report["findings"] else 2 if report["unseen"] else 0)
        return report

    def findings(self, *arguments: str, **more: Any) -> set[tuple[str, str]]:
        """Code and subject of each finding."""
        return {(each["code"], each["subject"]) for each in self.report(*arguments, **more)["findings"]}

    def doctor_process(self, *arguments: str, wrapper: str, env: dict[str, str]) -> dict[str, Any]:
        """The same in a process of its own, under a shell's limits."""
        command = f'{wrapper}; exec "$0" -c "from streamapp.cli import main; main()" doctor "$@"'
        done = subprocess.run(
            ["sh", "-c", command, sys.executable, *arguments, "--json"],
            capture_output=True,
            text=True,
            env=env,
            timeout=120,
        )
        assert done.returncode in (0, 1), done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found
