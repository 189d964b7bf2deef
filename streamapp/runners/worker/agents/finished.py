"""`Progress`: the position up to which all records of a partition are done, although agents finish them in any
order."""

from __future__ import annotations

from collections import deque

__all__ = ["Progress"]


class Progress:
    """The records of one partition that were given to agents, in the order of their offsets.

    `hand_out` notes a record that goes to an agent, and returns False for a record that was given before. `position`
    returns the offset to commit, which is the offset of the first record that is not done. ``done`` has the offsets of
    finished records. `position` forgets finished records below its result, so a later ``done`` need not contain them.

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
        self._read: int | None = None
        """The offset behind the last record that was read, although it may not have been given to an agent yet."""
        self._read_up_to: int | None = None
        """The next offset to read, behind the markers that follow the last record."""

    def read(self, last: int | None, up_to: int | None) -> None:
        """Notes a fetch: the offset of its last record, if it has any, and the next offset to read (None: not known).

        Between the two offsets lie only markers and gaps. The position passes over them as soon as the last record is
        done.

        >>> progress = Progress()
        >>> progress.read(4, 6), progress.position({4})
        (None, None)
        >>> progress.hand_out(4), progress.position(set()), progress.position({4})
        (True, 4, 6)
        >>> progress.read(None, 7), progress.position(set())
        (None, 7)
        """
        if last is not None:
            self._read = last + 1
        self._read_up_to = up_to

    def hand_out(self, offset: int) -> bool:
        """Notes a record that goes to an agent.

        False: the record was given to an agent before, and the consumer was set back since.
        """
        if self._next is not None and offset < self._next:
            return False
        self._open.append(offset)
        self._next = offset + 1
        return True

    def waiting(self, done: set[int]) -> list[int]:
        """The offsets of the records that agents have got and not finished. Any thread may ask.

        ``done`` has the offsets of finished records.

        >>> progress = Progress()
        >>> [progress.hand_out(offset) for offset in (4, 5, 9)]
        [True, True, True]
        >>> progress.waiting({5})
        [4, 9]
        """
        return [offset for offset in list(self._open) if offset not in done]

    def position(self, done: set[int]) -> int | None:
        """The offset of the first record that is not done.

        If all records are done, the offset behind the last record and the markers that follow. None: no position is
        known, because nothing has been read yet. ``done`` has the offsets of finished records. The method removes the
        offsets below the position from ``done``.
        """
        waiting = self._open
        while waiting and waiting[0] in done:
            done.discard(waiting.popleft())
        if waiting:
            return waiting[0]
        if self._next == self._read and self._read_up_to is not None:
            return max(self._read_up_to, self._next or 0)  # the consumer may have been set back since
        return self._next
