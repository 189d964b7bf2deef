"""`Parcel`: a single record, or the records of a transaction, which stay together on their way through a producer."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Protocol

from streamapp.producer.report import DeliveryReport
from streamapp.records import OutputRecord, payload_bytes

__all__ = ["RECORD_BYTES", "Channel", "Parcel", "record_bytes"]

RECORD_BYTES = 64
"""The memory that a record takes beside its key, value and headers, in bytes (an estimate)."""


class Parcel:
    """Records that arrive all or none, and the future of their delivery reports.

    The future cannot be cancelled, because records that the producer has taken are sent in any case.
    """

    __slots__ = ("born", "future", "number", "records", "size")

    def __init__(self, records: tuple[OutputRecord, ...], size: int) -> None:
        self.records: tuple[OutputRecord, ...] = records
        self.size: int = size
        self.number: int = 0
        """The number of the parcel, in the order of `send`. Only a channel with transactions sets the number."""
        self.born: float = time.monotonic()
        self.future: Future[tuple[DeliveryReport, ...]] = Future()
        self.future.set_running_or_notify_cancel()

    def reports(
        self, places: tuple[tuple[int | None, int | None], ...] | None = None, *, spilled: bool = False
    ) -> tuple[DeliveryReport, ...]:
        """The delivery reports of the records. ``places`` has partition and offset of each record; None if they are not
        known."""
        seconds = time.monotonic() - self.born
        known = places or ((None, None),) * len(self.records)
        return tuple(
            DeliveryReport(record.topic, *place, spilled, seconds)
            for record, place in zip(self.records, known, strict=True)
        )


class Channel(Protocol):
    """The part of a producer that sends parcels to brokers."""

    def put(self, parcel: Parcel) -> None:
        """Takes a parcel whose space in the buffer is reserved. Never waits."""

    def flush(self, seconds: float | None) -> bool:
        """Sends all waiting records at once, and returns True when each record is confirmed or has failed.

        Returns False if ``seconds`` pass first (None: no limit).
        """

    def close(self, seconds: float) -> None:
        """Waits at most ``seconds`` for the brokers, and stops. Raises `UnsentRecords` if records were neither
        confirmed nor written to the local log."""


def record_bytes(record: OutputRecord) -> int:
    """The size of a record in the buffer and in the log.

    >>> record_bytes(OutputRecord("orders", b"o1", b"paid", None))
    70
    """
    return RECORD_BYTES + payload_bytes(record.key, record.value, record.headers)
