"""`Progress`: the position up to which all records of a partition are done, although agents finish them in any
order."""

from __future__ import annotations

from collections import deque

__all__ = ["Progress"]


class Progress:
    """The records of one partition that were given to agents, in the order of their offsets.

    Offsets without a record are skipped: markers of transactions, and records that were rolled back or compacted away.

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
        """Notes a record that goes to an agent.

        False: the record was given to an agent before, and the consumer was set back since.
        """
        if self._next is not None and offset < self._next:
            return False
        self._open.append(offset)
        self._next = offset + 1
        return True

    def position(self, done: set[int]) -> int | None:
        """The offset of the first record that is not done, or else the offset behind the last record.

        ``done`` has the offsets of finished records; those below the position are removed from ``done``. None: no agent
        has got a record yet.
        """
        waiting = self._open
        while waiting and waiting[0] in done:
            done.discard(waiting.popleft())
        return waiting[0] if waiting else self._next
