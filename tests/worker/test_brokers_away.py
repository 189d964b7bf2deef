"""A broker that is away at the start of a worker does not end the worker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamapp import App, StreamsConfig
from streamapp.broker import KafkaAdmin, KafkaSettings, LocalKafka

from ..brokers import LightKafka

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
