"""Failures of agents: the exception handlers decide, with the answers and letters that topologies have."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import Counter
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest
from faust.exceptions import DecodeError, ImproperlyConfigured, PartitionsMismatch
from faust.types import TP

from streamapp import App, ErrorContext, OutputRecord, Response, StreamsConfig
from streamapp.errors import BrokerError
from streamapp.runners.worker.agents.failures import (
    ProcessingFailed,
    WatchedAgent,
    WatchedTopic,
    watched_task,
)
from streamapp.runners.worker.agents.taken_batches import RecordMoved, WatchedStream, _Ahead

HEADERS = (("from", b"x"), ("from", None))
"""Pairs, as aiokafka gives the headers of a record."""
RECORD = SimpleNamespace(
    topic="in", partition=2, offset=81, timestamp=1.001, headers=HEADERS, key=b"k", value=b"{"
)


class Application:
    """The parts of an application that a decision touches; notes what is sent and what ends the worker."""

    def __init__(self, **config: Any) -> None:
        self.config = StreamsConfig("app", application_version="7", **config)
        self.topics = SimpleNamespace(acks_enabled_for=lambda topic: True)
        self.tables = SimpleNamespace(changelog_topics={"rows"})
        self.consumer = self.producer = self._attachments = self
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.bound: list[Any] = []
        self.failed: Exception | None = None
        self.failed_record: Any = None
        self.refusal: Exception | None = None
        self.has = lambda record: True
        self.agents: dict[str, Any] = {}
        self.dead: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()

    async def fail(self, failure: Exception, record: Any) -> None:
        self.failed, self.failed_record = failure, record

    def topic(self, name: str, **_: Any) -> Any:
        return SimpleNamespace(name=name)

    async def send_letter(self, letter: OutputRecord) -> None:
        if self.refusal is not None:
            raise self.refusal
        at = letter.timestamp
        sending = {
            "key": letter.key,
            "value": letter.value,
            "partition": letter.partition,
            "timestamp": None if at is None else at / 1000,
            "headers": list(letter.headers),
        }
        self.sent.append((letter.topic, sending))

    def put(self, record: Any, channel: Any, *, letter: str, **sending: Any) -> None:
        assert letter
        self.bound.append(record)
        self.sent.append((channel.name, sending))

    def undecodable(self, error: Exception | None = None, record: Any = RECORD) -> None:
        async def ignore(*_: Any) -> None: ...

        topic = SimpleNamespace(app=self, on_decode_error=ignore)
        asyncio.run(WatchedTopic._on_undecodable(topic, error or ValueError("no"), record, "value"))

    def raised(
        self,
        monkeypatch: pytest.MonkeyPatch,
        error: BaseException,
        raises: type[BaseException] | None = None,
        record: Any = RECORD,
    ) -> None:
        async def work() -> None:
            raise error

        monkeypatch.setattr(
            "streamapp.runners.worker.agents.failures.current_event",
            lambda: None if record is None else SimpleNamespace(message=record),
        )
        agent = SimpleNamespace(app=self, name="answer", channel="in", should_stop=False)
        for method in ("_failed", "_judge", "_finish_record"):
            setattr(agent, method, getattr(WatchedAgent, method).__get__(agent))
        with pytest.raises(raises or type(error)):
            asyncio.run(WatchedAgent._watched(agent, work(), SimpleNamespace(stream=Stream(), it=None)))


class Stream:
    """A stream whose record Faust has counted as finished."""

    current_event = channel = None
    enable_acks = True
    events_total = 0

    def get_active_stream(self) -> Stream:
        return self

    async def stop(self) -> None: ...


def test_the_letter_of_an_agent_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record with headers was lost under every handler, and some letters had the timestamp of a millisecond before."""
    app = Application(processing_exception_handler="continue", dead_letter_queue_topic="dead")
    app.raised(monkeypatch, ValueError("no"))
    assert app.failed is None
    ((topic, letter),) = app.sent
    assert tuple(letter["headers"][:2]) == HEADERS
    headers = dict(letter["headers"][2:])
    assert b"ValueError: no" in headers.pop("__streams.errors.stacktrace")
    assert headers == {
        "__streams.errors.exception": b"ValueError",
        "__streams.errors.message": b"no",
        "__streams.errors.topic": b"in",
        "__streams.errors.partition": b"2",
        "__streams.errors.offset": b"81",
        "__streamapp.errors.application": b"app",
        "__streamapp.errors.version": b"7",
        "__streamapp.errors.task": b"",
        "__streamapp.errors.operator": b"agent answer",
        "__streamapp.errors.what": b"failed",
        "__streamapp.errors.timestamp": b"1001",
        "__streamapp.errors.attempt": b"1",
    }
    assert (topic, letter["key"], letter["value"], letter["timestamp"]) == ("dead", b"k", b"{", 1.001)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_handler_makes_its_own_letters(guarantee: str) -> None:
    def choose(context: ErrorContext, error: Exception) -> Response:
        return Response.resume(
            OutputRecord("bad", context.key, str(error).encode(), None, (("why", b"x"),), 3),
            OutputRecord("more", None, None, 1_500),
        )

    app = Application(
        deserialization_exception_handler=choose,
        dead_letter_queue_topic="dead",
        processing_guarantee=guarantee,
    )
    app.undecodable()
    assert app.failed is None
    assert app.sent == [
        ("bad", {"key": b"k", "value": b"no", "partition": 3, "timestamp": None, "headers": [("why", b"x")]}),
        ("more", {"key": None, "value": None, "partition": None, "timestamp": 1.5, "headers": []}),
    ]
    assert app.bound == ([RECORD, RECORD] if guarantee == "exactly_once_v2" else [])


