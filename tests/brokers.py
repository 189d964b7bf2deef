"""Brokers for tests that break none.

``python -m tests.brokers`` writes the classes of a broker into an archive, with which a broker starts in half the time.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from streamapp.broker import LocalKafka
from streamapp.broker.distribution import find_java, kafka_jars
from streamapp.broker.properties import parse, render

from .processes import until

__all__ = [
    "LIGHT_JAVA",
    "FreshKafka",
    "LightKafka",
    "SteadyKafka",
    "create_topics",
    "read_settings",
    "set_settings",
]

LIGHT_JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Java's options for a short life: to compile for speed would take more CPU than it saves."""
_STEADY = {
    "broker.session.timeout.ms": "120000",
    "broker.heartbeat.interval.ms": "20000",
    "metadata.max.idle.interval.ms": "0",
    "num.io.threads": "3",
}
_MOST_TOPICS = 150
"""A new broker takes about 3 s of CPU, as much as 150 topics take in ten minutes."""


class LightKafka(LocalKafka):
    """Brokers for a short life.

    Java maps the archive of classes into memory (class-data sharing), and passes over an archive that does not fit.
    """

    def _java(self) -> list[str]:
        java, *options = super()._java()
        return [java, *LIGHT_JAVA, *self._classes(), *options]

    def _classes(self) -> list[str]:
        archive = _class_archive()
        return [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []


class _RecordedKafka(LightKafka):
    """Its broker writes the classes that it has loaded into the file ``archive`` when it stops."""

    archive: Path

    def _classes(self) -> list[str]:
        return [f"-XX:ArchiveClassesAtExit={self.archive}"]


class SteadyKafka(LightKafka):
    """A broker for tests that never restart a broker.

    The session of a local broker is short, so that a killed broker is back soon. On a busy machine, a healthy broker
    would lose such a session. This broker has a long session.

    An idle broker takes half of the CPU of an idle local broker, because no timer runs each half second.
    """

    more_settings: ClassVar[Mapping[str, str]] = {}
    """The settings of a derived class beside those of a local broker."""

    def _write_cluster(self, cluster: Any) -> None:
        super()._write_cluster(cluster)
        set_settings(self, 1, {**_STEADY, **self.more_settings})


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
            self._kafka.kill_broker(1)
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


def _file(kafka: LocalKafka, number: int) -> Path:
    return kafka.data_dir / f"broker-{number}" / "server.properties"


@cache
def _class_archive() -> Path:
    """The archive of the broker's classes, which fits one version of Kafka and one of Java."""
    java = find_java()
    version = subprocess.run([java, "-version"], capture_output=True, check=True).stderr
    jars = kafka_jars(java)
    return jars.with_name(f"{jars.name}-{zlib.crc32(version):08x}.jsa")


def _record_classes() -> None:
    archive = _class_archive()
    if archive.exists():
        return
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        recorded = _RecordedKafka(Path(folder) / "kafka", brokers=1, port=0)
        recorded.archive = Path(folder) / "classes.jsa"
        with recorded:
            pass
        recorded.archive.rename(archive)


if __name__ == "__main__":
    _record_classes()
