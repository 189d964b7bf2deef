"""What a producer of a worker makes of errors, without a broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamapp.config import StreamsConfig
from streamapp.engine.collector import ResultRefused
from streamapp.errors import AuthorizationError, BrokerError
from streamapp.runners.refusals import Failure
from streamapp.runners.worker import producer
from streamapp.runners.worker.producer import ChangelogRefused, ProductionError, RecordProducer
from streamapp.runners.worker.transactions import ResultsRefused, TransactionAborted

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

    waiting = 0

    def purge(self) -> None: ...

    def __len__(self) -> int:
        return self.waiting


@pytest.fixture
def outputs(monkeypatch: pytest.MonkeyPatch) -> RecordProducer:
    monkeypatch.setattr(producer, "open_sender", Client)
    return RecordProducer(CONFIG, {"out": 1})


def failing(code: int) -> KafkaException:
    return KafkaException(KafkaError(code, "no", fatal=True))


def poll(outputs: RecordProducer) -> None:
    outputs.poll()


def flush(outputs: RecordProducer) -> None:
    outputs.flush()


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


def too_large() -> KafkaError:
    return KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "too large")


def too_late() -> KafkaError:
    return KafkaError(KafkaError.INVALID_TIMESTAMP, "ahead of time")


def test_a_result_that_librdkafka_does_not_take_is_refused_in_the_call_of_its_operator(
    outputs: RecordProducer,
) -> None:
    outputs.client.error = KafkaException(too_large())  # type: ignore[attr-defined]
    with pytest.raises(ResultRefused, match=r"too large \(key and value: 2 bytes, timestamp 1\)") as caught:
        outputs.send("out", b"k", b"v", 0)
    assert caught.value.remedy.startswith("Raise max.message.bytes")
    assert not caught.value.final
    outputs.client.error = None  # type: ignore[attr-defined]
    outputs.poll()  # nothing is missing from a transaction: nothing has to be begun again


def test_a_letter_that_librdkafka_does_not_take_is_refused_in_the_call_that_knows_its_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next poll ended the worker with an error that named neither the record nor its error."""
    monkeypatch.setattr(producer, "open_sender", Client)
    outputs = RecordProducer(CONFIG.replace(dead_letter_queue_topic="dead"), {})
    outputs.client.error = KafkaException(too_large())  # type: ignore[attr-defined]
    with pytest.raises(ResultRefused, match="too large"):
        outputs.send("dead", b"k", b"v", 0)


def test_a_result_that_brokers_refuse_is_named_when_it_is_sent_again_and_the_others_are_not(
    outputs: RecordProducer,
) -> None:
    outputs._on_failure(Failure(too_late(), "out", 0, b"k", b"v", 500))
    mate = KafkaError(KafkaError._INVALID_DIFFERENT_RECORD, "in bad company")
    outputs._on_failure(Failure(mate, "out", 0, b"k", b"w", 500))
    with pytest.raises(ResultsRefused, match="brokers refused 1 result for out: ahead of time"):
        outputs.poll()
    outputs.roll_back()
    with pytest.raises(ResultRefused, match=r"ahead of time .* timestamp 500") as caught:
        outputs.send("out", b"k", b"v", 500)
    assert "timestamp_extractor" in caught.value.remedy
    outputs.send("out", b"k", b"v", 400)  # the same, but for what it was refused for
    outputs.send("out", b"k", b"w", 500)
    outputs.poll()
    outputs.committed()
    outputs.send("out", b"k", b"v", 500)


def test_without_transactions_all_that_may_be_dropped_are_found_before_anything_is_begun_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producer, "open_sender", Client)
    outputs = RecordProducer(CONFIG.replace(production_exception_handler="continue"), {"out": 1})
    for value in (b"v", b"w"):
        outputs._on_failure(Failure(too_late(), "out", 0, b"k", value, 500))
        outputs.poll()
    with pytest.raises(ResultsRefused, match="2 results"):
        flush(outputs)


