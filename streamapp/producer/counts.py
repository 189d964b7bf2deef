"""The counts of a producer. Each record of a producer is confirmed, unconfirmed or failed."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from streamapp._base.prometheus import Metric
from streamapp.producer.parcel import Parcel

__all__ = ["Counts", "ProducerMetrics", "described"]

_SAMPLES = 1_000


class ProducerMetrics(NamedTuple):
    """The counts of a producer since its start. At every moment, ``events == confirmed + unconfirmed + failed``.

    ``spilled`` counts records that are also in ``unconfirmed``.

    >>> metrics = ProducerMetrics(events=10, confirmed=6, unconfirmed=3, failed=1, spilled=2)
    >>> metrics.events == metrics.confirmed + metrics.unconfirmed + metrics.failed
    True
    """

    events: int = 0
    """Records that the producer has taken, together with records that an earlier process left in the local log."""
    confirmed: int = 0
    """Records that brokers have confirmed."""
    unconfirmed: int = 0
    """Records that are on their way, or wait in memory or in the local log."""
    failed: int = 0
    """Records whose delivery report is an error, and spilled records that brokers refused later."""
    spilled: int = 0
    """Records in the local log."""
    refused: int = 0
    """Records that were refused because the buffer was full, or too small for the record. They do not count as
    ``events``."""
    retries: int = 0
    """Requests that librdkafka sent again, and transactions that were begun again."""
    buffered_records: int = 0
    """Records in memory that brokers have not confirmed."""
    buffered_bytes: int = 0
    """The bytes of these records in memory, with 64 bytes more for each record."""
    spilled_bytes: int = 0
    """The bytes of the records in the local log, with 64 bytes more for each record."""
    confirm_seconds: float = 0.0
    """The sum of the times from `send` to the confirmation, of records that did not go through the local log."""
    confirm_seconds_p50: float = 0.0
    confirm_seconds_p99: float = 0.0
    """The time within which 99 % of the last 1,000 confirmed records were confirmed. Records of the local log do not
    count."""


class Counts:
    """The counters of one producer, under one lock. `settled` waits until no record is unconfirmed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._events = self._confirmed = self._unconfirmed = self._failed = self._spilled = 0
        self._untold = 0
        self._refused = self._retries = 0
        self._seconds = 0.0
        self._last: deque[float] = deque(maxlen=_SAMPLES)

    def accepted(self, parcel: Parcel) -> None:
        with self._lock:
            self._events += parcel.count
            self._unconfirmed += parcel.count
            self._untold += parcel.count
            parcel.counted = True  # a Ctrl-C cannot come between these lines, because they call nothing

    def withdrawn(self, parcel: Parcel) -> None:
        """Takes the records of a parcel back that no channel has got. Does nothing if they are not in the counts."""
        with self._lock:
            if parcel.counted:
                self._events -= parcel.count
                self._unconfirmed -= parcel.count
                self._untold -= parcel.count
                parcel.counted = False
                self._notify()

    def told(self, records: int) -> None:
        """Counts accepted records whose senders have their reports."""
        with self._lock:
            self._untold -= records
            self._notify()

    def failed_before(self, records: int) -> None:
        """Counts records whose report is an error, and which no channel has got."""
        with self._lock:
            self._events += records
            self._failed += records

    def inherited(self, records: int) -> None:
        """Counts the records that an earlier process left in the local log."""
        with self._lock:
            self._events += records
            self._unconfirmed += records
            self._spilled += records

    def spilled(self, records: int) -> None:
        with self._lock:
            self._spilled += records

    def confirmed(self, seconds: Sequence[float]) -> None:
        """Counts a record for each of the times from `send` to the confirmation."""
        with self._lock:
            self._confirmed += len(seconds)
            self._seconds += sum(seconds)
            self._last.extend(seconds)
            self._settle(len(seconds), False)

    def confirmed_spilled(self, records: int) -> None:
        """Counts records of the local log that brokers have confirmed."""
        with self._lock:
            self._confirmed += records
            self._settle(records, True)

    def failed(self, records: int) -> None:
        with self._lock:
            self._failed += records
            self._settle(records, False)

    def failed_spilled(self, records: int) -> None:
        """Counts records of the local log that brokers refuse."""
        with self._lock:
            self._failed += records
            self._settle(records, True)

    def _settle(self, records: int, spilled: bool) -> None:
        self._unconfirmed -= records
        if spilled:
            self._spilled -= records
        self._notify()

    def _notify(self) -> None:
        if not (self._unconfirmed or self._untold):
            self._changed.notify_all()

    def refused(self, records: int) -> None:
        with self._lock:
            self._refused += records

    def retried(self, times: int) -> None:
        with self._lock:
            self._retries += times

    def settled(self, seconds: float | None) -> bool:
        """Waits until no record is unconfirmed and all senders have their reports, and returns True.

        Returns False if ``seconds`` pass first.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        with self._lock:
            while self._unconfirmed or self._untold:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._changed.wait(left)
        return True

    def snapshot(self) -> ProducerMetrics:
        """All numbers of one moment, except those of the buffer, which the buffer itself counts."""
        with self._lock:
            times = sorted(self._last)
            return ProducerMetrics(
                events=self._events,
                confirmed=self._confirmed,
                unconfirmed=self._unconfirmed,
                failed=self._failed,
                spilled=self._spilled,
                refused=self._refused,
                retries=self._retries,
                confirm_seconds=self._seconds,
                confirm_seconds_p50=times[len(times) // 2] if times else 0.0,
                confirm_seconds_p99=times[len(times) * 99 // 100] if times else 0.0,
            )


def described(metrics: ProducerMetrics) -> Iterable[Metric]:
    """The counts as metrics for Prometheus."""
    for name, kind, text in (
        ("events", "counter", "Records that the producer took: confirmed, unconfirmed or failed."),
        ("confirmed", "counter", "Records that brokers confirmed."),
        (
            "unconfirmed",
            "gauge",
            "Records that brokers have not confirmed yet, in memory and in the local log.",
        ),
        (
            "failed",
            "counter",
            "Records whose delivery report is an error, and spilled records that brokers refused.",
        ),
        ("spilled", "gauge", "Records in the local log."),
        ("refused", "counter", "Records that the full buffer refused, and records larger than the buffer."),
        ("retries", "counter", "Requests and transactions that were sent again."),
        ("buffered_records", "gauge", "Records in memory."),
        ("buffered_bytes", "gauge", "Bytes of the records in memory, with 64 bytes more for each."),
        ("spilled_bytes", "gauge", "Bytes of the records in the local log, with 64 bytes more for each."),
        ("confirm_seconds", "counter", "Sum of the times from send to confirmation."),
    ):
        suffix = "_total" if kind == "counter" else ""
        yield Metric(f"producer_{name}{suffix}", kind, text, [({}, getattr(metrics, name))])
    yield Metric(
        "producer_confirm_quantile_seconds", "summary", "Time to confirm, of the last 1,000 records.",
        [({"quantile": "0.5"}, metrics.confirm_seconds_p50), ({"quantile": "0.99"}, metrics.confirm_seconds_p99)],
    )  # fmt: skip
