"""``streamapp reset``: an application that has run begins anew."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from streamapp import App, StreamsConfig
from streamapp.broker.consumer_groups import commit_for, look_at_group
from streamapp.broker.requests import LastingAdmin
from streamapp.cli import main
from streamapp.errors import LockError, StreamsError
from streamapp.records import TopicPartition
from streamapp.runners.worker.reset import plan_reset
from streamapp.state.directory import StateDirectory

from ..processes import free_port, run_streamapp, until
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
    with pytest.raises(StreamsError, match=r"has 1 member \(app-.*Stop them first.*group_instance_id"):
        plan_reset(app, admin)
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
    done = run_streamapp(
        "reset",
        *app,
        env={**os.environ, **told, "DATADIR": str(cluster.folder / "data-a"), "WEB_PORT": str(free_port())},
    )
    assert f"folder  {folder}" in done.stdout, done.stderr
    assert not folder.exists()


@pytest.mark.parametrize(
    ("topology", "guarantee"), [("yes", "at_least_once"), ("yes", "exactly_once_v2"), ("", "at_least_once")]
)
def test_agents_compute_their_tables_anew_and_count_no_record_twice(
    cluster: Cluster, topology: str, guarantee: str
) -> None:
    """A reset takes the inputs of agents back to the first record, so the rows that the agents made have to go, too."""
    keyed = f"{cluster.id}-keyed"
    env = {
        "TOPOLOGY": topology,
        "TABLE": "yes",
        "GUARANTEE": guarantee,
        "AGENT_IN": f"{cluster.id}-asked",
        "AGENT_OUT": f"{cluster.id}-answers",
        "FAILING": keyed,
        "HOW": "raises in the key of group_by",
    }
    cluster.create(env["AGENT_IN"], env["AGENT_OUT"], keyed)
    changelog = f"{cluster.id}-seen-changelog"
    repartition = f"tests.worker.agents_app.fail_somewhere-{keyed}-by-{cluster.id}-repartition"

    def answers() -> tuple[int, int]:
        """The highest count of each key, added up, and the number of records behind ``group_by``."""
        values = [value or b"" for _, value in cluster.read(env["AGENT_OUT"])]
        sent = [value.removeprefix(b"sent v=") for value in values if value.startswith(b"sent v=")]
        return sum(map(int, sent)), values.count(b"yielded v") - len(sent)

    worker = cluster.start(app="agents_app", **env)
    cluster.feed(40, 1, topic=env["AGENT_IN"])
    cluster.feed(30, topic=keyed)
    first = (sum(range(41)), 30)
    until(lambda: answers() == first, 60, lambda: f"{answers()} {cluster.story()}")
    assert worker.terminate() == 0

    done = run_streamapp(
        "reset",
        "tests.worker.agents_app",
        "--yes",
        env={
            **os.environ,
            **env,
            "APP_ID": cluster.id,
            "BOOTSTRAP": cluster.bootstrap,
            "SOURCE": cluster.source,
            "SINK": cluster.sink,
            "DATADIR": str(cluster.folder / "data-a"),
            "WEB_PORT": str(free_port()),
        },
    )
    assert done.returncode == 0, done.stderr
    assert f"topic   {changelog}" in done.stdout
    assert f"topic   {repartition}" in done.stdout
    assert f"{env['AGENT_IN']}, {keyed}" in done.stdout  # the agents read these topics again
    until(lambda: changelog not in cluster.admin.list_topics(timeout=10).topics, 20, cluster.story)

    again = cluster.start(app="agents_app", **env)
    twice = (2 * first[0], 2 * first[1])
    until(lambda: answers() >= twice, 60, lambda: f"{answers()} {cluster.story()}")
    assert again.terminate() == 0
    assert answers() == twice


def test_consumers_stay_where_they_are_and_the_command_says_so(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = application(cluster)

    @app.consume(cluster.source)
    async def charge(record: object) -> None: ...

    admin = LastingAdmin({"bootstrap.servers": cluster.bootstrap})
    group = f"{cluster.id}-charge"
    commit_for(admin, group, {TopicPartition(cluster.source, 0): 0})
    monkeypatch.setitem(sys.modules, "it", SimpleNamespace(app=app))
    done = CliRunner().invoke(main, ["reset", "it", "--yes"])
    assert done.exit_code == 0, done.output
    assert f"The groups of consumers stay where they are: {group}." in done.output
    assert look_at_group(admin, group).state != "dead"


def test_a_reset_of_what_never_ran_has_nothing_to_delete(cluster: Cluster) -> None:
    app = application(cluster)
    planned = plan_reset(app, LastingAdmin({"bootstrap.servers": cluster.bootstrap}))
    assert (planned.topics, planned.folder, planned.backfilled) == ((), None, None)
    planned.carry_out()


def test_state_that_a_worker_holds_is_left_alone(cluster: Cluster) -> None:
    app = application(cluster)
    with StateDirectory(app.config.state_dir, cluster.id):
        planned = plan_reset(app, LastingAdmin({"bootstrap.servers": cluster.bootstrap}))
        with pytest.raises(LockError, match="is in use by process"):
            planned.carry_out()
