"""What a worker shows of records that it dropped, and while it is held up."""

from __future__ import annotations

import re
import urllib.request

from ..processes import until
from .conftest import Cluster
from .member import Member


def sum_of(member: Member, metric: str) -> float:
    """Over all labels; -1 without samples."""
    with urllib.request.urlopen(f"http://127.0.0.1:{member.port}/metrics", timeout=10) as response:
        lines = response.read().decode().splitlines()
    found = [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"streamapp_{metric}{{")]
    return sum(found) if found else -1


def test_dropped_records_are_counted_and_logged_but_not_each(cluster: Cluster) -> None:
    worker = Member(cluster, "a", processing_exception_handler="continue")
    for number in range(50):
        cluster.producer.produce(cluster.source, b"poison", f"k{number}", timestamp=1_700_000_000_000)
    cluster.feed(20)
    cluster.counted()
    until(lambda: sum_of(worker, "dropped_records_total") == 50, 30, cluster.story)
    assert sum_of(worker, "dropped_results_total") == 0
    status = worker.status()
    assert status["dropped"] == sum(task["dropped"] for task in status["tasks"]) == 50
    (line,) = re.findall(r"count \(task .*going on without it.*", worker.worker.text())
    assert re.match(
        rf"count \(task 0_\d\): record of {cluster.source}-\d at offset 0 failed: ValueError: this record cannot be counted",
        line,
    )


def test_a_worker_that_is_stuck_says_so_and_its_lag_grows(cluster: Cluster) -> None:
    worker = Member(cluster, "a", env={"HANGS": "yes", "SHUTDOWN": "1"}, max_poll_interval_ms=60_000)
    cluster.feed(1)
    worker.worker.wait_for("in hand")
    worker.worker.wait_for("this worker is stuck, and not ready: task 0_")
    assert worker.status()["state"] == "stuck"
    cluster.feed(500)
    until(lambda: worker.status().get("lag") == 501, 30, worker.status)
    assert sum_of(worker, "input_lag") == 501
    assert worker.status()["state"] == "stuck"
    assert worker.worker.text().count("this worker is stuck") == 1
