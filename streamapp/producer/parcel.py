"""`Parcel`: a single record, or the records of a transaction, which stay together on their way through a producer."""

from __future__ import annotations

import time
from collections.abc import Callable
from operator import itemgetter
from typing import Protocol

import msgspec

from streamapp.producer.buffer import Claim
from streamapp.producer.report import DeliveryReport
from streamapp.records import OutputRecord, payload_bytes

__all__ = ["RECORD_BYTES", "Batched", "Channel", "Parcel", "Reports", "Sender", "first_of", "record_bytes"]

Reports = tuple[DeliveryReport, ...]

first_of: Callable[[Reports], DeliveryReport] = itemgetter(0)
"""The report of a parcel with a single record."""

RECORD_BYTES = 64
"""The memory that a record takes beside its key, value and headers, in bytes (an estimate)."""


class Sender(Protocol):
    """The sender of a parcel."""

    def tell(self, reports: Reports, error: BaseException | None) -> None:
        """Takes the delivery reports of all records of the parcel, or no reports and the error.

        The thread of `Outcomes` makes the call, once for each parcel.
        """


class Parcel(Claim, gc=False, eq=False, kw_only=True):
    """Records that arrive all or none.

    Until a channel takes the parcel, the call of the application answers for its space and its count. An exception
    such as a Ctrl-C may end this call at any point, and the marks tell which of both to take back.

    A producer may hold a hundred thousand parcels, and the garbage collector would visit each of them often. So the
    collector does not know parcels (``gc=False``), and a `Sender` has no reference to its parcel.
    """

    records: tuple[OutputRecord, ...]
    sender: Sender
    counted: bool = False
    """True from the moment at which `Counts` has the records."""
    taken: bool = False
    """True from the moment at which the channel answers for the parcel."""
    born: float = msgspec.field(default_factory=time.monotonic)
    number: int = 0
    """The number of the parcel in the order of `Channel.put`. The channel sets the number."""
    partition: int = -1
    """The partition of a single record, as soon as the partition is known. Only a channel without transactions sets the
    partition."""

    def reports(
        self, places: tuple[tuple[int | None, int | None], ...] | None = None, *, spilled: bool = False
    ) -> Reports:
        """The delivery reports of the records. ``places`` has partition and offset of each record; None if they are not
        known."""
        seconds = time.monotonic() - self.born
        known = places or ((None, None),) * len(self.records)
        return tuple(
            DeliveryReport(record.topic, *place, spilled, seconds)
            for record, place in zip(self.records, known, strict=True)
        )


class Batched(Protocol):
    """A parcel in memory or in the local log."""

    @property
    def number(self) -> int: ...
    @property
    def records(self) -> tuple[OutputRecord, ...]: ...


class Channel(Protocol):
    """The part of a producer that sends parcels to brokers."""

    def put(self, parcel: Parcel) -> bool:
        """Takes a parcel whose space in the buffer is reserved, and sets its mark ``taken``. Never waits.

        Returns False if the channel is closed.
        """

    def flush(self, seconds: float | None) -> bool:
        """Sends all waiting records at once, and returns True when each record is confirmed or has failed.

        Returns False if ``seconds`` pass first (None: no limit).
        """

    def close(self, seconds: float) -> int:
        """Waits at most ``seconds`` for the brokers, and stops.

        Returns the number of records that are neither confirmed nor in the local log. Their reports are errors.
        """


def record_bytes(record: OutputRecord) -> int:
    """The size of a record in the buffer and in the log.

    >>> record_bytes(OutputRecord("orders", b"o1", b"paid", None))
    70
    """
    return RECORD_BYTES + payload_bytes(record.key, record.value, record.headers)
