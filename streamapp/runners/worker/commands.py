"""`CommandQueue`: functions that other threads have a thread run, between two of its steps."""

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
    """A queue of functions that wait until the thread runs them.

    An exception of the types ``handled`` is raised in the thread, which handles it; the future of the function then
    gives None. The queue calls ``wake`` for each function, in the submitting thread, to end a wait of the running
    thread.
    """

    def __init__(self, wake: Callable[[], None], *handled: type[BaseException]) -> None:
        self._wake = wake
        self._handled = handled
        self._queue: SimpleQueue[_Command] = SimpleQueue()
        self._closed = False

    def submit(self, fn: Callable[[], R], *, vital: bool) -> Future[R]:
        """Adds a function, and returns the future of its result.

        The thread raises an exception of a ``vital`` function, too. An exception of any other function goes only to the
        future, unless its type is one of ``handled``.
        """
        future: Future[R] = Future()
        self._queue.put(_Command(fn, future, vital))
        self._wake()
        if self._closed:
            self.close()
        return future

    def run_next(self) -> bool:
        """Runs the first function that waits. False: no function waits."""
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
        """Makes the futures of all waiting and later functions fail, because the thread that would run them has
        ended."""
        self._closed = True
        while True:
            try:
                future = self._queue.get_nowait().future
            except Empty:
                return
            if future.set_running_or_notify_cancel():
                future.set_exception(StreamsError("the worker has stopped"))
