"""The end of a command by a signal: the command first cleans up its temporary files and its transaction."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

__all__ = ["EndedBySignal", "cleaning_up"]

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


def _default(handler: object) -> None:
    """Takes a handler away from all signals that still have it."""
    for each in _SIGNALS:
        if signal.getsignal(each) is handler:
            signal.signal(each, signal.SIG_DFL)
