"""Several sub-topologies over two workers: repartition topics, global tables, and the shares of each."""

from __future__ import annotations

import re
import signal

from ..processes import Worker, until
from .conftest import Cluster

ALL = {f"{subtopology}_{partition}" for subtopology in (1, 2) for partition in range(4)}
"""0 is the global table, which has no tasks."""


def tasks(worker: Worker) -> set[str]:
    """The tasks of the latest assignment."""
    found = re.findall(r"generation \d+: tasks (.*?)\s*\n", worker.text())
    return set(found[-1].split(", ")) - {"none"} if found else set()


def test_counts_exactly_through_a_repartition_topic_while_workers_come_and_are_killed(
    cluster: Cluster,
) -> None:
    planes = f"{cluster.source}-planes"
    cluster.create(planes, partitions=2)
    for number in range(50):
        cluster.producer.produce(planes, f"airport{number % 5}", f"k{number}")
    env = {"app": "rekeyed_app", "GUARANTEE": "exactly_once_v2"}
    cluster.feed(1_000)
    first = cluster.start("a", **env)
    cluster.counted()
    second = cluster.start("b", **env)
    until(lambda: len(tasks(second)) == 4 and len(tasks(first)) == 4, 30, cluster.story)
    assert tasks(first) | tasks(second) == ALL
    cluster.feed(1_000)
    cluster.counted()
    cluster.feed(1_000)
    first.signal(signal.SIGKILL)
    cluster.counted()
    assert tasks(second) == ALL
    assert second.terminate() == 0
    assert cluster.totals()[1] == 3_000
    assert cluster.totals(f"{cluster.id}-departures-changelog")[1] == 3_000