def test_a_batch_that_is_too_large_is_sent_in_smaller_ones_before_anybody_is_blamed(
    outputs: RecordProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: list[dict[str, Any]] = []
    monkeypatch.setattr(
        producer, "open_sender", lambda given, on_failure: settings.append(given) or Client(given, on_failure)
    )
    for value in (b"v" * 39, b"w" * 39):
        outputs._on_failure(Failure(too_large(), "out", 0, b"k", value, 500))
    with pytest.raises(ResultsRefused):
        outputs.poll()
    outputs.roll_back()
    assert settings[-1]["batch.size"] == 80 // 4
    outputs.send("out", b"k", b"v" * 39, 500)
    for value in (b"v" * 39, b"w" * 39):  # each in a batch of its own this time
        outputs._on_failure(Failure(too_large(), "out", 0, b"k", value, 500))
    outputs.roll_back()
    assert settings[-1]["batch.size"] == 80 // 4
    for value in (b"v" * 39, b"w" * 39):
        with pytest.raises(ResultRefused):
            outputs.send("out", b"k", value, 500)


@pytest.mark.parametrize(
    ("code", "final"),
    [
        (KafkaError.TOPIC_EXCEPTION, True),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, False),
    ],
)
def test_what_is_refused_for_its_topic_is_so_whatever_is_in_it(
    outputs: RecordProducer, code: int, final: bool
) -> None:
    outputs._on_failure(Failure(KafkaError(code, "no"), "out", 0, b"k", b"v", 500))
    with pytest.raises(TransactionAborted):
        outputs.poll()
    outputs.roll_back()
    with pytest.raises(ResultRefused) as caught:
        outputs.send("out", b"other", b"other", 1)
    assert caught.value.final is final
    outputs.send("elsewhere", b"k", b"v", 500)


@pytest.mark.parametrize("topic", ["out", "dead", "app-counts-changelog"])
@pytest.mark.parametrize("transactional_id", [None, "app-1"])
def test_a_missing_right_is_named_whichever_way_brokers_tell_it(
    monkeypatch: pytest.MonkeyPatch, topic: str, transactional_id: str | None
) -> None:
    """A producer that learned of the missing right with a record rolled back, and blamed a record of the input."""
    monkeypatch.setattr(producer, "open_sender", Client)
    error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no right")
    config = CONFIG.replace(production_exception_handler="continue", dead_letter_queue_topic="dead")
    stores = {"app-counts-changelog": "counts"}
    said = f"no record could be written to {topic}: no right. .*WRITE on its results, dead letters and changelogs"

    def opened() -> RecordProducer:
        return RecordProducer(config, {}, transactional_id, stores)

    outputs = opened()
    outputs._on_failure(Failure(KafkaError(KafkaError._STATE, "aborted"), topic, 0, b"k", b"v", 500))
    outputs._on_failure(Failure(error, topic, 0, b"k", b"v", 500))
    with pytest.raises(AuthorizationError, match=said):
        outputs.poll()
    outputs = opened()

    def refuse(*record: object) -> None:
        raise KafkaException(error)

    outputs._produce = refuse
    with pytest.raises(AuthorizationError, match=said):
        outputs.send(topic, b"k", b"v", 500)


def test_changes_of_stores_and_dead_letters_have_nobody_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "open_sender", Client)
    config = CONFIG.replace(production_exception_handler="continue", dead_letter_queue_topic="dead")
    ledger = RecordProducer(config, {}, "app-1", {"app-counts-changelog": "counts"})
    ledger._on_failure(Failure(KafkaError(KafkaError._STATE, "aborted"), "out", 0, b"k", b"v", 500))
    ledger._on_failure(Failure(too_late(), "app-counts-changelog", 3, b"k", b"v", 500))
    with pytest.raises(ChangelogRefused, match="the store counts .* changelog app-counts-changelog-3"):
        ledger.poll()
    outputs = RecordProducer(config, {})
    outputs._on_failure(Failure(too_late(), "dead", 0, b"k", b"v", int(time.time() * 1000)))
    with pytest.raises(ProductionError, match="a dead letter could not be written to dead: ahead of time"):
        outputs.poll()


