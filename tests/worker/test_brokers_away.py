"""A broker that is away at the start of a worker does not end the worker."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from streamapp import App, StreamsConfig
from streamapp.broker import KafkaAdmin, KafkaSettings, LocalKafka

from ..brokers import LightKafka, create_topics
from ..processes import free_port, until
from .conftest import Cluster

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A broker that tests of this module may kill."""
    with LightKafka(tmp_path_factory.mktemp("mortal"), port=0, heap_mb=256) as kafka:
        yield kafka


def test_the_topic_of_an_agent_waits_for_the_broker(mortal: LocalKafka, tmp_path: Path) -> None:
    async def create() -> None:
        app = App(
            "away", config=StreamsConfig("away", bootstrap_servers=mortal.bootstrap_servers), datadir=tmp_path
        )
        async with app.producer as producer:
            mortal.kill_broker(1)
            created = asyncio.create_task(producer.create_topic("told", 3, 1, compacting=True))
            done, _ = await asyncio.wait([created], timeout=1.0)
            assert not done, "the request waits"
            await asyncio.to_thread(mortal.start_broker, 1)
            await created

    asyncio.run(create())
    admin = KafkaAdmin(KafkaSettings(bootstrap_servers=mortal.bootstrap_servers))
    assert admin.partition_counts(["told"]) == {"told": 3}


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """Three brokers, of which tests of this module may kill one."""
    with LightKafka(tmp_path_factory.mktemp("three"), brokers=3, port=0, heap_mb=256) as kafka:
        yield kafka


@pytest.mark.parametrize("reset", ["latest", "earliest"])
def test_only_the_partition_of_an_agent_that_has_no_leader_waits(
    three: LocalKafka, tmp_path: Path, reset: str
) -> None:
    """All partitions of the agents waited up to 300 s for the leader of a new one."""
    cluster = Cluster(three.bootstrap_servers, tmp_path)
    asked, answers = f"{cluster.id}-asked", f"{cluster.id}-answers"
    topics = [
        NewTopic(asked, 3, replica_assignment=[[1], [2], [3]]),
        NewTopic(answers, 2, replica_assignment=[[2], [3]]),
    ]
    create_topics(cluster.admin, topics)
    producer = Producer({"bootstrap.servers": three.bootstrap_servers, "enable.idempotence": True})

    def answered(*partitions: int) -> bool:
        """Writes another record to each of the partitions. True if each of them has an answer."""
        for partition in partitions:
            producer.produce(asked, b"of %d" % partition, b"k", partition)
        producer.flush(10)
        found = {value for _, value in cluster.read(answers)}
        return found >= {b"sent of %d" % partition for partition in partitions}

    port = free_port()
    three.kill_broker(1)
    try:
        worker = cluster.start(
            app="agents_app", AGENT_IN=asked, AGENT_OUT=answers, RESET=reset, WEB_PORT=str(port)
        )
        until(lambda: answered(1, 2), 120, cluster.story)
        worker.wait_for(f"the agents wait for a leader of {asked}-0. Other partitions go on")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=10) as status:
            assert json.load(status)["reason"] == f"the agents wait for a leader of {asked}-0"
    finally:
        three.start_broker(1)
    worker.wait_for(f"the agents read {asked}-0, with a leader again")
    until(lambda: answered(0), 60, cluster.story)
    assert worker.terminate() == 0
