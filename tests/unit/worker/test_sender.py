"""Both producers write the same and tell the same failures. The broker is librdkafka's own for tests, inside this process."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as RdTopicPartition
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamapp._base.partitioning import partition_for
from streamapp.broker.librdkafka import COMPILED
from streamapp.engine.runner_ports import Position
from streamapp.errors import ConfigError
from streamapp.records import TopicPartition
from streamapp.runners.worker.membership import Member
from streamapp.runners.worker.sender import (
    ConfluentSender,
    Failure,
    NativeSender,
    Sender,
    open_sender,
)

KINDS = [
    pytest.param("native", marks=pytest.mark.skipif(not COMPILED, reason="no C compiler when installed")),
    "confluent",
]
NOBODY = {"bootstrap.servers": "127.0.0.1:9", "log_level": 0}
Open = Callable[..., tuple[Sender, list[Failure]]]


@pytest.fixture(params=KINDS)
def opened(request: pytest.FixtureRequest) -> Open:
    def make(servers: dict[str, Any], **more: Any) -> tuple[Sender, list[Failure]]:
        failures: list[Failure] = []
        given = {
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "linger.ms": 0,
            "delivery.report.only.error": True,
            **servers,
        }
        given |= {name.replace("_", "."): value for name, value in more.items()}
        if request.param == "native":
            sender: Sender = open_sender(given, failures.append)
            assert isinstance(sender, NativeSender)
            return sender, failures
        return ConfluentSender(given, failures.append), failures

    return make


@pytest.fixture(scope="module")
def broker() -> Iterator[dict[str, Any]]:
    keeper = Producer({"test.mock.num.brokers": 1})
    (found,) = keeper.list_topics(timeout=10).brokers.values()
    yield {"bootstrap.servers": f"{found.host}:{found.port}"}
    del keeper


def read(broker: dict[str, Any], topic: str, count: int) -> list[tuple[Any, ...]]:
    """Partition, key, value, timestamp and headers, in the order of each partition."""
    consumer = Consumer({**broker, "group.id": "check", "auto.offset.reset": "earliest"})
    consumer.assign([RdTopicPartition(topic, number, 0) for number in range(4)])
    found = []
    for _ in range(200):
        found += [
            (m.partition(), m.key(), m.value(), m.timestamp()[1], tuple(m.headers() or ()))
            for m in consumer.consume(count, 0.1)
            if m.error() is None
        ]
        if len(found) >= count:
            break
    consumer.close()
    return sorted(found, key=lambda row: row[0])


texts = st.none() | st.binary(max_size=30)
rows = st.lists(
    st.tuples(
        st.integers(0, 3),
        texts,
        texts,
        st.integers(1, 2**42),
        st.lists(st.tuples(st.text("abä", max_size=3), texts), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=20,
)
_topics = iter(range(10_000))


@given(rows)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_sent_is_written(opened: Open, broker: dict[str, Any], sent: list[tuple[Any, ...]]) -> None:
    sender, failures = opened(broker)
    topic = f"delays-{next(_topics)}"
    for partition, key, value, timestamp, headers in sent:
        sender.produce(topic, value, key, partition, timestamp, headers)
    assert sender.flush(10) == 0 == len(sender)
    assert read(broker, topic, len(sent)) == sorted(sent, key=lambda row: row[0])
    assert failures == []


@given(
    st.lists(
        st.tuples(st.binary(max_size=9), st.none() | st.binary(max_size=9), st.integers(0, 2**42)),
        max_size=20,
    ),
    st.integers(0, 5),
)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_are_written_as_columns_in_their_order(
    opened: Open, broker: dict[str, Any], rows: list[tuple[Any, ...]], skipped: int
) -> None:
    sender, failures = opened(broker)
    topic = f"delays-{next(_topics)}"
    start, end = min(skipped, len(rows)), len(rows)
    keys, values, timestamps = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    assert sender.produce_rows(topic, 2, keys, values, timestamps, start, end) == end
    assert sender.taken() == (
        end - start,
        sum(len(key) + len(value or b"") for key, value, _ in rows[start:]),
    )
    assert sender.flush(10) == 0
    if rows[start:]:
        # librdkafka takes 0 for the current time, so it is written as 1.
        assert read(broker, topic, end - start) == [(2, k, v, at or 1, ()) for k, v, at in rows[start:]]
    assert failures == []


def test_rows_stop_at_one_that_is_too_large(opened: Open) -> None:
    sender, failures = opened(NOBODY, message_max_bytes=1_000)
    values: list[bytes | None] = [b"v", b"x" * 2_000, b"v"]
    keys, timestamps = [b"a", b"b", b"c"], [1, 1, 1]
    assert sender.produce_rows("delays", 0, keys, values, timestamps, 0, 3) == 1
    assert sender.produce_rows("delays", 0, keys, values, timestamps, 2, 3) == 3
    assert sender.taken() == (2, 4)
    assert failures == []
    sender.purge()


def test_rows_stop_where_the_queue_is_full(opened: Open) -> None:
    sender, _ = opened(NOBODY, queue_buffering_max_messages=2)
    assert sender.produce_rows("delays", 0, [b"a"] * 4, [b"v"] * 4, [1] * 4, 0, 4) == 2
    sender.purge()


def test_rows_with_a_key_that_is_no_bytes_raise(opened: Open) -> None:
    sender, _ = opened(NOBODY)
    keys: list[Any] = [b"a", 5]
    with pytest.raises(TypeError):
        sender.produce_rows("delays", 0, keys, [b"v"] * 2, [1] * 2, 0, 2)
    sender.purge()


def test_without_a_partition_the_key_chooses_as_in_java(opened: Open, broker: dict[str, Any]) -> None:
    sender, _ = opened(broker)
    keys = [f"N{number}".encode() for number in range(20)]
    topic = f"delays-{next(_topics)}"
    for key in keys:
        sender.produce(topic, b"", key, -1, 1, ())
    sender.flush(10)
    assert {(row[0], row[1]) for row in read(broker, topic, 20)} == {
        (partition_for(key, 4), key) for key in keys
    }


def test_a_record_that_is_too_large_is_refused_at_once(opened: Open, broker: dict[str, Any]) -> None:
    sender, _ = opened(broker, message_max_bytes=1_000)
    with pytest.raises(KafkaException) as refused:
        sender.produce("delays", b"x" * 2_000, None, 0, 1, (("a", b"b"),))
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_what_could_not_be_written_in_time_is_told_as_it_was_sent(opened: Open) -> None:
    sender, failures = opened(NOBODY, message_timeout_ms=1)
    sender.produce("delays", b"v", None, 2, 77, (("trace", b"1"),))
    for _ in range(100):
        sender.poll(0.1)
        if failures:
            break
    (failure,) = failures
    assert failure[1:] == ("delays", 2, None, b"v", 77)
    assert sender.taken() == (1, 1)
    assert failure.error.code() == KafkaError._MSG_TIMED_OUT


def test_a_full_queue_says_so_and_a_purge_empties_it(opened: Open) -> None:
    sender, failures = opened(NOBODY, queue_buffering_max_messages=2)
    sender.produce("delays", b"1", b"k", 0, 1, ())
    sender.produce("delays", b"2", b"k", 0, 1, ())
    with pytest.raises(BufferError):
        sender.produce("delays", b"3", b"k", 0, 1, (("a", None),))
    assert sender.flush(0) >= 2  # errors of the connection count as well
    sender.purge()
    sender.poll(0.1)
    assert [failure.error.code() for failure in failures] == [KafkaError._PURGE_QUEUE] * 2


def test_send_now_does_not_wait_for_more_records(opened: Open, broker: dict[str, Any]) -> None:
    sender, _ = opened(broker, linger_ms=600_000, message_timeout_ms=700_000)
    for value in (b"1", b"2"):
        sender.produce("delays-sent-now", value, b"k", 0, 1, ())
        for _ in range(1_000):
            sender.send_now()
            if not len(sender):
                break
            time.sleep(0.01)
        assert len(sender) == 0


def test_a_transaction_takes_the_offsets_of_a_group(opened: Open, broker: dict[str, Any]) -> None:
    topic = f"delays-{next(_topics)}"
    sender, _ = opened(broker, transactional_id=f"t-{topic}")
    sender.init_transactions(10)
    sender.begin_transaction()
    sender.produce(topic, b"v", b"k", 0, 1, ())
    sender.flush(10)
    positions = {TopicPartition(topic, 0): Position(41, "as of ä")}
    sender.send_offsets(positions, topic, Member(-1, ""), 10)
    sender.commit_transaction(10)
    assert [row[:3] for row in read(broker, topic, 1)] == [(0, b"k", b"v")]
    sender.begin_transaction()
    sender.abort_transaction(10)


def test_an_error_of_a_transaction_says_what_can_be_done(opened: Open, broker: dict[str, Any]) -> None:
    sender, _ = opened(broker, transactional_id="t-misused")
    with pytest.raises(KafkaException) as refused:
        sender.begin_transaction()
    error = refused.value.args[0]
    assert (error.code(), error.fatal(), error.retriable()) == (KafkaError._STATE, False, False)


def test_a_setting_that_does_not_exist_is_named(opened: Open) -> None:
    with pytest.raises((ConfigError, KafkaException), match="linger.mz"):
        opened(NOBODY, linger_mz=3)


@pytest.mark.skipif(not COMPILED, reason="no C compiler when installed")
class TestNative:
    def test_the_thread_that_sends_now_ends_with_its_sender(self, broker: dict[str, Any]) -> None:
        before = set(threading.enumerate())
        sender = open_sender(broker, lambda failure: None)
        sender.send_now()
        (thread,) = set(threading.enumerate()) - before
        del sender
        thread.join(30)
        assert not thread.is_alive()

    def test_settings_with_callbacks_are_left_to_confluent(self) -> None:
        sender = open_sender({**NOBODY, "stats_cb": print}, lambda failure: None)
        assert isinstance(sender, ConfluentSender)

    def test_errors_of_the_client_are_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        sender = open_sender({**NOBODY, "logger": logging.getLogger("sent")}, lambda failure: None)
        for _ in range(100):
            sender.poll(0.1)
            if "brokers are down" in caplog.text:
                break
        assert "brokers are down" in caplog.text

    @pytest.mark.parametrize(
        "arguments",
        [
            ("t", "text", None, 0, 1, ()),
            (1, b"v", None, 0, 1, ()),
            ("t", b"v", None, None, 1, ()),
            ("t", b"v", None, 0, "now", ()),
            ("t", b"v", None, 0, 1, ("a",)),
            ("t", b"v", None, 0, 1, ((1, b""),)),
            ("t", b"v", None, 0, 1),
        ],
    )
    def test_arguments_of_another_type_are_refused(self, arguments: tuple[Any, ...]) -> None:
        purged: list[Failure] = []
        sender = open_sender({**NOBODY, "delivery.report.only.error": True}, purged.append)
        with pytest.raises((TypeError, ValueError)):
            sender.produce(*arguments)
        sender.purge()
        sender.poll(0.1)
        assert purged == []
