"""A state folder is copied, with the id of its process, and a second worker starts with the copy."""

from __future__ import annotations

import shutil
from typing import Any

from ..processes import until
from .conftest import Cluster
from .member import Member


def ready(member: Member) -> tuple[int, Any]:
    return member.ask("/health/ready")


def test_a_worker_with_a_copied_folder_gets_no_tasks_and_the_other_worker_goes_on(cluster: Cluster) -> None:
    """Both workers ended each other's transactions at each commit, sent their results again, and were ready."""
    first = Member(cluster, "a")
    first.until_it_has(4, 0)
    cluster.feed(200)
    cluster.counted()
    file = cluster.folder / "data-a" / "state" / cluster.id / "process-id"
    copy = cluster.folder / "data-b" / "state" / cluster.id / "process-id"
    copy.parent.mkdir(parents=True)
    shutil.copy(file, copy)

    second = Member(cluster, "b")
    until(lambda: second.status().get("state") == "stuck", 60, second.worker.text)
    code, body = ready(second)
    assert code == 503
    assert f":{first.port} has the same process id" in body["reason"]
    assert f"Stop this worker, delete the file {copy}, and start the worker again" in body["reason"]
    assert "has the same process id" in second.worker.text()
    assert second.status()["tasks"] == []
    first.until_it_has(4, 0)
    cluster.feed(200)
    cluster.counted()
    assert first.worker.text().count("begin again at the last commit") <= 1, first.worker.text()

    assert second.worker.terminate() == 0
    copy.unlink()
    second = Member(cluster, "b")
    for member in (first, second):
        member.until_it_has(2, 0)
    cluster.feed(200)
    cluster.counted()
    assert cluster.totals()[1] == 600


def test_the_worker_with_the_copy_takes_over_when_the_other_worker_stops(cluster: Cluster) -> None:
    first = Member(cluster, "a")
    first.until_it_has(4, 0)
    shutil.copytree(
        cluster.folder / "data-a" / "state" / cluster.id,
        cluster.folder / "data-b" / "state" / cluster.id,
        ignore=lambda _, names: [name for name in names if name != "process-id"],
    )
    second = Member(cluster, "b")
    until(lambda: second.status().get("state") == "stuck", 60, second.worker.text)
    cluster.feed(200)
    until(lambda: cluster.committed() == 200, 60, cluster.story)
    assert first.worker.terminate() == 0
    second.until_it_has(4, 0)
    cluster.feed(200)
    cluster.counted()
    until(lambda: ready(second)[0] == 200, 60, second.worker.text)
    assert cluster.totals()[1] == 400


def test_a_worker_that_restarts_under_another_name_gets_its_tasks(cluster: Cluster) -> None:
    """Brokers keep the static member of the process before until its session time-out."""
    settings = {"session_timeout_ms": 10_000}
    first = Member(cluster, "a", group_instance_id="x", **settings)
    first.until_it_has(4, 0)
    cluster.feed(200)
    cluster.counted()
    first.worker.process.kill()
    first.worker.wait()
    second = Member(cluster, "a", group_instance_id="y", **settings)
    second.until_it_has(4, 0)
    cluster.feed(200)
    cluster.counted()
    until(lambda: ready(second)[0] == 200, 60, second.worker.text)
    assert cluster.totals()[1] == 400
