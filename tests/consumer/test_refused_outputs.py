"""Brokers refuse what a handler sends: the record of the call gets an answer of ``on_error``, and nobody else loses."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from streamapp import Response, Retry, StringSerde
from streamapp.broker import KafkaAdmin, KafkaSettings, TopicSpec
from streamapp.consumer import Batch
from streamapp.engine.collector import ResultRefused
from streamapp.engine.judging import ProcessingFailed
from streamapp.on_error import Backoff, ErrorContext
from streamapp.producer import SyncReliableProducer
from streamapp.records import OutputRecord

from ..processes import until
from .feeding import Feed
from .test_outputs import Record, Transaction, consumer
from .test_promises import SECONDS

BAD = (7, 23)
"""The records whose outputs are too large."""


def small_topic(feed: Feed, name: str = "small", **config: str) -> str:
    topic = f"{feed.group}-{name}"
    admin = KafkaAdmin(KafkaSettings(bootstrap_servers=feed.bootstrap))
    admin.ensure_topics([TopicSpec(topic, 1, config or {"max.message.bytes": "1000"})])
    return topic


def random_text(size: int) -> str:
    """Text that does not become small by compression."""
    return "".join(random.Random(size).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=size))


def sender(feed: Feed, small: str, calls: Counter[str]) -> Callable[[Record, Transaction], None]:
    """A handler with two outputs; for records of `BAD` one of them is too large."""

    def handle(record: Record, transaction: Transaction) -> None:
        calls[record.value] += 1
        transaction.send(feed.out, key=record.key, value=record.value)
        value = "00" + random_text(5_000) if int(record.value) in BAD else record.value
        transaction.send(small, key=record.key, value=value)

    return handle


def numbers(feed: Feed, topic: str | None = None) -> list[int]:
    return sorted(number for _, number in feed.written(topic))


def seven(context: ErrorContext, error: Exception) -> Response:
    """A letter of one's own, for the refusal of an output."""
    assert isinstance(error, ResultRefused)
    assert context.key is not None
    return Response.resume(
        OutputRecord(context.topic.replace("-in", "-dead"), context.key, context.value, None)
    )


@pytest.mark.parametrize("on_error", ["skip", "dead_letter", seven], ids=["skip", "dead_letter", "function"])
def test_on_error_answers_for_the_record_of_a_refused_output_and_no_call_is_made_again(
    feed: Feed, on_error: Any
) -> None:
    feed.create(partitions=2)
    small, calls = small_topic(feed), Counter[str]()
    feed.send((f"k{number % 5}", str(number)) for number in range(60))
    with consumer(feed, sender(feed, small, calls), on_error=on_error) as running:
        until(lambda: feed.position() == 60, SECONDS, lambda: running.status)
    assert set(calls.values()) == {1}
    good = [number for number in range(60) if number not in BAD]
    assert numbers(feed) == numbers(feed, small) == good, (
        "no output of a call without an answer, all others once"
    )
    assert numbers(feed, feed.dead) == ([] if on_error == "skip" else list(BAD))
    metrics = running.metrics
    assert (metrics.done, metrics.skipped + metrics.dead) == (58, 2)
    assert metrics.taken == sum(metrics[1:7])


def test_outputs_that_brokers_refuse_end_the_consumer_with_the_place_of_their_record(feed: Feed) -> None:
    feed.create(partitions=1)
    small = f"{feed.group}-small"
    admin = KafkaAdmin(KafkaSettings(bootstrap_servers=feed.bootstrap))
    admin.ensure_topics([TopicSpec(small, 1, {"max.message.bytes": "1000"})])
    feed.send([("k", "0")])

    def handle(record: Record, transaction: Transaction) -> None:
        transaction.send(feed.out, key=record.key, value=record.value)
        transaction.send(small, key=record.key, partition=0, value=random_text(5_000))

    with (
        pytest.raises(
            ProcessingFailed,
            match=rf"record of {feed.topic}-0 at offset 0 gave an output that {small} does not take: .*"
            "max.message.bytes",
        ),
        consumer(feed, handle) as running,
    ):
        until(lambda: running.status.state == "failed", SECONDS, lambda: running.status)
    assert feed.written() == []
    assert feed.committed() == {}


def test_only_the_partition_of_a_refused_output_stands_still(feed: Feed) -> None:
    feed.create(partitions=2)
    small, calls = small_topic(feed), Counter[str]()
    feed.send([("k", "7")], partition=0)
    feed.send([("k", str(number)) for number in range(30, 60)], partition=1)
    with pytest.raises(ProcessingFailed), consumer(feed, sender(feed, small, calls)) as running:
        until(lambda: running.status.state == "failed", SECONDS, lambda: running.status)
    done = [number for number in range(30, 60) if calls[str(number)]]
    assert numbers(feed) == done
    # A commit of the other partition may come after the start of the call, and then has the position of its record.
    assert feed.committed().get(0, (0, [])) == (0, [])


def test_a_retry_sends_the_outputs_again_in_order_and_makes_no_call_again(feed: Feed) -> None:
    feed.create(partitions=1)
    small, calls = small_topic(feed), Counter[str]()
    feed.send((f"k{number % 5}", str(number)) for number in range(60))
    retry = Retry.by_key(times=None, backoff=Backoff(100, limit=200, jitter=0))
    with consumer(feed, sender(feed, small, calls), on_error=retry) as running:
        until(lambda: running.metrics.retries > 2, SECONDS, lambda: running.status)
        assert numbers(feed, small) == [] or max(numbers(feed, small)) < max(BAD)
        widen(feed, small)
        until(lambda: feed.position() == 60, SECONDS, lambda: running.status)
    assert set(calls.values()) == {1}
    written = feed.written()
    assert sorted(number for _, number in written) == list(range(60))
    for key in range(5):
        assert [number for found, number in written if found == f"k{key}"] == list(range(key, 60, 5))


