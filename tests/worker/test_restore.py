"""A restore of a worker that runs: how far it is shows in its metrics and over HTTP."""

from __future__ import annotations

import os
import re
import time
import urllib.request

from ..processes import until
from .conftest import PARTITIONS, Cluster
from .member import Member


def test_a_restore_says_how_far_it_is(cluster: Cluster) -> None:
    cluster.feed(4_000, keys=400)
    first = Member(cluster, "a")
    cluster.counted()
    assert first.worker.terminate() == 0
    second = Member(cluster, "b", env={"STREAMAPP_FAILPOINT": "restore-batch:sleep=4:1"})
    second.worker.wait_for("restoring 4 stores from ")

    until(lambda: 0 < restore(second).get("percent", 0) < 100, 30, second.status)
    status = second.status()
    assert status["state"] == "restoring"
    assert status["restore"]["stores"] > 0
    assert status["restore"]["remaining"] > 0
    code, ready = second.ask("/health/ready")
    assert (code, ready["ready"], ready["state"]) == (503, False, "restoring")
    waiting = [task for task in ready["tasks"] if not task["ready"]]
    assert {task["reason"] for task in waiting} == {"restoring"}
    remaining = metrics(second, "restore_remaining")
    assert sum(remaining) == status["restore"]["remaining"]
    assert metrics(second, 'worker_state.*state="restoring"') == [1.0]

    second.until_it_has(PARTITIONS, 0)
    assert restore(second) == {
        "stores": 0, "remaining": 0, "percent": 100.0, "records_per_second": 0, "seconds_left": None,
    }  # fmt: skip
    assert metrics(second, "restore_remaining") == []
    cluster.feed(1_000, keys=400)
    cluster.counted()
    assert second.worker.terminate() == 0
    assert cluster.totals()[1] == 5_000


def test_rows_that_are_older_than_the_tombstones_of_the_changelog_are_read_anew(cluster: Cluster) -> None:
    cluster.feed(400)
    assert stopped(cluster, "a") == 0
    cluster.feed(400)
    assert stopped(cluster, "b") == 0
    long_ago = time.time() - 2 * 86_400
    for file in (cluster.folder / "data-a").rglob("*"):
        os.utime(file, (long_ago, long_ago))
        if file.name == "written-at":
            file.write_text(str(int(long_ago * 1000)))

    cluster.feed(400)
    assert stopped(cluster, "a") == 0
    aged = re.findall(r"task (0_\d): the rows of (\S+) on disk are 2 days", cluster.workers[-1].text())
    assert sorted(aged) == [(f"0_{partition}", "counts") for partition in range(PARTITIONS)]
    cluster.feed(400)
    assert stopped(cluster, "a") == 0
    assert "on disk are" not in cluster.workers[-1].text()
    assert cluster.totals()[1] == 1_600


def stopped(cluster: Cluster, name: str) -> int | None:
    """Runs a worker until everything is counted. Returns its exit code."""
    worker = cluster.start(name)
    cluster.counted()
    return worker.terminate()


def restore(member: Member) -> dict[str, float]:
    return member.status().get("restore", {})


def metrics(member: Member, name: str) -> list[float]:
    """The values of the samples whose name or labels begin so."""
    with urllib.request.urlopen(f"http://127.0.0.1:{member.port}/metrics", timeout=10) as response:
        lines = response.read().decode().splitlines()
    return [float(line.rsplit(" ", 1)[1]) for line in lines if re.match(f"streamapp_{name}", line)]
