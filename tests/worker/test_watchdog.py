"""The watchdog, with a clock that the test moves."""

from __future__ import annotations

import asyncio
import re
import threading
from types import SimpleNamespace

import pytest

from streamapp.runners.worker.watchdog import HangingError, Place, Watchdog, watch_event_loop


class Bench:
    def __init__(self) -> None:
        self.now = self.set_by = 0.0
        self.place: Place | None = None
        self.said: list[HangingError] = []
        self.dog = Watchdog([lambda: self.place], 100.0, self.said.append, lambda: self.now, self.wall_clock)

    def wall_clock(self) -> float:
        return self.now + self.set_by

    def look(self, now: float, place: Place | None) -> bool:
        self.now, self.place = now, place
        return self.dog.look()


def record(offset: int, turn: int = 1) -> Place:
    return Place(f"task 0_1: record of flights-1 at offset {offset}", turn, threading.get_ident())


def test_what_moves_does_not_hang() -> None:
    bench = Bench()
    for second in range(1_000):
        assert not bench.look(second, record(second // 20))
        assert bench.dog.stuck is None
    assert not bench.look(2_000, None)
    assert not bench.look(3_000, record(1))
    assert not bench.look(3_000, record(1, turn=2))


def test_the_same_record_for_long_is_stuck_and_then_hangs() -> None:
    bench = Bench()
    assert not bench.look(0, record(7))
    assert not bench.look(24, record(7))
    assert bench.dog.stuck is None
    assert not bench.look(26, record(7))
    stuck = r"task 0_1: record of flights-1 at offset 7 has not come back for 26 s, in look \(\S*test_watchdog\.py:\d+\)"
    assert re.fullmatch(stuck, bench.dog.stuck or "")  # the function that holds the thread up
    assert bench.look(101, record(7))
    (error,) = bench.said
    assert str(error).startswith("task 0_1: record of flights-1 at offset 7 has not come back for 101 s")
    assert "test_the_same_record_for_long" in str(error)  # where the thread is


def test_a_process_that_was_suspended_does_not_hang() -> None:
    bench = Bench()
    bench.look(0, record(7))
    bench.look(20, record(7))
    assert not bench.look(1_000, record(7))
    assert bench.dog.stuck is None
    assert not bench.look(1_030, record(7))
    assert bench.dog.stuck
    assert bench.look(1_101, record(7))


def test_what_has_its_own_time_out_is_stuck_but_does_not_hang() -> None:
    bench = Bench()
    commit = Place("a commit", 1, None, can_hang=False)
    for second in range(0, 1_000, 10):
        assert not bench.look(second, commit)
    assert bench.dog.stuck == "a commit has not come back for 990 s"


def test_a_wait_that_a_clock_set_back_makes_longer_ends_the_worker() -> None:
    """librdkafka waited for three hours, and the worker was stuck for so long, with the brokers as its reason."""
    bench = Bench()
    commit = Place("a commit", 1, threading.get_ident(), can_hang=False)
    bench.look(0, commit)
    bench.set_by = 10_800
    for second in range(1, 150):  # set forward: no wait is longer
        assert not bench.look(second, commit)
    bench.look(150, commit._replace(turn=2))
    bench.set_by = 0
    assert not bench.look(180, commit._replace(turn=2))
    story = "a commit has not come back for 30 s. Meanwhile the clock of this machine was set back by 10800 s"
    assert (bench.dog.stuck or "").startswith(story)
    assert not bench.look(250, commit._replace(turn=2))
    assert bench.look(251, commit._replace(turn=2))
    (error,) = bench.said
    assert "the clock of this machine was set back by 10800 s" in str(error)
    assert "User code" not in str(error)


def test_a_clock_that_is_set_back_a_little_ends_no_wait_and_no_membership() -> None:
    for place, set_back in (
        (Place("a commit", 1, 7, can_hang=False), 90),
        (Place("the group", 1, None, can_hang=False), 900),
    ):
        bench = Bench()
        bench.look(0, place)
        bench.set_by = -set_back
        for second in range(1, 500, 10):
            assert not bench.look(second, place)
        assert f"set back by {set_back} s" in (bench.dog.stuck or "")


def test_a_stuck_record_that_comes_back_is_forgiven() -> None:
    bench = Bench()
    bench.look(0, record(7))
    bench.look(50, record(7))
    assert bench.dog.stuck
    assert not bench.look(99, record(8))
    assert bench.dog.stuck is None
    assert not bench.look(150, record(8))


def test_a_place_may_be_given_less_patience() -> None:
    bench = Bench()
    group = Place("the consumer group's answer", 1, None, can_hang=False, patience=6.0)
    bench.look(0, group)
    bench.look(6, group)
    assert bench.dog.stuck is None
    bench.look(7, group)
    assert bench.dog.stuck == "the consumer group's answer has not come back for 7 s"
    bench.look(8, group._replace(turn=2))
    assert bench.dog.stuck is None


def test_that_a_worker_is_stuck_is_logged_when_it_begins_and_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    bench = Bench()
    for second in range(90):
        bench.look(second, record(7))
    for second in range(90, 100):
        bench.look(second, record(8))
    assert [(entry.levelname, entry.getMessage().partition(", in look")[0]) for entry in caplog.records] == [
        (
            "WARNING",
            "this worker is stuck, and not ready: task 0_1: record of flights-1 at offset 7 has not come back for 26 s",
        ),
        ("INFO", "this worker is no longer stuck"),
    ]


def test_a_worker_that_is_stuck_again_and_again_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    bench = Bench()
    stuck = 0
    for second in range(600):  # each answer of the group takes 8 s, of which 1 s is too long
        was, turn = bench.dog.stuck, second // 9
        bench.look(second, Place("the consumer group's answer", turn, None, can_hang=False, patience=7.0))
        stuck += bench.dog.stuck is not None and was is None
    assert stuck > 60
    levels = [entry.levelname for entry in caplog.records]
    assert levels == ["WARNING", "INFO"] * (len(levels) // 2)
    assert 10 < len(levels) <= 2 * 600 / 30


def test_what_stays_stuck_is_logged_in_the_end(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    for second in (0, 26, 27):
        bench.look(second, record(7))
    for second in range(28, 80):  # it begins too soon after the warning to be said at once
        bench.look(second, record(8)._replace(can_hang=False, patience=2.0))
    said = [message.partition("flights-1 ")[2].partition(", in look")[0] for message in caplog.messages]
    assert said == [
        "at offset 7 has not come back for 26 s",
        "at offset 8 has not come back for 28 s",
    ]


def test_an_event_loop_that_agents_block_ends_a_worker_without_a_topology() -> None:
    """Such a worker kept its partitions and said nothing; only workers with a topology had a watchdog."""
    crashed: list[HangingError] = []

    async def crash(error: HangingError) -> None:
        crashed.append(error)

    async def run() -> None:
        dog = watch_event_loop(SimpleNamespace(in_worker=False, crash=crash), 0.2, 1.0)
        dog.join(60)  # blocks the loop, as a function of an agent would
        assert not dog.is_alive()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(run())
    assert "the event loop has not come back" in str(crashed[0])
    assert "dog.join(60)" in str(crashed[0])
