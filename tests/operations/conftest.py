"""Groups and topics of the tests' own on the session's broker, and the commands as users type them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer, TopicPartition

from streamapp.broker import LocalKafka
from streamapp.cli import main

from ..consumer.feeding import Feed
from ..group_offsets import commit_offsets
from ..worker.conftest import Cluster
from .guarded import Guarded

BEGAN_MS = 1_700_000_000_000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"cluster", "guarded", "kafka", "topic"}.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.broker)


@pytest.fixture
def cluster(kafka: LocalKafka, tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(kafka.bootstrap_servers, tmp_path)
    yield cluster
    cluster.close()


@pytest.fixture(scope="package")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with Guarded(tmp_path_factory.mktemp("guarded")) as broker:
        yield broker


@pytest.fixture
def feed(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> Feed:
    """Topics of a test, and the environment of a user who may do nothing yet."""
    for name, value in guarded.environment("PLAIN").items():
        monkeypatch.setenv(name, value)
    feed = Feed(guarded.bootstrap_servers)
    feed.create(partitions=1)
    return feed


@pytest.fixture
def run(kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """``streamapp`` on the session's broker; the exit code has to be as said (None: anything)."""
    monkeypatch.setenv("STREAMAPP_BOOTSTRAP_SERVERS", kafka.bootstrap_servers)

    def invoke(*arguments: str, code: int | None = 0) -> Result:
        result = CliRunner().invoke(main, list(arguments))
        assert code is None or result.exit_code == code, f"{result.output}\n{result.exception!r}"
        return result

    return invoke


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """Two partitions with 30 and 20 records, one in a second; the first 5 of partition 0 are deleted."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    cluster.create(name, partitions=2)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for partition, count in ((0, 30), (1, 20)):
        for number in range(count):
            producer.produce(name, b"v", b"k", partition, timestamp=BEGAN_MS + 1_000 * number)
    producer.flush()
    for future in cluster.admin.delete_records([TopicPartition(name, 0, 5)]).values():
        future.result()
    return name


def commit(bootstrap: str, group: str, topic: str, *offsets: int | None) -> None:
    """Commits one offset for each partition in the name of a group (None: nothing)."""
    at = [TopicPartition(topic, number, to) for number, to in enumerate(offsets) if to is not None]
    commit_offsets(bootstrap, group, at)


def shown(run: Callable[..., Result], *subject: str) -> dict[tuple[str, int], Any]:
    """Topic and partition -> what ``streamapp offsets show`` says of it."""
    said = json.loads(run("offsets", "show", *subject, "--json").stdout)
    return {(each["topic"], each["partition"]): each for each in said["partitions"]}
