"""Consumers of an `App`, in real workers."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ..processes import free_port, until
from .conftest import Cluster

COUNT = 200


def look(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
        return str(response.read().decode())


def consumers(port: int) -> dict[str, Any]:
    try:
        return {each["name"]: each for each in json.loads(look(port, "/status"))["consumers"]}
    except OSError:
        return {}


@pytest.mark.parametrize("topology", ["", "1"])
def test_a_worker_consumes_shows_it_and_ends_when_a_consumer_fails(
    cluster: Cluster, tmp_path: Path, topology: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, dead, port = tmp_path / "out", f"{cluster.id}-dead", free_port()
    cluster.create(dead, partitions=1)
    env = {"OUT": str(out), "DEAD": dead, "TOPOLOGY": topology, "WEB_PORT": str(port)}
    cluster.feed(COUNT)
    worker = cluster.start("a", app="consumers_app", **env)

    def handled() -> int:
        return len(out.read_text().splitlines()) if out.exists() else 0

    names = {f"{cluster.id}-handle", f"{cluster.id}-sync"}
    until(lambda: handled() == COUNT, 90, worker.text)
    until(
        lambda: {name for name, each in consumers(port).items() if each["metrics"]["done"] == COUNT} == names,
        60,
        worker.text,
    )
    metrics = consumers(port)[f"{cluster.id}-handle"]["metrics"]
    parts = ("done", "in_work", "waiting", "skipped", "dead", "returned")
    assert metrics["taken"] == sum(metrics[part] for part in parts)
    shown = look(port, "/metrics")
    assert f'consumer="{cluster.id}-handle"}} {COUNT}' in shown
    assert f'streamapp_worker_state{{application="{cluster.id}",state="stuck"}} 0\n' in shown
    assert worker.terminate() == 0
    for line in (f"{cluster.id} starts: Kafka at {cluster.bootstrap}", "stopping: commits what", "] stopped"):
        assert line in worker.text()  # a worker without a topology said none of it

    worker = cluster.start("a", app="consumers_app", **env)  # nothing is repeated
    cluster.producer.produce(cluster.source, "more", "more")
    cluster.producer.flush()
    until(lambda: handled() == COUNT + 1, 90, worker.text)
    cluster.producer.produce(cluster.source, "poison", "bad")
    cluster.producer.flush()
    assert worker.wait(90) == 1, worker.text()
    assert "handle: record of" in worker.text().splitlines()[-1]
    assert "failed: ValueError: poison" in worker.text().splitlines()[-1]
    assert topology or "stopping: commits" not in worker.text()
    assert handled() == COUNT + 1

    from streamapp.cli.dlq import dlq_group

    monkeypatch.setenv("COLUMNS", "200")  # the table of letters has room
    told = {"APP_ID": cluster.id, "BOOTSTRAP": cluster.bootstrap, "SOURCE": cluster.source}
    for name, value in {**told, **env, "DATADIR": str(tmp_path / "cli")}.items():
        monkeypatch.setenv(name, value)
    import importlib

    import tests.worker.consumers_app as module

    importlib.reload(module)
    listed = CliRunner().invoke(dlq_group, ["list", "tests.worker.consumers_app"])
    assert listed.exit_code == 0, listed.output
    assert "sync" in listed.output
    assert "ValueError" in listed.output
