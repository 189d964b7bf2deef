"""Consumers in this process, on a real broker."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import defaultdict
from itertools import chain
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from streamapp import AvroSerde, JsonSerde, Retry, StreamsConfig, StringSerde
from streamapp.broker.removed_records import RemovedRange
from streamapp.consumer import (
    Batch,
    ConsumerMetrics,
    ConsumerRecord,
    KafkaOutput,
    OutputTransaction,
    ReliableConsumer,
    SyncReliableConsumer,
)
from streamapp.desk.desk import FailureDesk
from streamapp.desk.filters import LetterFilter
from streamapp.engine.judging import ProcessingFailed
from streamapp.errors import ConfigError, StreamsError
from streamapp.on_error import Backoff
from streamapp.serdes import LocalSchemaRegistry
from streamapp.serdes.framing import ID_BYTES, VALUE_FRAME

from ..processes import until
from .feeding import Feed

SECONDS = 60.0
QUICK = Backoff(20, jitter=0)


class Seen:
    """What a handler was called with."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_key: dict[Any, list[int]] = defaultdict(list)
        self.batches: list[int] = []

    def __call__(self, record: ConsumerRecord) -> None:
        with self.lock:
            self.by_key[record.key].append(int(record.value))

    @property
    def count(self) -> int:
        with self.lock:
            return sum(map(len, self.by_key.values()))


def consumer(feed: Feed, handler: Any, **settings: Any) -> SyncReliableConsumer:
    settings = {"key_serde": StringSerde(), "value_serde": StringSerde(), "commit_interval_ms": 50} | settings
    return SyncReliableConsumer(
        feed.group,
        feed.topic,
        handler,
        bootstrap_servers=feed.bootstrap,
        dead_letter_queue_topic=feed.dead,
        **settings,
    )


def adds_up(metrics: ConsumerMetrics) -> bool:
    return metrics.taken == sum(metrics[1:7])


def numbers(count: int, keys: int = 20) -> list[tuple[str, str]]:
    return [(f"k{number % keys}", str(number)) for number in range(count)]


@pytest.mark.parametrize("guarantee", ["at_least_once", "at_most_once", "exactly_once"])
def test_kafka_s_tools_see_no_lag_behind_markers_and_an_idle_consumer_commits_nothing(
    feed: Feed, guarantee: Any
) -> None:
    """A commit used to stay in front of the marker behind the last record: monitors and autoscalers saw a lag."""
    feed.create()
    settings: dict[str, Any] = {"guarantee": guarantee}
    seen = Seen()
    handle: Any = seen
    if guarantee == "exactly_once":
        settings |= {"output": KafkaOutput(key_serde=StringSerde(), value_serde=StringSerde())}

        def handle(record: ConsumerRecord, transaction: OutputTransaction) -> None:
            seen(record)

    def settles(running: SyncReliableConsumer) -> None:
        until(
            lambda: not any(feed.lags().values()),
            SECONDS,
            lambda: f"{feed.lags()} {feed.committed()} {running.status}",
        )

    feed.transact(numbers(100))
    feed.transact(numbers(30), commit=False)
    with consumer(feed, handle, **settings) as running:
        until(lambda: seen.count >= 100, SECONDS, lambda: running.status)
        settles(running)
        feed.transact(numbers(30), commit=False)
        settles(running)
        commits, committed = running.metrics.commits, feed.committed()
        time.sleep(1.0)  # twenty commit intervals
        assert (running.metrics.commits, feed.committed()) == (commits, committed)
    feed.transact(numbers(30), commit=False)
    with consumer(feed, handle, **settings) as running:
        settles(running)
    feed.send(numbers(20))
    with consumer(feed, handle, **settings) as running:
        until(lambda: seen.count >= 120, SECONDS, lambda: running.status)
        settles(running)
    assert seen.count == 120


