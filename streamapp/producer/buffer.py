"""The limit for the records in a producer's memory, and the queue of the callers that wait for space."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future

from streamapp._base.counted import counted
from streamapp.producer.report import BufferFull

__all__ = ["Buffer"]


class Buffer:
    """A buffer of limited records and bytes. Waiting senders are served in order. Several threads may share a `Buffer`.

    >>> buffer = Buffer(records=1, size=100)
    >>> buffer.reserve(1, 10).done(), (waiting := buffer.reserve(1, 10)).done()
    (True, False)
    >>> buffer.release(1, 10)
    >>> waiting.done()
    True
    """

    def __init__(self, records: int, size: int) -> None:
        self._most_records, self._most_bytes = records, size
        self.records: int = 0
        self.bytes: int = 0
        """The bytes in use now; ``records`` is the number of records in use."""
        self._line: deque[tuple[int, int, Future[None]]] = deque()
        self._lock = threading.Lock()

    @property
    def pressed(self) -> bool:
        """True if a sender waits, or more than three quarters of the records or bytes are in use."""
        return bool(
            self._line or 4 * self.records > 3 * self._most_records or 4 * self.bytes > 3 * self._most_bytes
        )

    def reserve(self, records: int, size: int) -> Future[None]:
        """Reserves space. The future is done when the space is free.

        Raises `BufferFull` if the whole buffer is too small for the records, because waiting would not help.
        """
        self._check(records, size)
        place: Future[None] = Future()
        with self._lock:
            self._line.append((records, size, place))
            self._admit()
        return place

    def try_reserve(self, records: int, size: int) -> bool:
        """Reserves space if it is free now, and nobody waits for space; returns False otherwise.

        Raises `BufferFull` as `reserve`.
        """
        self._check(records, size)
        with self._lock:
            self._admit()
            free = not self._line and self._fits(records, size)
            if free:
                self._take(records, size)
        return free

    def release(self, records: int, size: int) -> None:
        """Frees reserved space."""
        with self._lock:
            self.records -= records
            self.bytes -= size
            self._admit()

    def _admit(self) -> None:
        while self._line:
            records, size, place = self._line[0]
            if place.cancelled():
                self._line.popleft()
                continue
            if not self._fits(records, size):
                return
            self._line.popleft()
            if place.set_running_or_notify_cancel():
                self._take(records, size)
                place.set_result(None)

    def _check(self, records: int, size: int) -> None:
        if records > self._most_records or size > self._most_bytes:
            raise BufferFull(
                f"{counted(records, 'record')} of {counted(size, 'byte')} cannot be in a buffer for "
                f"{counted(self._most_records, 'record')} of {counted(self._most_bytes, 'byte')}: raise buffer_records "
                "or buffer_bytes"
            )

    def _fits(self, records: int, size: int) -> bool:
        return self.records + records <= self._most_records and self.bytes + size <= self._most_bytes

    def _take(self, records: int, size: int) -> None:
        self.records += records
        self.bytes += size
