"""Workers that are paused, and workers that are told to stop while a record hangs."""

from __future__ import annotations

import signal

from ..processes import until
from .conftest import Cluster
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
