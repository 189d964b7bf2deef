"""The flow of records into the queues of agents: nothing is dropped on the way, and nothing waits for a full queue."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from faust.transport.conductor import ConductorCompiler
from faust.types import TP, Message

from streamapp import App


async def _queued(app: App) -> tuple[object, list[str]]:
    queue = app.FlowControlQueue(maxsize=10, clear_on_resume=True)
    app.flow_control.resume()
    await queue.put("record")
    return queue, list(queue._queue)


async def test_a_second_resume_drops_no_record() -> None:
    app = App("flow", datadir="unused")
    queue, before = await _queued(app)
    assert before == ["record"]
    app.flow_control.resume()
    assert list(queue._queue) == ["record"]


async def test_a_resume_after_a_suspension_begins_with_empty_queues() -> None:
    app = App("flow", datadir="unused")
    queue, _ = await _queued(app)
    app.flow_control.suspend()
    app.flow_control.resume()
    assert not queue._queue


async def test_the_fetcher_never_waits_for_the_queue_of_one_topic() -> None:
    """An agent that asked another agent of its worker waited for ever, as soon as its own queue was full.

    The fetcher waited for space in this queue, so the other agent got no record.
    """
    app = App("flow", datadir="unused", stream_buffer_maxsize=10)
    app.flow_control.resume()
    kept = list[TP]()
    app._consumer = SimpleNamespace(on_buffer_full=kept.append, on_buffer_drop=kept.remove)
    asked = TP("asked", 0)
    queue = app.topic("asked", value_serializer="raw").clone(is_iterator=True)
    deliver = ConductorCompiler().build(app.topics, asked, {queue})
    for offset in range(25):
        message = Message("asked", 0, offset, 0.0, 0, {}, None, b"", None, tp=asked)
        delivery = asyncio.ensure_future(deliver(message))
        for _ in range(5):
            await asyncio.sleep(0)
        assert delivery.done(), offset
    assert kept == [asked]
    for _ in range(25):
        await queue.queue.get()
    assert kept == []
