"""The end of a worker's event loop."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from streamapp.runners.worker.process import StreamsWorker, told_with_function


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


@pytest.mark.parametrize("fill", ["", "os.write(2, b'x' * 65_536); "], ids=["read", "full"])
def test_a_process_that_hangs_tells_why_it_ends(fill: str) -> None:
    """The last line was missing. A terminal that takes no text must not keep the process alive."""
    program = "import os, time; from streamapp.runners.worker.watchdog import end_after; "
    process = subprocess.Popen(
        [sys.executable, "-c", f"{program}{fill}end_after(0.2); time.sleep(600)"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.wait(60) == 70
    assert process.stderr is not None
    with process.stderr as said:
        text = said.read()
    assert fill or text.startswith("Error: the process has not ended within 0.2 s")


def test_the_last_line_names_the_function_of_the_application_that_raised() -> None:
    def tick() -> None:
        json.loads("no JSON")

    with pytest.raises(json.JSONDecodeError) as raised:
        tick()
    told = told_with_function(raised.value)
    assert told.startswith(
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0), raised by tick ("
    )
    assert f"{__file__}:" in told
    assert told.endswith("). The log has the traceback.")
    assert told_with_function(OSError("no frames")) == "OSError: no frames. The log has the traceback."
