"""Workers that are paused, and workers that are told to stop while a record hangs."""

from __future__ import annotations

import signal

import pytest

from ..processes import until
from .conftest import PARTITIONS, Cluster
from .member import Member


def test_a_paused_worker_processes_nothing_and_answers(cluster: Cluster) -> None:
    cluster.feed(1_000)
    worker = Member(cluster, "a")
    cluster.counted()
    assert worker.ask("/pause", "POST") == (200, {"paused": True, "workers": [worker.status()["url"]]})
    until(lambda: cluster.committed() == 1_000, 20, cluster.story)
    cluster.feed(500)
    until(lambda: worker.status()["lag"] == 500, 30, worker.status)
    assert worker.status()["paused"]
    assert worker.ask("/health/ready")[0] == 200
    assert worker.ask("/tables/counts/k1")[1]["value"] == 20
    assert cluster.totals() == (1_000, 1_000)
    assert worker.ask("/resume", "POST")[0] == 200
    cluster.counted()
    assert worker.worker.terminate() == 0
    assert cluster.totals() == (1_500, 1_500)


def test_a_worker_ends_by_its_deadline_even_if_a_record_hangs(cluster: Cluster) -> None:
    worker = Member(cluster, "a", env={"HANGS": "yes", "SHUTDOWN": "1"}).worker
    cluster.feed(1)
    worker.wait_for("in hand")
    worker.signal(signal.SIGTERM)
    worker.wait(60)
    assert "the last commit failed" in worker.text()
    assert cluster.committed() == 0


@pytest.mark.parametrize("victim", ["b", "c"])
def test_a_worker_that_is_stopped_in_the_middle_of_a_rebalance_ends_in_order(
    cluster: Cluster, victim: str
) -> None:
    """One that joins, and one that was there before: both wait for a third that takes its time."""
    members = {"a": Member(cluster, "a", env={"STREAMAPP_FAILPOINT": "tasks-revoked:sleep=6:2"})}
    members["a"].until_it_has(PARTITIONS, 0)
    members["b"] = Member(cluster, "b")
    members["b"].until_it_has(2, 0)
    joins = joined(members["b"])
    members["c"] = Member(cluster, "c")
    until(lambda: joined(members["c"]) == 1 and joined(members["b"]) > joins, 60, cluster.story)
    assert members.pop(victim).worker.terminate() == 0
    for member in members.values():  # it has left the group: nobody waits for its session to end
        member.until_it_has(2, 0, timeout=30)
        assert member.worker.text().count("is running") > 1


def joined(member: Member) -> int:
    """How often it has asked to be in the group."""
    return member.worker.text().count("(Re-)joining")
