"""A worker takes in, before a commit, as much as brokers take in time."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


class Cluster:
    """Brokers on a clock: a speed, a quota that lets ten seconds' worth pass at once, and outages.

    Every commit takes at least ``latency`` seconds.
    """

    def __init__(self, pace: Pace, latency: float = 0.02) -> None:
        self.pace, self.latency = pace, latency
        self.now = 0.0
        self.rate = 1e12
        self.rollbacks = 0
        self._credit = 10 * self.rate
        self._up_at = self._seen = 0.0

    def outage(self, seconds: float) -> None:
        self._up_at = self.now + seconds

    def limit(self, rate: float) -> None:
        self.rate, self._credit, self._seen = rate, 10 * rate, self.now

    def commit(self, size: int) -> None:
        """A transaction with a time-out of 10 s."""
        begin = max(self.now, self._up_at)
        credit = min(10 * self.rate, self._credit + (begin - self._seen) * self.rate) - size
        took = begin - self.now + max(0.0, -credit) / self.rate + self.latency
        if took > 10:
            # Brokers drop what has not come in time.
            self.now, self.rollbacks = self.now + 10, self.rollbacks + 1
            self.pace.rolled_back()
        else:
            self._credit, self._seen = max(0.0, credit), self.now + took
            self.now += took
            self.pace.committed(size, took)

    def backlog(self, commits: int, weight: int = 5_000) -> None:
        """Commits that the limit holds back."""
        for _ in range(commits):
            waiting = 0
            while not self.pace.exceeded(waiting):
                records = min(10_000, self.pace.records(waiting))
                self.pace.taken(records, records * weight)
                waiting += records * weight
            self.commit(waiting)

    def grow(self) -> Cluster:
        self.backlog(80)
        assert self.pace.most_bytes == MOST
        return self


def test_after_a_slow_commit_with_few_bytes_the_limit_is_soon_back() -> None:
    """An idle worker's commit waited for brokers; its backlog then took 78 commits to reach half of the limit."""
    cluster = Cluster(Pace(10_000, MOST)).grow()
    cluster.outage(4)
    cluster.commit(1_000)
    assert cluster.pace.most_bytes < 1_000
    cluster.backlog(20)
    assert cluster.pace.most_bytes > MOST / 2


def test_after_an_outage_with_rollbacks_the_limit_is_soon_back() -> None:
    cluster = Cluster(Pace(10_000, MOST)).grow()
    cluster.outage(55)
    cluster.backlog(6)
    assert cluster.rollbacks == 5
    assert cluster.pace.most_bytes < MOST / 1_000
    cluster.backlog(15)
    assert cluster.pace.most_bytes > MOST / 8
    cluster.backlog(15)
    assert cluster.pace.most_bytes > MOST / 2


@pytest.mark.parametrize("latency", [1.3, 2.4, 4.0])
def test_brokers_that_take_long_for_any_commit_do_not_keep_the_limit_small(latency: float) -> None:
    """After an outage, a worker processed one record in each commit for good, because each commit took a second."""
    cluster = Cluster(Pace(10_000, MOST)).grow()
    cluster.outage(55)
    cluster.backlog(6)
    cluster.commit(1_000)
    cluster.latency = latency
    before = cluster.rollbacks
    cluster.backlog(30)
    assert cluster.pace.most_bytes > MOST / 100
    cluster.backlog(60)
    assert cluster.pace.most_bytes > MOST / 2
    assert cluster.rollbacks == before


def test_outages_one_after_the_other_do_not_keep_the_limit_small() -> None:
    cluster = Cluster(Pace(10_000, MOST), 1.3)
    for _ in range(20):
        cluster.outage(25)
        cluster.backlog(3)
    cluster.pace.rolled_back()
    cluster.backlog(15)
    assert cluster.pace.most_bytes > 16_384


@pytest.mark.parametrize("latency", [1.3, 2.4, 4.0])
def test_a_worker_that_starts_beside_slow_brokers_takes_many_records(latency: float) -> None:
    cluster = Cluster(Pace(10_000, MOST), latency)
    cluster.backlog(80)
    assert cluster.pace.most_bytes > MOST / 8


@pytest.mark.parametrize("rate", [20_000, 300_000])
def test_the_time_that_each_commit_takes_hides_no_quota(rate: int) -> None:
    cluster = Cluster(Pace(10_000, MOST), 1.5).grow()
    cluster.limit(rate)
    cluster.backlog(20, weight=500)
    first = cluster.rollbacks
    assert first <= 9
    for idle in (0.0, 3.0, 20.0, 0.0, 60.0):
        cluster.now += idle
        cluster.backlog(60, weight=500)
    assert cluster.rollbacks == first


def test_a_quicker_commit_shows_that_an_outage_was_no_latency() -> None:
    """A commit with few bytes had waited for an outage. Later commits that took most of the time-out were in time."""
    pace = Pace(10_000, MOST)
    for seconds in (5.0, 0.1):
        pace.exceeded(pace.most_bytes)
        pace.committed(16_000 if seconds > 1 else pace.most_bytes, seconds)
    before = pace.most_bytes
    pace.exceeded(before)
    pace.committed(before, 6.0)
    assert pace.most_bytes < before


def test_beyond_what_has_proved_right_the_limit_grows_slowly() -> None:
    pace = Pace(10_000, MOST)
    sizes = [pace.most_bytes]
    for _ in range(5):
        pace.exceeded(pace.most_bytes)
        pace.committed(pace.most_bytes, 0.01)
        sizes.append(pace.most_bytes)
    assert all(1.1 < after / before < 1.2 for before, after in pairwise(sizes))


@pytest.mark.parametrize("rate", [300_000, 1_000_000, 5_000_000])
def test_a_new_quota_costs_rollbacks_only_at_its_begin(rate: int) -> None:
    cluster = Cluster(Pace(10_000, MOST)).grow()
    cluster.limit(rate)
    cluster.backlog(20)
    assert cluster.rollbacks <= 8
    first = cluster.rollbacks
    for idle in (0.0, 3.0, 20.0, 0.0, 60.0):  # a quota that was not used lets ten seconds' worth pass again
        cluster.now += idle
        cluster.backlog(60)
    assert cluster.rollbacks == first


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("backlog"), st.integers(1, 20)),
        st.tuples(st.just("light"), st.integers(1, 2_000)),
        st.tuples(st.just("outage"), st.floats(0.1, 60)),
    ),
    max_size=25,
)


@given(EVENTS)
def test_outages_of_any_kind_and_order_are_made_up_for(events: list[tuple[str, float]]) -> None:
    cluster = Cluster(Pace(10_000, MOST)).grow()
    failures = 0
    for event, much in events:
        if event == "outage":
            cluster.outage(much)
            failures += 1
        elif event == "light":
            cluster.commit(int(much))
        else:
            cluster.backlog(int(much))
    cluster.now += 120
    # Steps of two lead to the limit that has proved right. Each outage quarters this limit at most: 10 slow steps.
    cluster.backlog(28 + 10 * failures)
    assert cluster.pace.most_bytes > MOST / 2
