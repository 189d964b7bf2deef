"""The bookkeeping of agents: finished records, and records that one commit has together."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import MessageSizeTooLargeError
from faust.exceptions import ImproperlyConfigured, ProducerSendError
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, FutureMessage, PendingMessage
from hypothesis import given
from hypothesis import strategies as st

from streamapp.app import App
from streamapp.config import StreamsConfig
from streamapp.errors import BrokerError
from streamapp.records import OutputRecord
from streamapp.runners.worker.agents.consumer import AgentConsumer
from streamapp.runners.worker.agents.finished import Progress
from streamapp.runners.worker.agents.sends import WRITTEN, AgentProducer, BoundSends
from streamapp.runners.worker.agents.taken_batches import note_batch
from streamapp.runners.worker.agents.topics import regrouped_by_agents

offsets = st.lists(st.integers(1, 40), min_size=1, max_size=8).map(
    lambda steps: [sum(steps[:n]) for n in range(1, len(steps) + 1)]
)


@given(offsets, st.data())
def test_a_position_passes_nothing_that_is_not_done_and_everything_else(
    existing: list[int], data: Any
) -> None:
    progress = Progress()
    assert progress.position(set()) is None
    for offset in existing:
        assert progress.hand_out(offset)
    assert not progress.hand_out(data.draw(st.sampled_from(existing)))
    done = data.draw(st.sets(st.sampled_from(existing)))
    position = progress.position(set(done))
    open = [offset for offset in existing if offset not in done]
    assert position == (open[0] if open else existing[-1] + 1)
    assert progress.position(set(existing)) == existing[-1] + 1


class Topic:
    def __init__(self, name: str) -> None:
        self.get_topic_name = lambda: name


def sends(*written: tuple[str, int, str]) -> BoundSends:
    """Messages, each with the partition and offset of its record and the topic that it goes to; tables are upper case."""
    app = SimpleNamespace(
        config=StreamsConfig(processing_guarantee="exactly_once_v2"),
        consumer=SimpleNamespace(has=lambda record: record.generation_id == 1),
        tables=SimpleNamespace(changelog_topics={"TABLE", "OTHER"}),
    )
    bound = BoundSends(app)
    for topic, offset, to in written:
        sizes = {"key": b"k" * 10, "value": b"v" * 20}
        message = SimpleNamespace(channel=Topic(to), partition=0, timestamp=None, callback=None, **sizes)
        record = SimpleNamespace(tp=TP(topic, 0), offset=offset, generation_id=1)
        bound._bind(record, FutureMessage(message))  # type: ignore[arg-type]
    return bound


def test_a_message_for_a_batch_does_not_look_at_all_of_its_records() -> None:
    """An agent that sends a message for each record of a batch would make a square of look-ups."""

    async def check() -> None:
        bound, asked = sends(), []
        bound.app.consumer.has = lambda record: asked.append(record) or record.generation_id > 1
        batch = [SimpleNamespace(tp=TP("a", 0), offset=at, generation_id=2 + at % 2) for at in range(100)]

        def send() -> None:
            message = SimpleNamespace(channel=Topic("out"), partition=0)
            bound._bind(batch[-1], FutureMessage(message))  # type: ignore[arg-type]

        note_batch(tuple(batch))  # type: ignore[arg-type]
        send()
        assert {record.generation_id for record in asked} == {2, 3}
        assert len(asked) == 2
        batch[7].generation_id = 1  # fetched before a rebalance
        note_batch(tuple(batch))  # type: ignore[arg-type]
        with pytest.raises(asyncio.CancelledError):
            send()
        note_batch(())

    run(check())


async def trimmed(bound: BoundSends, **positions: int) -> tuple[dict[str, int], list[tuple[str, int]]]:
    wanted = {TP(topic, 0): position for topic, position in positions.items()}
    bound.trim(wanted)
    messages = [(message.record.topic, message.offset) for message in bound.of(wanted)]
    return {tp.topic: position for tp, position in wanted.items()}, messages


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


def test_a_commit_takes_what_was_sent_for_its_records_in_the_order_in_which_it_was_sent() -> None:
    async def check() -> None:
        bound = sends(("a", 4, "out"), ("b", 1, "out"), ("a", 3, "out"), ("a", 5, "out"))
        assert await trimmed(bound, a=5, b=2) == ({"a": 5, "b": 2}, [("a", 4), ("b", 1), ("a", 3)])

    run(check())


def test_a_change_of_a_table_is_not_committed_before_one_that_was_written_earlier() -> None:
    async def check() -> None:
        bound = sends(("a", 4, "TABLE"), ("b", 1, "TABLE"), ("b", 2, "out"))
        assert await trimmed(bound, a=4, b=3) == ({"a": 4, "b": 1}, [])
        assert await trimmed(bound, a=5, b=3) == ({"a": 5, "b": 3}, [("a", 4), ("b", 1), ("b", 2)])

    run(check())


def test_a_position_that_is_lowered_may_lower_others() -> None:
    async def check() -> None:
        bound = sends(("a", 4, "TABLE"), ("b", 1, "TABLE"), ("b", 1, "OTHER"), ("c", 7, "OTHER"))
        assert await trimmed(bound, a=4, b=2, c=8) == ({"a": 4, "b": 1, "c": 7}, [])

    run(check())


def test_a_commit_takes_all_records_of_a_batch_or_none() -> None:
    async def check() -> None:
        bound = sends(("c", 1, "out"))
        batch = tuple(
            SimpleNamespace(tp=TP(topic, 0), offset=at) for topic, at in (("a", 3), ("b", 1), ("a", 4))
        )
        (sent,) = bound._bound.pop(TP("c", 0))
        bound._bound[TP("a", 0)] = [sent._replace(record=TP("a", 0), offset=4, batch=batch)]  # type: ignore[arg-type]
        assert await trimmed(bound, a=5, b=2) == ({"a": 5, "b": 2}, [("a", 4)])
        assert await trimmed(bound, a=5, b=1) == ({"a": 3, "b": 1}, [])
        assert await trimmed(bound, a=4, b=9) == ({"a": 3, "b": 1}, [])
        assert await trimmed(bound, a=3, b=1) == ({"a": 3, "b": 1}, [])

    run(check())


def test_a_commit_takes_no_more_bytes_than_it_may_but_one_record_at_least() -> None:
    async def check() -> None:
        bound = sends(("a", 1, "out"), ("b", 1, "out"), ("a", 2, "out"), ("a", 2, "out"), ("b", 2, "out"))
        wanted = {TP("a", 0): 3, TP("b", 0): 3, TP("c", 0): 9}
        for records, a, b in ((5, 3, 3), (4, 3, 2), (3, 2, 2), (2, 2, 2), (1, 2, 1), (0.1, 2, 1)):
            positions = dict(wanted)
            assert bound.shorten(positions, int(100 * records)) == 500
            assert positions == {TP("a", 0): a, TP("b", 0): b, TP("c", 0): 9}

    run(check())


def test_a_commit_of_few_bytes_leaves_out_no_earlier_change_of_a_table() -> None:
    async def check() -> None:
        bound = sends(("c", 1, "out"), ("a", 2, "TABLE"), ("b", 1, "TABLE"), ("a", 1, "out"))
        positions = {TP("a", 0): 3, TP("b", 0): 2, TP("c", 0): 2}
        bound.shorten(positions, 300)
        assert positions == {TP("a", 0): 1, TP("b", 0): 1, TP("c", 0): 2}

    run(check())


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 4), st.sampled_from(["out", "TABLE", "OTHER"]))
    ),
    st.fixed_dictionaries({TP(topic, 0): st.integers(0, 5) for topic in "abc"}),
    st.integers(1, 1_000),
)
def test_commits_of_few_bytes_come_to_the_end_of_one_large_commit(
    written: list[tuple[str, int, str]], wanted: dict[TP, int], most_bytes: int
) -> None:
    async def check() -> None:
        bound, large, done = sends(*written), dict(wanted), []
        bound.trim(large)
        messages = bound.of(large)
        for _ in range(len(messages) + 1):
            positions = dict(large)
            bound.shorten(positions, most_bytes)
            trimmed = dict(positions)
            bound.trim(trimmed)
            assert trimmed == positions
            taken = bound.of(positions)
            done += taken
            await bound.sent(taken)
        assert positions == large
        assert sorted(done) == sorted(messages)

    run(check())


def test_an_agent_that_works_on_a_record_of_an_earlier_assignment_is_interrupted() -> None:
    async def check() -> None:
        bound = sends()
        message = SimpleNamespace(channel=Topic("out"), partition=0)
        future = FutureMessage(message)  # type: ignore[arg-type]
        with pytest.raises(asyncio.CancelledError):
            bound._bind(SimpleNamespace(tp=TP("a", 0), offset=1, generation_id=0), future)  # type: ignore[arg-type]
        assert await trimmed(bound, a=9) == ({"a": 9}, [])

    run(check())


def test_tables_that_are_ahead_of_what_is_committed_are_named() -> None:
    async def check() -> None:
        bound = sends(("a", 1, "TABLE"), ("a", 1, "out"))
        assert bound.forget() == {"TABLE"}
        assert bound.forget() == set()

    run(check())


def app_with(folder: Path, **properties: str) -> App:
    config = StreamsConfig("flights", client_properties=properties, processing_guarantee="at_least_once")
    return App("flights", config=config, datadir=folder)


def test_a_change_of_a_table_that_is_too_large_ends_the_worker_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faust's buffer crashed, and the stop waited for the change in vain, until it was killed without a reason."""

    async def too_large(*_: Any, **__: Any) -> None:
        cause = MessageSizeTooLargeError("The message is 3000096 bytes")
        raise ProducerSendError(f"Error while sending: {cause!r}") from cause

    monkeypatch.setattr(driver.Producer, "send", too_large)

    async def judge() -> None:
        app = app_with(tmp_path)
        producer = AgentProducer(app.transport)

        async def publish(fut: FutureMessage, wait: bool) -> None:
            await producer.send("flights-seen-changelog", b"k", b"v", 0, None, None)

        channel = SimpleNamespace(get_topic_name=lambda: "flights-seen-changelog", publish_message=publish)
        fut = FutureMessage(SimpleNamespace(channel=channel, partition=0))
        producer.send_soon(fut)
        await producer.buffer._send_pending(fut)
        await producer.settle()

    match = "flights-seen-changelog .*3000096 bytes.* Raise max.message.bytes of the topic"
    with pytest.raises(BrokerError, match=match):
        asyncio.run(judge())


