"""`Outcomes`: the end of each parcel of a producer, which is confirmed, spilled or failed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

from streamapp._base.stacks import stack_of
from streamapp.producer.buffer import Buffer
from streamapp.producer.counts import Counts
from streamapp.producer.parcel import Parcel, Reports
from streamapp.producer.report import DeliveryError

__all__ = ["Outcomes"]

logger: logging.Logger = logging.getLogger(__name__)

_CALLBACK_SECONDS = 10.0
"""A callback that takes longer is named in the log."""
_LOOK_SECONDS = 1.0
"""The pause between two looks while the end waits for callbacks."""


class Outcomes:
    """Frees the buffer space of parcels, counts their records, and then tells their senders.

    So a sender finds its own record in the counts. One thread does this work, in the order of the calls. So callbacks
    of the application never run at once, and a callback that blocks holds up no thread that sends. Meanwhile, later
    parcels keep their space, so the memory of a producer stays limited.

    Each call takes many parcels at once, because the locks of buffer and counts would otherwise take much of the CPU.
    No call waits. A parcel and its outcome are in the queue completely or not at all, even after a Ctrl-C.
    """

    def __init__(self, name: str, buffer: Buffer, counts: Counts) -> None:
        self._name, self._buffer, self._counts = name, buffer, counts
        self._queue: SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="producer-reports", daemon=True)
        self._began: float | None = None
        """The begin of the present call of a sender. None: no sender is told anything now."""
        self._named: float | None = None
        """The begin of the last call that the log has named."""

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Waits until all senders are told. No thread may report an outcome afterwards."""
        self._queue.put(None)
        while self._thread.is_alive():
            self._thread.join(_LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Tells the log where a callback is that does not come back. One thread calls this method again and again."""
        began = self._began
        if began is None or began == self._named:
            return
        if time.monotonic() - began >= _CALLBACK_SECONDS:
            self._named = began
            logger.warning(
                "the producer %s waits for a callback of a report, which has not come back for %.0f s. Later reports "
                "wait, and so do senders when the buffer is full. The callback is at:\n%s",
                self._name,
                _CALLBACK_SECONDS,
                stack_of(self._thread.ident),
            )

    def in_callback(self) -> bool:
        """True if a callback makes the call: no sender is told before the callback ends."""
        return threading.get_ident() == self._thread.ident

    def confirmed(self, parcels: Sequence[tuple[Parcel, Reports]]) -> None:
        """Brokers have the parcels."""
        if parcels:
            self._queue.put((self._confirmed, (parcels,)))

    def spilled(self, parcels: Sequence[Parcel]) -> None:
        """The local log has the parcels."""
        told = [(parcel, parcel.reports(spilled=True)) for parcel in parcels]
        self._queue.put((self._spilled, (told,)))

    def confirmed_spilled(self, records: int) -> None:
        """Brokers have records of the local log."""
        self._queue.put((self._counts.confirmed_spilled, (records,)))

    def failed_spilled(self, records: int) -> None:
        """Nobody sends these records of the local log again."""
        self._queue.put((self._counts.failed_spilled, (records,)))

    def failed(self, parcel: Parcel, error: DeliveryError) -> None:
        """Nobody sends the parcel again."""
        parcel.taken = True  # no signal can come between these lines, because the first calls nothing
        self._queue.put((self._failed, (parcel, error)))

    # The thread of the reports.

    def _run(self) -> None:
        while self._serve():
            pass

    def _serve(self) -> bool:
        """Serves a call. Returns False at the end. Afterwards, the thread has no reference to the parcels."""
        call = self._queue.get()
        if call is None:
            return False
        work, arguments = call
        work(*arguments)
        return True

    def _confirmed(self, parcels: Sequence[tuple[Parcel, Reports]]) -> None:
        self._free([parcel for parcel, _ in parcels])
        self._counts.confirmed([report.seconds for _, reports in parcels for report in reports])
        self._tell(parcels, None)

    def _spilled(self, parcels: Sequence[tuple[Parcel, Reports]]) -> None:
        self._counts.spilled(self._free([parcel for parcel, _ in parcels]))
        self._tell(parcels, None)

    def _failed(self, parcel: Parcel, error: DeliveryError) -> None:
        self._counts.failed(self._free([parcel]))
        self._tell([(parcel, ())], error)

    def _free(self, parcels: Sequence[Parcel]) -> int:
        """Frees the space of parcels. Returns the number of their records."""
        records = sum([parcel.count for parcel in parcels])
        self._buffer.release(records, sum([parcel.size for parcel in parcels]))
        return records

    def _tell(self, parcels: Sequence[tuple[Parcel, Reports]], error: DeliveryError | None) -> None:
        for parcel, reports in parcels:
            self._began = time.monotonic()
            try:
                parcel.sender.tell(reports, error)
            except BaseException:  # of a callback: a future catches only `Exception`
                logger.exception("a callback of a report failed; the other reports follow")
        self._began = None
        self._counts.told(sum([parcel.count for parcel, _ in parcels]))
