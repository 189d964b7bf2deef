"""Records far from the clock fail. Brokers refuse dead letters with such a time, so the letters get that of the clock."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from confluent_kafka import Producer

from streamapp import JsonSerde, Response
from streamapp.broker import KafkaAdmin, KafkaSettings, TopicSpec
from streamapp.consumer import Batch, ReliableConsumer, output_commits
from streamapp.engine.judging import ProcessingFailed
from streamapp.on_error import ErrorContext
from streamapp.records import OutputRecord

from ..processes import until
from .feeding import Feed
from .test_outputs import Record, Transaction, consumer, settings_of
from .test_promises import SECONDS

HOURS_MS = 3 * 3_600_000
COUNT = 20
NUMBERS = [str(number) for number in range(COUNT)]


def far_ahead(feed: Feed, values: list[str]) -> None:
    """Writes records to a topic that takes any time. Each record has a time of its own."""
    write(feed, values, feed.topic, {"message.timestamp.after.max.ms": str(2**63 - 1)}, HOURS_MS)


def old(feed: Feed, values: list[str]) -> None:
    """Writes old records. The dead-letter topic takes records of the last hour only."""
    write(feed, values, feed.dead, {"message.timestamp.before.max.ms": "3600000"}, -HOURS_MS)


def write(feed: Feed, values: list[str], topic: str, settings: dict[str, str], shift_ms: int) -> None:
    admin = KafkaAdmin(KafkaSettings(bootstrap_servers=feed.bootstrap))
    admin.ensure_topics([TopicSpec(topic, 1, settings)])
    feed.create(partitions=1)
    producer = Producer({"bootstrap.servers": feed.bootstrap, "linger.ms": 50})
    first = int(time.time() * 1000) + shift_ms
    for number, value in enumerate(values):
        producer.produce(feed.topic, value, f"k{number % 5}", timestamp=first + number)
    assert producer.flush(60) == 0


def raising(record: Record, *transaction: Transaction) -> None:
    if int(record.value) % 2:
        raise ValueError("odd")
    for each in transaction:
        each.send(record.topic.replace("-in", "-out"), key=record.key, value=record.value)


def own(context: ErrorContext, error: Exception) -> Response:
    """A letter of one's own, with the time of its record."""
    return Response.resume(
        OutputRecord(context.topic.replace("-in", "-dead"), context.key, context.value, context.timestamp)
    )


ODD = [number for number in range(COUNT) if number % 2]
AT_LEAST_ONCE: dict[str, Any] = {"guarantee": "at_least_once", "output": None}


@pytest.mark.parametrize("feeding", [far_ahead, old])
@pytest.mark.parametrize(
    ("handler", "settings"),
    [
        (raising, {}),
        (raising, AT_LEAST_ONCE),
        (raising, {"on_error": own, "dead_letter_queue_topic": None}),
        (raising, {**AT_LEAST_ONCE, "on_error": own, "dead_letter_queue_topic": None}),
    ],
    ids=["exactly once", "at least once", "own letter", "own letter, at least once"],
)
def test_the_letters_get_the_time_of_the_clock(
    feed: Feed, handler: Any, settings: dict[str, Any], feeding: Any
) -> None:
    feeding(feed, NUMBERS)
    with consumer(feed, handler, **{"on_error": "dead_letter", **settings}) as running:
        until(lambda: feed.position() == COUNT, SECONDS, lambda: running.status)
    assert sorted(number for _, number in feed.written(feed.dead)) == ODD
    assert (running.metrics.done, running.metrics.dead) == (COUNT - len(ODD), len(ODD))


def test_letters_of_the_same_transaction_are_sent_again_together(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each letter had a transaction and a session of its own."""
    opened: list[str] = []

    class Session(output_commits.TransactionSession):
        def __init__(self, name: str, *arguments: Any, **settings: Any) -> None:
            opened.append(name)
            super().__init__(name, *arguments, **settings)

    monkeypatch.setattr(output_commits, "TransactionSession", Session)
    far_ahead(feed, NUMBERS)
    with consumer(feed, raising, on_error="dead_letter", commit_interval_ms=1_000) as running:
        until(lambda: feed.position() == COUNT, SECONDS, lambda: running.status)
    assert sorted(number for _, number in feed.written(feed.dead)) == ODD
    assert len(opened) <= 4


def test_the_letters_of_a_coroutine_get_the_time_of_the_clock(feed: Feed) -> None:
    far_ahead(feed, NUMBERS)

    async def handle(record: Record) -> None:
        raising(record)

    async def consume() -> None:
        settings = settings_of(feed, on_error="dead_letter", **AT_LEAST_ONCE)
        async with ReliableConsumer(feed.group, feed.topic, handle, **settings) as running:
            await asyncio.to_thread(until, lambda: feed.position() == COUNT, SECONDS, lambda: running.status)

    asyncio.run(consume())
    assert sorted(number for _, number in feed.written(feed.dead)) == ODD


def test_letters_go_out_beside_outputs_of_the_same_call(feed: Feed) -> None:
    """Two records of a batch cannot be decoded, so its transaction has an output and two letters."""
    far_ahead(feed, ["1", "02", "3", "04"])  # JSON has no number 02

    def handle(records: list[Record], transaction: Transaction) -> None:
        transaction.send(feed.out, key="k", value=str(sum(int(record.value) for record in records)))

    settings: dict[str, Any] = {"value_serde": JsonSerde(), "batch": Batch(records=10, linger_ms=500)}
    with consumer(feed, handle, on_error="dead_letter", **settings) as running:
        until(lambda: feed.position() == 4, SECONDS, lambda: running.status)
    assert sum(number for _, number in feed.written()) == 4
    assert sorted(number for _, number in feed.written(feed.dead)) == [2, 4]


def test_a_letter_that_brokers_refuse_for_another_reason_still_ends_the_consumer(feed: Feed) -> None:
    far_ahead(feed, NUMBERS)

    def too_large(context: ErrorContext, error: Exception) -> Response:
        return Response.resume(OutputRecord(feed.dead, b"k", bytes(2_000_000), context.timestamp))

    with (
        pytest.raises(ProcessingFailed, match=f"has a dead letter that {feed.dead} does not take"),
        consumer(feed, raising, on_error=too_large, **AT_LEAST_ONCE) as running,
    ):
        until(lambda: running.status.state == "failed", SECONDS, lambda: running.status)
    assert feed.position() <= 1
