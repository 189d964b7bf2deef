"""The dispatcher with the judge, without Kafka and without threads: what every record becomes, at every moment."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streamapp import ConfigError, OutputRecord, Response, Retry, StreamsConfig
from streamapp.consumer import Batch, CircuitBreaker, KafkaOutput
from streamapp.consumer.consume_options import ConsumeOptions
from streamapp.consumer.dispatcher import Dispatcher
from streamapp.consumer.lanes import Unit
from streamapp.consumer.offset_sinks import SqliteOffsets
from streamapp.consumer.verdicts import Verdicts
from streamapp.engine.judging import ONLY_GROUP
from streamapp.on_error import Backoff, OnError
from streamapp.records import RecordBatch, TopicPartition

SOURCES = [TopicPartition("orders", number) for number in range(3)]
BACKOFF = Backoff(1_000, jitter=0)


def options(**given: Any) -> ConsumeOptions:
    config = StreamsConfig("payments", dead_letter_queue_topic="dead")
    return ConsumeOptions(
        **{
            "name": "payments",
            "topics": ("orders",),
            "handler": lambda record: None,
            "config": config,
            "operator": "charge",
            **given,
        }
    )


def records(first: int, *keys: bytes | None) -> RecordBatch:
    count = len(keys)
    return RecordBatch(keys, [b"v"] * count, [500] * count, range(first, first + count))


class _Run:
    """A dispatcher whose calls end when the test says so."""

    def __init__(self, **given: Any) -> None:
        self.options = options(**given)
        self.now = 1_000.0
        self.dispatcher = Dispatcher(self.options, lambda: self.now)
        self.verdicts = Verdicts(self.options)
        self.running: list[Unit] = []
        self.letters: list[Any] = []

    def start(self) -> list[Unit]:
        begun = []
        with self.dispatcher.changed:
            while (unit := self.dispatcher.next_unit()) is not None:
                begun.append(unit)
        self.running += begun
        return begun

    def end(self, unit: Unit, error: Exception | None = None) -> None:
        self.running.remove(unit)
        if unit.no_room:
            settled = self.verdicts.no_room(unit)
        else:
            settled = self.verdicts.settle(unit, unit.items, error, (), self.now * 1_000)
        self.letters += [letter.record for letter in settled.letters]
        self.dispatcher.finished(unit, settled, 0.01, 0 if unit.no_room else len(unit.items))

    def all(self, error: Exception | None = None) -> None:
        for unit in self.start():
            self.end(unit, error)

    @property
    def metrics(self) -> Any:
        return self.dispatcher.look()[0]


ANSWERS: list[OnError] = [
    "skip",
    "dead_letter",
    Retry.by_key(times=2, backoff=BACKOFF),
    Retry.by_key(times=1, backoff=BACKOFF, max_records=3, when_full="skip", then="skip"),
    Retry.in_place(times=2, backoff=BACKOFF),
]


class DispatcherMachine(RuleBasedStateMachine):
    """Members come and go, handlers succeed, fail and meet services that are down."""

    def __init__(self) -> None:
        super().__init__()
        self.next = dict.fromkeys(SOURCES, 0)
        self.run: _Run | None = None

    @precondition(lambda self: self.run is None)
    @rule(answer=st.sampled_from(ANSWERS), batch=st.sampled_from([None, Batch(records=4)]))
    def begin(self, answer: OnError, batch: Batch | None) -> None:
        self.run = _Run(on_error=answer, batch=batch, parallelism=3, buffer_records=20)

    def _begun(self) -> _Run:
        assert self.run is not None
        return self.run

    @precondition(lambda self: self.run is not None)
    @rule(source=st.sampled_from(SOURCES))
    def assigned(self, source: TopicPartition) -> None:
        if source not in self._begun().dispatcher.sources:
            self._begun().dispatcher.open(source, self.next[source])

    @precondition(lambda self: self.run is not None)
    @rule(source=st.sampled_from(SOURCES))
    def lost(self, source: TopicPartition) -> None:
        self._begun().dispatcher.forget([source])

    @precondition(lambda self: self.run is not None)
    @rule(source=st.sampled_from(SOURCES), keys=st.lists(st.sampled_from([b"a", b"b", None]), max_size=4))
    def come(self, source: TopicPartition, keys: list[bytes | None]) -> None:
        batch = records(self.next[source], *keys)
        if keys:
            self._begun().dispatcher.take_in(source, batch)
        self.next[source] += len(keys)

    @precondition(lambda self: self.run is not None)
    @rule()
    def go(self) -> None:
        self._begun().start()
        assert len(self._begun().running) <= 3

    @precondition(lambda self: self.run is not None and self.run.running)
    @rule(data=st.data(), error=st.sampled_from([None, None, ValueError("bad"), ConnectionError("down")]))
    def end(self, data: st.DataObject, error: Exception | None) -> None:
        run = self._begun()
        if isinstance(error, ConnectionError) and not isinstance(run.options.on_error, Retry):
            error = None
        run.end(data.draw(st.sampled_from(run.running)), error)

    @precondition(lambda self: self.run is not None)
    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0]))
    def later(self, seconds: float) -> None:
        self._begun().now += seconds

    @invariant()
    def every_record_is_in_one_place(self) -> None:
        if self.run is not None:
            metrics = self.run.metrics
            assert metrics.taken == sum(metrics[1:7])
            assert self.run.dispatcher.failure is None
            assert len(self.run.letters) >= metrics.dead

    def teardown(self) -> None:
        if self.run is None:
            return
        for unit in list(self.run.running):
            self.run.end(unit)
        for _ in range(200):
            self.run.now += 120
            self.run.all()
        metrics = self.run.metrics
        assert metrics.waiting == metrics.in_work == metrics.parked == 0, "nothing is stuck"
        for source, (position, metadata) in self.run.dispatcher.positions().items():
            assert position <= self.next[source]
            assert metadata == ""


TestDispatcher = DispatcherMachine.TestCase
TestDispatcher.settings = settings(max_examples=60, stateful_step_count=40)


def test_a_failure_of_a_service_stops_everything_but_one_question() -> None:
    run = _Run(
        on_error=Retry.by_key(times=1, backoff=BACKOFF),
        parallelism=4,
        circuit_breaker=CircuitBreaker(minimum_calls=1),
    )
    run.dispatcher.open(SOURCES[0], 0)
    run.dispatcher.take_in(SOURCES[0], records(0, b"a", b"b", b"c"))
    first, second, third = run.start()
    run.end(first, ConnectionError("down"))
    run.end(second, ConnectionError("down"))
    run.end(third)
    assert run.start() == []
    run.now += 10
    (probe,) = run.start()
    assert probe.probe
    run.end(probe, ConnectionError("down"))
    assert run.start() == []
    run.now += 10
    (probe,) = run.start()
    run.end(probe)
    run.all()
    assert run.metrics.done == 3
    assert run.letters == []


def test_calls_that_fail_together_are_one_attempt_at_the_service() -> None:
    """Each open call counted as an attempt, so one failure with 16 calls made the consumer wait for the limit."""
    run = _Run(
        on_error=Retry.by_key(times=1, backoff=BACKOFF),
        parallelism=4,
        circuit_breaker=CircuitBreaker(minimum_calls=1),
    )
    run.dispatcher.open(SOURCES[0], 0)
    run.dispatcher.take_in(SOURCES[0], records(0, b"a", b"b", b"c", b"d"))
    began = run.now
    for unit in run.start():
        run.end(unit, ConnectionError("down"))
        run.now += 0.1 * BACKOFF.delay_ms(1) / 1000
    assert run.dispatcher.circuit.due == began + BACKOFF.delay_ms(1) / 1000
    run.now = run.dispatcher.circuit.due
    (probe,) = run.start()
    run.end(probe, ConnectionError("down"))
    assert run.dispatcher.circuit.due == run.now + BACKOFF.delay_ms(2) / 1000


def test_the_bound_of_records_behind_a_failed_one() -> None:
    retry = Retry.by_key(times=None, backoff=BACKOFF, max_records=2, when_full="dead_letter")
    run = _Run(on_error=retry)
    run.dispatcher.open(SOURCES[0], 0)
    run.dispatcher.take_in(SOURCES[0], records(0, b"a", b"a"))
    run.all(ValueError("bad"))
    run.dispatcher.take_in(SOURCES[0], records(2, b"a", b"b"))
    run.all()
    assert (run.metrics.dead, run.metrics.done, run.metrics.parked) == (1, 1, 2)
    assert dict(run.letters[0].headers)["__streams.errors.exception"] == b"OverflowError"
    assert run.dispatcher.positions()[SOURCES[0]][0] == 0


def test_a_full_parking_fetches_no_more() -> None:
    run = _Run(on_error=Retry.by_key(times=None, backoff=BACKOFF, max_records=2))
    run.dispatcher.open(SOURCES[0], 0)
    run.dispatcher.take_in(SOURCES[0], records(0, b"a", b"a"))
    run.all(ValueError("bad"))
    assert run.dispatcher.flow() == ([SOURCES[0]], [])
    run.now += 10
    run.all()
    run.all()
    assert run.dispatcher.flow() == ([], [SOURCES[0]])


def test_retries_end_with_then_and_the_letter_counts_the_calls() -> None:
    run = _Run(on_error=Retry.by_key(times=2, backoff=BACKOFF))
    run.dispatcher.open(SOURCES[0], 0)
    run.dispatcher.take_in(SOURCES[0], records(0, b"a"))
    for _ in range(3):
        run.all(ValueError("bad"))
        run.now += 100
    assert run.metrics.dead == 1
    headers = dict(run.letters[0].headers)
    assert headers["__streamapp.errors.attempt"] == b"3"
    assert headers["__streamapp.errors.operator"] == b"charge"
    assert headers["__streams.errors.offset"] == b"0"


def test_a_record_that_is_too_old_is_given_up() -> None:
    run = _Run(on_error=Retry.by_key(times=None, max_age=5_000, backoff=BACKOFF, then="skip"))
    run.dispatcher.open(SOURCES[0], 0)
    run.dispatcher.take_in(SOURCES[0], records(0, b"a"))
    run.all(ValueError("bad"))
    run.now += 6
    run.all(ValueError("bad"))
    assert run.metrics.skipped == 1


def test_a_topic_that_was_created_anew_is_read_from_its_beginning() -> None:
    run = _Run()
    run.dispatcher.open(SOURCES[0], 500, topic_id="an earlier topic")
    run.dispatcher.take_in(SOURCES[0], records(500, b"a"))
    (old,) = run.start()
    run.dispatcher.take_in(SOURCES[0], records(0, b"a", b"b"))
    run.all()
    run.end(old)
    assert (run.metrics.done, run.metrics.returned, run.metrics.in_work) == (2, 1, 0)
    assert run.dispatcher.positions() == {SOURCES[0]: (2, "")}


def test_a_service_without_a_retry_ends_the_consumer() -> None:
    run = _Run(on_error="skip")
    run.dispatcher.open(SOURCES[0], 0)
    run.dispatcher.take_in(SOURCES[0], records(0, b"a"))
    run.all(ConnectionError("down"))
    assert "a service failed and not the record" in str(run.dispatcher.failure)
    assert run.metrics.taken == sum(run.metrics[1:7])


def test_a_wrong_statement_is_no_failure_of_the_database(tmp_path: Path) -> None:
    """SQLite has one exception for both, and the record waited for ever."""
    run = _Run(
        handler=lambda record, connection: None,
        guarantee="exactly_once",
        offsets=SqliteOffsets(tmp_path / "orders.db"),
        on_error="skip",
    )
    run.dispatcher.open(SOURCES[0], 0)
    with (
        closing(sqlite3.connect(tmp_path / "orders.db")) as one,
        closing(sqlite3.connect(tmp_path / "orders.db")) as two,
    ):
        with pytest.raises(sqlite3.OperationalError) as unknown_table:
            one.execute("INSERT INTO nothing VALUES (1)")
        one.execute("BEGIN EXCLUSIVE")
        two.execute("PRAGMA busy_timeout = 0")
        with pytest.raises(sqlite3.OperationalError) as locked:
            two.execute("BEGIN IMMEDIATE")
    run.dispatcher.take_in(SOURCES[0], records(0, b"a"))
    run.all(unknown_table.value)
    assert run.metrics.skipped == 1
    run.dispatcher.take_in(SOURCES[0], records(1, b"a"))
    run.all(locked.value)
    assert (run.metrics.skipped, run.metrics.waiting) == (1, 1)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"guarantee": "exactly_once"}, "offsets"),
        ({"guarantee": "at_most_once", "on_error": Retry.by_key()}, "no Retry"),
        ({"on_error": Retry.topics(1_000)}, "no retry topics"),
        ({"ordered_by": "partition", "on_error": Retry.by_key()}, "in_place"),
        ({"on_error": "dead_letter", "config": StreamsConfig("payments")}, "dead_letter_queue_topic"),
        ({"ordered_by": "keys"}, "ordered_by"),
        ({"handler": lambda: None}, "one record"),
        (
            {"handler": lambda record: None, "guarantee": "exactly_once", "offsets": SqliteOffsets("x")},
            "connection",
        ),
        (
            {"handler": lambda record: None, "guarantee": "exactly_once", "output": KafkaOutput()},
            "transaction",
        ),
        ({"output": KafkaOutput()}, "no other guarantee"),
        (
            {"guarantee": "exactly_once", "offsets": SqliteOffsets("x"), "output": KafkaOutput()},
            "exactly one of output=",
        ),
        ({"guarantee": "exactly_once", "output": "invoices"}, "has to be a KafkaOutput"),
        ({"commit_interval_ms": 0}, "commit_interval_ms"),
        ({"parallelism": 0}, "parallelism"),
        ({"topics": ()}, "a topic"),
        ({"topics": ("a b",)}, "illegal"),
    ],
)
def test_what_cannot_work_is_said_before_the_start(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        options(**given)


@pytest.mark.parametrize(("own", "dead", "skipped"), [(2, 1, 0), (0, 0, 1)])
def test_a_function_that_chooses_makes_its_own_letters(own: int, dead: int, skipped: int) -> None:
    letters = [OutputRecord("bad", b"k", b"%d" % number, None) for number in range(own)]
    run = _Run(on_error=lambda context, error: Response.resume(*letters))
    run.dispatcher.open(SOURCES[0], 0)
    run.dispatcher.take_in(SOURCES[0], records(0, b"a"))
    run.all(ValueError("bad"))
    assert run.letters == letters
    assert (run.metrics.dead, run.metrics.skipped) == (dead, skipped)
    assert run.dispatcher.positions()[SOURCES[0]][0] == 1


@pytest.mark.parametrize("on_error", ["skip", "dead_letter", "continue"])
def test_a_serde_whose_registry_is_away_drops_no_record(on_error: OnError) -> None:
    run = _Run(on_error=on_error)
    run.dispatcher.open(SOURCES[0], 0)
    run.dispatcher.take_in(SOURCES[0], records(0, b"a"))
    (unit,) = run.start()
    settled = run.verdicts.settle(unit, [], None, [(unit.items[0], ConnectionError("no registry"))])
    assert "a service failed and not the record" in str(settled.fail)
    assert (settled.skipped, settled.dead, settled.letters, settled.back) == ([], [], [], unit.items)


def test_a_record_waits_with_a_retry_while_the_registry_of_its_serde_is_away() -> None:
    run = _Run(on_error=Retry.by_key(backoff=BACKOFF))
    run.dispatcher.open(SOURCES[0], 0)
    run.dispatcher.take_in(SOURCES[0], records(0, b"a"))
    (unit,) = run.start()
    settled = run.verdicts.settle(unit, [], None, [(unit.items[0], ConnectionError("no registry"))])
    assert (settled.back, settled.fail) == (unit.items, None)
    assert isinstance(settled.pause, ConnectionError)


@pytest.mark.parametrize(
    ("header", "taken"),
    [
        ("orders payments", 1),
        ("orders payments-mail", 0),
        ("bills payments-mail", 1),
        ("payments-mail", 1),
        ("\xff", 1),
    ],
)
def test_a_record_that_is_replayed_for_another_group_is_passed_over(header: str, taken: int) -> None:
    """Its position goes on. The header counts in its own topic only: topologies copy headers to their results."""
    run = _Run()
    run.dispatcher.open(SOURCES[0], 0)
    headers = [((ONLY_GROUP, header.encode("latin-1")),)]
    run.dispatcher.take_in(SOURCES[0], records(0, b"k")._replace(headers=headers))
    metrics = run.dispatcher.look()[0]
    assert (metrics.taken, metrics.for_others) == (taken, 1 - taken)
    assert [position for position, _ in run.dispatcher.positions().values()] == [1 - taken]