@pytest.mark.parametrize("ordered_by", ["key", "partition"])
@pytest.mark.parametrize("batch", [None, Batch(records=50)])
def test_every_record_once_in_order(feed: Feed, ordered_by: Any, batch: Batch | None) -> None:
    feed.create()
    feed.send(numbers(2_000))
    seen = Seen()

    def handle(given: Any) -> None:
        for record in given if batch else [given]:
            seen(record)

    with consumer(feed, handle, ordered_by=ordered_by, batch=batch) as running:
        until(lambda: seen.count >= 2_000, SECONDS, lambda: running.status)
        assert adds_up(running.metrics)
        until(lambda: feed.position() == 2_000, SECONDS, feed.committed)
    assert seen.by_key == {f"k{key}": list(range(key, 2_000, 20)) for key in range(20)}
    assert running.metrics.done == 2_000
    with consumer(feed, seen) as again:  # nothing is repeated
        feed.send([("last", "7")])
        until(lambda: "last" in seen.by_key, SECONDS, lambda: again.status)
        assert again.metrics.taken == 1


def test_a_record_that_is_larger_than_all_answers_may_be_ends_the_consumer(feed: Feed) -> None:
    """Its state was "running" for ever, and nothing came."""
    feed.create(1)
    feed.send([("k", os.urandom(50_000))])
    small = {"message.max.bytes": 1_000, "fetch.max.bytes": 1_000, "receive.message.max.bytes": 20_000}
    with pytest.raises(ConfigError, match="receive.message.max.bytes in client_properties is 20000"):
        consumer(feed, Seen(), client_properties=small).run()


def test_a_missing_topic_ends_the_consumer_with_the_command_that_creates_the_topic(feed: Feed) -> None:
    """The command had TOPIC in place of the name."""
    with pytest.raises(ConfigError, match=f"streamapp topic create {feed.topic} --partitions N"):
        consumer(feed, Seen()).run()


async def test_coroutines_run_on_the_loop_up_to_parallelism(feed: Feed) -> None:
    feed.create()
    feed.send(numbers(200, keys=50))
    at_once: list[int] = []
    running, done = 0, 0
    loop = asyncio.get_running_loop()

    async def handle(record: ConsumerRecord[str, str]) -> None:
        nonlocal running, done
        assert asyncio.get_running_loop() is loop
        running += 1
        at_once.append(running)
        await asyncio.sleep(0.005)
        running -= 1
        done += 1

    async with ReliableConsumer(
        feed.group, feed.topic, handle, bootstrap_servers=feed.bootstrap, parallelism=8
    ) as consumer:
        while done < 200:
            await asyncio.sleep(0.01)
        assert adds_up(consumer.metrics)
    assert max(at_once) == 8
    assert feed.position() == 200


def test_a_slow_key_keeps_only_itself_waiting_and_a_restart_repeats_only_what_is_not_done(
    feed: Feed,
) -> None:
    feed.create(partitions=1)
    feed.send(numbers(300, keys=10))
    seen, go_on, cut = Seen(), threading.Event(), threading.Event()

    def handle(record: ConsumerRecord[str, str]) -> None:
        if record.key == "k3" and not go_on.is_set():
            cut.wait(SECONDS)
            raise ValueError("the process ends here")
        seen(record)

    with (
        pytest.raises(ProcessingFailed),
        consumer(feed, handle, on_error="fail", close_timeout_ms=200) as first,
    ):
        until(lambda: seen.count == 270, SECONDS, lambda: first.status)
        until(lambda: len(feed.committed().get(0, (0, []))[1]) == 267, SECONDS, feed.committed)
        assert feed.committed()[0][0] == 3, "nothing that is not done is passed"
        assert first.status.oldest_in_work == f"{feed.topic}-0 at 3"
        cut.set()
        until(lambda: first.status.state == "failed", SECONDS, lambda: first.status)
    assert adds_up(first.metrics)
    go_on.set()
    with consumer(feed, handle) as second:
        until(lambda: seen.count >= 300, SECONDS, lambda: second.status)
        assert second.metrics.taken == 30
        assert second.metrics.already_done == 267
        assert adds_up(second.metrics)
    assert seen.by_key == {f"k{key}": list(range(key, 300, 10)) for key in range(10)}


