"""A right is taken from a worker while it runs: the worker ends, names the right, and repeats nothing in vain."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamapp.config import StreamsConfig
from streamapp.errors import AuthorizationError
from streamapp.operations.acls import Acl, acls_of_leader, acls_of_topology, acls_of_worker
from streamapp.runners.spark.handover_survey import read_topics

from ..operations.guarded import Guarded, allow, forbid
from ..processes import run_streamapp, until
from ..secured import USER
from .conftest import Cluster
from .counting import counting
from .printing_app import printing

pytestmark = pytest.mark.broker
PRINCIPAL = f"User:{USER}"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with Guarded(tmp_path_factory.mktemp("guarded")) as broker:
        yield broker


@pytest.fixture
def cluster(guarded: Guarded, tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(guarded.bootstrap_servers, tmp_path)
    yield cluster
    cluster.close()


@pytest.mark.parametrize(
    ("resource", "name", "operation", "said"),
    [
        ("topic", "{id}-counts-changelog", "Write", "WRITE on its results, dead letters and changelogs"),
        ("topic", "{id}-out", "Write", "WRITE on its results, dead letters and changelogs"),
        ("group", "{id}", "Read", "READ on the group"),
        ("transactional-id", "{id}-", "Write", "WRITE on its transactional id"),
    ],
    ids=["changelog", "results", "group", "transactional-id"],
)
def test_a_worker_that_loses_a_right_ends_and_names_the_right(
    guarded: Guarded, cluster: Cluster, resource: str, name: str, operation: str, said: str
) -> None:
    """A worker without WRITE on a changelog was rolled back for five minutes, and sent its results each time. Without
    READ on the group, a worker asked for its offsets for five minutes, and its stop waited for the answer."""
    plan = counting(cluster.source, cluster.sink).plan(StreamsConfig(cluster.id))
    rights = [acl.as_dict(PRINCIPAL) for acl in acls_of_topology(plan, ())]
    allow(cluster.bootstrap, rights)
    environment = guarded.environment("PLAIN")
    worker = cluster.start(app="unaddressed_app", UNADDRESSED="1", **environment)
    cluster.feed(100)
    cluster.counted()
    pattern = "prefixed" if resource == "transactional-id" else "literal"
    taken = Acl(resource, name.format(id=cluster.id), operation, pattern).as_dict(PRINCIPAL)
    assert taken in rights
    forbid(cluster.bootstrap, [taken])
    cluster.feed(100)
    assert worker.wait() == 1, worker.text()
    last = worker.text().strip().splitlines()[-1]
    assert last.startswith("Error: ")
    assert said in last
    assert "streamapp acls" in last
    assert worker.text().count("begin again at the last commit") <= 1, worker.text()


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_topology_that_writes_nothing_needs_no_right_to_write_topics(
    guarded: Guarded, cluster: Cluster, guarantee: str
) -> None:
    plan = printing(cluster.source).plan(StreamsConfig(cluster.id))
    allow(cluster.bootstrap, [acl.as_dict(PRINCIPAL) for acl in acls_of_topology(plan, ())])
    worker = cluster.start(app="printing_app", GUARANTEE=guarantee, **guarded.environment("PLAIN"))
    cluster.feed(100)
    until(lambda: cluster.committed() == 100, 60, cluster.story)
    assert "begin again" not in worker.text()
    assert worker.terminate() == 0


@pytest.mark.parametrize("missing", ["in", "out", "counts-changelog"])
def test_a_worker_without_a_right_on_a_topic_says_so_at_the_start(
    guarded: Guarded, cluster: Cluster, missing: str
) -> None:
    """Brokers hide such a topic. The error said that the source topic did not exist, or that the changelog was deleted, and
    advised `streamapp reset`. A worker without the right to write results ended at the first result."""
    topic = f"{cluster.id}-{missing}"
    plan = counting(cluster.source, cluster.sink).plan(StreamsConfig(cluster.id))
    rights = [acl.as_dict(PRINCIPAL) for acl in acls_of_topology(plan, ())]
    allow(cluster.bootstrap, rights)
    environment = guarded.environment("PLAIN")
    first = cluster.start(app="unaddressed_app", UNADDRESSED="1", **environment)
    cluster.feed(100)
    cluster.counted()
    assert first.terminate() == 0
    forbid(cluster.bootstrap, [right for right in rights if right["name"] == topic])
    worker = cluster.start(app="unaddressed_app", UNADDRESSED="1", **environment)
    assert worker.wait() == 1, worker.text()
    last = worker.text().strip().splitlines()[-1]
    assert f"brokers do not show the topic {topic} to this client" in last
    assert "Grant this client READ" in last
    assert "streamapp acls" in last


def test_a_worker_that_may_not_create_a_topic_names_the_right(guarded: Guarded, cluster: Cluster) -> None:
    plan = counting(cluster.source, cluster.sink).plan(StreamsConfig(cluster.id))
    rights = [acl.as_dict(PRINCIPAL) for acl in acls_of_topology(plan, ())]
    allow(cluster.bootstrap, [right for right in rights if right["operation"] != "Create"])
    worker = cluster.start(app="unaddressed_app", UNADDRESSED="1", **guarded.environment("PLAIN"))
    assert worker.wait() == 1, worker.text()
    assert (
        "could not be created: Authorization failed. Grant this client CREATE on the topic" in worker.text()
    )


def test_a_command_tells_a_hidden_topic_from_a_missing_one(guarded: Guarded, cluster: Cluster) -> None:
    environment = {**os.environ, **guarded.environment("PLAIN")}
    described = run_streamapp("topic", "describe", cluster.source, env=environment)
    assert described.returncode == 1
    assert f"brokers do not show the topic {cluster.source} to this client" in described.stderr
    own = {**os.environ, "STREAMAPP_BOOTSTRAP_SERVERS": cluster.bootstrap}
    absent = run_streamapp("topic", "describe", f"{cluster.source}-absent", env=own)
    assert f"there is no topic {cluster.source}-absent" in absent.stderr


def test_a_backfill_tells_hidden_topics_from_missing_ones(
    guarded: Guarded, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in guarded.environment("PLAIN").items():
        monkeypatch.setenv(name, value)
    config = StreamsConfig(cluster.id)
    with pytest.raises(
        AuthorizationError, match=f"do not show the topics.* {cluster.source}.*`streamapp acls`"
    ):
        read_topics(counting(cluster.source, cluster.sink).plan(config), {})


@pytest.mark.parametrize(
    ("kind", "missing", "said"),
    [
        (
            "agent",
            "topic",
            "brokers do not show the topic {source} to this client: .*Grant this client READ on the topics",
        ),
        (
            "consumer",
            "topic",
            "{source}: Broker: Topic authorization failed. Grant this client READ on the topic",
        ),
        ("consumer", "group", "Group authorization failed. Grant this client READ on the group"),
    ],
)
def test_a_worker_without_a_topology_names_a_missing_right(
    guarded: Guarded, cluster: Cluster, kind: str, missing: str, said: str
) -> None:
    """A worker was ready although its agent might not read. Its log advised to create the topic."""
    reads = [] if kind == "agent" else [Acl("group", f"{cluster.id}-look_at", "Read")]
    rights = acls_of_worker(StreamsConfig(cluster.id)) | acls_of_leader(f"{cluster.id}-__assignor-__leader")
    rights |= {*reads, Acl("topic", cluster.source, "Read")}
    denied = {Acl("topic", cluster.source, "Read")} if missing == "topic" else {*reads}
    allow(cluster.bootstrap, [acl.as_dict(PRINCIPAL) for acl in rights - denied])
    worker = cluster.start(app="reader_app", KIND=kind, **guarded.environment("PLAIN"))
    assert worker.wait() == 1, worker.text()
    last = worker.text().strip().splitlines()[-1]
    assert re.search(said.format(source=cluster.source), last), last
