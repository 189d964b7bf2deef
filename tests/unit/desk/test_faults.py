"""Kafka fails while the desk reads or writes: the desk raises streamapp's errors, which say what to do."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamapp import StreamsConfig
from streamapp.broker import KafkaAdmin
from streamapp.desk import desk as desk_module
from streamapp.desk import desk_transactions
from streamapp.desk.desk import FailureDesk, read_record
from streamapp.errors import BrokerError
from streamapp.records import OutputRecord

CONFIG = StreamsConfig("app", dead_letter_queue_topic="dead", bootstrap_servers="localhost:1")


@pytest.fixture(autouse=True)
def known_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster has told its topics, and then goes away."""
    monkeypatch.setattr(KafkaAdmin, "partition_counts", lambda self, topics: dict.fromkeys(topics, 1))
    monkeypatch.setattr(KafkaAdmin, "topic_id", lambda self, topic: "A1")
    monkeypatch.setattr(KafkaAdmin, "ensure_topics", lambda self, topics: None)
    monkeypatch.setattr(desk_module, "KafkaAdmin", partial(KafkaAdmin, timeout=0.1))


def test_a_partition_whose_broker_is_gone_is_a_broker_error() -> None:
    with pytest.raises(BrokerError, match=r"dead-0 .* Check that Kafka runs"):
        read_record(CONFIG, "dead", 0, 3)
    with pytest.raises(BrokerError, match=r"dead-desk-0 .* Check that Kafka runs"):
        FailureDesk(CONFIG).scan()


class Refusing:
    """A producer of transactions that refuses each record."""

    def __init__(self, settings: dict[str, Any]) -> None: ...

    def init_transactions(self, seconds: float) -> None: ...

    def begin_transaction(self) -> None: ...

    def abort_transaction(self, seconds: float) -> None: ...

    def flush(self, seconds: float) -> None: ...

    def produce(self, topic: str, **record: Any) -> None:
        raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))


def test_a_record_that_the_client_refuses_is_a_broker_error_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(desk_transactions, "Producer", Refusing)
    with (
        desk_transactions.DeskTransactions(CONFIG, "dead", "dead-desk") as transactions,
        pytest.raises(
            BrokerError,
            match="letter 0-7: a record for flights .*key and value: 6 bytes.* Raise max.message.bytes",
        ),
    ):
        transactions.write([desk_transactions.Row("0-7", OutputRecord("flights", b"N1", b"late", 5))])


class Fenced(Refusing):
    """A producer that another desk has fenced."""

    def flush(self, seconds: float) -> None:
        raise KafkaException(KafkaError(KafkaError._FENCED, fatal=True))

    def produce(self, topic: str, **record: Any) -> None: ...

    def poll(self, seconds: float) -> None: ...


def test_the_end_of_a_fenced_desk_does_not_hide_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_transactions, "Producer", Fenced)
    with (
        pytest.raises(BrokerError, match="another desk began to write.*Use one desk at a time"),
        desk_transactions.DeskTransactions(CONFIG, "dead", "dead-desk") as transactions,
    ):
        transactions.write([desk_transactions.Row("0-7", OutputRecord("flights", b"N1", b"late", 5))])
