"""The place in the code at which a thread is, for messages about code that does not come back."""

from __future__ import annotations

import sys
import traceback

__all__ = ["stack_of"]

_FRAMES = 6


def stack_of(thread: int | None) -> str:
    """The last frames of a thread, as a traceback shows them. ``thread`` is its ident. Empty if the thread has ended.

    >>> import threading
    >>> "stack_of" in stack_of(threading.get_ident())
    True
    """
    frame = None if thread is None else sys._current_frames().get(thread)
    return "" if frame is None else "".join(traceback.format_stack(frame)[-_FRAMES:])
