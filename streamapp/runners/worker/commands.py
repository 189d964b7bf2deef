"""`CommandQueue`: functions that other threads have a thread run, between two of its steps."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

from streamapp.errors import StreamsError

__all__ = ["CommandQueue", "QueueClosed"]

R = TypeVar("R")


class QueueClosed(StreamsError):
    """The thread that would run a function has ended."""


class _Command(NamedTuple):
    fn: Callable[[], Any]
    future: Future[Any]
    vital: bool


class CommandQueue:
    """A queue of functions that other threads submit, and that one thread runs between its own steps.

    An exception of the types ``handled`` is raised by `run_next` in the running thread. The future of the function then
    gives None. The queue calls ``wake`` for each function, in the submitting thread, to end a wait of the running
    thread.
    """

    def __init__(self, wake: Callable[[], None], *handled: type[BaseException]) -> None:
        self._wake = wake
        self._handled = handled
        self._queue: SimpleQueue[_Command] = SimpleQueue()
        self._closed = False

    def submit(self, fn: Callable[[], R], *, vital: bool) -> Future[R]:
        """Adds a function, which the thread will run, and returns the future of the result.

        An exception of the function goes to the future. If the function is ``vital``, the thread raises the exception,
        too. An exception of one of the types ``handled`` is raised only in the thread, and the future gives None.
        """
        future: Future[R] = Future()
        self._queue.put(_Command(fn, future, vital))
        self._wake()
        if self._closed:
            self.close()
        return future

    def __len__(self) -> int:
        """The number of functions that wait."""
        return self._queue.qsize()

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
                future.set_exception(QueueClosed("the worker has stopped"))