def test_the_lag_counts_records_that_wait_and_records_that_are_not_fetched(feed: Feed) -> None:
    """A partition that is paused fetches nothing, so only brokers know how far its log has grown."""
    feed.create(partitions=1)
    go_on = threading.Event()

    def handle(record: ConsumerRecord[str, str]) -> None:
        go_on.wait(SECONDS)

    feed.send(numbers(100))
    with consumer(feed, handle, buffer_records=10) as running:
        until(lambda: list(running.status.lag.values()) == [100], SECONDS, lambda: running.status)
        feed.transact(numbers(50))
        grown = (
            f'topic="{feed.topic}",partition="0"}} 151'  # the marker of the transaction has an offset, too
        )
        until(lambda: grown in running.exposition(), SECONDS, running.exposition)
        go_on.set()
        until(lambda: list(running.status.lag.values()) == [0], SECONDS, lambda: running.status)
    assert running.status.lag == {}


def test_a_schema_id_may_be_in_a_header(feed: Feed) -> None:
    feed.create(partitions=1)
    schema = {"type": "record", "name": "Order", "fields": [{"name": "cents", "type": "int"}]}
    serde = AvroSerde[Any](schema, registry=LocalSchemaRegistry())
    data = serde.bind(feed.topic, False).serialize({"cents": 5})
    frame, value = data[:ID_BYTES], data[ID_BYTES:]
    producer = Producer({"bootstrap.servers": feed.bootstrap})
    for raw, headers in ((data, []), (value, [(VALUE_FRAME, frame), ("mine", b"x")])):
        producer.produce(feed.topic, raw, b"k", partition=0, headers=headers)
    producer.flush()
    seen: list[tuple[Any, Any]] = []
    with consumer(feed, lambda record: seen.append((record.value, record.headers)), value_serde=serde):
        until(lambda: len(seen) == 2, SECONDS, lambda: str(seen))
    assert seen == [({"cents": 5}, ()), ({"cents": 5}, (("mine", b"x"),))]


def test_a_failed_key_waits_while_others_flow(feed: Feed) -> None:
    feed.create(partitions=1)
    feed.send(numbers(100, keys=5))
    seen, broken = Seen(), threading.Event()
    broken.set()

    def handle(record: ConsumerRecord[str, str]) -> None:
        if record.key == "k1" and broken.is_set():
            raise ValueError("not yet")
        seen(record)

    retry = Retry.by_key(times=None, backoff=QUICK)
    with consumer(feed, handle, on_error=retry) as running:
        until(lambda: seen.count == 80, SECONDS, lambda: running.status)
        until(lambda: running.metrics.retries > 3, SECONDS, lambda: running.status)
        assert running.metrics.parked <= 20
        assert adds_up(running.metrics)
        broken.clear()
        until(lambda: seen.count == 100, SECONDS, lambda: running.status)
    assert seen.by_key["k1"] == list(range(1, 100, 5))


def test_a_poison_record_in_a_batch_is_the_only_dead_letter(feed: Feed) -> None:
    feed.create(partitions=1)
    feed.send(numbers(200, keys=7))
    seen = Seen()

    def handle(records: list[ConsumerRecord[str, str]]) -> None:
        if any(record.value == "66" for record in records):
            raise ValueError("66 is poison")
        for record in records:
            seen(record)

    settings = {"batch": Batch(records=20), "on_error": Retry.by_key(times=2, backoff=QUICK)}
    with consumer(feed, handle, **settings) as running:
        until(lambda: seen.count == 199, SECONDS, lambda: running.status)
        until(lambda: running.metrics.dead == 1, SECONDS, lambda: running.status)
        until(lambda: feed.position() == 200, SECONDS, feed.committed)
        assert adds_up(running.metrics)
    assert all(numbers == sorted(numbers) for numbers in seen.by_key.values())
    letters, _ = FailureDesk(running.config).scan()
    assert [(each.value, each.said("attempt"), each.operator, each.cause) for each in letters] == [
        (b"66", "3", "handle", "ValueError")
    ]


def test_a_letter_is_replayed_by_the_desk(feed: Feed) -> None:
    feed.create()
    feed.send([("k", "not json"), ("k", '{"a": 1}')])
    seen: list[Any] = []
    settings = {"value_serde": JsonSerde(), "on_error": "dead_letter"}
    with consumer(feed, lambda record: seen.append(record.value), **settings) as running:
        until(lambda: running.metrics.dead == 1, SECONDS, lambda: running.status)
        desk = FailureDesk(running.config)
        (letter,), _ = desk.scan()
        assert letter.said("what") == "could not be deserialized"
        desk.edit(letter.id, b"k", b'{"a": 2}')
        assert desk.replay(lambda each: True) == 1
        until(lambda: {"a": 2} in seen, SECONDS, lambda: running.status)


