"""A reply goes to the caller that still waits for it, and a reply for nobody does no harm."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator

from faust.agents.models import ReqRepResponse
from faust.agents.replies import BarrierState, ReplyPromise
from faust.events import Event
from faust.streams import _current_event
from faust.types.tuples import TP, Message

from streamapp import StreamsConfig
from streamapp.app import App
from streamapp.runners.worker.agents.replies import Replies

TOPIC = "replies"


async def came(*ids: str) -> AsyncIterator[ReqRepResponse]:
    """Replies with these ids, as a reply topic has them. Their values are their ids."""
    for id in ids:
        yield ReqRepResponse(key=None, value=id, correlation_id=id)


def reading() -> Replies:
    replies = App("asking")._reply_consumer
    replies._fetchers[TOPIC] = None
    return replies


def test_a_reply_that_nobody_waits_for_is_left_out() -> None:
    """Plain Faust ended the worker with an `InvalidStateError`."""

    async def run() -> None:
        replies = reading()
        late, asked = (ReplyPromise(TOPIC, id) for id in ("late", "asked"))
        for promise in (late, asked):
            await replies.add(promise.correlation_id, promise)
        late.cancel()  # its time-out is over, or its record has moved
        await replies._hand_over(came("late", "unknown", "asked", "asked"))
        assert asked.result() == "asked"
        assert not replies._waiting

    asyncio.run(run())


def test_a_reply_that_comes_twice_counts_once_in_a_join() -> None:
    """Plain Faust ended the join before the last reply was there."""

    async def run() -> None:
        replies = reading()
        barrier = BarrierState(TOPIC)
        for id in ("1", "2"):
            promise = ReplyPromise(TOPIC, id)
            barrier.add(promise)
            await replies.add(id, barrier)
        barrier.finalize()
        await replies._hand_over(came("1", "1"))
        assert not barrier.done()
        await replies._hand_over(came("2"))
        assert [reply.value async for reply in barrier.iterate()] == ["1", "2"]

    asyncio.run(run())


def test_a_request_that_is_given_up_is_forgotten_before_its_reply() -> None:
    """Plain Faust kept an entry for each request for ever."""

    async def run() -> None:
        replies = reading()
        promise = ReplyPromise(TOPIC, "late")
        await replies.add("late", promise)
        promise.cancel()
        await asyncio.sleep(0)
        assert not replies._waiting

    asyncio.run(run())


def test_a_request_tries_again_after_one_that_could_not_make_the_reply_topic() -> None:
    """In plain Faust, every later request of the worker waited for ever."""

    class Refused:
        async def maybe_declare(self) -> None:
            raise ConnectionError

    async def run() -> None:
        replies = App("asking")._reply_consumer
        replies._reply_topic = lambda name: Refused()
        for _ in range(2):
            try:
                await replies.add("asked", ReplyPromise(TOPIC, "asked"))
            except ConnectionError:
                continue
            raise AssertionError("the second request waits for a topic that nobody reads")

    asyncio.run(run())


def test_a_rebalance_waits_for_no_agent_that_waits_for_a_reply() -> None:
    """Replies are records, so none comes while agents get no records. Each rebalance took its full 10 s."""

    async def run() -> None:
        app = App("asking")
        replies, consumer = app._reply_consumer, app._new_consumer()
        replies._fetchers[TOPIC] = None
        message = Message("orders", 0, 7, 0.0, 0, {}, None, b"1", None, tp=TP("orders", 0))
        event = Event(app, None, b"1", {}, message)
        consumer._unacked_messages.add(message)
        message.incref()
        assert consumer._in_work()

        async def agent() -> None:
            _current_event.set(weakref.ref(event))
            promises = [ReplyPromise(TOPIC, id) for id in ("1", "2")]
            for promise in promises:
                await replies.add(promise.correlation_id, promise)
            await asyncio.gather(*promises)

        asked = asyncio.ensure_future(agent())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not consumer._in_work()
        message.incref()  # a second agent works on the record
        assert consumer._in_work()
        message.decref()
        await replies._hand_over(came("1", "2"))
        await asked
        assert consumer._in_work()

    asyncio.run(run())


def test_a_named_worker_keeps_its_reply_topic() -> None:
    """Each start of a worker left a topic behind, and no right fitted the topics of one application."""
    named = StreamsConfig("asking", group_instance_id="a")
    assert App("asking", config=named).conf.reply_to == "asking-reply-a"
    assert App("asking", config=named, reply_to_prefix="replies.").conf.reply_to == "replies.a"
    assert App("asking", config=named, reply_to="mine").conf.reply_to == "mine"
    first, second = App("asking").conf.reply_to, App("asking").conf.reply_to
    assert first.startswith("asking-reply-")
    assert first != second
