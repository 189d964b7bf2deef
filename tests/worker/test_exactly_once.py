"""Exactly-once under faults: killed at a step of the commit, or replaced while it was not looking."""

from __future__ import annotations

import signal

import pytest

from ..processes import until
from .conftest import Cluster

EXACTLY_ONCE = {"GUARANTEE": "exactly_once_v2", "COMMIT_MS": "100"}


@pytest.mark.parametrize(
    ("failpoint", "store"),
    [
        ("records-processed:kill", "in_memory"),
        ("state-flushed:kill:2", "rocksdb"),
        ("offsets-sent:kill:2", "in_memory"),
        ("offsets-committed:kill:2", "rocksdb"),
        ("state-persisted:kill:2", "rocksdb"),
    ],
)
def test_counts_exactly_when_killed_at_a_step_of_the_commit(
    cluster: Cluster, failpoint: str, store: str
) -> None:
    killed = cluster.start(STORE=store, STREAMAPP_FAILPOINT=failpoint, **EXACTLY_ONCE)
    for _ in range(2):  # one commit each, or none
        cluster.feed(500)
        until(lambda: killed.process.poll() is not None or cluster.totals()[1] >= 500, 40, cluster.story)
    assert killed.wait() == -signal.SIGKILL
    again = cluster.start(STORE=store, **EXACTLY_ONCE)
    again.wait_for("task 0_3 is running")
    cluster.counted()
    assert again.terminate() == 0
    assert cluster.totals() == (1_000, 1_000)
    assert cluster.totals(f"{cluster.id}-counts-changelog")[1] == 1_000


def test_a_restore_that_is_killed_begins_again(cluster: Cluster) -> None:
    cluster.feed(2_000, keys=2_000)
    cluster.start("a", **EXACTLY_ONCE).wait_for("task 0_3 is running")
    cluster.counted()
    assert cluster.workers[0].terminate() == 0
    killed = cluster.start("b", STREAMAPP_FAILPOINT="restore-batch:kill:2", **EXACTLY_ONCE)
    assert killed.wait() == -signal.SIGKILL
    cluster.feed(2_000, keys=2_000)
    again = cluster.start("b", **EXACTLY_ONCE)
    cluster.counted()
    assert again.terminate() == 0
    assert cluster.totals() == (4_000, 4_000)


def test_a_worker_that_was_replaced_while_it_was_stopped_cannot_commit(cluster: Cluster) -> None:
    cluster.feed(1_000)
    zombie = cluster.start("a", STREAMAPP_FAILPOINT="state-flushed:stop", **EXACTLY_ONCE)
    zombie.wait_for("task 0_3 is running")
    other = cluster.start("b", **EXACTLY_ONCE)  # waits until the group gives the zombie up
    cluster.counted()
    zombie.signal(signal.SIGCONT)
    # Whichever notices first: the group, or the transaction that the broker has given up.
    until(lambda: any(sign in zombie.text() for sign in ("drops its tasks", "begin again")), 30, zombie.text)
    cluster.feed(1_000)
    cluster.counted()
    assert zombie.terminate() == 0
    assert other.terminate() == 0
    assert cluster.totals() == (2_000, 2_000)
