"""``streamapp reset``: an application that has run begins anew."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient

from streamapp import App, StreamsConfig
from streamapp.cli import main
from streamapp.errors import LockError, StreamsError
from streamapp.runners.worker.reset import plan_reset
from streamapp.state.directory import StateDirectory

from ..processes import until
from .conftest import Cluster
from .counting_app import counting


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
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    with pytest.raises(StreamsError, match=r"has 1 workers \(faust.*Stop them first"):
        plan_reset(app.streams.plan, admin)
    assert worker.terminate() == 0

    monkeypatch.setitem(sys.modules, "it", SimpleNamespace(app=app))
    changelog, folder = f"{cluster.id}-counts-changelog", Path(app.config.state_dir) / cluster.id
    refused = CliRunner().invoke(main, ["reset", "it"], input="n\n")
    assert refused.exit_code == 1
    assert changelog in cluster.admin.list_topics(timeout=10).topics
    done = CliRunner().invoke(main, ["reset", "it"], input="y\n")
    assert done.exit_code == 0, done.output
    for deleted in (changelog, f"consumer group {cluster.id}", str(folder)):
        assert deleted in done.output
    until(lambda: changelog not in cluster.admin.list_topics(timeout=10).topics, 20, cluster.story)
    assert not folder.exists()
    assert cluster.committed() == 0

    again = cluster.start()
    until(lambda: cluster.committed() == 1_000, 60, cluster.story)
    assert again.terminate() == 0
    assert cluster.totals() == (2_000, 1_000)  # its output topic is its own affair
    assert cluster.totals(changelog)[1] == 1_000


def test_a_reset_of_what_never_ran_has_nothing_to_delete(cluster: Cluster) -> None:
    app = application(cluster)
    planned = plan_reset(app.streams.plan, AdminClient({"bootstrap.servers": cluster.bootstrap}))
    assert (planned.topics, planned.folder) == ((), None)
    planned.carry_out()


def test_state_that_a_worker_holds_is_left_alone(cluster: Cluster) -> None:
    app = application(cluster)
    with StateDirectory(app.config.state_dir, cluster.id):
        planned = plan_reset(app.streams.plan, AdminClient({"bootstrap.servers": cluster.bootstrap}))
        with pytest.raises(LockError, match="is in use by process"):
            planned.carry_out()
