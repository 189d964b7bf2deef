"""Places in the code, for messages: the place at which a thread is, and the functions that an exception has passed."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

__all__ = ["STREAMAPP", "passed", "stack_of"]

_FRAMES = 6
STREAMAPP = f"{Path(__file__).parents[1]}{os.sep}"
"""The beginning of the names of streamapp's files."""


def stack_of(thread: int | None) -> str:
    """The last frames of a thread, as a traceback shows them. ``thread`` is its ident. Empty if the thread has ended.

    >>> import threading
    >>> "stack_of" in stack_of(threading.get_ident())
    True
    """
    frame = None if thread is None else sys._current_frames().get(thread)
    return "" if frame is None else "".join(traceback.format_stack(frame)[-_FRAMES:])


def passed(error: BaseException, *left_out: str) -> Iterator[tuple[CodeType, int]]:
    """The code and the line of each function in an exception's traceback, the innermost function last.

    Functions in files whose names begin with one of the texts ``left_out`` are missing.
    """
    for frame, line in traceback.walk_tb(error.__traceback__):
        if not frame.f_code.co_filename.startswith(left_out):
            yield frame.f_code, line
