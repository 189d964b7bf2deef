"""Records on their way through a producer: one, or the records of a transaction."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Protocol

from streamapp.producer.report import DeliveryReport
from streamapp.records import OutputRecord, payload_bytes

__all__ = ["Channel", "Parcel", "record_bytes"]

_RECORD_BYTES = 64
"""The bytes that a record takes beside its key, value and headers."""


class Parcel:
    """Records that arrive all or none, and the future of their reports. The future cannot be cancelled: the records go
    out."""

    __slots__ = ("born", "future", "number", "records", "size")

    def __init__(self, records: tuple[OutputRecord, ...], size: int) -> None:
        self.records: tuple[OutputRecord, ...] = records
        self.size: int = size
        self.number: int = 0
        """The place in the order of a channel with transactions."""
        self.born: float = time.monotonic()
        self.future: Future[tuple[DeliveryReport, ...]] = Future()
        self.future.set_running_or_notify_cancel()

    def reports(
        self, places: tuple[tuple[int | None, int | None], ...] | None = None, *, spilled: bool = False
    ) -> tuple[DeliveryReport, ...]:
        """The reports of the records; ``places`` has partition and offset of each."""
        seconds = time.monotonic() - self.born
        known = places or ((None, None),) * len(self.records)
        return tuple(
            DeliveryReport(record.topic, *place, spilled, seconds)
            for record, place in zip(self.records, known, strict=True)
        )


class Channel(Protocol):
    """The way of parcels to the brokers."""

    def put(self, parcel: Parcel) -> None:
        """Takes a parcel whose space in the buffer is reserved. Never waits."""

    def close(self, seconds: float) -> None:
        """Stops after so many seconds at most. Raises `UnsentRecords` for records that are lost with the process."""


def record_bytes(record: OutputRecord) -> int:
    """The size of a record in the buffer and in the log.

    >>> record_bytes(OutputRecord("orders", b"o1", b"paid", None))
    70
    """
    return _RECORD_BYTES + payload_bytes(record.key, record.value, record.headers)
