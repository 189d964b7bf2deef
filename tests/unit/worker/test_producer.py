"""What a producer of a worker makes of errors, without a broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamapp.config import StreamsConfig
from streamapp.runners.worker import producer
from streamapp.runners.worker.producer import ProductionError, RecordProducer
from streamapp.runners.worker.sender import Failure
from streamapp.runners.worker.transactions import TransactionAborted

CONFIG = StreamsConfig("app", bootstrap_servers="127.0.0.1:9", client_properties={"log_level": 0})


class Client:
    """Raises what it is told to."""

    made = 0

    def __init__(self, settings: dict[str, Any], on_failure: Callable[[Failure], None]) -> None:
        Client.made += 1
        self.error: BaseException | None = None
        self.calls: list[tuple[Any, ...]] = []

    def _call(self, *arguments: Any, **__: Any) -> int:
        self.calls.append(arguments)
        if self.error is not None:
            raise self.error
        return 0

    produce = poll = flush = _call

    def purge(self) -> None: ...


@pytest.fixture
def outputs(monkeypatch: pytest.MonkeyPatch) -> RecordProducer:
    monkeypatch.setattr(producer, "open_sender", Client)
    return RecordProducer(CONFIG, {"out": 1})


def failing(code: int) -> KafkaException:
    return KafkaException(KafkaError(code, "no", fatal=True))


def poll(outputs: RecordProducer) -> None:
    outputs.poll()


def flush(outputs: RecordProducer) -> None:
    outputs.flush(1.0, lambda: False)


def send(outputs: RecordProducer) -> None:
    outputs.send("out", b"k", b"v", 0)
    outputs.client.error = None  # type: ignore[attr-defined]
    outputs.poll()


@pytest.mark.parametrize("call", [poll, flush, send])
def test_a_producer_out_of_step_with_its_brokers_is_replaced(
    outputs: RecordProducer, call: Callable[[RecordProducer], None]
) -> None:
    outputs.client.error = failing(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER)  # type: ignore[attr-defined]
    with pytest.raises(TransactionAborted, match="the producer has failed"):
        call(outputs)
    made = Client.made
    outputs.roll_back()
    assert Client.made == made + 1
    call(outputs)


def test_an_exception_that_was_lost_on_its_way_replaces_it_too(outputs: RecordProducer) -> None:
    outputs.client.error = SystemError("exception <class 'str'> is not a BaseException subclass")  # type: ignore[attr-defined]
    with pytest.raises(TransactionAborted):
        outputs.poll()


def test_what_a_new_one_would_meet_again_ends_the_worker(outputs: RecordProducer) -> None:
    outputs.client.error = failing(KafkaError.CLUSTER_AUTHORIZATION_FAILED)  # type: ignore[attr-defined]
    with pytest.raises(ProductionError, match="the producer had to stop"):
        outputs.poll()


def test_a_record_that_is_refused_is_named_with_what_helps(outputs: RecordProducer) -> None:
    error = KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "too large"))
    outputs.client.error = error  # type: ignore[attr-defined]
    with pytest.raises(
        ProductionError,
        match=r"could not be written to out: too large \(key and value: 2 bytes\)\. Raise max.message.bytes",
    ):
        send(outputs)


def test_the_first_millisecond_of_1970_is_not_written_as_now(outputs: RecordProducer) -> None:
    outputs.send("out", b"k", b"v", 0, partition=0)
    outputs.send("out", b"k", b"v", None, partition=0)  # this one is
    calls = outputs.client.calls  # type: ignore[attr-defined]
    assert [call[4] for call in calls] == [1, 0]


def test_the_last_results_are_waited_for_before_the_rest_is_given_up(outputs: RecordProducer) -> None:
    """The dead letter of the record that ends the worker may be among them."""
    done: list[str] = []
    outputs.client.flush = lambda seconds: done.append("flush") or 0  # type: ignore[method-assign, func-returns-value]
    outputs.client.purge = lambda: done.append("purge")  # type: ignore[method-assign]
    outputs.close()
    assert done == ["flush", "purge", "flush"]


def test_a_transaction_is_told_to_end_before_its_producer_is_thrown_away(outputs: RecordProducer) -> None:
    """Else librdkafka may end the process; and a short while only, since brokers may not be there."""
    thrown_away = outputs.client
    thrown_away.begin_transaction = lambda: None  # type: ignore[method-assign]
    told: list[float] = []

    def abort(seconds: float) -> None:
        told.append(seconds)
        raise failing(KafkaError._TIMED_OUT)

    thrown_away.abort_transaction = abort  # type: ignore[method-assign]
    outputs.roll_back()
    assert told == []
    outputs.client = thrown_away
    outputs.begin()
    outputs.roll_back()
    assert len(told) == 1
    assert told[0] < 1
