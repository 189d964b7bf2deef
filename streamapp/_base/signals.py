"""The end of a command by a signal: the command first cleans up its temporary files and its transaction."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

__all__ = ["EndedBySignal", "cleaning_up", "signal_behind", "without_clean_up"]

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class EndedBySignal(SystemExit):
    """Unwinds a command that gets a signal. Event loops of asyncio pass a `SystemExit` on, and click does, too."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number: int = number


@contextmanager
def cleaning_up() -> Iterator[None]:
    """Within the block, SIGTERM and SIGHUP raise `EndedBySignal`. After the block, the process ends by this signal.

    So callers such as a shell see the signal and no exit code. A second signal ends the process at once. A signal that
    the caller ignores stays ignored, as under nohup. A command may set other handlers, for example to stop slowly.
    """

    def end(number: int, frame: FrameType | None) -> None:
        _default(end)
        raise EndedBySignal(number)

    for each in _SIGNALS:
        if signal.getsignal(each) is signal.SIG_DFL:
            signal.signal(each, end)
    try:
        yield
    except EndedBySignal as ended:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        signal.signal(ended.number, signal.SIG_DFL)
        os.kill(os.getpid(), ended.number)
        raise  # the first process of a container does not end by its own signal
    finally:
        _default(end)


@contextmanager
def without_clean_up() -> Iterator[None]:
    """Within the block, Ctrl-C, SIGTERM and SIGHUP end the process at once. Then the earlier handlers are back."""
    earlier = {each: signal.getsignal(each) for each in (signal.SIGINT, *_SIGNALS)}
    handled = {each: handler for each, handler in earlier.items() if handler not in (None, signal.SIG_IGN)}
    for each in handled:
        signal.signal(each, signal.SIG_DFL)
    try:
        yield
    finally:
        for each, handler in handled.items():
            signal.signal(each, handler)


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
    while error is not None:
        if isinstance(error, EndedBySignal):
            return error
        if isinstance(error, KeyboardInterrupt):
            return EndedBySignal(signal.SIGINT)
        error = error.__cause__ or error.__context__
    return None


def _default(handler: object) -> None:
    """Takes a handler away from all signals that still have it."""
    for each in _SIGNALS:
        if signal.getsignal(each) is handler:
            signal.signal(each, signal.SIG_DFL)
