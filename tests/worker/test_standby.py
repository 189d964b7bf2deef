"""Standbys and warm-ups of real workers: a copy answers, takes over without a restore, and moves come after it."""

from __future__ import annotations

import signal

import pytest

from ..processes import until
from .conftest import PARTITIONS, Cluster
from .member import Member


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_copy_answers_for_a_dead_worker_and_takes_over_without_a_restore(
    cluster: Cluster, guarantee: str
) -> None:
    settings = {"num_standby_replicas": 1, "processing_guarantee": guarantee}
    cluster.feed(3_000)
    first = Member(cluster, "a", **settings)
    cluster.counted()
    second = Member(cluster, "b", **settings)
    for member in (first, second):
        member.until_it_has(2, 2)
    cluster.feed(1_000)
    cluster.counted()
    until(lambda: cluster.committed() >= 4_000, 20, cluster.story)
    for member in (first, second):
        member.until_it_has(2, 2)

    before = len(second.worker.text())
    first.worker.signal(signal.SIGKILL)
    first.worker.wait()
    marked = 0
    for number in range(50):  # a copy may still have the last commit to read
        until(
            lambda path=f"/tables/counts/k{number}?stale=true": second.ask(path)[1].get("value") == 80,  # type: ignore[misc]
            30,
            cluster.story,
        )
        status, body = second.ask(f"/tables/counts/k{number}?stale=true")
        assert (status, body.get("value")) == (200, 80), body
        marked += body["partitions"][0].get("stale", False)
    assert marked > 0
    second.until_it_has(PARTITIONS, 0)
    assert "restored" not in second.worker.text()[before:]
    cluster.feed(1_000)
    cluster.counted()
    assert second.worker.terminate() == 0
    assert cluster.totals()[1] == 5_000
    if guarantee == "exactly_once_v2":
        assert cluster.totals() == (5_000, 5_000)


def test_a_task_moves_when_its_new_owner_has_caught_up(cluster: Cluster) -> None:
    settings = {"acceptable_recovery_lag": 0, "state_cleanup_delay_ms": 1_000}
    cluster.feed(3_000)
    first = Member(cluster, "a", **settings)
    cluster.counted()
    second = Member(cluster, "b", **settings)
    for member in (first, second):
        member.until_it_has(2, 0)
    log = second.worker.text()
    assert "are warm and can be run here" in log
    assert "restored" not in log
    # Those that stay are not closed and opened again.
    for task in (each["id"] for each in first.status()["tasks"]):
        assert first.worker.text().count(f"task {task} is running") == 1
    first.worker.wait_for("deleted the state of tasks")
    assert len(list((cluster.folder / "data-a" / "state").glob("*/0_*"))) == 2
    cluster.feed(1_000)
    cluster.counted()
    assert first.worker.terminate() == 0
    assert second.worker.terminate() == 0
    assert cluster.totals() == (4_000, 4_000)
