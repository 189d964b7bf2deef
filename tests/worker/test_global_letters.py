"""Dead letters of a global table: every worker reads every record from the beginning, and one letter is written."""

from __future__ import annotations

import signal
import time
from collections import Counter

import pytest

from ..processes import until
from .conftest import ANY_TIME, Cluster


def test_each_failed_record_is_one_letter_over_workers_and_restarts(cluster: Cluster) -> None:
    planes, dead = f"{cluster.source}-planes", f"{cluster.id}-dead"
    cluster.create(planes, partitions=2)
    cluster.create(dead, partitions=1)
    env = {"app": "rekeyed_app", "GUARANTEE": "exactly_once_v2", "DEAD": dead}
    bad = 0

    def spoil(count: int) -> None:
        nonlocal bad
        for _ in range(count):
            cluster.producer.produce(planes, b"\xff%d" % bad, f"k{bad}")
            bad += 1
        cluster.producer.flush()

    def written() -> Counter[bytes | None]:
        return Counter(value for _, value in cluster.read(dead))

    def each_once() -> dict[bytes, int]:
        return {b"\xff%d" % number: 1 for number in range(bad)}

    def until_written() -> None:
        until(lambda: len(written()) == bad, 60, lambda: f"{written()}\n{cluster.story()}")
        assert written() == each_once()

    for number in range(100, 150):
        cluster.producer.produce(planes, f"airport{number % 5}", f"k{number - 100}")
    spoil(5)
    # Killed with letters and positions in an open transaction.
    cluster.start("a", STREAMAPP_FAILPOINT="offsets-sent:kill:1", **env).wait()
    assert written() == {}
    first = cluster.start("a", **env)
    until_written()
    second = cluster.start("b", **env)
    second.wait_for("is running")
    spoil(3)
    until_written()
    first.signal(signal.SIGKILL)  # whoever of the two has the first task
    first.wait()
    spoil(2)
    until_written()
    assert second.terminate() == 0
    third = cluster.start("c", **env)  # on a disk of its own
    cluster.feed(500)
    cluster.counted()
    assert third.terminate() == 0
    assert written() == each_once()


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_letters_that_are_far_ahead_of_the_clock_are_written_once(cluster: Cluster, guarantee: str) -> None:
    """Brokers refused such a letter, and the refusal ended each worker anew."""
    planes, dead = f"{cluster.source}-planes", f"{cluster.id}-dead"
    cluster.create(planes, partitions=2, config=ANY_TIME)
    cluster.create(dead, partitions=1)
    ahead = int(time.time() * 1000) + 3 * 3_600_000
    for number in range(20):
        at = ahead + number if number % 2 else 0
        cluster.producer.produce(planes, b"\xff%d" % number, f"k{number}", timestamp=at)
    cluster.producer.flush()
    worker = cluster.start("a", app="rekeyed_app", GUARANTEE=guarantee, DEAD=dead)
    expected = Counter(b"\xff%d" % number for number in range(20))

    def written() -> Counter[bytes | None]:
        return Counter(value for _, value in cluster.read(dead))

    until(lambda: len(written()) == 20, 60, lambda: f"{written()}\n{cluster.story()}")
    assert worker.terminate() == 0
    assert written() == expected
