"""A partition from which nothing arrives, although its log has more, is fetched anew. The client is made by hand."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

import pytest

from streamapp.broker.consumer import ConsumerEvent, Records
from streamapp.broker.lasting_consumer import LastingConsumer
from streamapp.records import RecordBatch, TopicPartition

ONE, TWO = (TopicPartition("in", p) for p in range(2))


class Client:
    """A client that gives what the test says, and notes what it is told to fetch."""

    def __init__(self) -> None:
        self.arriving: dict[TopicPartition, list[int]] = {}
        self.asked: list[object] = []

    def assign(self, positions: Mapping[TopicPartition, int], epochs: object) -> None: ...
    def pause(self, partition: TopicPartition) -> None: ...

    def resume(self, partition: TopicPartition) -> None:
        self.asked.append("resume")

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        self.asked.append("remove")

    def add(self, positions: Mapping[TopicPartition, int], epochs: object) -> None:
        self.asked.append(dict(positions))

    def poll(self, most: int, timeout: float) -> tuple[Records, list[ConsumerEvent]]:
        arriving, self.arriving = self.arriving, {}
        return [
            (tp, RecordBatch([b"k"] * len(offsets), [b"v"] * len(offsets), [1] * len(offsets), offsets))
            for tp, offsets in arriving.items()
        ], []

    def end(self, partition: TopicPartition) -> int:
        return -1

    def take_lost(self) -> bool:
        return False


class Bench:
    def __init__(self) -> None:
        self.now = 100.0
        self.ends = {ONE: 50, TWO: 0}
        self.client = Client()

    def look(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.ends[tp] for tp in partitions}

    def open(self) -> LastingConsumer:
        consumer = LastingConsumer(lambda: self.client, ends=self.look)  # type: ignore[arg-type, return-value]
        consumer.assign({ONE: 7, TWO: 0})
        return consumer

    def wait(self, consumer: LastingConsumer, seconds: int, **arriving: int) -> None:
        """Polls once a second; ``two``: the number of records of the other partition that arrive each time."""
        for _ in range(seconds):
            self.now += 1
            if count := arriving.get("two", 0):
                first = max(0, consumer.position(TWO))
                self.client.arriving = {TWO: list(range(first, first + count))}
                self.ends[TWO] = first + count
            consumer.poll(100, 0)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench()
    monkeypatch.setattr(time, "monotonic", lambda: bench.now)
    return bench


RESTARTED = ["resume", "remove", {ONE: 7}]


def test_it_is_fetched_anew_once_a_minute_and_named_until_it_goes_on(bench: Bench) -> None:
    consumer = bench.open()
    bench.wait(consumer, 60)
    assert (bench.client.asked, consumer.stalled) == ([], None)
    bench.wait(consumer, 1)
    assert bench.client.asked == RESTARTED
    assert consumer.stalled == "in-0 has stood at offset 7 of 50 for 60 s"
    bench.wait(consumer, 60)
    assert bench.client.asked == 2 * RESTARTED
    assert consumer.stalled == "in-0 has stood at offset 7 of 50 for 120 s"
    bench.client.arriving = {ONE: [7]}
    bench.wait(consumer, 1)
    assert consumer.stalled is None
    bench.wait(consumer, 59)
    assert bench.client.asked == 2 * RESTARTED


def test_it_is_noticed_while_other_partitions_are_busy(bench: Bench) -> None:
    """No poll was ever empty, so the standstill was never judged, and one partition stood for good."""
    consumer = bench.open()
    bench.wait(consumer, 61, two=5_000)
    assert bench.client.asked == RESTARTED


def test_a_record_that_waits_behind_many_others_is_not_missed_too_early(bench: Bench) -> None:
    consumer = bench.open()
    bench.wait(consumer, 600, two=100)  # a slow reader: fewer records than the client keeps ready
    assert (bench.client.asked, consumer.stalled) == ([], None)
    assert (consumer.behind_others(ONE), consumer.behind_others(TWO)) == (True, False)


def test_a_partition_that_stands_alone_is_behind_no_others(bench: Bench) -> None:
    consumer = bench.open()
    bench.wait(consumer, 2)
    assert not consumer.behind_others(ONE)


def test_what_is_paused_or_not_polled_or_at_its_end_does_not_stall(bench: Bench) -> None:
    consumer = bench.open()
    consumer.pause(ONE)
    bench.wait(consumer, 200)
    consumer.resume(ONE)
    bench.client.asked.clear()
    for _ in range(200):  # the reader is busy, and only asks for the ends
        bench.now += 1
        consumer.look()
    assert consumer.end(ONE) == 50
    bench.ends[ONE] = 7
    bench.wait(consumer, 200)
    assert (bench.client.asked, consumer.stalled) == ([], None)


def test_brokers_that_do_not_answer_are_no_standstill(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = bench.open()
    bench.wait(consumer, 10)
    monkeypatch.setattr(consumer, "_ends", lambda partitions: {})
    bench.wait(consumer, 200)
    assert (bench.client.asked, consumer.stalled) == ([], None)
