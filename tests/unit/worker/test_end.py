"""The end of a worker's event loop."""

from __future__ import annotations

import asyncio

from streamapp.runners.worker.process import StreamsWorker


async def test_the_event_loop_lasts_until_cancelled_tasks_have_ended() -> None:
    steps: list[str] = []

    async def clean_up_slowly() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("cancelled")
            await asyncio.sleep(0.05)
            steps.append("ended")

    task = asyncio.create_task(clean_up_slowly())
    await asyncio.sleep(0)
    task.cancel()
    worker = StreamsWorker.__new__(StreamsWorker)
    await worker._sentinel_task()
    assert steps == ["cancelled", "ended"]


async def test_the_end_does_not_wait_for_a_task_that_never_ends() -> None:
    task = asyncio.create_task(asyncio.Event().wait())
    worker = StreamsWorker.__new__(StreamsWorker)
    await asyncio.wait_for(worker._sentinel_task(), 60)
    assert not task.done()
    task.cancel()
