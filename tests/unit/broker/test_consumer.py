"""Both consumers give the same columns. The broker is the one that librdkafka brings along for tests, inside this process."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as RdTopicPartition

from streamapp.broker import lasting_consumer
from streamapp.broker.consumer import (
    Client,
    ColumnConsumer,
    ConsumerEvent,
    MessageConsumer,
    RecordConsumer,
    Records,
    lost_at_end,
)
from streamapp.broker.lasting_consumer import LastingConsumer, open_consumer
from streamapp.broker.leader_epochs import FetchedBatch, ReadEnd
from streamapp.broker.librdkafka import COMPILED
from streamapp.errors import ConfigError
from streamapp.records import RecordBatch, TopicPartition

KINDS = [
    pytest.param("columns", marks=pytest.mark.skipif(not COMPILED, reason="no C compiler when installed")),
    "messages",
]
DELAYS = [TopicPartition("delays", 0), TopicPartition("delays", 1)]


def cut_off(position: int, end: int) -> KafkaError:
    """librdkafka's error for a log that has lost its records from ``end`` to ``position``, and has grown again."""
    lost = f"Partition log truncation detected at offset {position} (leader epoch 0): broker end offset is {end} "
    lost += "(offset leader epoch 0). Reset to INVALID.: Local: Partition log truncation detected (broker 3)"
    return KafkaError(KafkaError._AUTO_OFFSET_RESET, lost)


class MockKafka:
    """A broker in librdkafka's own threads."""

    def __init__(self) -> None:
        self.producer = Producer({"test.mock.num.brokers": 1, "linger.ms": 0})
        (broker,) = self.producer.list_topics(timeout=10).brokers.values()
        self.settings = {
            "bootstrap.servers": f"{broker.host}:{broker.port}",
            "group.id": "flights",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 10,
            "fetch.error.backoff.ms": 10,
            "topic.metadata.refresh.fast.interval.ms": 10,
        }

    def write(
        self,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: list[tuple[str, bytes | None]] | None = None,
    ) -> None:
        self.producer.produce(
            "delays", value, key, partition=partition, timestamp=timestamp, headers=headers or []
        )
        assert self.producer.flush(10) == 0


@pytest.fixture
def broker() -> MockKafka:
    return MockKafka()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[Client]:
    """Which of the two `open_consumer` chooses."""
    monkeypatch.setattr(lasting_consumer, "COMPILED", request.param == "columns")
    return ColumnConsumer if request.param == "columns" else MessageConsumer


@pytest.fixture
def consumer(kind: type[Client], broker: MockKafka) -> Iterator[LastingConsumer]:
    made = open_consumer(broker.settings)
    assert isinstance(made, LastingConsumer)
    assert isinstance(made._client, kind)
    yield made
    made.close()


def _until(
    consumer: RecordConsumer, enough: Callable[[Records, list[ConsumerEvent]], bool], most: int = 1000
) -> tuple[dict[TopicPartition, RecordBatch], list[ConsumerEvent]]:
    """Polls, at most a hundred times, until enough has come; columns of one partition put together."""
    records: Records = []
    events: list[ConsumerEvent] = []
    for _ in range(100):
        batches, more = consumer.poll(most, 0.2)
        assert sum(len(batch.offsets) for _, batch in batches) + len(more) <= most
        assert len({tp for tp, _ in batches}) == len(batches)
        records += batches
        events += more
        if enough(records, events):
            break
    joined: dict[TopicPartition, RecordBatch] = {}
    for tp, batch in records:
        known = joined.get(tp)
        joined[tp] = batch if known is None else _joined(known, batch)
    return joined, events


def _joined(a: RecordBatch, b: RecordBatch) -> RecordBatch:
    headers = None
    if a.headers is not None or b.headers is not None:
        headers = [*(a.headers or [()] * len(a.offsets)), *(b.headers or [()] * len(b.offsets))]
    return RecordBatch(
        [*a.keys, *b.keys],
        [*a.values, *b.values],
        [*a.timestamps, *b.timestamps],
        [*a.offsets, *b.offsets],
        headers,
    )


def _ends(count: int) -> Callable[[Records, list[ConsumerEvent]], bool]:
    return lambda records, events: len(events) >= count


