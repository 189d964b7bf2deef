"""Records that wait for an agent stay in its queue when Faust resumes a flow that is not suspended."""

from __future__ import annotations

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