@pytest.mark.parametrize(
    "case",
    [
        "another worker has it",
        "another worker has it, by the partitioner",
        "this worker has it",
        "nobody has it",
        "the record has moved",
        "a channel",
    ],
)
def test_an_agent_changes_no_partition_of_a_table_that_another_worker_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """The row began anew, because this worker had not restored it. The changelog then had the wrong row for good."""
    record = SimpleNamespace(topic="in", partition=3, offset=7, tp=TP("in", 3), generation_id=1, acked=False)
    monkeypatch.setattr(
        "streamapp.runners.worker.agents.sends.current_event", lambda: SimpleNamespace(message=record)
    )

    async def judge() -> None:
        app: Any = app_with(tmp_path)
        app.Table("seen", partitions=4, use_partitioner=case.endswith("partitioner"))
        app.topics = SimpleNamespace(acks_enabled_for=lambda topic: case != "a channel")
        app.consumer = SimpleNamespace(
            has=lambda message: case != "the record has moved",
            topic_partitions=lambda topic: 3 if case == "nobody has it" else 4,
        )
        app.assignor._active_tps = (
            {TP("flights-seen-changelog", 3)} if case == "this worker has it" else set()
        )
        producer = AgentProducer(app.transport)
        changelog = SimpleNamespace(get_topic_name=lambda: "flights-seen-changelog")
        change = FutureMessage(PendingMessage(changelog, b"k", b"1", 3, None, None, None, None, None))
        producer.send_soon(change)
        assert change.message.headers == {WRITTEN: b""}  # by which the rows of streamapp are known

    if not case.startswith("another worker has it"):
        asyncio.run(judge())
        return
    match = "record of in-3 at offset 7 changes a table, but this worker does not have partition 3 of flights-seen-c"
    match += ".* use_partitioner=True" if case.endswith("partitioner") else ".* Only some workers read in"
    with pytest.raises(BrokerError, match=match):
        asyncio.run(judge())


