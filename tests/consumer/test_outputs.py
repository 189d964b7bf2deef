"""Exactly once from topics to topics: the consumer is killed at every step, sleeps, rebalances, and its handler raises."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamapp import BrokerError, Retry, StreamsConfig, StringSerde
from streamapp.consumer import (
    Batch,
    ConsumerRecord,
    KafkaOutput,
    OutputTransaction,
    ReliableConsumer,
    SyncReliableConsumer,
)
from streamapp.consumer.output_commits import OutputCommits
from streamapp.engine.judging import ProcessingFailed
from streamapp.errors import StreamsError
from streamapp.on_error import Backoff
from streamapp.producer.session import TransactionSession, Unsettled

from ..processes import until
from .feeding import Feed
from .test_promises import COUNT, KEYS, SECONDS, Processes, check_exactly_once, feed_all, finish, killed_at

Transaction = OutputTransaction[str, str]
Record = ConsumerRecord[str, str]
QUICK = Backoff(20, jitter=0)
STRINGS = KafkaOutput(key_serde=StringSerde(), value_serde=StringSerde())


@pytest.fixture
def made() -> Iterator[list[Processes]]:
    made: list[Processes] = []
    yield made
    for each in made:
        each.close()


def settings_of(feed: Feed, **settings: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": feed.bootstrap,
        "dead_letter_queue_topic": feed.dead,
        "key_serde": StringSerde(),
        "value_serde": StringSerde(),
        "guarantee": "exactly_once",
        "output": STRINGS,
        **settings,
    }


def consumer(feed: Feed, handler: Any, **settings: Any) -> SyncReliableConsumer:
    return SyncReliableConsumer(feed.group, feed.topic, handler, **settings_of(feed, **settings))


def test_exactly_once_with_a_kafka_output(feed: Feed, tmp_path: Path, made: list[Processes]) -> None:
    feed.create()
    rows = [(f"k{number % KEYS}", str(number)) for number in range(COUNT)]
    processes = Processes(feed, "exactly_once", f"topic={feed.out}", tmp_path, "static")
    made.append(processes)
    points = (
        "consumer-handing-out",
        "consumer-handled",
        "producer-sent:1",
        "producer-bookmarked:1",
        "producer-committed:1",
        "consumer-committed:1",
    )
    for number, point in enumerate(points):  # each has something to commit
        feed.send(rows[40 * number : 40 * (number + 1)])
        killed_at(processes, point)
    assert 0 < len(feed.written()) <= 40 * len(points), "the kills come in the middle"
    feed.send(rows[40 * len(points) :])
    finish(processes, lambda: feed.position() == COUNT)
    check_exactly_once(feed.written())


@pytest.mark.parametrize("point", ["consumer-handled", "producer-sent"])
def test_a_consumer_that_sleeps_while_another_takes_over_commits_nothing(
    feed: Feed, tmp_path: Path, made: list[Processes], point: str
) -> None:
    feed_all(feed)
    processes = Processes(feed, "exactly_once", f"topic={feed.out}", tmp_path)
    made.append(processes)
    sleeper = processes.start(f"{point}:stop")
    log = tmp_path / "log-0"
    until(
        lambda: "State:\tT" in Path(f"/proc/{sleeper.process.pid}/status").read_text(),
        SECONDS,
        processes.logs,
    )
    other = processes.start()
    until(lambda: feed.position() == COUNT, SECONDS, processes.logs)
    before = feed.committed()
    other.signal(signal.SIGTERM)
    assert other.wait(SECONDS) == 0, processes.logs()
    sleeper.signal(signal.SIGCONT)
    until(lambda: "nothing of them is committed any more" in log.read_text(), SECONDS, processes.logs)
    assert feed.committed() == before
    feed.send((f"k{number % KEYS}", str(number)) for number in range(COUNT, 2 * COUNT))
    until(lambda: feed.position() == 2 * COUNT, SECONDS, processes.logs)  # it goes on by itself
    sleeper.signal(signal.SIGTERM)
    assert sleeper.wait(SECONDS) == 0, processes.logs()
    assert sorted(number for _, number in feed.written()) == list(range(2 * COUNT))


@pytest.mark.parametrize("outputs", [True, False], ids=["outputs", "offsets only"])
@pytest.mark.parametrize("asked", [False, True], ids=["before it knows its membership", "after"])
def test_a_member_that_the_group_has_given_up_commits_nothing(
    feed: Feed, monkeypatch: pytest.MonkeyPatch, asked: bool, outputs: bool
) -> None:
    """The first commit sleeps until another member has done everything, and has left an empty group."""
    feed.create(partitions=1)
    feed.send((f"k{number % 5}", str(number)) for number in range(20))
    sleeps, go_on, over = threading.Event(), threading.Event(), threading.Event()

    def asleep(offsets: Iterable[int], call: Callable[[], Any]) -> Any:
        if sleeps.is_set() or not any(offsets):
            return call()
        sleeps.set()
        assert go_on.wait(SECONDS)
        try:
            return call()
        finally:
            over.set()

    if asked:
        send = TransactionSession.commit
        monkeypatch.setattr(
            TransactionSession,
            "commit",
            lambda self, records, positions, *rest: asleep(
                (each.offset for each in positions), lambda: send(self, records, positions, *rest)
            ),
        )
    else:
        commit = OutputCommits._commit
        monkeypatch.setattr(
            OutputCommits,
            "_commit",
            lambda self, session, step: asleep(
                (offset for offset, _ in step.positions.values()), lambda: commit(self, session, step)
            ),
        )

    calls = Counter[int]()

    def handle(record: Record, transaction: Transaction) -> None:
        calls[int(record.value)] += 1
        if outputs:
            transaction.send(feed.out, key=record.key, value=record.value)

    # librdkafka leaves the group for a client that does not poll.
    config = StreamsConfig(feed.group, session_timeout_ms=1_000, max_poll_interval_ms=1_500)
    with consumer(feed, handle, config=config) as first:
        until(sleeps.is_set, SECONDS, lambda: first.status)
        feed.send((f"k{number % 5}", str(number)) for number in range(20, 100))
        # The second member keeps the default times, so that the group does not give it up, too, on a busy machine.
        with consumer(feed, handle) as second:
            until(lambda: feed.position() == 100, SECONDS, lambda: second.status)
        before = feed.committed()
        go_on.set()
        until(over.is_set, SECONDS, lambda: first.status)
        assert feed.committed() == before
        feed.send((f"k{number % 5}", str(number)) for number in range(100, 150))
        until(lambda: feed.position() == 150, SECONDS, lambda: first.status)
    # A position of the sleeper would make it read from there on once more.
    assert [number for number in range(20, 150) if calls[number] != 1] == []
    assert sorted(number for _, number in feed.written()) == (list(range(150)) if outputs else [])


@pytest.mark.parametrize(("batch", "protocol"), [(None, "classic"), (Batch(records=20), "consumer")])
def test_outputs_are_once_while_members_come_and_go(feed: Feed, batch: Batch | None, protocol: str) -> None:
    feed.create(partitions=4)
    rows = [(f"k{number % 20}", str(number)) for number in range(1_600)]
    feed.send(rows[:800])

    def handle(given: Any, transaction: Transaction) -> None:
        threading.Event().wait(0.005)
        for record in given if batch else [given]:
            transaction.send(feed.out, key=record.key, value=record.value)

    settings = {"batch": batch, "client_properties": {"group.protocol": protocol}}
    with consumer(feed, handle, **settings) as first:
        until(lambda: feed.position() > 100, SECONDS, lambda: first.status)
        with consumer(feed, handle, **settings) as second:
            until(lambda: len(second.status.partitions) == 2, SECONDS, lambda: second.status)
            feed.send(rows[800:])
            until(lambda: second.metrics.outputs > 100, SECONDS, lambda: second.status)
        until(lambda: feed.position() == 1_600, SECONDS, lambda: first.status)
        assert first.metrics.outputs + second.metrics.outputs == 1_600
    written = feed.written()
    by_key = {key: [number for found, number in written if found == key] for key, _ in rows}
    assert by_key == {f"k{key}": list(range(key, 1_600, 20)) for key in range(20)}


def test_a_call_that_raises_has_sent_nothing_and_its_letter_comes_once(feed: Feed) -> None:
    feed.create(partitions=1)
    feed.send((f"k{number % 5}", str(number)) for number in range(100))
    failed = []

    async def handle(record: Record, transaction: Transaction) -> None:
        transaction.send(feed.out, key=record.key, value=record.value)
        await asyncio.sleep(0)
        if record.value == "31" or (record.value == "52" and record.attempt < 3):
            failed.append(record.value)
            raise ValueError("after its output")

    async def main() -> ReliableConsumer:
        retry = Retry.by_key(times=2, backoff=QUICK, then="dead_letter")
        running = ReliableConsumer(feed.group, feed.topic, handle, **settings_of(feed, on_error=retry))
        async with running:
            while await asyncio.to_thread(feed.position) < 100:
                await asyncio.sleep(0.05)
        return running

    metrics = asyncio.run(asyncio.wait_for(main(), SECONDS)).metrics
    assert failed.count("31") == 3
    assert failed.count("52") == 2
    assert (metrics.done, metrics.dead, metrics.outputs) == (99, 1, 100)
    assert sorted(number for _, number in feed.written()) == [n for n in range(100) if n != 31]
    assert feed.written(feed.dead) == [("k1", 31)]


def test_a_call_that_fails_ends_the_consumer_and_what_is_done_is_committed_with_its_outputs(
    feed: Feed,
) -> None:
    feed.create(partitions=1)
    feed.send((f"k{number % 5}", str(number)) for number in range(50))
    broken = threading.Event()
    broken.set()

    def handle(record: Record, transaction: Transaction) -> None:
        transaction.send(feed.out, key=record.key, value=record.value)
        if record.value == "20" and broken.is_set():
            raise ValueError("no")

    with pytest.raises(ProcessingFailed, match="at offset 20"), consumer(feed, handle) as first:
        until(lambda: first.status.state == "failed", SECONDS, lambda: first.status)
    written = [number for _, number in feed.written()]
    assert 20 not in written
    assert len(written) == len(set(written)) == first.metrics.done
    broken.clear()
    with consumer(feed, handle) as second:
        until(lambda: feed.position() == 50, SECONDS, lambda: second.status)
        assert second.metrics.taken == 50 - first.metrics.done
    assert sorted(number for _, number in feed.written()) == list(range(50))


@pytest.mark.parametrize("was_committed", [True, False])
def test_a_commit_without_an_answer_is_found_out(
    feed: Feed, monkeypatch: pytest.MonkeyPatch, was_committed: bool
) -> None:
    feed.create()
    feed.send((f"k{number % 5}", str(number)) for number in range(300))
    plain, lost = TransactionSession.commit, []

    def commit(self: TransactionSession, records: Any, *rest: Any) -> Any:
        if records and not lost:
            lost.append(len(records))
            if was_committed:
                plain(self, records, *rest)
            self.abandon()
            raise Unsettled("the test has lost the answer")
        return plain(self, records, *rest)

    monkeypatch.setattr(TransactionSession, "commit", commit)
    calls = []

    def handle(record: Record, transaction: Transaction) -> None:
        calls.append(record.value)
        transaction.send(feed.out, key=record.key, value=record.value)

    with consumer(feed, handle) as running:
        until(lambda: feed.position() == 300, SECONDS, lambda: running.status)
    assert len(lost) == 1
    assert sorted(number for _, number in feed.written()) == list(range(300))
    assert running.metrics.outputs == len(calls) == 300, "no call is made again"


def test_a_transaction_takes_no_record_after_its_call(feed: Feed) -> None:
    feed.create(partitions=1)
    feed.send([("k", "0")])
    kept: list[Transaction] = []
    with consumer(feed, lambda record, transaction: kept.append(transaction)) as running:
        until(lambda: running.metrics.done == 1, SECONDS, lambda: running.status)
    with pytest.raises(StreamsError, match="the call of the handler is over"):
        kept[0].send(feed.out, key="k", value="late")
    assert feed.written() == []


def test_a_transaction_timeout_that_brokers_do_not_allow_is_told(feed: Feed) -> None:
    config = StreamsConfig("g", transaction_timeout_ms=100_000_000)  # brokers allow 15 minutes
    feed.create(partitions=1)
    feed.send([("k", "0")])
    with (
        pytest.raises(BrokerError, match="Make transaction_timeout_ms smaller"),
        consumer(feed, lambda record, transaction: None, config=config) as running,
    ):
        until(lambda: running.status.state == "failed", SECONDS, lambda: running.status)
