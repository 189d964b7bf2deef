"""The listeners of an application hear of the restores and the standbys of real workers."""

from __future__ import annotations

import re
import signal

from .conftest import PARTITIONS, Cluster
from .member import Member

LISTENERS = {"LISTENERS": "yes"}
ALL = [str(partition) for partition in range(PARTITIONS)]


def test_listeners_hear_of_restores_and_of_copies_that_take_over(cluster: Cluster) -> None:
    cluster.feed(2_000, keys=200)
    first = Member(cluster, "a", env=LISTENERS, num_standby_replicas=1)
    cluster.counted()
    assert first.worker.terminate() == 0
    assert "restore of" not in first.worker.text()  # its changelogs were empty

    second = Member(cluster, "b", env=LISTENERS, num_standby_replicas=1)
    second.until_it_has(PARTITIONS, 0)
    log = second.worker.text()
    assert sorted(re.findall(r"restore of counts (\d) starts at 0", log)) == ALL
    taken: dict[str, int] = {}
    for partition, records in re.findall(r"restore of counts (\d) takes (\d+) records", log):
        taken[partition] = taken.get(partition, 0) + int(records)
    ended = {
        key: int(count) for key, count in re.findall(r"restore of counts (\d) ends with (\d+) records", log)
    }
    assert sorted(ended) == ALL
    assert ended == taken

    third = Member(cluster, "c", env=LISTENERS, num_standby_replicas=1)
    for member in (second, third):
        member.until_it_has(2, 2)
    kept = {each["id"][-1] for each in third.status()["standbys"]}
    started = re.findall(r"copy of counts (\d) starts at 0", third.worker.text())
    assert kept <= set(started)
    second.worker.signal(signal.SIGKILL)
    second.worker.wait()
    third.until_it_has(PARTITIONS, 0)
    assert kept <= set(re.findall(r"copy of counts (\d) is promoted", third.worker.text()))
    assert third.worker.terminate() == 0


def test_a_listener_that_raises_ends_the_worker_with_its_name(cluster: Cluster) -> None:
    cluster.feed(400)
    first = Member(cluster, "a")
    cluster.counted()
    assert first.worker.terminate() == 0
    second = Member(cluster, "b", env={"LISTENERS": "raise"})
    assert second.worker.wait() == 1
    assert re.search(
        r"Restores\.on_restore_end for the store counts, .* raised RuntimeError\('no'\)", second.worker.text()
    )