def test_the_topics_of_group_by_are_known_without_an_offset() -> None:
    """A worker had failed at the first record behind `group_by`, so a reset left the topic, and its records counted
    twice afterwards."""
    app = App("shop")

    @app.agent(app.topic("orders"), name="spend")
    async def spend(stream: Any) -> None: ...

    topics = [
        "spend-orders-user-repartition",
        "spend-other-repartition",
        "shop-spend-more-repartition",
        "orders",
    ]
    assert regrouped_by_agents(app, topics, set()) == topics[:1]
    assert regrouped_by_agents(app, topics, set(topics)) == sorted(topics[:3])


def test_a_letter_that_fails_after_its_agent_was_cancelled_holds_the_commit_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rebalance or a stop cancelled the agent, and the next commit passed over its record without the letter."""

    async def judge() -> None:
        producer, answered = AgentProducer(app_with(tmp_path).transport), asyncio.Event()

        async def refuse(letter: OutputRecord) -> None:
            await answered.wait()
            raise ProducerSendError("no such topic")

        monkeypatch.setattr(producer, "_confirmed", refuse)
        sending = asyncio.ensure_future(producer.send_letter(OutputRecord("dead", b"k", b"v", 5)))
        await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        answered.set()
        await producer.settle()

    with pytest.raises(BrokerError, match="a message for dead could not be written: .*no such topic"):
        asyncio.run(judge())


def test_agents_send_messages_as_large_as_other_clients(tmp_path: Path) -> None:
    """With at_least_once, Faust's own limit stayed at 1,000,000 bytes."""
    assert app_with(tmp_path, **{"message.max.bytes": "5000000"}).conf.producer_max_request_size == 5_000_000
    assert app_with(tmp_path).conf.producer_max_request_size == 1_000_000