def test_a_letter_that_brokers_refuse_ends_the_worker_without_the_word_that_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log said that the worker goes on without the record, and the error did not name the record's own error."""
    app = Application(processing_exception_handler="continue", dead_letter_queue_topic="dead")
    app.refusal = BrokerError("MessageSizeTooLargeError: too large")
    app.raised(monkeypatch, ValueError("no"))
    assert str(app.failed) == (
        "agent answer: record of in-2 at offset 81 has a dead letter that dead does not take: BrokerError: "
        "MessageSizeTooLargeError: too large. The record failed: ValueError: no"
    )
    assert caplog.messages == []


@pytest.mark.parametrize("where", ["agent answer failed", "topic in: a record could not be deserialized"])
def test_a_judgement_that_raises_ends_the_worker(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Faust counted the record as done, and the worker went on."""

    def broken(*_: Any) -> Any:
        raise AttributeError("a defect")

    monkeypatch.setattr("streamapp.runners.worker.agents.failures._context", broken)
    app = Application(processing_exception_handler="continue", deserialization_exception_handler="continue")
    if where.startswith("agent"):
        app.raised(monkeypatch, ValueError("no"))
    else:
        app.undecodable()
    assert str(app.failed) == (
        f"{where}: ValueError: no; nothing was decided, because the judgement raised AttributeError: a defect"
    )


def test_a_handler_ends_the_worker_and_leaves_letters() -> None:
    app = Application(
        deserialization_exception_handler=lambda context, error: Response.fail(
            OutputRecord("bad", b"k", b"v", None)
        )
    )
    app.undecodable()
    assert [topic for topic, _ in app.sent] == ["bad"]
    assert "record of in-2 at offset 81 could not be deserialized: ValueError: no" in str(app.failed)


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        ("fail", 'set deserialization_exception_handler to "continue"'),
        (lambda context, error: "ignore", "an exception handler must return .* not 'ignore'"),
        (lambda context, error: 1 / 0, "the exception handler itself failed .ZeroDivisionError"),
        (lambda context, error: "dead_letter", "dead_letter_queue_topic is not set"),
    ],
)
def test_without_an_answer_to_go_on_the_worker_ends(handler: Any, message: str) -> None:
    app = Application(deserialization_exception_handler=handler)
    app.undecodable()
    assert app.sent == []
    with pytest.raises(Exception, match=message):
        raise app.failed or AssertionError("the worker goes on")


@pytest.mark.parametrize(
    ("settings", "record", "advice"),
    [
        (
            {"value_type": str},
            {"value": b"late"},
            'the value is no JSON, but the value_serializer of the topic is "json" (Faust\'s default). If values are '
            'text or bytes, give the topic value_serializer="raw" and value_type=str or bytes. Or else set '
            'deserialization_exception_handler to "continue"',
        ),
        ({}, {"value": b"\xff"}, "the value is no JSON, but"),
        (
            {"key_type": str, "key_serializer": "json"},
            {"key": b"BER"},
            'the key is no JSON, but the key_serializer of the topic is "json". If keys are',
        ),
        ({"value_type": int}, {"value": b'"x"'}, ""),
        ({"value_type": int, "value_serializer": "raw"}, {"value": b"x"}, ""),
    ],
)
async def test_a_record_that_is_no_json_names_the_serializer(
    settings: dict[str, Any], record: dict[str, bytes], advice: str
) -> None:
    """JSON is Faust's default: the error used to name only the handler, with which all records would be dropped."""
    app = App("checked")
    failures: list[Exception] = []

    async def fail(error: Exception, record: Any) -> None:
        failures.append(error)

    app._consumer = SimpleNamespace(fail=fail, dead=Counter(), skipped=Counter())
    topic = app.topic("in", **settings)
    with pytest.raises(DecodeError) as caught:
        await topic.decode(SimpleNamespace(**{**vars(RECORD), "value": b"1", **record}), propagate=True)
    part: Any = "key" if "key" in record else "value"
    await topic._on_undecodable(caught.value, SimpleNamespace(**vars(RECORD)), part)
    (error,) = failures
    assert advice in str(error)
    assert ("JSON" in str(error)) == bool(advice)
    assert 'set deserialization_exception_handler to "continue"' in str(error)


def test_a_row_that_cannot_be_read_is_left_out_of_no_table() -> None:
    """The table was restored without the row, and the error advised to leave such rows out."""
    app = Application(deserialization_exception_handler="continue")
    app.undecodable(record=SimpleNamespace(**{**vars(RECORD), "topic": "rows"}))
    assert str(app.failed) == (
        "a table of agents cannot be restored, because the record of rows-2 at offset 81 could not be deserialized: "
        "ValueError: no. If key_type or value_type of the table has changed, go back to the former type, or give the "
        "table a new name"
    )


def test_an_agent_that_fails_before_its_first_record_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker started the agent anew without an end, with hundreds of lines a second in the log."""
    app = Application(processing_exception_handler="continue")
    app.raised(monkeypatch, ValueError("no"), record=None)
    assert str(app.failed) == (
        "agent answer failed before its first record: ValueError: no; no handler is asked, because there is no record "
        "to leave out"
    )


@pytest.mark.parametrize(
    ("error", "story"),
    [
        (ValueError("no"), "failed: ValueError: no; the worker ends"),
        (asyncio.CancelledError(), "failed: RuntimeError: CancelledError, but nobody has cancelled"),
        (RecordMoved(), "failed: the record belongs to another worker now; the worker ends"),
    ],
)
def test_a_task_that_raises_loses_no_record(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, story: str
) -> None:
    """The record counted as done. After a `CancelledError`, the worker went on without the task."""
    app = Application(processing_exception_handler="continue")

    async def read() -> None:
        raise error

    monkeypatch.setattr(
        "streamapp.runners.worker.agents.failures.current_event", lambda: SimpleNamespace(message=RECORD)
    )
    asyncio.run(watched_task(app, read)())
    assert "read: record of in-2 at offset 81 " + story in str(app.failed)
    assert app.failed_record is RECORD


def test_a_timer_that_waits_for_something_cancelled_has_failed() -> None:
    """The timer ended without a word."""

    async def tick() -> None:
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="nobody has cancelled"):
        asyncio.run(watched_task(Application(), tick)())


def test_no_handler_is_asked_about_brokers() -> None:
    app = Application(deserialization_exception_handler="skip")
    app.undecodable(BrokerError("gone"))
    assert "BrokerError: gone" in str(app.failed)


def test_a_record_that_is_skipped_leaves_no_letter(caplog: pytest.LogCaptureFixture) -> None:
    app = Application(deserialization_exception_handler="skip", dead_letter_queue_topic="dead")
    with caplog.at_level(logging.WARNING):
        app.undecodable()
    assert (app.sent, app.failed) == ([], None)
    assert caplog.messages[0].endswith("going on without it")


def test_an_agent_that_waits_for_something_cancelled_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faust took the error for a rebalance and started the agent anew; the record was lost without a word."""
    app = Application()
    app.raised(monkeypatch, asyncio.CancelledError(), RuntimeError)
    assert "in-2 at offset 81 failed: RuntimeError: CancelledError, but nobody has cancelled" in str(
        app.failed
    )
    app = Application(processing_exception_handler="continue", dead_letter_queue_topic="dead")
    app.raised(monkeypatch, asyncio.CancelledError(), RuntimeError)
    assert app.failed is None
    assert [topic for topic, _ in app.sent] == ["dead"]


def test_a_cancelled_agent_has_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Application()
    agent: Any = SimpleNamespace(app=app, name="answer")

    async def run() -> None:
        task = asyncio.create_task(WatchedAgent._watched(agent, asyncio.sleep(60), None))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    app.raised(monkeypatch, RecordMoved())
    assert app.failed is None


def test_a_shielded_message_of_a_record_that_moved_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """`asyncio.shield(topic.send())` raises a plain `CancelledError`, and the worker ended in a rebalance."""
    app = Application()
    app.has = lambda record: False
    app.raised(monkeypatch, asyncio.CancelledError())
    assert app.failed is None


@pytest.mark.parametrize("error", [RecordMoved(), asyncio.CancelledError()])
def test_a_record_that_moved_while_faust_reads_ahead_starts_the_agent_anew(error: BaseException) -> None:
    """An operator before `take` that sent for such a record ended the worker."""
    app = Application()
    app.has = lambda record: False
    stream: Any = SimpleNamespace(
        app=app, current_event=SimpleNamespace(message=RECORD), get_root_stream=lambda: stream
    )
    cancelled: list[str] = []

    def actor(name: str, of: Any) -> Any:
        task = SimpleNamespace(cancel=lambda: cancelled.append(name))
        return SimpleNamespace(stream=of, actor_task=task)

    app.agents["in"] = SimpleNamespace(_actors=[actor("own", stream), actor("other", None)])
    stream._start_agent_anew = WatchedStream._start_agent_anew.__get__(stream)
    thrown: list[BaseException] = []

    async def throw(error: BaseException) -> None:
        thrown.append(error)

    stream.failed_ahead = WatchedStream.failed_ahead.__get__(stream)
    asyncio.run(_Ahead(stream, SimpleNamespace(throw=throw)).throw(error))
    assert (app.failed, cancelled, thrown) == (None, ["own"], [])


async def test_a_replaced_actor_and_its_stream_leave_no_trace() -> None:
    """The memory of a worker grew with each record that an agent failed to process."""
    app = App("failing", datadir="unused")

    async def work(stream: Any) -> None:
        async for _ in stream:
            pass

    agent = app.agent(app.channel())(work)
    agent.supervisor = agent._new_supervisor()
    actor = await agent._start_one(index=0)
    await actor.maybe_start()
    before = len(agent.beacon.children)
    for _ in range(5):
        await asyncio.sleep(0.01)  # the function of the agent begins
        actor.actor_task.cancel()
        actor = await agent._replace_actor(actor, 0)
    assert len(agent.beacon.children) == before
    await asyncio.sleep(0.01)
    actor.actor_task.cancel()
    await actor.stop()


async def test_an_agent_that_is_stopped_alone_leaves_its_record_unfinished(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The record that the agent worked on counted as done, so it was lost."""
    app = App("failing", datadir="unused")
    app.flow_control.resume()
    monkeypatch.setattr(App, "started", True)
    messages: list[Any] = []

    async def work(stream: Any) -> None:
        async for event in stream.events():
            event.message.refcount = 3
            messages.append(event.message)
            await asyncio.sleep(60)

    channel = app.channel()
    agent = app.agent(channel)(work)
    await agent.start()
    await asyncio.sleep(0.01)  # the function of the agent begins
    await channel.send(value="a")
    while not messages:
        await asyncio.sleep(0.01)
    await agent.stop()
    assert [message.refcount for message in messages] == [3]
    assert "was stopped: nobody processes the further records" in caplog.text


async def test_the_actor_of_an_isolated_partition_that_failed_reads_on_after_a_rebalance() -> None:
    """The worker read the topic no longer, or gave the records of the partition to nobody."""
    app = App("failing", datadir="unused")
    app.flow_control.resume()
    tp = TP("in", 0)

    async def work(stream: Any) -> None:
        async for _ in stream:
            raise ValueError

    agent = app.agent(app.topic("in"), isolated_partitions=True)(work)
    agent.supervisor = agent._new_supervisor()
    actor = await agent._start_one(active_partitions={tp})
    agent._actor_by_partition[tp] = actor
    await actor.maybe_start()
    channel = actor.stream.channel
    await asyncio.sleep(0.01)  # the function of the agent begins
    app.topics.discard(channel)  # as at the end of a stream
    actor.actor_task.cancel()
    again = await agent._replace_actor(actor, 0)
    assert channel in app.topics
    assert again is agent._actor_by_partition[tp]
    await asyncio.sleep(0.01)
    again.actor_task.cancel()
    await again.stop()


@pytest.mark.parametrize("cython", [True, False])
@pytest.mark.parametrize("fails_in", ["function", "sink", "operator"])
async def test_the_record_of_a_failed_agent_is_acknowledged_once(
    cython: bool, fails_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Faust's modules in C, two acknowledgements counted for one record."""
    if not cython:
        monkeypatch.setattr("faust.streams._CStreamIterator", None)
    app = App("failing", datadir="unused")
    app.flow_control.resume()
    channel = app.channel()
    stream = app.stream(channel)

    def fail(value: str) -> str:
        raise ValueError(value)

    def note(value: str) -> str:
        messages.append(stream.current_event.message)
        messages[-1].refcount = 3
        return value

    messages: list[Any] = []
    stream.add_processor(note)
    if fails_in == "operator":
        stream.add_processor(fail)

    async def work() -> AsyncGenerator[str, None]:
        async for value in stream:
            if fails_in == "function":
                fail(value)
            yield value

    agent: Any = SimpleNamespace(app=app)
    it = work()
    await channel.send(value="a")
    try:
        fail(await anext(it))
    except ValueError:
        await WatchedAgent._finish_record(agent, SimpleNamespace(stream=stream, it=it))
    del it
    gc.collect()
    await asyncio.sleep(0.05)  # the event loop closes the generators that nobody holds
    assert [message.refcount for message in messages] == [2]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_an_agent_that_exits_ends_the_worker_whatever_the_handler_says(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record was committed with half of its messages, and the worker hung without its event loop."""
    app = Application(processing_exception_handler="continue", dead_letter_queue_topic="dead")
    app.raised(monkeypatch, error, ProcessingFailed)
    assert f"in-2 at offset 81 failed: {type(error).__name__}" in str(app.failed)
    assert app.sent == []


@pytest.mark.parametrize("answer", ["skip", "dead_letter"])
def test_an_outage_of_a_service_drops_no_record(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    """An agent dropped all records of the outage."""
    settings = {f"{kind}_exception_handler": answer for kind in ("deserialization", "processing")}
    for provoke in (
        lambda app: app.raised(monkeypatch, ConnectionError("no registry")),
        lambda app: app.undecodable(ConnectionError("no registry")),
    ):
        app = Application(dead_letter_queue_topic="dead", **settings)
        provoke(app)
        assert app.sent == []
        assert "ConnectionError: no registry; a service failed and not the record" in str(app.failed)


def test_a_table_with_another_number_of_partitions_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Application(processing_exception_handler="continue")
    app.raised(monkeypatch, PartitionsMismatch("the topic has 6 partitions, the changelog has 4"))
    assert "run `streamapp reset`" in str(app.failed)
    assert app.sent == []


def test_no_handler_is_asked_about_an_agent_that_faust_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """With "continue", Faust started the agent anew for ever."""
    app = Application(processing_exception_handler="continue")
    app.raised(monkeypatch, ImproperlyConfigured("Agent with concurrency>1 cannot use stream.group_by!"))
    assert "cannot use stream.group_by!" in str(app.failed)
    assert "processing_exception_handler" not in str(app.failed)


def test_the_remedy_fits_a_failure_behind_group_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker advised to handle the exception in the agent, although no agent can change numbers of partitions."""

    monkeypatch.setattr(Stream, "get_active_stream", lambda stream: SimpleNamespace(channel="grouped"))
    for error, remedy in (
        (
            PartitionsMismatch("the topic has 8 partitions, the changelog has 4"),
            "partitions= of the table, or of group_by",
        ),
        (ValueError("no"), "handle the exception in the agent"),
        (BrokerError("stop all of them"), "behind group_by or through: BrokerError: stop all of them"),
    ):
        app = Application(processing_exception_handler="continue")
        app.raised(monkeypatch, error)
        assert remedy in str(app.failed)
        assert ("handle the exception" in str(app.failed)) == isinstance(error, ValueError)


@pytest.mark.parametrize("revoked", [True, False])
async def test_only_an_actor_that_still_has_its_partition_is_missed(
    caplog: pytest.LogCaptureFixture, revoked: bool
) -> None:
    """A rebalance ended the actor of a partition, and the log said that nobody processes further records."""
    app = App("missed", datadir="unused")

    @app.agent(app.topic("in"), isolated_partitions=True)
    async def answer(stream: Any) -> None: ...

    async def work() -> None: ...

    class Actor:
        """An actor of Faust, which the agent keeps in a dictionary of weak references."""

    actor, other = Actor(), Actor()
    answer._first_assignment_done = True
    answer._actor_by_partition[TP("in", 0)] = other if revoked else actor
    await answer._watched(work(), actor)
    assert ("has returned" in caplog.text) is not revoked
