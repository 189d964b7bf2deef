"""Retries on real workers: what is parked survives kill -9 and a rebalance, each result comes once, keys keep their order."""

from __future__ import annotations

import json
import signal
from collections import defaultdict
from typing import Any

import pytest

from ..processes import until
from .conftest import PARTITIONS, Cluster
from .member import Member

KEYS = 50


class Desk:
    """A cluster with a service in trouble, and members of the application that asks the service."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.fed = cluster, 0
        self.trouble_file = cluster.folder / f"trouble-{cluster.id}.json"
        self.dead = f"{cluster.id}-dead"
        cluster.create(self.dead, partitions=1)
        self.trouble()

    def trouble(self, *bad: str, down: bool = False) -> None:
        beside = self.trouble_file.with_suffix(".new")
        beside.write_text(json.dumps({"bad": bad, "down": down}))
        beside.rename(self.trouble_file)

    def member(self, name: str, env: dict[str, str] | None = None, **config: Any) -> Member:
        told = {"TROUBLE": str(self.trouble_file), "DEAD": self.dead, **(env or {})}
        return Member(
            self.cluster, name, app="retry_app", env=told, processing_guarantee="exactly_once_v2", **config
        )

    def feed(self, count: int) -> None:
        producer = self.cluster.producer
        for _ in range(count):
            producer.produce(self.cluster.source, str(self.fed), f"k{self.fed % KEYS}")
            self.fed += 1
        producer.flush()

    def out(self) -> dict[str, list[int]]:
        """The numbers that came out, by key in order."""
        found = defaultdict(list)
        for key, value in self.cluster.read(self.cluster.sink):
            assert key is not None
            assert value is not None
            found[key.decode()].append(int(value))
        return found

    def complete(self) -> bool:
        return sum(map(len, self.out().values())) >= self.fed

    def check(self) -> None:
        """Each record once, in the order of its key."""
        until(self.complete, 90, self.cluster.story)
        assert self.out() == {f"k{key}": list(range(key, self.fed, KEYS)) for key in range(KEYS)}
        assert self.cluster.read(self.dead) == []


def parked(*members: Member) -> list[dict[str, Any]]:
    return [
        each for member in members for task in member.status().get("tasks", ()) for each in task["parked"]
    ]


@pytest.fixture
def desk(cluster: Cluster) -> Desk:
    return Desk(cluster)


def test_a_failed_key_waits_through_a_kill_and_a_rebalance(desk: Desk) -> None:
    desk.trouble("k7")
    first = desk.member("a")
    first.worker.wait_for("is running")
    desk.feed(1_000)
    others = 1_000 - 1_000 // KEYS
    until(lambda: sum(map(len, desk.out().values())) == others, 90, desk.cluster.story)
    until(lambda: sum(each["records"] for each in parked(first)) == 1_000 // KEYS, 30, desk.cluster.story)
    assert {each["keys"] for each in parked(first)} == {0, 1}
    first.worker.signal(signal.SIGKILL)
    first.worker.wait()
    second = desk.member("b")  # in a state folder of its own: it restores from the changelog
    second.worker.wait_for("ready:")
    assert sum(each["records"] for each in parked(second)) == 1_000 // KEYS
    third = desk.member("c")
    second.until_it_has(PARTITIONS // 2, 0)
    desk.feed(500)
    until(
        lambda: sum(each["records"] for each in parked(second, third)) == 1_500 // KEYS,
        60,
        desk.cluster.story,
    )
    assert "k7" not in desk.out()
    desk.trouble()
    desk.check()
    until(lambda: not sum(each["records"] for each in parked(second, third)), 30, desk.cluster.story)
    assert (second.worker.terminate(), third.worker.terminate()) == (0, 0)


@pytest.mark.parametrize("step", ["state-flushed", "offsets-sent", "offsets-committed"])
def test_a_kill_at_a_step_of_a_commit_doubles_no_result_of_a_retry(desk: Desk, step: str) -> None:
    desk.trouble("k7", "k8")
    desk.feed(500)
    first = desk.member("a", {"STREAMAPP_FAILPOINT": f"{step}:kill:6"})
    first.worker.wait()  # each attempt is committed, so the commits go on without input
    desk.feed(500)
    second = desk.member("a")
    until(
        lambda: sum(each["records"] for each in parked(second)) == 1_000 // KEYS * 2, 60, desk.cluster.story
    )
    desk.trouble()
    desk.check()
    assert second.worker.terminate() == 0


def test_a_service_that_is_down_stops_the_input_and_loses_nothing(desk: Desk) -> None:
    desk.trouble(down=True)
    desk.feed(500)
    worker = desk.member("a")
    until(
        lambda: sum(each["circuit"] is not None for each in parked(worker)) == PARTITIONS,
        90,
        desk.cluster.story,
    )
    finding = next(f for f in worker.status()["findings"] if f["subject"] == "look-up")
    assert "ConnectionError: the service is down" in finding["message"]
    assert not desk.out()
    assert PARTITIONS <= sum(each["records"] for each in parked(worker)) <= PARTITIONS * 32
    worker.worker.signal(signal.SIGKILL)
    worker.worker.wait()
    again = desk.member("a")
    until(lambda: bool(parked(again)), 90, desk.cluster.story)
    desk.trouble()
    desk.check()
    until(lambda: not any(each["closed"] for each in parked(again)), 30, desk.cluster.story)
    assert again.worker.terminate() == 0


def test_a_record_that_never_works_becomes_one_dead_letter(desk: Desk) -> None:
    desk.trouble("k7")
    desk.feed(100)
    worker = desk.member("a", {"TIMES": "2"})
    until(lambda: len(desk.cluster.read(desk.dead)) == 2, 90, desk.cluster.story)
    out = desk.out()
    assert sum(map(len, out.values())) == 98
    assert [value for _, value in desk.cluster.read(desk.dead)] == [b"7", b"57"]
    drops = [task["drops"] for task in worker.status()["tasks"] if task["drops"]]
    assert drops == [{"look-up": {"dead_letter": 2}}]
    assert worker.worker.terminate() == 0


def test_records_in_retry_topics_survive_a_kill_and_come_out_once(desk: Desk) -> None:
    desk.trouble(down=True)
    desk.feed(300)
    first = desk.member("a", {"RETRY": "topics"})
    until(lambda: sum(each["records"] for each in parked(first)) > 200, 90, desk.cluster.story)
    first.worker.signal(signal.SIGKILL)
    first.worker.wait()
    desk.trouble("k7")
    second = desk.member("b", {"RETRY": "topics"})
    desk.feed(300)
    bad = 600 // KEYS
    until(lambda: sum(map(len, desk.out().values())) >= 600 - bad, 90, desk.cluster.story)
    until(lambda: len(desk.cluster.read(desk.dead)) >= bad, 90, desk.cluster.story)
    found = {key: sorted(numbers) for key, numbers in desk.out().items()}
    assert found == {f"k{key}": list(range(key, 600, KEYS)) for key in range(KEYS) if key != 7}
    assert sorted(int(value or b"") for _, value in desk.cluster.read(desk.dead)) == list(range(7, 600, KEYS))
    assert second.worker.terminate() == 0
