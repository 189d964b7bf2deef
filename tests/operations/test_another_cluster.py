"""An application moves to another cluster, as docs/how-to/move-to-another-cluster.md says: nothing lost, nothing doubled."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from streamapp import App, StreamsConfig
from streamapp.broker import LocalKafka
from streamapp.cli import main

from ..brokers import LightKafka
from ..processes import until
from ..topic_reader import read_topic
from ..worker.conftest import Cluster
from ..worker.counting import counting

pytestmark = pytest.mark.broker


def mirror(topic: str, source: str, target: str) -> int:
    """Copies the committed records of a topic, as mirrors do: partitions and timestamps stay, offsets do not."""
    producer = Producer({"bootstrap.servers": target, "enable.idempotence": True})
    records = read_topic(source, topic)
    for message in records:
        kept = {"timestamp": message.timestamp()[1], "headers": message.headers() or []}
        producer.produce(topic, message.value(), message.key(), message.partition(), **kept)
    assert producer.flush(30) == 0
    return len(records)


@pytest.fixture
def second(tmp_path: Path) -> Iterator[LocalKafka]:
    with LightKafka(tmp_path / "second", brokers=1, port=0) as kafka:
        yield kafka


def streamapp(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    """A command about the application on this cluster."""
    monkeypatch.setenv("STREAMAPP_BOOTSTRAP_SERVERS", cluster.bootstrap)
    config = StreamsConfig(cluster.id, bootstrap_servers=cluster.bootstrap)
    app = App(cluster.id, topology=counting(cluster.source, cluster.sink), config=config)
    monkeypatch.setitem(sys.modules, "it", SimpleNamespace(app=app))
    return CliRunner().invoke(main, list(arguments))


def test_tables_and_offsets_move_without_loss_and_repetition(
    cluster: Cluster, second: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = Cluster(second.bootstrap_servers, tmp_path, id=cluster.id)
    changelog = f"{cluster.id}-counts-changelog"
    try:
        worker = cluster.start(GUARANTEE="exactly_once_v2")
        cluster.feed(500)
        cluster.counted()
        until(
            lambda: streamapp(cluster, monkeypatch, "offsets", "lag", "it", "--max", "0").exit_code == 0,
            60,
            cluster.story,
        )
        assert worker.terminate() == 0
        new.create(changelog, config={"cleanup.policy": "compact"})
        assert mirror(cluster.source, cluster.bootstrap, new.bootstrap) == 500
        assert mirror(changelog, cluster.bootstrap, new.bootstrap) > 0
        mirror(cluster.sink, cluster.bootstrap, new.bootstrap)
        new.produced = 500

        doctor = streamapp(new, monkeypatch, "doctor", "it")
        assert "SA408" in doctor.output
        refused = new.start("early", GUARANTEE="exactly_once_v2")  # without offsets, nothing is counted twice
        until(lambda: not refused.alive, 60, refused.text)
        assert "has rows, but the group" in refused.text()

        move = ("offsets", "reset", "it", "--to-latest", "--keep-tables", "--execute")
        moved = streamapp(new, monkeypatch, *move)
        assert moved.exit_code == 0, moved.output
        new.feed(300)
        old_state = new.start("a", GUARANTEE="exactly_once_v2")  # which belongs to the old changelog
        until(lambda: not old_state.alive, 60, old_state.text)
        assert (
            f"was written with a changelog {changelog} that was deleted and created anew" in old_state.text()
        )
        new.start("b", GUARANTEE="exactly_once_v2")
        new.counted()
        rows, total = new.totals()
        assert (rows, total) == (800, 800)
    finally:
        new.close()
