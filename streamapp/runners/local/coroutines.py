"""The event loop for asynchronous steps in the test driver, in a thread, because a test may have a loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

__all__ = ["Coroutines"]


class Coroutines:
    """Runs coroutines in an event loop, which starts with the first one."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = asyncio.Event()
        self._running: set[Future[None]] = set()

    def run(self, coroutine: Coroutine[Any, Any, None]) -> Future[None]:
        if self._loop is None:
            self._loop, self._closed = asyncio.new_event_loop(), asyncio.Event()
            served = self._loop, self._closed
            threading.Thread(target=_serve, args=served, name="coroutines", daemon=True).start()
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        self._running.add(future)
        return future

    def wait(self) -> None:
        """Waits until one of the running coroutines has ended."""
        self._running = wait(self._running, return_when=FIRST_COMPLETED).not_done

    def close(self) -> None:
        """Has the thread cancel coroutines that still run, and close the loop."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(self._closed.set)


def _serve(loop: asyncio.AbstractEventLoop, closed: asyncio.Event) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(_wait(closed))


async def _wait(closed: asyncio.Event) -> None:
    await closed.wait()