@pytest.mark.parametrize(
    "code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION]
)
def test_nobody_is_told_to_create_an_empty_changelog(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """The error named the command that creates the topic. The next start then refused the empty changelog."""
    monkeypatch.setattr(producer, "open_sender", Client)
    changelogs = RecordProducer(CONFIG, {}, "app-1", {"app-counts-changelog": "counts"})
    changelogs._on_failure(Failure(KafkaError(code), "app-counts-changelog", 3, b"k", b"v", 500))
    with pytest.raises(ChangelogRefused, match="Restore the topic; .*`streamapp reset`") as found:
        changelogs.poll()
    assert "reate" not in str(found.value).replace("created anew", "")


@pytest.mark.parametrize("hours", [3, -3])
def test_a_letter_far_from_the_clock_is_refused_in_the_call_that_sends_it_again(
    monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """The call then sends the letter with the time of the clock."""
    monkeypatch.setattr(producer, "open_sender", Client)
    now = int(time.time() * 1000)
    outputs = RecordProducer(CONFIG.replace(dead_letter_queue_topic="dead"), {})
    outputs._on_failure(Failure(too_late(), "dead", 0, b"k", b"v", now + hours * 3_600_000))
    with pytest.raises(ResultsRefused, match="ahead of time"):
        outputs.poll()
    outputs.roll_back()
    with pytest.raises(ResultRefused, match="ahead of time"):
        outputs.send("dead", b"k", b"v", now + hours * 3_600_000)
    outputs.send("dead", b"k", b"v", now)
    outputs.poll()


@pytest.mark.parametrize("code", [KafkaError.INVALID_TIMESTAMP, KafkaError.MSG_SIZE_TOO_LARGE])
def test_a_good_letter_in_a_refused_request_is_sent_again(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """librdkafka reports the refusal for all records of the request. The good letter ended the worker."""
    monkeypatch.setattr(producer, "open_sender", Client)
    outputs = RecordProducer(CONFIG.replace(dead_letter_queue_topic="dead"), {})
    now = int(time.time() * 1000)
    outputs._on_failure(Failure(KafkaError(code), "dead", 0, b"k", b"good", now - 1_000))
    outputs._on_failure(Failure(KafkaError(code), "dead", 0, b"k", b"ahead", now + 10_800_000))
    with pytest.raises(ResultsRefused, match="brokers refused 2 results for dead"):
        outputs.poll()
    outputs.roll_back()
    outputs.send("dead", b"k", b"good", now - 1_000)


def test_a_look_for_a_lost_letter_costs_the_same_however_many_results_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each poll looked at all refused results."""
    monkeypatch.setattr(producer, "open_sender", Client)
    config = CONFIG.replace(production_exception_handler="continue", dead_letter_queue_topic="dead")
    outputs, looks = RecordProducer(config, {}), 0

    class Counted(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal looks
            looks += 1
            return str.__eq__(self, other)

    for topic in ("out", "dead"):
        for number in range(50):
            ahead = int(time.time() * 1000) + 10_800_000 + number
            outputs._on_failure(Failure(too_late(), Counted(topic), number, b"k", b"v", ahead))
            outputs.poll()
    assert looks <= 500


def test_of_letters_that_are_ahead_beside_good_ones_each_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """librdkafka then reports that the records are invalid, and not their timestamps."""
    monkeypatch.setattr(producer, "open_sender", Client)
    outputs = RecordProducer(CONFIG.replace(dead_letter_queue_topic="dead"), {})
    ahead = int(time.time() * 1000) + 10_800_000
    for number in range(2):
        invalid = KafkaError(KafkaError.INVALID_RECORD)
        outputs._on_failure(Failure(invalid, "dead", 0, b"k", b"%d" % number, ahead))
    mate = KafkaError(KafkaError._INVALID_DIFFERENT_RECORD, "in bad company")
    outputs._on_failure(Failure(mate, "dead", 0, b"k", b"good", 500))
    with pytest.raises(ResultsRefused):
        outputs.poll()
    outputs.roll_back()
    for number in range(2):
        with pytest.raises(ResultRefused):
            outputs.send("dead", b"k", b"%d" % number, ahead)
    outputs.send("dead", b"k", b"good", 500)


def test_why_a_transaction_failed_is_the_result_that_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "open_sender", Client)
    ledger = RecordProducer(CONFIG, {}, "app-1")
    ledger._on_failure(Failure(KafkaError(KafkaError._STATE, "aborted"), "out", 0, b"k", b"w", 500))
    ledger._on_failure(Failure(too_late(), "out", 0, b"k", b"v", 500))
    with pytest.raises(ResultsRefused, match="ahead of time"):
        ledger.poll()


def test_about_as_many_bytes_are_on_their_way_as_records(outputs: RecordProducer) -> None:
    outputs.client.waiting = 3  # type: ignore[attr-defined]
    outputs.client.taken = lambda: (10, 1_000)  # type: ignore[method-assign]
    assert outputs.unacknowledged_bytes == 300


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


@pytest.mark.parametrize("end", ["abandon", "patience", "room"])
def test_a_send_into_a_full_queue_waits_for_brokers_and_says_so(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """The watchdog blamed the function of the record for this wait, and a stop could not end it."""
    if end == "patience":
        monkeypatch.setattr(producer, "PATIENCE_SECONDS", 0.05)
    full = {"log_level": 0, "queue.buffering.max.kbytes": 1}
    outputs = RecordProducer(CONFIG.replace(client_properties=full), {"out": 1})
    waits: list[bool] = []
    flush = outputs.client.flush

    def look(seconds: float) -> int:
        waits.append(outputs.waits_for_room)
        if end == "abandon":
            outputs.abandon()
        elif end == "room":
            outputs.client.purge()
        return flush(seconds)

    monkeypatch.setattr(outputs.client, "flush", look)
    outputs.send("out", b"k", b"1" * 900, 0, partition=0)
    assert not waits
    if end == "room":
        outputs.send("out", b"k", b"2" * 900, 0, partition=0)
    else:
        with pytest.raises(BrokerError, match="still not acknowledged"):
            outputs.send("out", b"k", b"2" * 900, 0, partition=0)
    assert waits
    assert all(waits)
    assert not outputs.waits_for_room


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


def test_a_transaction_that_does_not_end_keeps_no_worker(
    outputs: RecordProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the clock was set back, the abort of a transaction could wait for hours, and the worker with it."""
    monkeypatch.setattr("streamapp.broker.transacting._MARGIN_SECONDS", 0.05)
    answered, purged = threading.Event(), threading.Event()
    left_behind = outputs.client
    left_behind.begin_transaction = lambda: None  # type: ignore[method-assign]
    left_behind.abort_transaction = lambda seconds: answered.wait(10)  # type: ignore[method-assign]
    left_behind.purge = purged.set  # type: ignore[method-assign]
    outputs.begin()
    try:
        outputs.roll_back()
        assert not answered.is_set()
        assert outputs.client is not left_behind
        assert not purged.is_set(), "nobody touches a client that is inside a call"
    finally:
        answered.set()


class RowClient(Client):
    """Takes rows up to one that is special, which only `produce` takes."""

    special: frozenset[int] = frozenset()

    def produce_rows(
        self, topic: str, partition: int, keys: Any, values: Any, timestamps: Any, start: int, end: int
    ) -> int:
        taken = next((at for at in range(start, end) if at in self.special), end)
        self.calls += [
            (topic, values[at], keys[at], partition, timestamps[at], ()) for at in range(start, taken)
        ]
        return taken


@pytest.mark.parametrize("special", [(), (0,), (4,), (1, 2, 9), tuple(range(10))])
def test_rows_are_sent_once_and_in_order(monkeypatch: pytest.MonkeyPatch, special: tuple[int, ...]) -> None:
    monkeypatch.setattr(producer, "open_sender", RowClient)
    monkeypatch.setattr(producer, "_ROWS_AT_ONCE", 4)
    monkeypatch.setattr(RowClient, "special", frozenset(special))
    changelogs = RecordProducer(CONFIG, {}, "app-1", {"log": "store"})
    rows = [(b"k%d" % at, None if at == 3 else b"v%d" % at, at + 1) for at in range(10)]
    keys, values, timestamps = zip(*rows, strict=True)
    changelogs.send_rows("log", 1, keys, values, timestamps)
    sent = changelogs.client.calls  # type: ignore[attr-defined]
    assert sent == [("log", value, key, 1, at, ()) for key, value, at in rows]
