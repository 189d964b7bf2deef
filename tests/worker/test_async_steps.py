"""Asynchronous steps of real workers: nothing is lost, doubled or committed before it has come out."""

from __future__ import annotations

import signal

import pytest

from streamapp.config import StreamsConfig
from streamapp.dsl import StreamsBuilder
from streamapp.errors import ConfigError
from streamapp.runners.worker.demands import check_timeouts
from streamapp.serdes import StringSerde

from ..processes import until
from .conftest import PARTITIONS, Cluster
from .member import Member


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_kill_loses_nothing_that_was_under_way(cluster: Cluster, guarantee: str) -> None:
    cluster.feed(4_000)
    settings = {"processing_guarantee": guarantee}
    first = Member(cluster, "a", app="async_app", **settings)
    first.worker.wait_for("is running")
    until(lambda: cluster.committed() > 500, 90, cluster.story)
    first.worker.signal(signal.SIGKILL)
    first.worker.wait()
    reached = cluster.committed()
    assert reached < 4_000
    # What is committed has come out. The partitions of the results learn of a commit after those of the offsets.
    until(lambda: cluster.totals()[1] >= reached, 60, cluster.story)
    second = Member(cluster, "a", app="async_app", **settings)
    cluster.counted(90)
    assert second.worker.terminate() == 0
    assert cluster.committed() == 4_000
    records, total = cluster.totals()
    assert cluster.totals(f"{cluster.id}-counts-changelog")[1] == total == 4_000
    if guarantee == "exactly_once_v2":
        assert records == 4_000


def test_a_call_that_hangs_stops_the_worker_with_its_place(cluster: Cluster) -> None:
    cluster.feed(100)
    worker = Member(cluster, "a", app="async_app", env={"HANG": "k7"}).worker
    assert worker.wait() == 1
    assert "TimeoutError: the call took longer than 5 s" in worker.text()
    assert f"record of {cluster.source}-" in worker.text()
    assert cluster.committed() < 100


def test_a_rebalance_waits_for_what_is_under_way_and_repartition_topics_are_purged(cluster: Cluster) -> None:
    settings = {"processing_guarantee": "exactly_once_v2", "repartition_purge_interval_ms": 500}
    first = Member(cluster, "a", app="async_app", env={"REKEY": "yes"}, **settings)
    cluster.feed(3_000)
    first.worker.wait_for("is running")
    until(lambda: cluster.committed() > 0, 90, cluster.story)
    second = Member(cluster, "b", app="async_app", env={"REKEY": "yes"}, **settings)
    second.until_it_has(PARTITIONS, 0)  # half of those of two sub-topologies
    cluster.feed(1_000)
    cluster.counted(90)
    topic = next(t for t in cluster.admin.list_topics().topics if cluster.id in t and "repartition" in t)
    until(lambda: sum(cluster.first_offsets(topic)) > 0, 60, cluster.story)
    assert first.worker.terminate() == 0
    assert second.worker.terminate() == 0
    assert cluster.totals() == (4_000, 4_000)


def test_calls_that_outlive_a_transaction_are_refused() -> None:
    async def look_up(value: str) -> str:
        return value

    builder = StreamsBuilder()
    text = StringSerde()
    builder.stream("in", key_serde=text, value_serde=text).map_values_async(
        look_up, timeout=9_950, name="far"
    ).to("out", value_serde=text)
    topology = builder.build()
    check_timeouts(topology.plan(StreamsConfig("app")))
    exact = StreamsConfig("app", processing_guarantee="exactly_once_v2")
    with pytest.raises(ConfigError, match="far may take 9950 ms.*transaction_timeout_ms=10000"):
        check_timeouts(topology.plan(exact))
    check_timeouts(topology.plan(exact.replace(transaction_timeout_ms=60_000)))