def widen(feed: Feed, topic: str) -> None:
    entry = ConfigEntry("max.message.bytes", "1000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": feed.bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


def test_a_retry_that_gives_up_makes_a_dead_letter(feed: Feed) -> None:
    feed.create(partitions=1)
    small, calls = small_topic(feed), Counter[str]()
    feed.send((f"k{number % 5}", str(number)) for number in range(30))
    retry = Retry.by_key(times=2, backoff=Backoff(20, jitter=0), then="dead_letter")
    with consumer(feed, sender(feed, small, calls), on_error=retry) as running:
        until(lambda: feed.position() == 30, SECONDS, lambda: running.status)
    assert numbers(feed, feed.dead) == list(BAD)
    assert numbers(feed, small) == [number for number in range(30) if number not in BAD]


def test_of_a_batch_only_the_record_whose_own_output_is_refused_gets_the_answer(
    feed: Feed, caplog: pytest.LogCaptureFixture
) -> None:
    feed.create(partitions=1)
    small, calls = small_topic(feed), Counter[str]()
    one = sender(feed, small, calls)

    def handle(records: list[Record], transaction: Transaction) -> None:
        for record in records:
            one(record, transaction)

    feed.send((f"k{number % 5}", str(number)) for number in range(200))
    settings: dict[str, Any] = {"batch": Batch(records=50), "on_error": "dead_letter"}
    with consumer(feed, handle, **settings) as running:
        until(lambda: feed.position() == 200, SECONDS, lambda: running.status)
    good = [number for number in range(200) if number not in BAD]
    assert numbers(feed) == numbers(feed, small) == good
    assert numbers(feed, feed.dead) == list(BAD)
    written = feed.written(small)
    for key in range(5):
        found = [number for name, number in written if name == f"k{key}"]
        assert found == sorted(found), "in the order of the key"
    assert "not committed yet" not in caplog.text, "a refusal does no harm to the next transaction"


def test_outputs_that_are_only_together_too_large_all_arrive(feed: Feed) -> None:
    feed.create(partitions=1)
    small = small_topic(feed)
    feed.send(("k", str(number)) for number in range(100))
    digits = ["1" + "".join(random.Random(number).choices("0123456789", k=400)) for number in range(100)]

    def handle(record: Record, transaction: Transaction) -> None:
        transaction.send(small, key=record.key, value=digits[int(record.value)])

    with consumer(feed, handle) as running:
        until(lambda: feed.position() == 100, SECONDS, lambda: running.status)
    assert [number for _, number in feed.written(small)] == [int(each) for each in digits]


def test_of_outputs_in_one_request_the_one_with_the_wrong_time_gets_the_answer(feed: Feed) -> None:
    feed.create(partitions=1)
    strict = small_topic(feed, "strict", **{"message.timestamp.before.max.ms": "3600000"})
    feed.send((f"k{number % 5}", str(number)) for number in range(60))

    def handle(record: Record, transaction: Transaction) -> None:
        timestamp = 1_000 if int(record.value) in BAD else None
        transaction.send(strict, key=record.key, value=record.value, timestamp=timestamp)

    with consumer(feed, handle, on_error="dead_letter") as running:
        until(lambda: feed.position() == 60, SECONDS, lambda: running.status)
    assert numbers(feed, strict) == [number for number in range(60) if number not in BAD]
    assert numbers(feed, feed.dead) == list(BAD)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_a_dead_letter_that_brokers_refuse_ends_the_consumer_with_the_place(
    feed: Feed, guarantee: str
) -> None:
    feed.create(partitions=1)
    small = small_topic(feed)
    feed.send([("k", "0")])

    def handle(record: Record, *transaction: Transaction) -> None:
        raise ValueError("a message with its stack " + random_text(3_000))

    settings: dict[str, Any] = {
        "dead_letter_queue_topic": small,
        "on_error": "dead_letter",
        "guarantee": guarantee,
    }
    if guarantee == "at_least_once":
        settings["output"] = None
    place = (
        rf"record of {feed.topic}-0 at offset 0 has a dead letter that {small} does not take: .*"
        r"The record failed: ValueError: a message with its stack"
    )
    with pytest.raises(ProcessingFailed, match=place), consumer(feed, handle, **settings) as running:
        until(lambda: running.status.state == "failed", SECONDS, lambda: running.status)
    assert feed.position() == 0


@pytest.mark.parametrize("on_error", ["dead_letter", Retry.by_key(times=1, backoff=Backoff(20, jitter=0))])
def test_a_refusal_of_the_handlers_own_producer_is_an_error_of_its_record(feed: Feed, on_error: Any) -> None:
    feed.create(partitions=1)
    small = small_topic(feed)
    feed.send((f"k{number % 5}", str(number)) for number in range(30))
    strings = StringSerde()
    with SyncReliableProducer(
        f"{feed.group}-own",
        bootstrap_servers=feed.bootstrap,
        key_serde=strings,
        value_serde=strings,
        linger_ms=20,
    ) as producer:

        def handle(record: Record) -> None:
            value = "00" + random_text(5_000) if int(record.value) in BAD else record.value
            producer.send(small, key=record.key, value=value)

        settings: dict[str, Any] = {"guarantee": "at_least_once", "output": None}
        with consumer(feed, handle, on_error=on_error, **settings) as running:
            until(lambda: feed.position() == 30, SECONDS, lambda: running.status)
    assert running.metrics.dead == len(BAD)
    assert numbers(feed, feed.dead) == list(BAD)
    assert numbers(feed, small) == [number for number in range(30) if number not in BAD]
