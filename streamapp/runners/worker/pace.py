"""The amount that a worker takes in before a commit. Brokers take this amount well within a transaction's time."""

from __future__ import annotations

__all__ = ["Pace"]

_FIRST_BYTES = 256 * 1024
_FIRST_WEIGHT = 16_384.0
"""Bytes that a record gives, until it is known."""
_GROWTH = 1.15
"""Brokers with a quota take ten seconds' worth at once before they slow down. A limit that grows like this is then an
eighth of all that was sent, so little more than a second's worth."""
_IN_TIME = 0.25
"""A part of a transaction's time-out: the rest is for brokers that become slower."""


class Pace:
    """A limit to the bytes that wait for brokers: results that are not acknowledged, and changes of state that the next
    commit sends.

    It shrinks when a commit took long, and grows while it is what holds the worker back.
    """

    def __init__(self, transaction_timeout_ms: int, most_bytes: int) -> None:
        self._seconds = transaction_timeout_ms / 1000 * _IN_TIME
        self._most = float(most_bytes)
        self._limit = min(float(_FIRST_BYTES), self._most)
        self._weight = _FIRST_WEIGHT
        self._binding = False

    @property
    def most_bytes(self) -> int:
        """The number of bytes that a commit may send."""
        return int(self._limit)

    def records(self, waiting_bytes: int) -> int:
        """The number of records that may still be taken; at least one, or nothing would move."""
        return max(1, int((self._limit - waiting_bytes) / self._weight))

    def exceeded(self, waiting_bytes: int) -> bool:
        """True if a commit has to come before further records, since half of the limit waits.

        The other half leaves room for a turn of some size.
        """
        if waiting_bytes < self._limit / 2:
            return False
        self._binding = True
        return True

    def taken(self, records: int, more_bytes: int) -> None:
        """Records were processed, and so many more bytes wait than before. Bytes that arrived meanwhile are missing."""
        self._weight = max(1.0, more_bytes / records, 0.75 * self._weight)

    def committed(self, waiting_bytes: int, seconds: float) -> None:
        """A commit, with so many bytes to send, took so long."""
        if seconds > self._seconds:
            self._limit = max(1.0, min(self._limit, waiting_bytes * self._seconds / seconds))
        elif self._binding and seconds < self._seconds / 2:
            self._limit = min(self._most, self._limit * _GROWTH)
        self._binding = False

    def rolled_back(self) -> None:
        """Notes a rollback: perhaps a commit was not done in time."""
        self._limit = max(1.0, self._limit / 4)
        self._binding = False
