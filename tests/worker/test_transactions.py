from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as RdTopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from streamapp.broker import LocalKafka
from streamapp.broker.consumer import committed_metadata
from streamapp.broker.transacting import open_transactions
from streamapp.engine.runner_ports import Position
from streamapp.errors import BrokerError
from streamapp.records import TopicPartition
from streamapp.runners.worker.membership import Member, StaleMemberError
from streamapp.runners.worker.sender import ConfluentSender, Sender, group_metadata, open_sender
from streamapp.runners.worker.transactions import (
    OffsetsNotAnswered,
    TransactionAborted,
    commit_transaction,
)


def test_the_bytes_are_those_of_the_installed_librdkafka() -> None:
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:9", "group.id": "flights", "log_level": 0})
    # A consumer that has not joined: generation -1, empty member id.
    assert consumer.consumer_group_metadata() == group_metadata("flights", Member(-1, ""))
    consumer.close()


class FakeProducer:
    def __init__(self, *errors: KafkaException | None) -> None:
        self.errors, self.calls = list(errors), []

    def _call(self, name: str) -> None:
        self.calls.append(name)
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error

    def send_offsets(self, *_: object) -> None:
        self._call("offsets")

    def commit_transaction(self, *_: object) -> None:
        self._call("commit")

    def init_transactions(self, *_: object) -> None:
        self._call("init")


def failing(code: int, **flags: bool) -> KafkaException:
    return KafkaException(KafkaError(code, "no", **flags))


def run(producer: FakeProducer, between: Callable[[], None] = lambda: None) -> None:
    commit_transaction(producer, {}, "flights", Member(3, "m"), 10.0, 10.0, between, lambda: True)  # type: ignore[arg-type]


def test_offsets_come_before_the_commit() -> None:
    producer = FakeProducer()
    run(producer, lambda: producer.calls.append("between"))
    assert producer.calls == ["offsets", "between", "commit"]


@pytest.mark.parametrize("code", [KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID])
def test_a_replaced_member_is_told_apart(code: int) -> None:
    producer = FakeProducer(failing(code, txn_requires_abort=True))
    with pytest.raises(StaleMemberError):
        run(producer)
    assert producer.calls == ["offsets"]


@pytest.mark.parametrize("flags", [{"txn_requires_abort": True}, {"fatal": True}])
def test_any_other_error_rolls_back(flags: dict[str, bool]) -> None:
    producer = FakeProducer(None, failing(KafkaError._TIMED_OUT, **flags))
    with pytest.raises(TransactionAborted):
        run(producer)
    assert producer.calls == ["offsets", "commit"]


def test_a_retriable_error_is_retried() -> None:
    producer = FakeProducer(failing(KafkaError._TIMED_OUT, retriable=True))
    run(producer)
    assert producer.calls == ["offsets", "offsets", "commit"]


def test_brokers_that_do_not_answer_are_asked_again_and_then_named() -> None:
    slow = failing(KafkaError._TIMED_OUT, retriable=True)
    producer = FakeProducer(slow)
    open_transactions(producer, 10.0)  # type: ignore[arg-type]
    assert producer.calls == ["init", "init"]
    with pytest.raises(BrokerError, match="transactions are not possible: no"):
        open_transactions(FakeProducer(slow), 0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (KafkaError._TIMED_OUT, "transaction.state.log.replication.factor"),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Grant this client WRITE on its transactional id"),
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, "at most transaction.max.timeout.ms"),
        (KafkaError.UNKNOWN, "Check that all brokers run"),
    ],
)
def test_a_producer_that_does_not_open_has_the_advice_for_its_error(code: int, advice: str) -> None:
    with pytest.raises(BrokerError, match=f"transactions are not possible: no. .*{advice}"):
        open_transactions(FakeProducer(failing(code)), 0.0)  # type: ignore[arg-type]


