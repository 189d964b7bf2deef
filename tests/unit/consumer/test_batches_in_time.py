"""Batches of a consumer by time and bytes, on a clock of the test: what waits for company, and how long."""

from __future__ import annotations

import pytest

from streamapp import Retry
from streamapp.consumer import Batch
from streamapp.on_error import Backoff
from streamapp.records import RecordBatch

from .test_dispatcher import SOURCES, _Run

SOURCE = SOURCES[0]


class Lists(_Run):
    """A consumer of one partition, whose batches have grown to their largest number of records."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch=batch, parallelism=1)
        self.dispatcher.open(SOURCE, None, (), 0)
        self.offset = 0
        while self.dispatcher._turns._sizes[SOURCE].records < batch.records:
            self.came(*[1] * batch.records)
            self.all()
        while self.dispatcher.look()[0].waiting:
            self.now += 3_600
            self.all()

    def came(self, *sizes: int) -> None:
        """Records with values of these sizes arrive, each with a key of its own."""
        offsets = range(self.offset, self.offset + len(sizes))
        self.offset = offsets.stop
        keys = [b"%d" % offset for offset in offsets]
        values = [b"x" * size for size in sizes]
        self.dispatcher.take_in(SOURCE, RecordBatch(keys, values, [0] * len(sizes), offsets))

    def lists(self) -> list[int]:
        """The lengths of the lists that go to the handler now, one after the other."""
        found = []
        while units := self.start():
            found += [len(unit.items) for unit in units]
            for unit in units:
                self.end(unit)
        return found

    @property
    def sleeps(self) -> float | None:
        with self.dispatcher.changed:
            return self.dispatcher.next_time()


def test_a_list_that_is_not_full_waits_for_company_and_no_longer_than_linger_ms() -> None:
    run = Lists(Batch(records=4, linger_ms=1_000))
    run.came(1, 1)
    assert (run.lists(), run.sleeps) == ([], pytest.approx(1.0))
    run.now += 0.75
    run.came(1)
    assert (run.lists(), run.sleeps) == ([], pytest.approx(0.25)), "the first record counts"
    run.now += 0.25
    assert run.lists() == [3]
    assert run.sleeps is None


def test_a_full_list_waits_for_nothing_and_its_rest_for_company() -> None:
    run = Lists(Batch(records=4, linger_ms=1_000))
    run.came(1, 1, 1, 1, 1)
    assert (run.lists(), run.sleeps) == ([4], pytest.approx(1.0))
    run.now += 1.0
    assert run.lists() == [1]


def test_without_linger_a_list_waits_for_nothing() -> None:
    run = Lists(Batch(records=4))
    run.came(1, 1)
    assert run.lists() == [2]


def test_a_list_that_is_full_by_its_bytes_waits_for_nothing() -> None:
    run = Lists(Batch(records=8, bytes=3_000, linger_ms=1_000))
    run.came(1_000, 1_000)
    assert run.lists() == []
    run.came(1_000)
    assert run.lists()[0] == 2, "with keys, a third value is beyond the bound"


def test_lists_end_at_their_bytes_but_have_a_record() -> None:
    run = Lists(Batch(records=8, bytes=3_000))
    run.came(1_000, 1_000, 1_000, 9_000, 1, 1)
    assert run.lists() == [2, 1, 1, 2]


def test_a_retry_does_not_wait_for_company() -> None:
    batch, retry = Batch(records=4, linger_ms=60_000), Retry.by_key(backoff=Backoff(100, jitter=0))
    run = _Run(batch=batch, parallelism=1, on_error=retry)
    run.dispatcher.open(SOURCE, None, (), 0)
    run.dispatcher.take_in(SOURCE, RecordBatch([b"k"], [b"v"], [0], range(1)))
    run.all(ValueError())
    run.now += 0.1
    assert [len(unit.items) for unit in run.start()] == [1]