async def test_agents_read_from_brokers_of_their_rack() -> None:
    app = App("racks", config=StreamsConfig("racks", client_rack="eu-1a"))
    thread = app._new_consumer()._thread
    consumer = thread._create_consumer(asyncio.get_running_loop())
    assert consumer._client_rack == "eu-1a"


@pytest.mark.parametrize(
    ("reset", "told"),
    [
        ("earliest", "in-0: records 3 to 9 are gone (retention) before they were processed"),
        ("latest", "in-0: records 3 to 9 are left out. The first of them are gone (retention)"),
    ],
)
async def test_records_that_agents_pass_over_are_called_by_their_name(
    reset: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With latest, the line called records gone that the topic still has."""
    app = App("passes", config=StreamsConfig("passes"), consumer_auto_offset_reset=reset)
    app._new_consumer()._note_removed(TP("in", 0), 3, 10)
    assert caplog.text.count(told) == 1


async def test_a_callback_that_raises_does_not_end_the_worker(caplog: pytest.LogCaptureFixture) -> None:
    """The worker ended with a bare error after the commit, and its tables had not noted the commit."""

    def broken(future: Any) -> None:
        raise ValueError("a defect of the callback")

    bound = sends(("in", 0, "one"), ("in", 1, "two"))
    messages = bound.of({TP("in", 0): 2})
    messages[0].future.message.callback = broken
    with caplog.at_level(logging.ERROR):
        await bound.sent(messages)
    assert all(each.future.done() for each in messages)
    assert caplog.messages == ["the callback of a message for one has raised"]


@pytest.mark.parametrize("part", ["key", "value"])
async def test_a_message_whose_serializer_makes_no_bytes_fails_when_it_is_sent(part: str) -> None:
    """With exactly_once_v2, the commit raised a bare TypeError, and the worker hung."""
    topic = App("sending", datadir="unused").topic("out", value_serializer="raw")
    with pytest.raises(TypeError, match=f"the {part} of a message for out has the type int"):
        topic.as_future_message(**{part: 5})
    assert topic.as_future_message(key="text", value=b"bytes").message.key == b"text"


async def test_a_message_of_echo_that_cannot_be_sent_fails() -> None:
    """Faust dropped the error, so the message was lost, and its record counted as done."""
    app = App("echoing", datadir="unused")
    app.flow_control.resume()
    source, sent = app.channel(), []

    async def send(value: str) -> None:
        if value == "poison":
            raise ValueError(value)
        sent.append(value)

    target = SimpleNamespace(send=send)
    stream = app.stream(source).echo(target, target)
    for value in ("one", "poison"):
        await source.put(value)
    values = aiter(stream)
    assert await anext(values) == "one"
    with pytest.raises(ValueError, match="poison"):
        await anext(values)
    assert sent == ["one", "one"]


async def test_streams_that_faust_cannot_combine_are_refused() -> None:
    """The agent read the first stream only; records of the second stream waited for ever."""
    app = App("combining", datadir="unused")
    one, two = app.stream(app.channel()), app.stream(app.channel())
    with pytest.raises(ImproperlyConfigured, match=r"name all of them: app.topic\(a, b\)"):
        _ = one & two
    with pytest.raises(ImproperlyConfigured, match="Use a topology for joins"):
        one.left_join()


async def test_a_message_that_brokers_do_not_take_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker was ready and named no reason for 20 minutes, in which agents committed nothing."""
    now = 100.0
    monkeypatch.setattr("streamapp.runners.worker.agents.sends.time.monotonic", lambda: now)
    app: Any = app_with(tmp_path)
    producer = AgentProducer(app.transport)
    app._producer = producer
    future = asyncio.get_running_loop().create_future()
    producer._watch(future, "gone")
    now += 29
    assert producer.stuck is None
    now += 2
    assert "brokers have not taken messages for gone for 31 s" in str(producer.stuck)
    assert AgentConsumer.stuck.fget(SimpleNamespace(app=app, _transactions=None)) == producer.stuck  # type: ignore[attr-defined]
    future.set_result(None)
    await asyncio.sleep(0)
    assert producer.stuck is None


@pytest.mark.parametrize("ms", [1_001, -1_001, 0, 1_700_000_000_123])
async def test_a_message_keeps_the_timestamp_of_a_record(
    ms: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faust rounds the milliseconds down, so the message was one millisecond earlier than its record."""
    given: list[float] = []

    async def send(
        self: Any, topic: str, key: Any, value: Any, partition: Any, at: float, headers: Any
    ) -> Any:
        given.append(at)
        return asyncio.get_running_loop().create_future()

    monkeypatch.setattr("faust.transport.drivers.aiokafka.Producer.send", send)
    await AgentProducer(app_with(tmp_path).transport).send("out", b"k", b"v", 0, ms / 1000, None)
    assert [int(at * 1000.0) for at in given] == [ms]
