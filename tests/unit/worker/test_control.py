"""What the group says to a worker, from the thread of its member to the loop of the application."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from streamapp.runners.worker.control_plane import _Consumer


@pytest.fixture
def thread_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that nothing else wakes up, as that of a thread which is about to stop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


class Member(_Consumer):
    """Without Faust and Kafka."""

    def __init__(self, *, stopping: bool = False) -> None:
        self.loop = asyncio.get_running_loop()
        self.heard: list[str] = []
        self.crashes: list[Exception] = []
        self.app = SimpleNamespace(should_stop=stopping, streams=self, crash=self.crash)

    async def crash(self, reason: Exception) -> None:
        self.crashes.append(reason)

    async def on_revoked(self) -> None:
        self.heard.append("revoked")
        await asyncio.sleep(0.01)  # by now the other loop sleeps

    async def on_assigned(self, assigned: Any, generation_id: int) -> None:
        raise AssertionError("a worker that stops is given nothing")

    async def force_commit(self) -> None:
        raise AssertionError("the thread that would commit has stopped")


async def test_a_thread_that_is_about_to_stop_hears_that_a_revocation_is_done(
    thread_loop: asyncio.AbstractEventLoop,
) -> None:
    member = Member(stopping=True)
    for call in (
        member.threadsafe_partitions_revoked(thread_loop, set()),
        member.threadsafe_partitions_assigned(thread_loop, set(), 7),
    ):
        done = asyncio.run_coroutine_threadsafe(call, thread_loop)
        await asyncio.wait_for(asyncio.wrap_future(done), 10)
    assert member.heard == ["revoked"]


async def test_an_error_in_a_rebalance_ends_the_worker(thread_loop: asyncio.AbstractEventLoop) -> None:
    """aiokafka logged the error, and the worker went on although its tables had changes that were not committed."""

    class Failing(Member):
        async def on_revoked(self) -> None:
            raise AttributeError("_clear")

    member = Failing(stopping=True)
    call = asyncio.run_coroutine_threadsafe(
        member.threadsafe_partitions_revoked(thread_loop, set()), thread_loop
    )
    with pytest.raises(AttributeError):
        await asyncio.wait_for(asyncio.wrap_future(call), 10)
    assert [str(crash) for crash in member.crashes] == ["_clear"]