def test_a_letter_is_replayed_for_its_consumer_only(feed: Feed) -> None:
    """The other consumer of the topic processed the record twice."""
    feed.create()
    feed.send([("k", "7")])
    charged, mailed, broken = Seen(), Seen(), threading.Event()
    broken.set()

    def mail(record: ConsumerRecord[str, str]) -> None:
        if broken.is_set():
            raise ValueError("no address")
        mailed(record)

    def named(name: str, handler: Any) -> SyncReliableConsumer:
        settings = {
            "key_serde": StringSerde(),
            "value_serde": StringSerde(),
            "dead_letter_queue_topic": feed.dead,
        }
        return SyncReliableConsumer(
            f"{feed.group}-{name}", feed.topic, handler, bootstrap_servers=feed.bootstrap, on_error="dead_letter",
            **settings,  # type: ignore[arg-type]
        )  # fmt: skip

    with named("charge", charged) as first, named("mail", mail) as second:
        until(lambda: charged.count == second.metrics.dead == 1, SECONDS, lambda: second.status)
        broken.clear()
        desk = FailureDesk(second.config)
        (letter,), _ = desk.scan()
        assert letter.group == f"{feed.group}-mail"
        assert desk.replay(LetterFilter(group=f"{feed.group}-charge").matches) == 0
        assert desk.replay(LetterFilter(group=letter.group).matches, only_group=True) == 1
        until(lambda: mailed.count == first.metrics.for_others == 1, SECONDS, lambda: first.status)
        assert charged.count == 1
        assert adds_up(first.metrics)
        assert desk.replay(lambda each: True, force=True) == 1
        until(lambda: charged.count == mailed.count == 2, SECONDS, lambda: first.status)


def test_a_service_that_fails_opens_the_circuit_and_costs_no_attempt(feed: Feed) -> None:
    feed.create()
    feed.send(numbers(60))
    seen, down = Seen(), threading.Event()
    down.set()

    def handle(record: ConsumerRecord[str, str]) -> None:
        if down.is_set():
            raise ConnectionError("no service")
        seen(record)

    retry = Retry.by_key(times=1, backoff=QUICK)
    with consumer(feed, handle, on_error=retry, parallelism=4) as running:
        until(lambda: running.status.circuit is not None, SECONDS, lambda: running.status)
        until(lambda: running.metrics.calls > 8, SECONDS, lambda: running.status)
        assert "no service" in (running.status.circuit or "")
        assert running.metrics.dead == 0
        down.clear()
        until(lambda: seen.count == 60, SECONDS, lambda: running.status)
        assert running.status.circuit is None
    assert seen.by_key == {f"k{key}": list(range(key, 60, 20)) for key in range(20)}


def test_memory_is_bounded_while_the_handler_is_slow(feed: Feed) -> None:
    feed.create()
    feed.send(numbers(5_000))
    seen, go_on = Seen(), threading.Event()

    def handle(record: ConsumerRecord[str, str]) -> None:
        go_on.wait(SECONDS)
        seen(record)

    with consumer(feed, handle, buffer_records=300) as running:
        until(lambda: len(running.status.paused) == 3, SECONDS, lambda: running.status)
        metrics = running.metrics
        # Each partition may exceed its share by what one poll brings.
        assert metrics.waiting + metrics.in_work <= 300 + 3 * 500 + 16
        go_on.set()
        until(lambda: seen.count == 5_000, SECONDS, lambda: running.status)
    assert seen.by_key == {f"k{key}": list(range(key, 5_000, 20)) for key in range(20)}


