"""Lists of records for handlers that take lists: their limits, and a length that follows from the duration of earlier
calls."""

from __future__ import annotations

from dataclasses import dataclass

from streamapp._base.whole_numbers import check_whole

__all__ = ["AdaptiveSize", "Batch"]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The limits of the lists that a handler gets. All records of a list are from one partition. A list has at least
    one record.

    - ``records``, ``bytes``: the most records and the most bytes of a list. Each record counts 200 bytes more than its
      data. A record larger than ``bytes`` is a list of its own.
    - ``linger_ms``: the time for which a list that is not full waits for more records (default: no wait).
    - ``target_ms``: the wanted duration of a call. Lists grow after a call with a full list that takes less time, and
      shrink after a call that takes longer.

    Raises `ConfigError` for a value that is not a positive int (``linger_ms`` may be 0).

    >>> Batch(records=100).bytes
    1048576
    """

    records: int = 500
    bytes: int = 1 << 20
    linger_ms: int = 0
    target_ms: int = 200

    def __post_init__(self) -> None:
        for name, least in (("records", 1), ("bytes", 1), ("linger_ms", 0), ("target_ms", 1)):
            check_whole(getattr(self, name), f"{name} of Batch", least)


class AdaptiveSize:
    """The number of records in the next batch of a partition.

    The number begins with 1. A full batch that takes less than ``target_ms`` raises the number to as many records as
    would take ``target_ms``, at most to twice the number. A slower batch makes the number smaller, but never smaller
    than 1.

    >>> size = AdaptiveSize(Batch(records=100, target_ms=200))
    >>> for _ in range(4): size.took(size.records, 10.0)
    >>> size.records
    16
    >>> size.took(16, 800.0)
    >>> size.records
    4
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self.records: int = 1

    def took(self, records: int, milliseconds: float) -> None:
        """Adapts the number of records in the next batch (the attribute ``records``) after a batch.

        The arguments are the number of records and the duration of this batch. A batch that takes longer than
        ``target_ms`` makes the number smaller. A quicker batch makes the number larger if the batch was full. A quicker
        batch that was not full changes nothing, because a full batch may still be slow.
        """
        target = self._batch.target_ms
        if milliseconds > target:
            self.records = max(1, min(self.records, int(records * target / milliseconds)))
        elif records >= self.records:
            within = int(records * target / milliseconds) if milliseconds > 0 else 2 * records
            self.records = max(1, min(self._batch.records, 2 * records, within))