def test_the_records_of_each_partition_become_columns(broker: MockKafka, consumer: RecordConsumer) -> None:
    broker.write(0, b"UA", b"5", 1000)
    broker.write(1, None, b"7", 2000)
    broker.write(0, b"AA", None, 3000)
    broker.write(1, b"", b"", 4000)
    consumer.assign(dict.fromkeys(DELAYS, 0))
    records, events = _until(consumer, _ends(2))
    assert records == {
        DELAYS[0]: RecordBatch([b"UA", b"AA"], [b"5", None], [1000, 3000], [0, 1]),
        DELAYS[1]: RecordBatch([None, b""], [b"7", b""], [2000, 4000], [0, 1]),
    }
    assert {(e.partition, e.offset, e.error.code()) for e in events} == {
        (tp, 2, KafkaError._PARTITION_EOF) for tp in DELAYS
    }
    assert [consumer.end(tp) for tp in DELAYS] == [2, 2]


def test_a_position_with_the_epoch_of_its_record_is_compared_with_the_log(
    broker: MockKafka, consumer: LastingConsumer
) -> None:
    """A log that has lost its last records and has grown again looked like the log that was read."""
    for number in range(6):
        broker.write(0, b"UA", b"%d" % number, 1000)
    tp = DELAYS[0]
    consumer.assign({tp: 0})
    records, _ = _until(consumer, _ends(1))
    assert records[tp].offsets == [0, 1, 2, 3, 4, 5]
    read = consumer.epochs.before(tp, 6)
    assert read is not None
    assert read.offset == 6
    assert read.epoch >= 0
    consumer.assign({tp: 4})  # with the epoch of the record before
    records, _ = _until(consumer, _ends(1))
    assert records[tp].offsets == [4, 5]
    other = open_consumer(broker.settings)
    other.epochs.begin(tp, ReadEnd(9, read.epoch))
    other.assign({tp: 11})  # a log with a longer past, whose last offsets had no records
    _, (lost,) = _until(other, _ends(1))
    other.close()
    assert lost.error.code() == KafkaError._AUTO_OFFSET_RESET
    assert lost_at_end(lost.error) == range(6, 9)


def test_headers_are_a_column_where_a_record_has_some(broker: MockKafka, consumer: RecordConsumer) -> None:
    broker.write(0, b"UA", b"1", 1)
    broker.write(0, b"UA", b"2", 2, [("who", b"me"), ("who", None), ("\u00fc", b"")])
    broker.write(0, b"UA", b"3", 3)
    consumer.assign({DELAYS[0]: 0})
    records, _ = _until(consumer, _ends(1))
    assert records[DELAYS[0]].headers == [(), (("who", b"me"), ("who", None), ("\u00fc", b"")), ()]


def test_a_poll_gives_no_more_than_asked_for(broker: MockKafka, consumer: RecordConsumer) -> None:
    for number in range(10):
        broker.write(number % 2, b"k", b"%d" % number, number)
    consumer.assign(dict.fromkeys(DELAYS, 0))
    records, _ = _until(consumer, _ends(2), most=1)
    assert [list(records[tp].values) for tp in DELAYS] == [
        [b"0", b"2", b"4", b"6", b"8"],
        [b"1", b"3", b"5", b"7", b"9"],
    ]


def test_partitions_come_and_go(broker: MockKafka, consumer: RecordConsumer) -> None:
    for number in range(3):
        broker.write(0, b"k", b"%d" % number, number)
        broker.write(1, b"k", b"%d" % number, number)
    consumer.add({DELAYS[0]: 1})
    records, _ = _until(consumer, _ends(1))
    assert {tp: list(batch.offsets) for tp, batch in records.items()} == {DELAYS[0]: [1, 2]}
    consumer.add({DELAYS[1]: 2})
    consumer.remove([DELAYS[0]])
    broker.write(0, b"k", b"3", 3)
    records, _ = _until(consumer, _ends(1))
    assert {tp: list(batch.offsets) for tp, batch in records.items()} == {DELAYS[1]: [2]}


def test_a_paused_partition_gives_nothing_until_it_is_resumed(
    broker: MockKafka, consumer: RecordConsumer
) -> None:
    broker.write(0, b"k", b"v", 1)
    broker.write(1, b"k", b"v", 1)
    consumer.assign(dict.fromkeys(DELAYS, 1))
    _until(consumer, _ends(2))
    consumer.pause(DELAYS[0])
    broker.write(0, b"k", b"held", 1)
    broker.write(1, b"k", b"v", 2)
    records, _ = _until(consumer, lambda records, events: bool(records))
    assert set(records) == {DELAYS[1]}
    consumer.resume(DELAYS[0])
    records, _ = _until(consumer, lambda records, events: any(tp == DELAYS[0] for tp, _ in records))
    assert list(records[DELAYS[0]].values) == [b"held"]


