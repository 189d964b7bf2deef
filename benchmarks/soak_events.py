"""The events of the soak: key, time and right result of an event follow from its number, so the soak remembers nothing.

Each input begins with one pass over all keys. Later passes take the keys in the same order, so caches help little.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import timedelta
from functools import cached_property
from typing import NamedTuple

from benchmarks.many_keys import STEP

__all__ = ["GAP", "GRACE", "RETENTION", "Counts", "Sessions"]

GAP, GRACE, RETENTION = timedelta(hours=1), timedelta(hours=1), timedelta(hours=9)
"""The settings of the sessions. A pass over all keys takes at most 8 hours of event time, less than the retention.

So each key has a session that is kept.
"""
PASS_MS = 8 * 3_600_000
LONG = struct.Struct(">q")
SESSION = struct.Struct(">qq")
"""Behind the key of a row: the end, then the start."""


class Numbered(NamedTuple):
    keys: int
    base_ms: int
    """The time of event 0, in ms since 1970."""

    @property
    def step_ms(self) -> int:
        """Milliseconds between two events."""
        return max(1, PASS_MS * 4 // (self.keys * 5))

    def at(self, number: int) -> int:
        """The time of an event, in ms."""
        return self.base_ms + number * self.step_ms

    def number(self, at_ms: int) -> int:
        return (at_ms - self.base_ms) // self.step_ms


class Counts(Numbered):
    """A count by key (W2)."""

    name = "counts"

    @property
    def first_pass(self) -> int:
        return self.keys

    def key(self, number: int) -> str:
        return f"key-{number * STEP % self.keys:08d}"

    def result(self, number: int) -> bytes:
        return b"%d" % (number // self.keys + 1)

    def rows(self, events: int) -> Iterator[tuple[bytes, bytes]]:
        """The table after so many events, as bytes of its changelog."""
        for number in range(min(self.keys, events)):
            yield self.key(number).encode(), LONG.pack((events - 1 - number) // self.keys + 1)

    def kept(self, key: bytes, events: int) -> bool:
        return True


class Sessions(Numbered):
    """Counts by session. Four of five events begin a session; the fifth comes to one that began some minutes before."""

    name = "sessions"

    @property
    def first_pass(self) -> int:
        return self.keys * 5 // 4

    @cached_property
    def _back(self) -> int:
        """A session began so many events ago: a hundredth of a pass, and 2 above a multiple of five."""
        return self.keys // 400 * 5 + 2

    def _returns(self, number: int) -> bool:
        return number % 5 == 4 and number >= self._back

    def key(self, number: int) -> str:
        if self._returns(number):
            number -= self._back
        elif number % 5 == 4:
            return f"key-{self.keys + number:08d}"  # nothing to come back to yet: a key that comes only once
        return f"key-{(number - number // 5) * STEP % self.keys:08d}"

    def result(self, number: int) -> bytes:
        if self._returns(number):
            return b"%d,%d,2" % (self.at(number - self._back), self.at(number))
        return b"%d,%d,1" % (self.at(number), self.at(number))

    def rows(self, events: int) -> Iterator[tuple[bytes, bytes]]:
        """The sessions that are kept after so many events, as bytes of the changelog."""
        for number in range(events):
            again = number + self._back
            extended = number % 5 == 2 and again < events
            if self._returns(number):
                continue
            row = self.key(number).encode() + SESSION.pack(
                self.at(again if extended else number), self.at(number)
            )
            if self.kept(row, events):
                yield row, LONG.pack(2 if extended else 1)

    def kept(self, key: bytes, events: int) -> bool:
        """True if the row is within the retention. Brokers may have deleted older rows from the changelog."""
        return SESSION.unpack(key[-16:])[0] >= self.at(events - 1) - RETENTION // timedelta(milliseconds=1)