def test_two_members_share_and_a_rebalance_repeats_nothing(feed: Feed) -> None:
    feed.create(partitions=4)
    feed.send(numbers(400))
    seen = Seen()
    slow = threading.Event()

    def handle(record: ConsumerRecord[str, str]) -> None:
        slow.wait(0.01)
        seen(record)

    with consumer(feed, handle) as first:
        until(lambda: seen.count > 20, SECONDS, lambda: first.status)
        with consumer(feed, handle) as second:
            until(lambda: len(second.status.partitions) == 2, SECONDS, lambda: second.status)
            feed.send([(f"k{number % 20}", str(number)) for number in range(400, 800)])
            until(lambda: seen.count >= 600, SECONDS, lambda: (first.status, second.status))
        until(lambda: seen.count >= 800, SECONDS, lambda: first.status)
        assert adds_up(first.metrics)
        assert adds_up(second.metrics)
    assert seen.by_key == {f"k{key}": list(range(key, 800, 20)) for key in range(20)}


def test_a_handler_that_hangs_lets_the_others_rebalance_and_its_record_is_repeated(feed: Feed) -> None:
    feed.create(partitions=2)
    feed.send([("hangs", "0")], partition=0)
    feed.send([("b", "1")], partition=1)
    seen, hung, go_on = Seen(), threading.Event(), threading.Event()

    def hang(record: ConsumerRecord[str, str]) -> None:
        if record.key == "hangs" and not hung.is_set():
            hung.set()
            go_on.wait(SECONDS)
            return
        seen(record)

    settings = {"revoke_timeout_ms": 200, "close_timeout_ms": 200}
    with consumer(feed, hang, **settings) as first:
        until(hung.is_set, SECONDS, lambda: first.status)
        with consumer(feed, hang) as second:
            until(lambda: len(second.status.partitions) == 1, SECONDS, lambda: second.status)
            first.stop()
            until(lambda: seen.by_key.get("hangs") == [0], SECONDS, lambda: second.status)
        assert adds_up(first.metrics)
        assert first.metrics.returned == 1
        go_on.set()
    assert sum(position for position, _ in feed.committed().values()) == 2


def test_a_coroutine_that_takes_too_long_is_cancelled_and_judged(feed: Feed) -> None:
    feed.create(partitions=1)
    feed.send([("a", "hangs"), ("b", "fine")])
    seen: list[str] = []

    async def handle(record: ConsumerRecord[str, str]) -> None:
        if record.value == "hangs":
            await asyncio.sleep(SECONDS)
        seen.append(record.value)

    async def main() -> ConsumerMetrics:
        consumer = ReliableConsumer(
            feed.group,
            feed.topic,
            handle,
            bootstrap_servers=feed.bootstrap,
            value_serde=StringSerde(),
            handler_timeout_ms=300,
            on_error="skip",
        )
        async with consumer:
            while consumer.metrics.skipped < 1:
                await asyncio.sleep(0.02)
        return consumer.metrics

    assert asyncio.run(asyncio.wait_for(main(), SECONDS)).done == 1
    assert seen == ["fine"]
    assert feed.position() == 2


def test_a_key_with_nine_tenths_of_the_records_leaves_the_others_their_turn(feed: Feed) -> None:
    feed.create(partitions=1)
    rows = [("hot" if number % 10 else f"cold{number % 70}", str(number)) for number in range(1_000)]
    feed.send(rows)
    seen, order = Seen(), []

    def handle(record: ConsumerRecord[str, str]) -> None:
        seen(record)
        with seen.lock:
            order.append(record.key)
        threading.Event().wait(0.002)

    with consumer(feed, handle, parallelism=4) as running:
        until(lambda: seen.count == 1_000, SECONDS, lambda: running.status)
    assert seen.by_key["hot"] == [number for number in range(1_000) if number % 10]
    last_cold = max(at for at, key in enumerate(order) if key != "hot")
    assert last_cold < 500, "the cold keys do not wait for the hot one"


def test_a_commit_of_another_client_is_where_the_consumer_begins(feed: Feed) -> None:
    feed.create(partitions=1)
    feed.send(numbers(10, keys=2))
    plain = Consumer({"bootstrap.servers": feed.bootstrap, "group.id": feed.group})
    from confluent_kafka import TopicPartition

    plain.commit(offsets=[TopicPartition(feed.topic, 0, 6, metadata="somebody else's")], asynchronous=False)
    plain.close()
    seen = Seen()
    with consumer(feed, seen) as running:
        until(lambda: seen.count == 4, SECONDS, lambda: running.status)
    assert sorted(number for found in seen.by_key.values() for number in found) == [6, 7, 8, 9]