def test_a_producer_that_does_not_open_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the clock was set back by hours, a worker waited for its new producer, and kept its tasks."""
    monkeypatch.setattr("streamapp.broker.transacting._MARGIN_SECONDS", 0.05)
    answered = threading.Event()

    class Hanging(FakeProducer):
        def init_transactions(self, timeout: float) -> None:
            answered.wait(60)

    try:
        with pytest.raises(BrokerError, match="transactions are not possible: librdkafka has not come back"):
            open_transactions(Hanging(), 0.0)  # type: ignore[arg-type]
    finally:
        answered.set()


@pytest.mark.parametrize("step", [0, 1], ids=["offsets", "commit"])
def test_a_commit_that_is_not_done_in_time_rolls_back(step: int) -> None:
    slow = failing(KafkaError._TIMED_OUT, retriable=True)
    producer = FakeProducer(*[None] * step, slow)
    with pytest.raises(TransactionAborted):
        commit_transaction(producer, {}, "flights", Member(3, "m"), 0.0, 0.0, lambda: None, lambda: False)  # type: ignore[arg-type]
    assert producer.calls == ["offsets", "commit"][: step + 1]


def test_a_call_that_does_not_come_back_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamapp.broker.transacting._MARGIN_SECONDS", 0.05)
    answered = threading.Event()

    class Hanging(FakeProducer):
        def send_offsets(self, *_: object) -> None:
            self.calls.append("offsets")
            answered.wait(60)

        def abort_transaction(self, seconds: float) -> None:
            self.calls.append("abort")
            ended.set()

    ended = threading.Event()
    producer = Hanging()
    with pytest.raises(OffsetsNotAnswered):
        commit_transaction(producer, {}, "flights", Member(3, "m"), 0.0, 0.0, lambda: None, lambda: False)  # type: ignore[arg-type]
    assert producer.calls == ["offsets"]
    answered.set()
    assert ended.wait(10)  # the last that has the producer makes it ready to be thrown away
    assert producer.calls == ["offsets", "abort"]


@pytest.mark.parametrize(
    ("answers", "seconds", "message"),
    [
        ([True], 60.0, "by brokers that answer other requests"),
        ([False], 0.5, "rolled back: no"),
        ([True, False], 0.5, "rolled back: no"),
    ],
)
def test_a_commit_waits_for_brokers_that_are_away_and_not_for_those_that_answer_others(
    monkeypatch: pytest.MonkeyPatch, answers: list[bool], seconds: float, message: str
) -> None:
    monkeypatch.setattr("streamapp.runners.worker.transactions._LOOK_SECONDS", 0.0)
    monkeypatch.setattr("streamapp.runners.worker.transactions._LOST_SECONDS", 0.1)
    looks = itertools.cycle(answers)

    class Slow(FakeProducer):
        def commit_transaction(self, *_: object) -> None:
            time.sleep(0.01)
            raise failing(KafkaError._TIMED_OUT, retriable=True)

    with pytest.raises(TransactionAborted, match=message):
        commit_transaction(
            Slow(),  # type: ignore[arg-type]
            {},
            "flights",
            Member(3, "m"),
            1.0,
            seconds,
            lambda: None,
            lambda: next(looks),
        )


@pytest.fixture(params=[open_sender, ConfluentSender])
def make_sender(request: pytest.FixtureRequest) -> Callable[..., Sender]:
    return request.param  # type: ignore[no-any-return]


@pytest.mark.broker
def test_brokers_refuse_offsets_of_a_member_that_was_replaced(
    kafka: LocalKafka, make_sender: Callable[..., Sender]
) -> None:
    settings = {"bootstrap.servers": kafka.bootstrap_servers}
    topic, group = f"fencing-{uuid.uuid4().hex[:8]}", f"group-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(settings)
    for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        future.result()
    consumer = Consumer({**settings, "group.id": group})
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    joined = Member(1, consumer.memberid())
    assert consumer.consumer_group_metadata() == group_metadata(group, joined)

    sender = make_sender({**settings, "transactional.id": topic}, lambda failure: None)
    sender.init_transactions(30.0)
    offsets = {TopicPartition(topic, 0): Position(5, "as of now")}
    for stale in (Member(0, joined.member_id), Member(1, "somebody-else")):
        sender.begin_transaction()
        with pytest.raises(StaleMemberError):
            commit_transaction(sender, offsets, group, stale, 30.0, 30.0, lambda: None, lambda: False)
        sender.abort_transaction(30.0)
    sender.begin_transaction()
    commit_transaction(sender, offsets, group, joined, 30.0, 30.0, lambda: None, lambda: False)
    (committed,) = consumer.committed([RdTopicPartition(topic, 0)])
    assert committed.offset == 5
    assert committed_metadata(committed).startswith("as of now")
    consumer.close()
