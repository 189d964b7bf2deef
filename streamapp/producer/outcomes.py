"""`Outcomes`: the end of each parcel of a producer, which is confirmed, spilled or failed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from streamapp.producer.buffer import Buffer
from streamapp.producer.counts import Counts
from streamapp.producer.parcel import Parcel, Reports
from streamapp.producer.report import DeliveryError

__all__ = ["Outcomes"]

logger: logging.Logger = logging.getLogger(__name__)


class Outcomes:
    """Frees the buffer space of parcels, counts their records, and then tells their senders.

    So a sender finds its own record in the counts. Each call takes many parcels at once, because the locks of buffer
    and counts would otherwise take much of the CPU.
    """

    def __init__(self, buffer: Buffer, counts: Counts) -> None:
        self._buffer, self._counts = buffer, counts

    def confirmed(self, parcels: Sequence[tuple[Parcel, Reports]]) -> None:
        """Brokers have the parcels."""
        if parcels:
            self._free([parcel for parcel, _ in parcels])
            self._counts.confirmed([report.seconds for _, reports in parcels for report in reports])
            self._tell(parcels)

    def spilled(self, parcels: Sequence[Parcel]) -> None:
        """The local log has the parcels."""
        self._counts.spilled(self._free(parcels))
        self._tell([(parcel, parcel.reports(spilled=True)) for parcel in parcels])

    def failed(self, parcel: Parcel, error: DeliveryError) -> None:
        """Nobody sends the parcel again."""
        self._counts.failed(self._free([parcel]))
        try:
            _tell(parcel, (), error)
        finally:
            self._counts.told(parcel.count)

    def _free(self, parcels: Sequence[Parcel]) -> int:
        """Frees the space of parcels. Returns the number of their records."""
        records = sum([parcel.count for parcel in parcels])
        self._buffer.release(records, sum([parcel.size for parcel in parcels]))
        return records

    def _tell(self, parcels: Sequence[tuple[Parcel, Reports]]) -> None:
        try:
            for parcel, reports in parcels:
                _tell(parcel, reports, None)
        finally:
            self._counts.told(sum([len(reports) for _, reports in parcels]))


def _tell(parcel: Parcel, reports: Reports, error: DeliveryError | None) -> None:
    try:
        parcel.sender.tell(reports, error)
    except BaseException:  # of a callback: a future catches only `Exception`
        if threading.current_thread() is threading.main_thread():  # a Ctrl-C
            raise
        logger.exception("a callback of a report failed; the other reports follow")
