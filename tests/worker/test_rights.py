"""A right is taken from a worker while it runs: the worker ends, names the right, and repeats nothing in vain."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streamapp.config import StreamsConfig
from streamapp.operations.acls import Acl, acls_of_topology

from ..operations.guarded import Guarded, allow, forbid
from ..processes import until
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
