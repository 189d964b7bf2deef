"""Places in the code, for messages: the place at which a thread is, and the functions that an exception has passed."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

__all__ = ["NOT_OF_THE_APPLICATION", "STREAMAPP", "own_place", "passed", "stack_of"]

_FRAMES = 6
STREAMAPP = f"{Path(__file__).parents[1]}{os.sep}"
"""The beginning of the names of streamapp's files."""
NOT_OF_THE_APPLICATION = (
    STREAMAPP,
    *(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "purelib", "platlib")),
    "<",
)
"""The beginnings of the names of files that belong to streamapp, to Python and to libraries."""


def stack_of(thread: int | None) -> str:
    """The last frames of a thread, as a traceback shows them. ``thread`` is its ident. Empty if the thread has ended.

    >>> import threading
    >>> "stack_of" in stack_of(threading.get_ident())
    True
    """
    frame = _frame_of(thread)
    return "" if frame is None else "".join(traceback.format_stack(frame)[-_FRAMES:])


def own_place(thread: int | None) -> str:
    """The function of the application in which a thread is, with file and line. Empty if there is none.

    >>> import threading
    >>> own_place(threading.get_ident()).endswith(")")
    True
    """
    frame = _frame_of(thread)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(NOT_OF_THE_APPLICATION):
            return f"{code.co_name} ({code.co_filename}:{frame.f_lineno})"
        frame = frame.f_back
    return ""


def _frame_of(thread: int | None) -> FrameType | None:
    return None if thread is None else sys._current_frames().get(thread)


def passed(error: BaseException, *left_out: str) -> Iterator[tuple[CodeType, int]]:
    """The code and the line of each function in an exception's traceback, the innermost function last.

    Functions in files whose names begin with one of the texts ``left_out`` are missing.
    """
    for frame, line in traceback.walk_tb(error.__traceback__):
        if not frame.f_code.co_filename.startswith(left_out):
            yield frame.f_code, line
