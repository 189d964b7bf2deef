"""What streamapp has beyond Kafka Streams, on workers that run, are killed, and lose their disk."""

from __future__ import annotations

import shutil
import signal

import pytest

from ..processes import until
from .conftest import Cluster
from .member import Member


class Running:
    """A worker of `beyond_app`, one of its inputs and its output."""

    def __init__(self, cluster: Cluster, what: str) -> None:
        self.cluster, self.what = cluster, what
        self.sink = f"{cluster.sink}-{what}"
        for each in ("late", "idle", "ttl"):
            cluster.create(f"{cluster.source}-{each}", f"{cluster.sink}-{each}", partitions=1)
        self.member = Member(cluster, "a", app="beyond_app")

    def feed(self, *records: tuple[str, str | bytes, int]) -> None:
        for key, value, timestamp in records:
            self.cluster.producer.produce(
                f"{self.cluster.source}-{self.what}", value, key, timestamp=timestamp
            )
        self.cluster.producer.flush()

    def answers(self, *rows: tuple[str, str | None]) -> None:
        """Until the output has these records, and no others."""
        wanted = [(key.encode(), value and value.encode()) for key, value in rows]
        until(lambda: len(self.cluster.read(self.sink)) >= len(wanted), 60, self.cluster.story)
        assert self.cluster.read(self.sink) == wanted

    def restart(self, *, lose_disk: bool = False) -> None:
        """Killed after its last commit, and started again."""
        assert self.member.ask("/pause", "POST")[0] == 200  # answered when it has been told
        until(lambda: self.member.status()["paused"], 30, self.cluster.story)  # when it has committed
        self.member.worker.signal(signal.SIGKILL)
        self.member.worker.wait()
        if lose_disk:
            shutil.rmtree(self.cluster.folder / "data-a")
        self.member = Member(self.cluster, "a", app="beyond_app")


def test_late_records_come_out_and_stay_late_after_a_kill(cluster: Cluster) -> None:
    running = Running(cluster, "late")
    running.feed(("a", "first", 500), ("a", "closes", 5_000), ("a", "late", 600), ("a", "in time", 5_100))
    running.answers(("a", "late"))
    until(lambda: running.member.status()["lag"] == 0, 30, running.member.status)
    running.restart(lose_disk=True)
    running.feed(("a", "late again", 700))
    running.answers(("a", "late"), ("a", "late again"))


def test_windows_close_while_nothing_comes_in(cluster: Cluster) -> None:
    running = Running(cluster, "idle")
    running.feed(("a", "1", 100), ("a", "2", 200))
    running.answers(("a", "2"))
    running.restart()
    running.feed(("a", "late: its result is out", 300), ("a", "3", 60_000))
    running.answers(("a", "2"), ("a", "1"))


@pytest.mark.parametrize("lose_disk", [False, True], ids=["from disk", "from the changelog"])
def test_rows_expire_also_those_of_before_a_restart(cluster: Cluster, lose_disk: bool) -> None:
    running = Running(cluster, "ttl")
    running.feed(("a", "1", 1_000), ("a", b"\xff", 2_000), ("b", "2", 6_000), ("c", "3", 11_000))
    out = [("a", "1"), ("b", "2"), ("a", None), ("c", "3")]
    running.answers(*out)
    assert [task["drops"] for task in running.member.status()["tasks"] if task["drops"]] == [
        {"kept-source": {"undecodable": 1}}
    ]
    assert running.member.ask("/tables/rows/a")[0] == 404
    assert running.member.ask("/tables/rows/b")[1]["value"] == "2"
    until(lambda: len(cluster.read(f"{cluster.id}-rows-changelog")) >= 3, 30, cluster.story)
    running.restart(lose_disk=lose_disk)
    running.feed(("d", "4", 16_000))
    running.answers(*out, ("b", None), ("d", "4"))
    assert running.member.ask("/tables/rows/b")[0] == 404
    assert running.member.ask("/tables/rows/c")[1]["value"] == "3"


@pytest.mark.parametrize("lose_disk", [False, True], ids=["from disk", "from the changelog"])
def test_changes_of_expired_windows_leave_the_changelog(cluster: Cluster, lose_disk: bool) -> None:
    """The changelog kept the last change of each window for ever."""
    running, changelog, minute = Running(cluster, "late"), f"{cluster.id}-seconds-changelog", 60_000

    def feed_minutes(first: int, last: int) -> None:
        for at in range(first, last):
            running.feed(("a", "v", at * minute), ("a", "v", at * minute + 1))
            until(lambda: counted(at) == 2, 60, cluster.story)  # noqa: B023
            until(lambda: starts()[-1:] == [at * minute], 30, cluster.story)  # noqa: B023

    def counted(at: int) -> int | None:
        found = running.member.ask(f"/tables/seconds/?key=a&from={at * minute}")[1]
        return found["entries"][0]["value"] if isinstance(found, dict) and found.get("entries") else None

    def starts() -> list[int]:
        """The starts of the windows in the changelog."""
        if changelog not in cluster.admin.list_topics(timeout=10).topics:
            return []
        return [int.from_bytes(key[-12:-4], "big") for key, _ in cluster.read(changelog) if key is not None]

    feed_minutes(1, 10)
    running.feed(("a", "v", 9 * minute + 2))
    until(lambda: 6 * minute < starts()[0] <= 9 * minute, 30, lambda: f"{starts()} {cluster.story()}")
    running.restart(lose_disk=lose_disk)
    feed_minutes(10, 12)
    running.feed(("a", "v", 11 * minute + 2))
    until(lambda: 8 * minute < starts()[0] <= 11 * minute, 30, lambda: f"{starts()} {cluster.story()}")
    assert counted(11) == 3
    running.feed(("a", "late", minute))
    running.answers(("a", "late"))
