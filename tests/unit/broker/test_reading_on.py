"""Readers that are in no group read on after errors that pass. Each other error ends the reader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from streamapp.broker import KafkaAdmin, KafkaSettings, bounded_reads
from streamapp.broker.bounded_reads import next_message
from streamapp.config import StreamsConfig
from streamapp.desk import desk
from streamapp.errors import BrokerError
from streamapp.producer import reconciliation
from streamapp.producer.ledger import Ledger
from streamapp.producer.reconciliation import identity_of, reconcile
from streamapp.records import TopicPartition
from streamapp.runners import last_records as last_records_module
from streamapp.runners.last_records import last_records

SETTINGS = KafkaSettings(bootstrap_servers="localhost:1")
PASSING = KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, "the coordinator loads")
NO_GROUP = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
LASTING = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no right to the topic")
END = KafkaError(KafkaError._PARTITION_EOF)


class Message:
    """A record with the key "a" at offset 0; the end of the partition behind it; or another error."""

    def __init__(self, error: KafkaError | None = None) -> None:
        self._error = error

    def error(self) -> KafkaError | None:
        return self._error

    def topic(self) -> str:
        return "in"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 0 if self._error is None else 1

    def key(self) -> bytes:
        return b"a"

    def value(self) -> bytes:
        return b"v"

    def headers(self) -> None: ...

    def timestamp(self) -> tuple[int, int]:
        return 1, 5


def scripted(*script: KafkaError | None) -> Callable[[dict[str, Any]], Any]:
    """The class of a consumer that gives these messages, and the last one for good. None is a record."""

    class Consumer:
        def __init__(self, settings: dict[str, Any] | None = None) -> None:
            self._script = list(script)

        def assign(self, partitions: object) -> None: ...

        def incremental_unassign(self, partitions: object) -> None: ...

        def poll(self, seconds: float) -> Message:
            return Message(self._script.pop(0) if len(self._script) > 1 else self._script[0])

        def close(self) -> None: ...

    return Consumer


@pytest.fixture(autouse=True)
def one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KafkaAdmin, "partition_counts", lambda self, topics: dict.fromkeys(topics, 1))
    for name, offset in (("log_start_offsets", 0), ("log_end_offsets", 1)):
        found = {TopicPartition("in", 0): offset}
        monkeypatch.setattr(KafkaAdmin, name, lambda *_, found=found, **__: found)


def read_last(monkeypatch: pytest.MonkeyPatch, consumer: Any, folder: Path) -> list[bytes | None]:
    monkeypatch.setattr(last_records_module, "Consumer", consumer)
    return [record.key for record in last_records(SETTINGS, "in", 10)]


def read_to_reconcile(monkeypatch: pytest.MonkeyPatch, consumer: Any, folder: Path) -> list[bytes | None]:
    monkeypatch.setattr(reconciliation, "Consumer", consumer)
    result = reconcile(SETTINGS, "in", [("a", 1)], identity_of("key"), Ledger(folder / "ledger"))
    return [b"a"] * result.found


def read_by_the_desk(monkeypatch: pytest.MonkeyPatch, consumer: Any, folder: Path) -> list[bytes | None]:
    monkeypatch.setattr(desk, "Consumer", consumer)
    config = StreamsConfig("app", bootstrap_servers="localhost:1")
    return [letter.key for letter in desk._read(config, {TopicPartition("in", 0): range(1)})]


@pytest.mark.parametrize("read", [read_last, read_to_reconcile, read_by_the_desk])
def test_a_reader_reads_on_after_errors_that_pass(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, read: Callable[..., list[bytes | None]]
) -> None:
    assert read(monkeypatch, scripted(NO_GROUP, PASSING, None, END), tmp_path) == [b"a"]


@pytest.mark.parametrize("read", [read_last, read_to_reconcile, read_by_the_desk])
def test_an_error_that_stays_ends_a_reader(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, read: Callable[..., list[bytes | None]]
) -> None:
    with pytest.raises(BrokerError, match=r"in.* cannot be read: no right to the topic"):
        read(monkeypatch, scripted(LASTING), tmp_path)


def test_errors_that_pass_for_ever_end_a_reader_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bounded_reads, "_POLL_SECONDS", 0.001)
    with pytest.raises(BrokerError, match="nothing has come for 0.01 s .the coordinator loads."):
        next_message(scripted(PASSING)({}), "in-0", 0.01)
    monkeypatch.setattr(reconciliation, "_SILENCE_SECONDS", 0.01)
    with pytest.raises(BrokerError, match="nothing has come for 0.01 s"):
        read_to_reconcile(monkeypatch, scripted(PASSING), tmp_path)
