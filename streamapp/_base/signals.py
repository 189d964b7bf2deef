"""The end of a command by a signal: the command first cleans up its temporary files and its transaction."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

__all__ = [
    "EndedBySignal",
    "cleaning_up",
    "signal_behind",
    "stopping",
    "unlogged_signals",
    "without_clean_up",
]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_UNHANDLED = (signal.SIG_DFL, signal.default_int_handler)
_PY4J_LOGGERS = (None, "py4j.java_gateway", "py4j.clientserver")
"""The loggers of PySpark's connection to Java. None: the root logger."""
_TWICE_SECONDS = 0.1
"""A second signal within this time is no second wish: `timeout` signals the process, and then its process group."""


class EndedBySignal(SystemExit):
    """Unwinds a command that gets a signal. Event loops of asyncio pass a `SystemExit` on, and click does, too."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number: int = number


@contextmanager
def cleaning_up() -> Iterator[None]:
    """Within the block, Ctrl-C raises `KeyboardInterrupt`, and SIGTERM and SIGHUP raise `EndedBySignal`. After an
    `EndedBySignal`, the process ends by this signal.

    So callers such as a shell see the signal and no exit code. A second signal, more than 0.1 s later, ends the
    process at once. A signal that the caller ignores stays ignored, as under nohup. A command may set other handlers,
    for example to stop slowly. Only the main thread can set handlers, so the block changes nothing in other threads.
    """
    if not _in_main_thread():
        yield
        return
    earlier = {each: signal.getsignal(each) for each in _SIGNALS}
    end = _first(_SIGNALS, _raise)
    for each, handler in earlier.items():
        if handler in _UNHANDLED:
            signal.signal(each, end)
    try:
        yield
    except EndedBySignal as ended:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):  # closed here, or closed by the caller
                stream.flush()
        signal.signal(ended.number, signal.SIG_DFL)
        os.kill(os.getpid(), ended.number)
        raise  # the first process of a container does not end by its own signal
    finally:
        for each, handler in earlier.items():
            if signal.getsignal(each) is end:
                signal.signal(each, handler)


def stopping(stop: Callable[[], object]) -> None:
    """Sets handlers of Ctrl-C and SIGTERM that call `stop`, for commands that run until they are stopped.

    The handlers stay until the process ends. A second signal ends the process at once, unless it follows the first one
    within 0.1 s (`_TWICE_SECONDS`).
    """
    numbers = (signal.SIGINT, signal.SIGTERM)
    handler = _first(numbers, lambda number: stop())
    for each in numbers:
        signal.signal(each, handler)


@contextmanager
def without_clean_up() -> Iterator[None]:
    """Within the block, Ctrl-C, SIGTERM and SIGHUP end the process at once. Then the earlier handlers are back.

    A signal that the caller ignores stays ignored.
    """
    if not _in_main_thread():
        yield
        return
    earlier = {each: signal.getsignal(each) for each in _SIGNALS}
    for each, handler in earlier.items():
        if handler not in (None, signal.SIG_IGN):
            signal.signal(each, signal.SIG_DFL)
    try:
        yield
    finally:
        for each, handler in earlier.items():
            if handler is not None:  # else not set by Python
                signal.signal(each, handler)


@contextmanager
def unlogged_signals() -> Iterator[None]:
    """Within the block, PySpark's connection to Java logs no traceback of a signal.

    The connection logs the Ctrl-C that interrupts a call, and errors of its own end, before the command ends.
    """
    loggers = [logging.getLogger(name) for name in _PY4J_LOGGERS]
    for each in loggers:
        each.addFilter(_is_no_signal)
    try:
        yield
    finally:
        for each in loggers:
            each.removeFilter(_is_no_signal)


def _is_no_signal(record: logging.LogRecord) -> bool:
    return signal_behind(record.exc_info[1] if record.exc_info else None) is None


def signal_behind(error: BaseException | None) -> EndedBySignal | None:
    """The signal during whose clean-up an error came up, or None. The error of Ctrl-C itself counts, too.

    For example, a signal interrupts a call to Spark, and leaves the connection out of step. The clean-up then fails.

    >>> try:
    ...     try:
    ...         raise KeyboardInterrupt
    ...     finally:
    ...         raise ConnectionError("out of step")
    ... except ConnectionError as error:
    ...     signal_behind(error).number
    <Signals.SIGINT: 2>
    """
    seen: set[int] = set()  # causes may form a cycle
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, EndedBySignal):
            return error
        if isinstance(error, KeyboardInterrupt):
            return EndedBySignal(signal.SIGINT)
        error = error.__cause__ or error.__context__
    return None


def _first(
    numbers: Iterable[signal.Signals], act: Callable[[int], object]
) -> Callable[[int, FrameType | None], None]:
    """A handler that acts on the first of several signals. A second one ends the process at once, but a second one
    within `_TWICE_SECONDS` does not count."""
    seen: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if seen:
            return
        seen.append(number)
        time.sleep(_TWICE_SECONDS)
        # The first process of a container ignores signals without a handler.
        at_once = (lambda number, frame: os._exit(128 + number)) if os.getpid() == 1 else signal.SIG_DFL
        for each in numbers:
            if signal.getsignal(each) is handle:
                signal.signal(each, at_once)
        act(number)

    return handle


def _raise(number: int) -> None:
    raise KeyboardInterrupt if number == signal.SIGINT else EndedBySignal(number)


def _in_main_thread() -> bool:
    """True if this thread may set handlers."""
    return threading.current_thread() is threading.main_thread()
