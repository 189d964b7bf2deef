"""The position up to which a partition is done, when its records are finished in any order."""

from __future__ import annotations

from collections import deque

__all__ = ["Progress"]


class Progress:
    """The records of one partition that were handed out, in the order of their offsets.

    Only offsets that exist are counted, so nothing has to be known of those that lie between them: markers of transactions, records
    that were rolled back or compacted away.

    >>> progress = Progress()
    >>> [progress.hand_out(offset) for offset in (4, 5, 9, 5)]
    [True, True, True, False]
    >>> progress.position({5}), progress.position({4, 5}), progress.position({9})
    (4, 9, 10)
    """

    def __init__(self) -> None:
        self._open: deque[int] = deque()
        self._next: int | None = None

    def hand_out(self, offset: int) -> bool:
        """False for a record that was handed out before: the consumer was set back in between."""
        if self._next is not None and offset < self._next:
            return False
        self._open.append(offset)
        self._next = offset + 1
        return True

    def position(self, done: set[int]) -> int | None:
        """The offset to go on from: of the first record that is not done, or behind the last one. None: nothing was handed out.

        Takes the offsets that it has counted out of ``done``.
        """
        waiting = self._open
        while waiting and waiting[0] in done:
            done.discard(waiting.popleft())
        return waiting[0] if waiting else self._next
