"""Exactly-once under faults: killed at a step of the commit, or replaced while it was not looking."""

from __future__ import annotations

import signal

import pytest

from .conftest import Cluster, until

EXACTLY_ONCE = {"GUARANTEE": "exactly_once_v2", "COMMIT_MS": "100"}


@pytest.mark.parametrize(
    ("point", "store"),
    [
        ("records-processed", "in_memory"),
        ("state-flushed", "rocksdb"),
        ("offsets-sent", "in_memory"),
        ("offsets-committed", "rocksdb"),
        ("state-persisted", "rocksdb"),
    ],
)
def test_counts_exactly_when_killed_at_a_step_of_the_commit(cluster: Cluster, point: str, store: str) -> None:
    cluster.feed(1_000)
    settled = cluster.start(STORE=store, **EXACTLY_ONCE)
    cluster.counted()
    settled.terminate()
    cluster.feed(1_000)
    killed = cluster.start(STORE=store, STREAMAPP_FAILPOINT=f"{point}:kill", **EXACTLY_ONCE)
    assert killed.wait() == -signal.SIGKILL
    again = cluster.start(STORE=store, **EXACTLY_ONCE)
    cluster.feed(1_000)
    cluster.counted()
    assert again.terminate() == 0
    assert cluster.totals() == (3_000, 3_000)
    assert cluster.totals(f"{cluster.id}-counts-changelog")[1] == 3_000


def test_a_worker_that_was_replaced_while_it_was_stopped_cannot_commit(cluster: Cluster) -> None:
    cluster.feed(1_000)
    zombie = cluster.start("a", STREAMAPP_FAILPOINT="state-flushed:stop", **EXACTLY_ONCE)
    zombie.wait_for("task 0_3 is running")
    other = cluster.start("b", **EXACTLY_ONCE)  # waits until the group gives the zombie up
    cluster.counted()
    zombie.signal(signal.SIGCONT)
    # Whichever notices first: the group, or the transaction that the broker has given up.
    until(lambda: any(sign in zombie.text() for sign in ("are dropped", "begin again")), 30, zombie.text)
    cluster.feed(1_000)
    cluster.counted()
    assert zombie.terminate() == 0
    assert other.terminate() == 0
    assert cluster.totals() == (2_000, 2_000)