def test_a_coroutine_that_waits_for_something_cancelled_has_failed(feed: Feed) -> None:
    """The consumer called it again and again without a word: no dead letter, and no later record of the key."""
    feed.create()
    feed.send([("k", "1"), ("k", "2"), ("k", "3")])
    calls: list[str] = []

    async def handle(record: ConsumerRecord) -> None:
        calls.append(record.value)
        if record.value == "2":
            other = asyncio.ensure_future(asyncio.sleep(60))
            other.cancel()
            await other

    async def run() -> ConsumerMetrics:
        running = ReliableConsumer(
            feed.group,
            feed.topic,
            handle,
            bootstrap_servers=feed.bootstrap,
            dead_letter_queue_topic=feed.dead,
            key_serde=StringSerde(),
            value_serde=StringSerde(),
            on_error="dead_letter",
        )
        async with running:
            for _ in range(300):
                if running.metrics.done + running.metrics.dead == 3:
                    break
                await asyncio.sleep(0.1)
            return running.metrics

    metrics = asyncio.run(run())
    assert (metrics.done, metrics.dead) == (2, 1), calls
    assert calls == ["1", "2", "3"]


def test_a_coroutine_that_exits_ends_the_consumer_and_not_the_event_loop(feed: Feed) -> None:
    feed.create()
    feed.send([("k", "1")])

    async def handle(record: ConsumerRecord) -> None:
        raise SystemExit(3)

    async def run() -> Any:
        running = ReliableConsumer(
            feed.group,
            feed.topic,
            handle,
            bootstrap_servers=feed.bootstrap,
            key_serde=StringSerde(),
            value_serde=StringSerde(),
            on_error="skip",
        )
        with pytest.raises(StreamsError, match="ended with SystemExit: 3"):
            async with running:
                for _ in range(300):
                    if running.status.state in ("failed", "stopped"):
                        break
                    await asyncio.sleep(0.1)
        return running

    ended = asyncio.run(run())
    assert ended.status.state == "failed"
    assert ended.metrics.in_work == 0, "the end does not wait for a call that is over"
    assert feed.position() == 0


@pytest.mark.parametrize(("reset", "begin"), [("earliest", 15), ("latest", 20)])
def test_records_that_were_gone_before_the_consumer_read_them_are_told(
    feed: Feed, reset: Any, begin: int, caplog: pytest.LogCaptureFixture
) -> None:
    """librdkafka moved the position by itself, and neither the status nor the metrics told that records were missing."""
    feed.create(1)
    feed.send(numbers(10))
    config = StreamsConfig("any", auto_offset_reset="earliest")
    seen = Seen()
    with consumer(feed, seen, config=config):
        until(lambda: feed.committed().get(0, (0, []))[0] == 10, SECONDS, lambda: str(seen.count))
    feed.send(numbers(20)[10:])
    below = [KafkaPartition(feed.topic, 0, 15)]
    admin = AdminClient({"bootstrap.servers": feed.bootstrap})  # without a name, its futures would never end
    for future in admin.delete_records(below).values():
        future.result()
    seen = Seen()
    with consumer(feed, seen, config=StreamsConfig("any", auto_offset_reset=reset)) as second:
        until(lambda: bool(second.status.removed), SECONDS, lambda: caplog.text)
        feed.send(numbers(21)[20:])
        until(lambda: feed.committed()[0][0] == 21, SECONDS, lambda: f"{seen.count} {caplog.text}")
        assert second.status.removed == {f"{feed.topic}-0": RemovedRange(begin - 10, 10, begin - 1)}
        labels = f'application="any",consumer="{feed.group}",topic="{feed.topic}",partition="0"'
        assert f"streamapp_consumer_removed_records_total{{{labels}}} {begin - 10}\n" in second.exposition()
    assert sorted(chain.from_iterable(seen.by_key.values())) == list(range(begin, 21))
    assert f"{feed.topic}-0: records 10 to 14 are gone (retention) before they were processed" in caplog.text
