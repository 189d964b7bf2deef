"""The limit for the records in a producer's memory, and the queue of the callers that wait for space.

A Ctrl-C may end a call in the main thread after any call that the method makes. So the lines that take or free space,
and the mark of the claim, stand without a call between them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import Future

import msgspec

from streamapp._base.counted import counted
from streamapp.producer.report import BufferFull

__all__ = ["Buffer", "Claim"]


class Claim(msgspec.Struct, gc=False, eq=False):
    """A claim to space for records in a `Buffer`."""

    count: int
    size: int
    held: bool = False
    """True while the claim has its space."""


class Buffer:
    """A buffer of limited records and bytes. Waiting senders are served in order. Several threads may share a `Buffer`.

    >>> buffer, first, second = Buffer(records=1, size=100), Claim(1, 10), Claim(1, 10)
    >>> buffer.reserve(first).done(), (waiting := buffer.reserve(second)).done()
    (True, False)
    >>> buffer.give_up(first)
    >>> waiting.done(), second.held
    (True, True)
    """

    def __init__(self, records: int, size: int) -> None:
        self._most_records, self._most_bytes = records, size
        self.records: int = 0
        self.bytes: int = 0
        """The bytes in use now; ``records`` is the number of records in use."""
        self._line: OrderedDict[Claim, Future[None]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def pressed(self) -> bool:
        """True if a sender waits, or more than three quarters of the records or bytes are in use."""
        return bool(
            self._line or 4 * self.records > 3 * self._most_records or 4 * self.bytes > 3 * self._most_bytes
        )

    def reserve(self, claim: Claim) -> Future[None]:
        """Reserves space. The future is done when the space is free.

        Raises `BufferFull` if the whole buffer is too small for the records, because waiting would not help.
        """
        self._check(claim)
        place: Future[None] = Future()
        with self._lock:
            self._line[claim] = place
            self._admit()
        return place

    def try_reserve(self, claim: Claim) -> bool:
        """Reserves space if it is free now, and nobody waits for space; returns False otherwise.

        Raises `BufferFull` as `reserve`.
        """
        self._check(claim)
        with self._lock:
            self._admit()
            if self._line or not self._fits(claim):
                return False
            self.records += claim.count
            self.bytes += claim.size
            claim.held = True
        return True

    def give_up(self, claim: Claim) -> None:
        """Frees the space of a claim, or takes the claim out of the line. Does nothing for a claim in neither state."""
        with self._lock:
            self._line.pop(claim, None)
            if claim.held:
                self.records -= claim.count
                self.bytes -= claim.size
                claim.held = False
            self._admit()

    def release(self, records: int, size: int) -> None:
        """Frees the space of many claims at once, which nobody gives up later."""
        with self._lock:
            self.records -= records
            self.bytes -= size
            self._admit()

    def _admit(self) -> None:
        while self._line:
            claim, place = next(iter(self._line.items()))
            if not claim.held and not place.cancelled():
                if not self._fits(claim):
                    return
                if place.running() or place.set_running_or_notify_cancel():
                    self.records += claim.count
                    self.bytes += claim.size
                    claim.held = True
            if claim.held and not place.done():
                place.set_result(None)
            del self._line[claim]

    def _check(self, claim: Claim) -> None:
        if claim.count > self._most_records or claim.size > self._most_bytes:
            raise BufferFull(
                f"{counted(claim.count, 'record')} of {counted(claim.size, 'byte')} cannot be in a buffer for "
                f"{counted(self._most_records, 'record')} of {counted(self._most_bytes, 'byte')}: raise buffer_records "
                "or buffer_bytes"
            )

    def _fits(self, claim: Claim) -> bool:
        return (
            self.records + claim.count <= self._most_records and self.bytes + claim.size <= self._most_bytes
        )
