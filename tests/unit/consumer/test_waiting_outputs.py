"""The outputs of calls until their transaction is committed, without Kafka and without threads."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError

from streamapp import StreamsConfig, StringSerde
from streamapp.consumer import Batch, KafkaOutput, output_commits
from streamapp.consumer import refused_outputs as refused_outputs_module
from streamapp.consumer.dispatcher import Dispatcher
from streamapp.consumer.handling import Handling
from streamapp.consumer.lanes import Unit
from streamapp.consumer.output_commits import OutputCommits
from streamapp.consumer.outputs import HandlerOutputs, Letter
from streamapp.consumer.refused_outputs import RefusedOutputs
from streamapp.consumer.verdicts import Settled
from streamapp.errors import SchemaRegistryError, SerializationError, StreamsError
from streamapp.producer.session import RecordsRefused, TransactionSession
from streamapp.records import OutputRecord

from .test_dispatcher import SOURCES, options, records

FIRST, SECOND = SOURCES[:2]


def output_of(number: int, size: int = 1) -> OutputRecord:
    return OutputRecord("out", b"k", b"%d" % number * size, 500)


class Calls:
    """A consumer whose calls end when the test says so, each with one output."""

    def __init__(self, **given: Any) -> None:
        self.options = options(
            **{
                "handler": lambda record, transaction: None,
                "guarantee": "exactly_once",
                "output": KafkaOutput(),
                **given,
            }
        )
        self.dispatcher = Dispatcher(self.options)

    def begin(self) -> list[Unit]:
        units = []
        with self.dispatcher.changed:
            while (unit := self.dispatcher.next_unit()) is not None:
                units.append(unit)
        return units

    def end(self, *units: Unit, size: int = 1) -> None:
        for unit in units:
            output = output_of(unit.items[0].offset, size)
            self.dispatcher.finished(unit, Settled(done=unit.items, outputs=[output]), 0.01, 1)

    def commit(self) -> None:
        self.dispatcher.step_committed(self.dispatcher.step())

    def step(self) -> tuple[dict[Any, int], list[bytes | None]]:
        """The positions and outputs of the next transaction."""
        step = self.dispatcher.step()
        return (
            {source: position for source, (position, _) in step.positions.items()},
            [output.record.value for output in step.outputs],
        )


def test_a_step_has_the_outputs_of_the_calls_that_its_positions_count() -> None:
    calls = Calls()
    calls.dispatcher.open(FIRST, 0)
    calls.dispatcher.take_in(FIRST, records(0, b"a", b"b", b"c"))
    first, second, third = calls.begin()
    calls.end(third, first)
    step = calls.dispatcher.step()
    assert calls.step() == ({FIRST: 1}, [b"2", b"0"]), "in the order in which calls are over"
    calls.end(second)
    calls.dispatcher.step_committed(step)
    assert calls.step() == ({FIRST: 3}, [b"1"])
    calls.commit()
    assert calls.step() == ({}, [])
    assert calls.dispatcher.look()[0].outputs == 3


def test_a_step_that_was_not_committed_comes_again_with_all_that_is_done_since() -> None:
    calls = Calls()
    calls.dispatcher.open(FIRST, 0)
    calls.dispatcher.open(SECOND, 0)
    calls.dispatcher.take_in(FIRST, records(0, b"a", b"b"))
    calls.dispatcher.take_in(SECOND, records(7, b"a"))
    first, *rest = calls.begin()
    calls.end(first)
    calls.dispatcher.step()
    calls.end(*rest)
    assert calls.step() == ({FIRST: 2, SECOND: 8}, [b"0", b"1", b"7"])
    only = calls.dispatcher.step([SECOND])
    assert [output.record.value for output in only.outputs] == [b"7"]


def test_the_next_owner_of_a_partition_makes_its_outputs_again() -> None:
    calls = Calls()
    for source in (FIRST, SECOND):
        calls.dispatcher.open(source, 0)
        calls.dispatcher.take_in(source, records(0, b"a"))
    calls.end(*calls.begin())
    step = calls.dispatcher.step()
    calls.dispatcher.forget([FIRST])
    assert calls.step() == ({SECOND: 1}, [b"0"])
    calls.dispatcher.open(FIRST, 0)
    calls.dispatcher.take_in(FIRST, records(0, b"a"))
    calls.end(*calls.begin())
    calls.dispatcher.step_committed(step)
    assert calls.step() == ({FIRST: 1}, [b"0"]), (
        "a step of before says nothing about a partition that came back"
    )


def test_no_call_begins_while_too_much_waits_for_a_commit() -> None:
    calls = Calls(parallelism=1)
    calls.dispatcher.open(FIRST, 0)
    calls.dispatcher.take_in(FIRST, records(0, b"a", b"b"))
    calls.end(*calls.begin(), size=4 << 20)
    assert calls.begin() == []
    calls.commit()
    assert len(calls.begin()) == 1


def test_the_outputs_have_their_own_serdes_and_then_those_of_the_configuration() -> None:
    config = StreamsConfig("payments", default_key_serde=StringSerde(), default_value_serde=StringSerde())
    transaction = HandlerOutputs("payments", KafkaOutput(), config).begin()
    transaction.send("out", key="k", value="v", timestamp=7)
    assert transaction.end() == [OutputRecord("out", b"k", b"v", 7)]
    with pytest.raises(StreamsError, match="the call of the handler is over"):
        transaction.send("out", key="k", value="late")


def test_a_client_that_is_no_member_of_its_group_commits_nothing() -> None:
    calls = Calls()
    calls.dispatcher.open(FIRST, 0)
    calls.dispatcher.take_in(FIRST, records(0, b"a"))
    calls.end(*calls.begin())
    client = Consumer({"bootstrap.servers": "127.0.0.1:9", "group.id": "payments", "log_level": 0})
    chosen = options(handler=lambda record, transaction: None, guarantee="exactly_once", output=KafkaOutput())
    outputs = HandlerOutputs("payments", KafkaOutput(), chosen.config)
    commits = OutputCommits(chosen, outputs, calls.dispatcher, lambda: client)
    session = cast(TransactionSession, None)  # nothing is asked of it
    assert not commits._commit(session, calls.dispatcher.step())
    assert calls.step() == ({FIRST: 1}, [b"0"])
    client.close()


def test_a_session_with_old_certificates_ends_before_the_next_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events: list[str] = []

    class Session:
        def __init__(self, name: str, *_: Any, **__: Any) -> None:
            self.changed = len(events) == 0
            events.append("open")

        def outdated(self) -> bool:
            return self.changed

        def commit(self, *_: Any) -> None:
            events.append("commit")

        def abandon(self) -> None:
            events.append("close")

    class Member:
        def consumer_group_metadata(self) -> None: ...

        def memberid(self) -> str:
            return "member"

    monkeypatch.setattr(output_commits, "TransactionSession", Session)
    calls = Calls()
    calls.dispatcher.open(FIRST, 0)
    chosen = options(handler=lambda record, transaction: None, guarantee="exactly_once", output=KafkaOutput())
    outputs = HandlerOutputs("payments", KafkaOutput(), chosen.config)
    commits = OutputCommits(chosen, outputs, calls.dispatcher, lambda: cast(Consumer, Member()))
    for number in range(3):
        calls.dispatcher.take_in(FIRST, records(number, b"a"))
        calls.end(*calls.begin())
        assert commits.commit()
    assert events == ["open", "commit", "close", "open", "commit", "commit"]


def refused(calls: Calls, unit: Unit, settled: Settled) -> None:
    calls.dispatcher.refused(unit, settled)
    metrics = calls.dispatcher.look()[0]
    assert metrics.taken == sum(metrics[1:7])


def test_a_refused_call_that_is_given_up_leaves_its_letters_and_the_other_outputs() -> None:
    calls = Calls()
    calls.dispatcher.open(FIRST, 0)
    calls.dispatcher.take_in(FIRST, records(0, b"a", b"b", b"c"))
    units = calls.begin()
    calls.end(*units)
    letter = Letter(OutputRecord("dead", b"k", b"letter", 500), units[1].items[0], "failed")
    refused(calls, units[1], Settled(dead=units[1].items, letters=[letter]))
    assert calls.step() == ({FIRST: 3}, [b"0", b"2", b"letter"])
    assert calls.dispatcher.look()[0][1:6] == (2, 0, 0, 0, 1)
    calls.commit()
    assert calls.step() == ({}, [])


def test_a_letter_gets_the_time_of_the_clock_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """If each answer of the brokers took more than 10 s, a letter that they refuse for another reason came again and
    again."""
    calls = Calls(handler=lambda record, transaction: None)
    calls.dispatcher.open(FIRST, 0)
    calls.dispatcher.take_in(FIRST, records(0, b"a"))
    (unit,) = calls.begin()
    letter = Letter(OutputRecord("dead", None, b"letter", 500), unit.items[0], "failed")
    calls.dispatcher.finished(unit, Settled(dead=unit.items, letters=[letter]), 0.01, 1)
    refused_outputs = RefusedOutputs(calls.options, calls.dispatcher)
    for now in (1_000, 1_060):
        monkeypatch.setattr(refused_outputs_module.time, "time", lambda now=now: float(now))
        assert calls.dispatcher.failure is None
        (output,) = (step := calls.dispatcher.step()).outputs
        refused_outputs.judge(step, RecordsRefused({0: KafkaError(KafkaError.INVALID_RECORD)}))
    assert output.record.timestamp == 1_000_000
    assert "a dead letter that dead does not take" in str(calls.dispatcher.failure)


def test_nothing_of_a_partition_is_committed_while_a_refused_call_waits() -> None:
    calls = Calls()
    now = 100.0
    calls.dispatcher._clock = lambda: now
    for source in (FIRST, SECOND):
        calls.dispatcher.open(source, 0)
        calls.dispatcher.take_in(source, records(0, b"a"))
    first, second = calls.begin()
    calls.end(first, second)
    refused(calls, first, Settled(back=first.items, delay_ms=2_000))
    assert calls.step() == ({SECOND: 1}, [b"0"])
    now = 103.0
    assert calls.step() == ({FIRST: 1, SECOND: 1}, [b"0", b"0"])
    refused(calls, first, Settled(back=first.items, fail=StreamsError("no")))
    now = 1e9
    assert calls.step() == ({SECOND: 1}, [b"0"]), "the others are committed before the end"


def test_a_batch_with_a_refused_output_begins_anew_at_the_last_commit_record_by_record() -> None:
    calls = Calls(batch=Batch(records=10, target_ms=1_000))
    dispatcher = calls.dispatcher
    dispatcher.open(FIRST, None)
    dispatcher.take_in(FIRST, records(5, b"a"))
    calls.end(*calls.begin())
    calls.commit()
    dispatcher.take_in(FIRST, records(6, b"a", b"b", b"c", b"d"))
    two, busy = calls.begin()
    assert [len(unit.items) for unit in (two, busy)] == [2, 2]
    calls.end(two)
    dispatcher.repeat(two)
    assert dispatcher.begin_anew() == {}, "a call is under way"
    assert calls.step() == ({}, [])
    calls.end(busy)
    assert calls.step() == ({}, [])
    assert dispatcher.begin_anew() == {FIRST: 6}
    assert dispatcher.begin_anew() == {}
    dispatcher.take_in(FIRST, records(6, b"a", b"b", b"c", b"d"))
    units = calls.begin()
    assert [len(unit.items) for unit in units if unit.items[0].offset in (6, 7)] == [1, 1]
    calls.end(*units, *calls.begin())
    metrics = dispatcher.look()[0]
    assert metrics.taken == sum(metrics[1:7])


def test_records_of_an_earlier_batch_keep_calls_of_their_own_until_they_are_committed() -> None:
    """Two batches with refused outputs, whose records interleave, take turns for ever otherwise."""
    calls = Calls(batch=Batch(records=10, target_ms=1_000))
    dispatcher = calls.dispatcher
    dispatcher.open(FIRST, None)
    dispatcher.take_in(FIRST, records(0, b"a"))
    calls.end(*calls.begin())
    calls.commit()
    keys = [b"a", b"b", b"a", b"b", b"a", b"b"]
    dispatcher.take_in(FIRST, records(1, *keys))
    first, second = calls.begin()
    calls.end(first, second)
    dispatcher.repeat(first)
    assert dispatcher.begin_anew() == {FIRST: 1}
    dispatcher.take_in(FIRST, records(1, *keys))
    theirs = {item.offset for item in second.items}
    other = next(unit for unit in calls.begin() if {item.offset for item in unit.items} <= theirs)
    calls.end(other)
    dispatcher.repeat(other)
    partition = dispatcher.partition(FIRST)
    assert partition is not None
    for unit in [unit for unit in dispatcher._running if unit.partition is partition]:
        calls.end(unit)
    assert dispatcher.begin_anew() == {FIRST: 1}
    dispatcher.take_in(FIRST, records(1, *keys))
    blamed = {item.offset for unit in (first, other) for item in unit.items}
    assert len(blamed) > max(len(first.items), len(other.items))
    sizes = {}
    while units := calls.begin():
        sizes |= {item.offset: len(unit.items) for unit in units for item in unit.items}
        calls.end(*units)
    assert len(sizes) == len(keys)
    assert {sizes[offset] for offset in blamed} == {1}


class NoText(StringSerde):
    """A serde that fails as ``error`` says for bytes that are no text."""

    def __init__(self, error: StreamsError) -> None:
        super().__init__()
        self.error = error

    def deserialize(self, data: bytes) -> str:
        if data == b"\xff":
            raise self.error
        return super().deserialize(data)


@pytest.mark.parametrize(
    ("error", "position", "outputs"),
    [
        (SerializationError("no text"), 2, [b"0", b"1"]),
        (SchemaRegistryError("the registry does not answer"), 1, [b"0"]),
    ],
)
@pytest.mark.parametrize("dead_letters", [None, "dead"])
def test_the_last_commit_of_a_batch_that_ends_the_consumer_has_the_outputs_of_its_finished_records(
    dead_letters: str | None, error: StreamsError, position: int, outputs: list[bytes]
) -> None:
    """While the registry was away, the transaction had outputs of records that come again after a restart. With the
    answer "fail", the transaction had a letter of such a record."""

    def handle(records: list[Any], transaction: Any) -> None:
        for record in records:
            transaction.send("out", value=b"%d" % record.offset)

    config = StreamsConfig("payments", dead_letter_queue_topic=dead_letters)
    calls = Calls(
        handler=handle, batch=Batch(records=10), parallelism=1, value_serde=NoText(error), config=config
    )
    sent = HandlerOutputs("payments", KafkaOutput(), config)
    handling = Handling(calls.options, calls.dispatcher, None, None, sent)
    calls.dispatcher.open(FIRST, 0)
    calls.dispatcher.take_in(FIRST, records(0, b"a", b"b", b"c"))
    (first,) = calls.begin()
    assert [item.offset for item in first.items] == [0]
    handling.run(first)
    (second,) = calls.begin()
    assert [item.offset for item in second.items] == [1, 2]
    second.items[1].value = b"\xff"
    handling.run(second)
    assert str(error) in str(calls.dispatcher.failure)
    assert calls.step() == ({FIRST: position}, outputs)
