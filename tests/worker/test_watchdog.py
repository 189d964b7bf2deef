"""The watchdog, with a clock that the test moves."""

from __future__ import annotations

import threading

from streamapp.runners.worker.watchdog import HangingError, Place, Watchdog


class Bench:
    def __init__(self) -> None:
        self.now = 0.0
        self.place: Place | None = None
        self.said: list[HangingError] = []
        self.dog = Watchdog([lambda: self.place], 100.0, self.said.append, lambda: self.now)

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
    assert bench.dog.stuck == "task 0_1: record of flights-1 at offset 7 has not come back for 26 s"
    assert bench.look(101, record(7))
    (error,) = bench.said
    assert str(error).startswith("task 0_1: record of flights-1 at offset 7 has not come back for 101 s")
    assert "test_the_same_record_for_long" in str(error)  # where the thread is


def test_what_has_its_own_time_out_is_stuck_but_does_not_hang() -> None:
    bench = Bench()
    commit = Place("a commit", 1, None, can_hang=False)
    for second in range(0, 1_000, 10):
        assert not bench.look(second, commit)
    assert bench.dog.stuck == "a commit has not come back for 990 s"


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