def test_committed_offsets_come_with_their_metadata(broker: MockKafka, consumer: RecordConsumer) -> None:
    broker.write(0, b"k", b"v", 1)
    member = Consumer(broker.settings)
    committed = member.commit(offsets=[RdTopicPartition("delays", 0, 1, "AgAAAZ")], asynchronous=False)
    assert committed[0].error is None
    member.close()
    found = consumer.committed(DELAYS, 10)
    assert found[DELAYS[0]][0] == 1
    assert found[DELAYS[1]][0] < 0


def test_a_position_that_is_gone_is_an_event(broker: MockKafka, consumer: RecordConsumer) -> None:
    broker.write(0, b"k", b"v", 1)
    consumer.assign({DELAYS[0]: 99})
    _, events = _until(consumer, _ends(1))
    assert events[0].partition == DELAYS[0]
    assert events[0].error.code() == KafkaError._AUTO_OFFSET_RESET


@pytest.mark.parametrize("kind", KINDS)
def test_a_setting_that_librdkafka_does_not_know_is_refused(kind: str) -> None:
    settings = {"bootstrap.servers": "127.0.0.1:9", "group.id": "flights", "no.such.setting": "1"}
    make = open_consumer if kind == "columns" else MessageConsumer
    with pytest.raises((ConfigError, KafkaException), match=r"no\.such\.setting"):
        make(settings)


