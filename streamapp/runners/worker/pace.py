"""`Pace`: limits the bytes of a worker's commit, so that slow brokers can take it within the transaction's time-out."""

from __future__ import annotations

__all__ = ["Pace"]

_FIRST_BYTES = 256 * 1024
_FIRST_WEIGHT = 16_384.0
"""The assumed bytes that a record adds, until the first measurement."""
_GROWTH = 1.15
"""The growth of the limit after a commit, above the largest limit that has proved right.

Brokers with a quota accept the bytes of ten seconds at once before they slow a client down. With this growth, the limit
is by then only an eighth of all bytes sent: little more than the bytes of one second.
"""
_RECOVERY = 2.0
"""The growth up to the largest limit that has proved right. A commit that takes twice as long is still in time."""
_IN_TIME = 0.25
"""The part of a transaction's time-out, without the latency, that the bytes of a commit may take. The rest is for
brokers that become slower."""
_QUICK = 0.5
"""A commit is quick within this part of the time that its bytes may take, and slow beyond all of the time."""
_FEW_BYTES = 16 * 1024
"""Brokers take so few bytes at once. If such a commit is slow, the reason is another one, for example a busy machine.
A smaller limit makes no such commit quicker."""
_MOST_LATENCY = 0.5
"""The largest part of a transaction's time-out that may count as latency."""


class Pace:
    """A limit for the bytes that brokers have not confirmed: results, and changes of state for the next commit.

    The limit shrinks after a slow commit, and grows while the limit holds the worker back. An outage also makes commits
    slow, so the pace remembers the largest limit that brokers took quickly. Up to this value, the limit grows again by
    doubling.

    Some brokers take long for any commit. Commits with few bytes show this latency. The pace subtracts the latency from
    the times of commits with more bytes.
    """

    def __init__(self, transaction_timeout_ms: int, most_bytes: int) -> None:
        self._timeout = transaction_timeout_ms / 1000
        self._latency = 0.0
        """The time that the last commit with few bytes took, or a later commit, if that was quicker."""
        self._most = float(most_bytes)
        self._limit = min(float(_FIRST_BYTES), self._most)
        self._proved = self._limit
        """The largest limit at which a commit was quick. Commits that fail with a full limit reduce this number."""
        self._weight = _FIRST_WEIGHT
        self._binding = False
        self._failing = False

    @property
    def most_bytes(self) -> int:
        """The number of bytes that a commit may send."""
        return int(self._limit)

    def records(self, waiting_bytes: int) -> int:
        """The number of records that the worker may still process before a commit; at least one, so that it never
        stops."""
        return max(1, int((self._limit - waiting_bytes) / self._weight))

    def exceeded(self, waiting_bytes: int) -> bool:
        """True if at least half of the limit is used, so that the worker has to commit before its next turn.

        With less than half, the worker takes one more turn, whose records may use the rest of the limit.
        """
        if waiting_bytes < self._limit / 2:
            return False
        self._binding = True
        return True

    def taken(self, records: int, more_bytes: int) -> None:
        """Notes how many more bytes wait after ``records`` were processed.

        Bytes that brokers have acknowledged meanwhile are missing in ``more_bytes``.
        """
        self._weight = max(1.0, more_bytes / records, 0.75 * self._weight)

    def committed(self, waiting_bytes: int, seconds: float) -> None:
        """Notes a commit: the bytes that waited for the commit, and its time in seconds."""
        few = waiting_bytes <= _FEW_BYTES
        if few:
            self._latency = min(seconds, self._timeout * _MOST_LATENCY)
        elif seconds < self._latency:
            self._latency = seconds  # the commit with few bytes had another reason, such as an outage
        in_time = (self._timeout - self._latency) * _IN_TIME
        for_bytes = seconds if few else seconds - self._latency
        # With few bytes, the limit has no part in the time, so the limit grows.
        held_back = few and self._binding
        if for_bytes > in_time and not held_back:
            self._limit = max(1.0, min(self._limit, waiting_bytes * in_time / for_bytes))
            self._doubt(2)
        elif self._binding:
            recovered = 0.0
            if held_back:
                recovered = self._limit * _RECOVERY
            elif for_bytes < in_time * _QUICK:
                self._proved = max(self._proved, self._limit)
                recovered = min(self._limit * _RECOVERY, self._proved)
            self._limit = min(self._most, max(self._limit * _GROWTH, recovered))
        self._binding = self._failing = False

    def rolled_back(self) -> None:
        """Notes a rollback. The commit may have taken too long, so the limit becomes smaller."""
        self._limit = max(1.0, self._limit / 4)
        self._doubt(4)
        self._failing = True
        self._binding = False

    def _doubt(self, by: int) -> None:
        """Reduces the limit that has proved right, if the failed commit was full, and the first failure in a row.

        A commit with few bytes is slow because of an outage, and repeated failures mostly have one reason.
        """
        if self._binding and not self._failing:
            self._proved = max(self._limit, self._proved / by)
