"""Brokers for tests that break none."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from streamapp.broker import LocalKafka
from streamapp.broker.distribution import find_java, kafka_jars
from streamapp.broker.properties import LOG_FOLDER, parse, render

from .java import LIGHT_JAVA, class_archive
from .processes import until

__all__ = [
    "FreshKafka",
    "LightKafka",
    "SteadyKafka",
    "create_topics",
    "read_settings",
    "set_quota",
    "set_settings",
]

_STEADY = {
    "broker.session.timeout.ms": "120000",
    "broker.heartbeat.interval.ms": "20000",
    "log.cleaner.backoff.ms": "600000",
    "metadata.max.idle.interval.ms": "0",
    "num.io.threads": "3",
}
_FEATURE_LEVELS = "bootstrap.checkpoint"
_MOST_TOPICS = 150
"""A new broker takes about 3 s of CPU, as much as 150 topics take in ten minutes."""


class LightKafka(LocalKafka):
    """Brokers for a short life. With an archive of their classes, they start in half the time.

    Kafka's tool, which takes 0.9 s of CPU, formats only the first folder of a process. The feature levels that the tool
    writes depend on the version of Kafka alone.
    """

    _feature_levels: ClassVar[bytes | None] = None

    def _format(self, cluster: Any, ids: Iterable[int], lock: int) -> None:
        folders = {number: self._folder(number) / LOG_FOLDER for number in ids}
        if LightKafka._feature_levels is not None:
            for number, folder in folders.items():
                if not folder.exists():
                    folder.mkdir()
                    (folder / _FEATURE_LEVELS).write_bytes(LightKafka._feature_levels)
                    node = {"version": "1", "cluster.id": cluster.cluster_id, "node.id": f"{number}"}
                    (folder / "meta.properties").write_text(render(node))
        super()._format(cluster, folders, lock)
        if LightKafka._feature_levels is None:
            LightKafka._feature_levels = (folders[1] / _FEATURE_LEVELS).read_bytes()

    def _java(self) -> list[str]:
        java, *options = super()._java()
        return [java, *LIGHT_JAVA, *self._classes(java), *options]

    def _classes(self, java: str) -> list[str]:
        archive = class_archive(kafka_jars(java))
        return [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []


class SteadyKafka(LightKafka):
    """A broker for tests that never restart a broker.

    The session of a local broker is short, so that a killed broker is back soon. On a busy machine, a healthy broker
    would lose such a session. This broker has a long session.

    An idle broker takes half of the CPU of an idle local broker, because no timer runs each half second. The log cleaner
    does not run, because no test waits for the cleaner. The cleaner would fill 16 MB for each changelog, as most
    changelogs have an old segment: the records of tests are years older than the markers of transactions.
    """

    more_settings: ClassVar[Mapping[str, str]] = {}
    """The settings of a derived class beside those of a local broker."""

    def _write_cluster(self, cluster: Any) -> None:
        super()._write_cluster(cluster)
        set_settings(self, 1, {**_STEADY, **self.more_settings})

    def stop(self) -> None:
        """Ends the broker at once. An orderly end would write all logs to the disk."""
        self.kill_broker(1)
        super().stop()


class FreshKafka:
    """Keeps one broker running, and replaces a broker with many topics by a new one.

    The CPU of a broker grows with the topics that tests leave behind: most requests for metadata ask for all topics.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started = 0
        self._kafka: LocalKafka | None = None

    def get(self) -> LocalKafka:
        """The broker for the next tests. The former broker may have ended."""
        if self._kafka is not None and _count_topics(self._kafka) > _MOST_TOPICS:
            self.close()
        if self._kafka is None:
            self._started += 1
            self._kafka = SteadyKafka(self._folder / str(self._started), brokers=1, port=0)
            self._kafka.start()
        return self._kafka

    def close(self) -> None:
        """Ends the broker, and deletes its data."""
        if self._kafka is not None:
            self._kafka.stop()
            shutil.rmtree(self._kafka.data_dir)
            self._kafka = None


def _count_topics(kafka: LocalKafka) -> int:
    return len(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=60).topics)


def create_topics(admin: AdminClient, topics: Sequence[NewTopic]) -> None:
    """Creates topics, and waits until the broker tells them. A worker that starts at once has to see them."""
    for future in admin.create_topics(list(topics)).values():
        future.result(60)

    def told() -> bool:
        found = admin.list_topics(timeout=60).topics
        return all(
            topic.topic in found and all(each.leader >= 0 for each in found[topic.topic].partitions.values())
            for topic in topics
        )

    until(told, 60, lambda: f"the broker does not tell {', '.join(topic.topic for topic in topics)}")


def read_settings(kafka: LocalKafka, number: int) -> dict[str, str]:
    """The settings in the file of a broker."""
    return parse(_file(kafka, number).read_text())


def set_settings(kafka: LocalKafka, number: int, settings: Mapping[str, str]) -> None:
    """Writes settings into the file of a broker."""
    known = read_settings(kafka, number) | settings
    _file(kafka, number).write_text(render(known))


def set_quota(kafka: LocalKafka, client_id: str, **limits: int) -> None:
    """Limits what a client may ask of each broker, in Kafka's names (``producer_byte_rate``: bytes each second).

    The call is repeated for a minute, because a broker that has just been started may refuse the tool.
    """
    java = find_java()
    command = [java, "-cp", f"{kafka_jars(java)}/*", "kafka.admin.ConfigCommand", "--alter"]
    command += ["--bootstrap-server", kafka.bootstrap_servers, "--entity-type", "clients"]
    command += [
        "--entity-name",
        client_id,
        "--add-config",
        ",".join(f"{k}={v}" for k, v in limits.items()),
    ]
    until(
        lambda: subprocess.run(command, capture_output=True, timeout=120).returncode == 0,
        60.0,
        lambda: "the brokers do not take the quota",
    )


def _file(kafka: LocalKafka, number: int) -> Path:
    return kafka.data_dir / f"broker-{number}" / "server.properties"
