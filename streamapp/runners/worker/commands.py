"""What other threads ask of one that takes turns."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

from streamapp.errors import StreamsError

__all__ = ["CommandQueue"]

R = TypeVar("R")


class _Command(NamedTuple):
    fn: Callable[[], Any]
    future: Future[Any]
    vital: bool


class CommandQueue:
    """Functions that wait for the thread to run them. What is one of the exceptions ``handled`` by the thread is raised in
    it, and is nothing to whoever asked. ``wake`` is called, in the thread that asks, for each function: it ends what the
    thread waits for."""

    def __init__(self, wake: Callable[[], None], *handled: type[BaseException]) -> None:
        self._wake = wake
        self._handled = handled
        self._queue: SimpleQueue[_Command] = SimpleQueue()
        self._closed = False

    def submit(self, fn: Callable[[], R], *, vital: bool) -> Future[R]:
        """Its result. ``vital``: an exception ends the thread, too; otherwise it is only the caller's."""
        future: Future[R] = Future()
        self._queue.put(_Command(fn, future, vital))
        self._wake()
        if self._closed:
            self.close()
        return future

    def run_next(self) -> bool:
        """Runs the first that waits; False: none does."""
        try:
            fn, future, vital = self._queue.get_nowait()
        except Empty:
            return False
        if future.set_running_or_notify_cancel():
            try:
                result = fn()
            except self._handled:
                future.set_result(None)
                raise
            except BaseException as exc:
                future.set_exception(exc)
                if vital:
                    raise
            else:
                future.set_result(result)
        return True

    def close(self) -> None:
        """The thread has ended: what waits, and what is still asked for, fails."""
        self._closed = True
        while True:
            try:
                future = self._queue.get_nowait().future
            except Empty:
                return
            if future.set_running_or_notify_cancel():
                future.set_exception(StreamsError("the worker has stopped"))
