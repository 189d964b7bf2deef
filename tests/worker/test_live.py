"""A worker as a real process against a real broker: it counts, restarts, shares, loses a peer, fails
honestly."""

from __future__ import annotations

import signal

import pytest

from ..faults.proxy import Proxy
from ..processes import free_port, until
from .conftest import Cluster


def test_counts_and_goes_on_after_a_clean_stop_without_restoring(cluster: Cluster) -> None:
    cluster.feed(5_000)
    worker = cluster.start()
    cluster.counted()
    assert worker.terminate() == 0
    assert cluster.totals() == (5_000, 5_000)
    assert cluster.committed() == 5_000  # the last commit was made while stopping
    changelog = f"{cluster.id}-counts-changelog"
    assert cluster.totals(changelog)[1] == 5_000

    cluster.feed(1_000)
    again = cluster.start()
    cluster.counted()
    assert again.terminate() == 0
    assert cluster.totals() == (6_000, 6_000)
    assert "restored" not in again.text()


def test_state_in_memory_comes_back_from_the_changelog(cluster: Cluster) -> None:
    cluster.feed(3_000)
    worker = cluster.start(STORE="in_memory")
    cluster.counted()
    worker.terminate()
    cluster.feed(500)
    again = cluster.start(STORE="in_memory")
    cluster.counted()
    again.terminate()
    assert cluster.totals() == (3_500, 3_500)
    assert "restored" in again.text()


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_second_worker_takes_a_share_and_everything_when_the_first_is_killed(
    cluster: Cluster, guarantee: str
) -> None:
    first = cluster.start("a", GUARANTEE=guarantee)
    first.wait_for("task 0_3 is running")
    cluster.feed(2_000)
    cluster.counted()
    second = cluster.start("b", GUARANTEE=guarantee)
    until(lambda: second.text().count("is running") == 2, 60, cluster.story)
    cluster.feed(2_000)
    cluster.counted()
    until(lambda: cluster.committed() >= 4_000, 10, cluster.committed)
    first.signal(signal.SIGKILL)
    cluster.feed(2_000)
    cluster.counted()
    assert second.terminate() == 0
    assert cluster.totals() == (6_000, 6_000)


def test_a_worker_that_starts_before_its_broker_names_it_and_waits(cluster: Cluster) -> None:
    port = free_port()
    worker = cluster.start(BOOTSTRAP=f"127.0.0.1:{port}")
    worker.wait_for(f"Kafka cannot be reached at 127.0.0.1:{port}")
    assert "streamapp broker start" in worker.text()
    proxy = Proxy(port, int(cluster.bootstrap.rpartition(":")[2]))
    try:
        cluster.feed(100)
        cluster.counted()
        assert worker.terminate() == 0
    finally:
        proxy.close()


def test_a_worker_that_waits_for_its_broker_can_be_stopped(cluster: Cluster) -> None:
    worker = cluster.start(BOOTSTRAP="127.0.0.1:9")
    worker.wait_for("Trying again")
    assert worker.terminate() == 0


def test_an_internal_topic_with_another_partition_count_is_refused_with_both_counts(cluster: Cluster) -> None:
    cluster.create(f"{cluster.id}-counts-changelog", partitions=3)
    worker = cluster.start()
    assert worker.wait() != 0
    assert "has 3 partitions, but the application needs 4" in worker.text()


def test_a_plain_agent_runs_beside_the_topology(cluster: Cluster) -> None:
    plain = f"{cluster.id}-plain"
    cluster.create(plain, f"{plain}-out", partitions=2)
    worker = cluster.start(PLAIN_TOPIC=plain)
    cluster.feed(200, topic=plain)
    cluster.feed(1_000)
    cluster.counted()
    until(lambda: len(cluster.read(f"{plain}-out")) >= 200, 30, worker.text)
    assert worker.terminate() == 0
    assert [value for _, value in cluster.read(f"{plain}-out")] == [b"V"] * 200
    assert cluster.totals() == (1_000, 1_000)


def test_faust_lists_the_parts_of_the_topology(cluster: Cluster) -> None:
    agents = cluster.start(command=("agents",), PLAIN_TOPIC="plain")
    tables = cluster.start(command=("tables",))
    assert agents.wait() == 0
    assert tables.wait() == 0
    assert cluster.source in agents.text()
    assert "shout" in agents.text()
    assert "counts" in tables.text()
    assert f"{cluster.id}-counts-changelog" in tables.text()
