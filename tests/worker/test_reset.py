"""``streamapp reset``: an application that has run begins anew."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient

from streamapp import App, StreamsConfig
from streamapp.broker.consumer_groups import commit_for, look_at_group
from streamapp.broker.requests import LastingAdmin
from streamapp.cli import main
from streamapp.errors import LockError, StreamsError
from streamapp.records import TopicPartition
from streamapp.runners.worker.reset import plan_reset
from streamapp.state.directory import StateDirectory

from ..processes import free_port, until
from .conftest import Cluster
from .counting import counting


def application(cluster: Cluster) -> App:
    config = StreamsConfig(cluster.id, bootstrap_servers=cluster.bootstrap)
    topology = counting(cluster.source, cluster.sink)
    return App(cluster.id, topology=topology, config=config, datadir=cluster.folder / "data-a")


def test_an_application_is_taken_back_to_its_beginning(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.feed(1_000)
    worker = cluster.start()
    cluster.counted()
    app = application(cluster)
    admin = LastingAdmin({"bootstrap.servers": cluster.bootstrap})
    with pytest.raises(StreamsError, match=r"has 1 member \(app-.*Stop them first"):
        plan_reset(app.streams.plan, admin)
    assert worker.terminate() == 0
    shutil.copytree(cluster.folder / "data-a", cluster.folder / "data-elsewhere")

    kept = app.streams.plan.backfill_group  # as a backfill of this application leaves it
    commit_for(admin, kept, {TopicPartition(cluster.source, 0): 0})
    monkeypatch.setitem(sys.modules, "it", SimpleNamespace(app=app))
    changelog, folder = f"{cluster.id}-counts-changelog", Path(app.config.state_dir) / cluster.id
    refused = CliRunner().invoke(main, ["reset", "it"], input="n\n")
    assert refused.exit_code == 1
    assert changelog in cluster.admin.list_topics(timeout=10).topics
    done = CliRunner().invoke(main, ["reset", "it"], input="y\n")
    assert done.exit_code == 0, done.output
    for deleted in (changelog, f"consumer group {cluster.id}", f"consumer group {kept}", str(folder)):
        assert deleted in done.output
    until(lambda: changelog not in cluster.admin.list_topics(timeout=10).topics, 20, cluster.story)
    assert not folder.exists()
    assert cluster.committed() == 0
    assert look_at_group(admin, kept).state == "dead"

    again = cluster.start()
    until(lambda: cluster.committed() == 1_000, 60, cluster.story)
    assert cluster.totals() == (2_000, 1_000)  # its output topic is its own affair
    assert cluster.totals(changelog)[1] == 1_000

    # What was on another machine is the state of an earlier life.
    left = cluster.start("elsewhere")
    until(lambda: left.process.poll() is not None, 60, cluster.story)
    assert f"a changelog {changelog} that was deleted and created anew" in left.text()
    assert again.terminate() == 0


def test_the_state_is_where_the_worker_was_told_to_put_it(cluster: Cluster) -> None:
    folder = cluster.folder / "data-told" / "state" / cluster.id
    folder.mkdir(parents=True)
    app = ["tests.worker.counting_app:app", "--datadir", str(cluster.folder / "data-told"), "--yes"]
    told = {
        "APP_ID": cluster.id,
        "BOOTSTRAP": cluster.bootstrap,
        "SOURCE": cluster.source,
        "SINK": cluster.sink,
    }
    done = subprocess.run(
        [sys.executable, "-c", "from streamapp.cli import main; main()", "reset", *app],
        env={**os.environ, **told, "DATADIR": str(cluster.folder / "data-a"), "WEB_PORT": str(free_port())},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert f"folder  {folder}" in done.stdout, done.stderr
    assert not folder.exists()


def test_a_reset_of_what_never_ran_has_nothing_to_delete(cluster: Cluster) -> None:
    app = application(cluster)
    planned = plan_reset(app.streams.plan, AdminClient({"bootstrap.servers": cluster.bootstrap}))
    assert (planned.topics, planned.folder, planned.backfilled) == ((), None, None)
    planned.carry_out()


def test_state_that_a_worker_holds_is_left_alone(cluster: Cluster) -> None:
    app = application(cluster)
    with StateDirectory(app.config.state_dir, cluster.id):
        planned = plan_reset(app.streams.plan, AdminClient({"bootstrap.servers": cluster.bootstrap}))
        with pytest.raises(LockError, match="is in use by process"):
            planned.carry_out()
