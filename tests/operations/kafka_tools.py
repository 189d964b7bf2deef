"""Kafka's own command line tools, of the version that the local broker has."""

from __future__ import annotations

import csv
import os
import subprocess

from streamapp.broker.distribution import KAFKA_VERSION, find_java, maven_jars
from streamapp.records import TopicPartition

from ..java import LIGHT_JAVA

__all__ = ["acls", "consumer_groups", "described", "features", "reset"]


def _run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    java = find_java()
    jars = maven_jars(
        java,
        f"kafka-tools-{KAFKA_VERSION}",
        f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
        "org.slf4j:slf4j-simple:1.7.36",
    )
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return subprocess.run(
        [java, *LIGHT_JAVA, "-Xmx128m", quiet, "-cp", f"{jars}/*", program, *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        # Java tells options of the environment, and tests read all that a tool tells.
        env={name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"},
    )


def consumer_groups(bootstrap: str, *arguments: str) -> str:
    """What ``kafka-consumer-groups.sh`` prints; it tells of errors in its output, with exit code 0."""
    program = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    # Its own patience is 5 s, which a JVM on a busy machine needs for its first request.
    done = _run(program, "--bootstrap-server", bootstrap, "--timeout", "60000", *arguments)
    return done.stdout + done.stderr


def acls(bootstrap: str, *arguments: str) -> str:
    """What ``kafka-acls.sh`` prints."""
    done = _run("org.apache.kafka.tools.AclCommand", "--bootstrap-server", bootstrap, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def reset(bootstrap: str, group: str, *where: str) -> dict[TopicPartition, int]:
    """Resets offsets with Kafka's tool; the new ones."""
    said = consumer_groups(
        bootstrap, "--group", group, "--reset-offsets", "--execute", "--export", *(where or ("--all-topics",))
    )
    lines = [
        line for line in said.splitlines() if not line.startswith("Warn: ")
    ]  # beside the CSV, where logs have no such record
    rows = [row for row in csv.reader(lines) if row]
    assert rows, said
    assert all(len(row) == 3 for row in rows), said
    return {TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in rows}


def described(bootstrap: str, group: str) -> dict[TopicPartition, tuple[str, str, str]]:
    """(committed, log end, lag) of each partition as the tool prints them."""
    said = consumer_groups(bootstrap, "--group", group, "--describe")
    found = {}
    for line in said.splitlines():
        cells = line.split()
        if len(cells) >= 6 and cells[0] == group:
            found[TopicPartition(cells[1], int(cells[2]))] = (cells[3], cells[4], cells[5])
    assert found, said
    return found


def features(bootstrap: str, *arguments: str) -> None:
    """``kafka-features.sh``."""
    done = _run("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", bootstrap, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
