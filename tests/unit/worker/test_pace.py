"""A worker takes in, before a commit, as much as brokers take in time."""

from __future__ import annotations

import pytest

from streamapp.runners.worker.pace import Pace

MOST = 64 * 1024 * 1024


class Brokers:
    """Take so many bytes each second, and the tenfold at first, as brokers with a quota do."""

    def __init__(self, bytes_each_second: float) -> None:
        self.rate = bytes_each_second
        self.credit = 10 * bytes_each_second

    def take(self, size: float) -> float:
        """Seconds."""
        self.credit -= size
        late, self.credit = max(0.0, -self.credit), max(0.0, self.credit)
        return late / self.rate


def commits(pace: Pace, brokers: Brokers, count: int, weight: int) -> list[float]:
    """The time of each commit, for a backlog of records of so many bytes, in slices as the data plane takes them."""
    took = []
    for _ in range(count):
        waiting = 0
        while not pace.exceeded(waiting):
            records = min(10_000, pace.records(waiting))
            pace.taken(records, records * weight)
            waiting += records * weight
        took.append(brokers.take(waiting))
        pace.committed(waiting, took[-1])
    return took


@pytest.mark.parametrize("weight", [50, 1_000, 20_000])
@pytest.mark.parametrize("rate", [100_000, 1_000_000, 30_000_000])
def test_no_transaction_outlives_its_time_out_under_a_quota(rate: int, weight: int) -> None:
    assert max(commits(Pace(10_000, MOST), Brokers(rate), 200, weight)) < 10


def test_with_fast_brokers_a_poll_is_soon_taken_as_a_whole() -> None:
    pace = Pace(10_000, MOST)
    commits(pace, Brokers(1e12), 60, 500)
    assert pace.records(0) > 10_000


def test_it_grows_again_when_brokers_are_fast_again() -> None:
    pace = Pace(10_000, MOST)
    commits(pace, Brokers(100_000), 100, 500)
    slow = pace.records(0)
    commits(pace, Brokers(1e12), 60, 500)
    assert pace.records(0) > 50 * slow


def test_until_a_commit_is_due_there_is_room_for_a_turn_of_some_size() -> None:
    pace = Pace(10_000, MOST)
    whole = pace.records(0)
    waiting = 0
    while not pace.exceeded(waiting):
        assert pace.records(waiting) > whole // 2 - 1
        waiting += 1_000


def test_what_does_not_hold_it_back_does_not_grow() -> None:
    pace = Pace(10_000, MOST)
    before = pace.records(0)
    pace.committed(10, 0.01)
    assert pace.records(0) == before


def test_rollbacks_lead_to_single_records_and_no_further() -> None:
    pace = Pace(10_000, MOST)
    for _ in range(50):
        pace.rolled_back()
    assert pace.records(0) == pace.records(10**9) == 1
    assert pace.exceeded(1)
    commits(pace, Brokers(1e12), 200, 500)
    assert pace.records(0) > 10_000