@pytest.mark.skipif(not COMPILED, reason="no C compiler when installed")
def test_what_librdkafka_logs_goes_to_the_logger(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger = logging.getLogger("streamapp.test")
    settings = {"bootstrap.servers": "127.0.0.1:9", "group.id": "flights", "logger": logger}
    consumer = open_consumer(settings)
    assert isinstance(consumer, LastingConsumer)
    assert isinstance(consumer._client, ColumnConsumer)
    with caplog.at_level(logging.DEBUG, "streamapp.test"):
        for _ in range(100):
            consumer.poll(1, 0.1)
            if "127.0.0.1:9" in caplog.text:
                break
    consumer.close()
    assert "127.0.0.1:9" in caplog.text
    with pytest.raises(RuntimeError, match="closed"):
        consumer.poll(1, 0)


def test_settings_with_callbacks_are_confluent_kafkas(broker: MockKafka) -> None:
    consumer = open_consumer({**broker.settings, "error_cb": print})
    assert isinstance(consumer, LastingConsumer)
    assert isinstance(consumer._client, MessageConsumer)
    consumer.close()


def test_a_client_knows_that_it_has_lost_all_brokers(kind: type[Client]) -> None:
    lost = open_consumer({"bootstrap.servers": "127.0.0.1:9", "group.id": "flights"})
    assert isinstance(lost, LastingConsumer)
    client = lost._client
    for _ in range(100):
        client.poll(1, 0.1)
        if client.take_lost():
            break
    else:
        pytest.fail("it has not noticed in ten seconds")
    assert not client.take_lost()
    lost.close()


def test_an_end_that_came_before_the_records_takes_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told behind them. A worker counted five records twice, under exactly_once_v2."""
    monkeypatch.setattr(lasting_consumer, "REOPEN_SECONDS", 0.0)
    first, second = DELAYS
    batch = RecordBatch([b"k"] * 2, [b"v"] * 2, [1, 1], [5, 6])
    ended = KafkaError(KafkaError._PARTITION_EOF)
    opened: list[Any] = []

    class Losing:
        def __init__(self) -> None:
            self.assigned: dict[TopicPartition, int] = {}
            opened.append(self)

        def assign(self, positions: Mapping[TopicPartition, int], epochs: object) -> None:
            self.assigned = dict(positions)

        def poll(self, most: int, timeout: float) -> tuple[Records, list[ConsumerEvent]]:
            return [(first, batch)], [ConsumerEvent(first, 5, ended), ConsumerEvent(second, 9, ended)]

        def take_lost(self) -> bool:
            return True

        def close(self) -> None: ...

    lasting = LastingConsumer(Losing)  # type: ignore[arg-type]
    lasting.assign({first: 5, second: 7})
    lasting.poll(10, 0.0)
    assert opened[1].assigned == {first: 7, second: 9}


def test_a_consumer_that_is_opened_anew_compares_its_last_records_with_the_logs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """During an outage of all brokers, an unclean leader election may remove these records."""
    monkeypatch.setattr(lasting_consumer, "REOPEN_SECONDS", 0.0)
    first, second = DELAYS
    batch = FetchedBatch.of([(0, 3), (2, 4)], [b"k"] * 3, [b"v"] * 3, [1] * 3, [5, 6, 8])
    opened: list[Any] = []

    class Losing:
        def __init__(self) -> None:
            opened.append(self)

        def assign(self, *started: Mapping[TopicPartition, int]) -> None:
            self.started = started

        def remove(self, partitions: Collection[TopicPartition]) -> None: ...

        def poll(self, most: int, timeout: float) -> tuple[Records, list[ConsumerEvent]]:
            ended = KafkaError(KafkaError._PARTITION_EOF)
            return [(first, batch)], [ConsumerEvent(first, 12, ended)]

        def take_lost(self) -> bool:
            return True

        def close(self) -> None: ...

    lasting = LastingConsumer(Losing)  # type: ignore[arg-type]
    lasting.assign({first: 5, second: 7})
    assert opened[0].started == ({first: 5, second: 7}, {})
    lasting.poll(10, 0.0)
    assert opened[1].started == (
        {first: 9, second: 7},
        {first: 4},
    )  # behind the last record, before the markers
    assert [lasting.epochs.before(first, position) for position in (5, 7, 8, 9, 12)] == [
        None,
        ReadEnd(7, 3),
        ReadEnd(7, 3),
        ReadEnd(9, 4),
        ReadEnd(9, 4),
    ]
    lasting.remove([first])
    lasting.assign({first: 12})
    assert opened[1].started == ({first: 12}, {})


def test_a_consumer_that_lost_all_brokers_goes_on_where_it_was(
    consumer: LastingConsumer, broker: MockKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lasting_consumer, "REOPEN_SECONDS", 0.0)
    first, second = DELAYS
    for partition in (0, 1):
        broker.write(partition, b"k", b"before", 1)
    consumer.assign({first: 0, second: 0})
    _until(consumer, lambda records, events: len(events) == 2)
    consumer.pause(second)
    before = consumer._client
    monkeypatch.setattr(before, "take_lost", lambda: True)
    consumer.poll(1, 0)
    assert consumer._client is not before
    for partition in (0, 1):
        broker.write(partition, b"k", b"after", 2)
    records, _ = _until(consumer, lambda records, events: bool(records))
    assert {tp: batch.values for tp, batch in records.items()} == {first: [b"after"]}
    consumer.resume(second)
    records, _ = _until(consumer, lambda records, events: bool(records))
    assert {tp: batch.values for tp, batch in records.items()} == {second: [b"after"]}


@pytest.mark.skipif(not COMPILED, reason="confluent-kafka's consumer cannot be woken")
def test_a_poll_that_waits_is_woken(broker: MockKafka) -> None:
    made = open_consumer({**broker.settings, "enable.partition.eof": False})
    broker.write(0, b"k", b"v", 1)
    made.assign({DELAYS[0]: 1})
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(made.poll(10, 3_600)), daemon=True)
    waiting.start()
    made.wake()
    waiting.join(60)
    assert answers == [([], [])]
    # Woken while nobody waits: the next poll gives what is there, and does not wait where nothing is.
    made.wake()
    assert made.poll(10, 3_600) == ([], [])
    made.close()
    made.wake()


@pytest.mark.skipif(not COMPILED, reason="confluent-kafka's consumer cannot be woken")
def test_a_poll_that_is_woken_leaves_no_record_out(broker: MockKafka) -> None:
    made = open_consumer(broker.settings)
    for n in range(200):
        broker.write(0, b"k", b"%d" % n, n)
    made.assign({DELAYS[0]: 0})
    values: list[bytes | None] = []
    patience = time.monotonic() + 60
    while time.monotonic() < patience:
        made.wake()
        batches, events = made.poll(7, 0.01)
        values += [value for _, batch in batches for value in batch.values]
        if events:
            break
    assert values == [b"%d" % n for n in range(200)]
    made.close()


@pytest.mark.parametrize("given", ["assigned", "removed and added", "given up and assigned"])
def test_a_pause_ends_with_the_assignment(consumer: LastingConsumer, broker: MockKafka, given: str) -> None:
    """librdkafka keeps the pause: an input that was paused before a rebalance stood still for good after it."""
    first, second = DELAYS
    for partition in (0, 1):
        broker.write(partition, b"k", b"before", 1)
    consumer.assign({first: 0, second: 0})
    _until(consumer, lambda records, events: len(events) == 2)
    consumer.pause(second)
    if given == "removed and added":
        consumer.remove([second])
        consumer.add({second: 1})
    else:
        if given == "given up and assigned":
            consumer.assign({})
        consumer.assign({first: 1, second: 1})
    broker.write(1, b"k", b"after", 2)
    records, _ = _until(consumer, lambda records, events: bool(records))
    assert {tp: batch.values for tp, batch in records.items()} == {second: [b"after"]}


def test_a_partition_that_the_client_has_stopped_to_fetch_is_fetched_anew(
    kind: type[Client], broker: MockKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause behind the consumer's back stands for librdkafka's own faults, which come by chance."""
    monkeypatch.setattr(lasting_consumer, "STALL_SECONDS", 0.2)
    monkeypatch.setattr(lasting_consumer, "_LOOK_SECONDS", 0.0)
    first, second = DELAYS
    ends = {first: 1, second: 1}
    consumer = open_consumer(broker.settings, lambda partitions: {tp: ends[tp] for tp in partitions})
    for partition in (0, 1):
        broker.write(partition, b"k", b"before", 1)
    consumer.assign({first: 0, second: 0})
    _until(consumer, lambda records, events: len(events) == 2)
    consumer._client.pause(second)
    broker.write(1, b"k", b"after", 2)
    ends[second] = 2
    records, _ = _until(consumer, lambda records, events: bool(records))
    assert {tp: batch.values for tp, batch in records.items()} == {second: [b"after"]}
    assert consumer.stalled is None
    consumer.close()


def test_a_record_that_is_larger_than_all_answers_may_be_is_an_error(
    kind: type[Client], broker: MockKafka
) -> None:
    """The connection was closed and opened again without end, and only librdkafka's log named the setting."""
    broker.write(0, b"k", bytes(50_000), 1)
    small = {"message.max.bytes": 1_000, "fetch.max.bytes": 1_000, "receive.message.max.bytes": 20_000}
    consumer = open_consumer({**broker.settings, **small})
    consumer.assign({DELAYS[0]: 0})
    with pytest.raises(ConfigError, match="receive.message.max.bytes in client_properties is 20000. Raise"):
        _until(consumer, lambda records, events: False)
    consumer.close()


INTERNAL, EXTERNAL = DELAYS


class _Deferring(LastingConsumer):
    """Defers one of two partitions of a topic. A worker defers whole topics."""

    def _defer(self) -> None:
        super()._defer()
        self._deferred = [tp for tp in self._next if tp == EXTERNAL]
        self._defer_again()


@pytest.fixture
def deferring(broker: MockKafka, monkeypatch: pytest.MonkeyPatch) -> Iterator[LastingConsumer]:
    if not COMPILED:
        pytest.skip("confluent-kafka's consumer cannot defer partitions")
    monkeypatch.setattr(lasting_consumer, "LastingConsumer", _Deferring)
    monkeypatch.setattr(lasting_consumer, "MOST_DEFERRED", 7)
    made = open_consumer({**broker.settings, "enable.partition.eof": False})
    yield made
    made.close()


def test_records_of_deferred_partitions_come_after_those_of_the_others(
    broker: MockKafka, deferring: LastingConsumer
) -> None:
    for n in range(300):
        broker.write(1, b"external", b"%d" % n, n)
    deferring.assign({INTERNAL: 0, EXTERNAL: 0})
    values: list[bytes | None] = []
    written = behind = None
    while not values or values[-1] != b"299":
        batches, _ = deferring.poll(20, 60)
        for tp, batch in batches:
            if tp == EXTERNAL:
                assert len(batch.offsets) <= 7
                values += batch.values
            else:
                behind = len(values)
        if values and written is None:
            # The other records were fetched together with the first ones.
            broker.write(0, b"internal", b"first", 1)
            written = len(values)
        if written is not None and behind is None:
            time.sleep(0.05)
    assert values == [b"%d" % n for n in range(300)]
    assert behind is not None
    assert behind < 300


def test_deferred_partitions_go_on_while_others_have_more_than_enough(
    broker: MockKafka, deferring: LastingConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lasting_consumer, "MOST_DEFERRED", 30)
    for n in range(200):
        broker.producer.produce("delays", b"%d" % n, b"k", partition=n % 2)
    assert broker.producer.flush(10) == 0
    deferring.assign({INTERNAL: 0, EXTERNAL: 0})
    taken = {INTERNAL: 0, EXTERNAL: 0}
    while min(taken.values()) < 100:
        batches, _ = deferring.poll(10, 60)
        for tp, batch in batches:
            taken[tp] += len(batch.offsets)
            assert tp == EXTERNAL or len(batch.offsets) <= 7  # the room of three records is kept


def test_a_poll_that_waits_gets_the_first_record_of_a_deferred_partition(
    broker: MockKafka, deferring: LastingConsumer
) -> None:
    broker.write(1, b"k", b"before", 1)
    deferring.assign({INTERNAL: 0, EXTERNAL: 1})
    arrived: Records = []

    def wait() -> None:
        while not arrived:  # a poll may also end without a record
            arrived.extend(deferring.poll(10, 3_600)[0])

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    broker.write(1, b"k", b"after", 2)
    waiting.join(60)
    assert [(tp, batch.values) for tp, batch in arrived] == [(EXTERNAL, [b"after"])]


def test_a_poll_with_deferred_partitions_is_woken_also_before_it_waits(
    broker: MockKafka, deferring: LastingConsumer
) -> None:
    for partition in (0, 1):
        broker.write(partition, b"k", b"v", 1)
    deferring.assign({INTERNAL: 1, EXTERNAL: 1})
    for _ in range(5):
        deferring.poll(10, 0.1)  # what the assignment has left to say
    deferring.wake()
    waiting = threading.Thread(target=lambda: deferring.poll(10, 3_600), daemon=True)
    waiting.start()
    waiting.join(60)
    assert not waiting.is_alive()


@pytest.mark.parametrize("how", ["assigned", "removed and added", "all given up"])
def test_a_deferred_partition_goes_on_after_each_assignment(
    broker: MockKafka, deferring: LastingConsumer, how: str
) -> None:
    """librdkafka takes a partition out of its queue some time after a removal, also if it is read again by then."""
    broker.write(0, b"k", b"internal", 1)
    broker.write(1, b"k", b"0", 1)
    deferring.assign({INTERNAL: 1, EXTERNAL: 0})
    for n in range(25):
        values: list[bytes | None] = []
        for _ in range(300):
            batches, _ = deferring.poll(10, 0.2)
            values += [value for _, batch in batches for value in batch.values]
            if values:
                break
        assert values == [b"%d" % n]
        broker.write(1, b"k", b"%d" % (n + 1), 1)
        if how == "removed and added":
            deferring.remove([EXTERNAL])
            deferring.add({EXTERNAL: n + 1})
        else:
            if how == "all given up":
                deferring.assign({})
            deferring.assign({INTERNAL: 1, EXTERNAL: n + 1})


def test_a_deferred_partition_does_not_stall_while_others_are_in_front(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lasting_consumer, "_MANY_RECORDS", 10)
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    internal, external = TopicPartition("repartitioned", 0), TopicPartition("flights", 0)
    ends = {internal: 10_000, external: 5}
    client = _Scripted()
    consumer = LastingConsumer(
        lambda: client,  # type: ignore[arg-type, return-value]
        ends=lambda partitions: ends,
        deferred=lambda topic: topic == "flights",
    )
    consumer.assign({internal: 0, external: 0})
    for second in range(200):
        now = float(second)
        client.arrived = [(internal, RecordBatch([b""], [b""], [0], [second], None))]
        consumer.poll(10, 0)
    assert client.added == []
    assert consumer.behind_others(external)
    client.arrived = []
    consumer.poll(10, 0)  # nothing is in front any more
    for second in range(200, 300):
        now = float(second)
        client.arrived = [(internal, RecordBatch([b""], [b""], [0], [second], None))]
        consumer.poll(10, 0)
    assert client.added == [{external: 0}]


class _Scripted:
    """A client that gives ``arrived``."""

    def __init__(self) -> None:
        self.arrived: Records = []
        self.added: list[Mapping[TopicPartition, int]] = []

    def poll(self, most: int, timeout: float) -> tuple[Records, list[ConsumerEvent]]:
        return self.arrived, []

    def assign(self, positions: Mapping[TopicPartition, int], epochs: object) -> None: ...
    def remove(self, partitions: list[TopicPartition]) -> None: ...
    def resume(self, partition: TopicPartition) -> None: ...
    def defer(self, partitions: list[TopicPartition], most: int) -> None: ...

    def add(self, positions: Mapping[TopicPartition, int], epochs: object) -> None:
        self.added.append(positions)

    def end(self, partition: TopicPartition) -> int:
        return -1

    def take_lost(self) -> bool:
        return False
