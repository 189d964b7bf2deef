"""Records that brokers have removed from a log before an application read them."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from streamapp.records import TopicPartition

__all__ = ["RemovedRange", "RemovedRecords", "tell_removed"]

logger: logging.Logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RemovedRange:
    """The offsets of a partition that were passed over, because brokers had removed records.

    ``count`` has all offsets since the start of the process. Markers of transactions have offsets, too. ``first`` and
    ``last`` are the ends of the last gap.
    """

    count: int
    first: int
    last: int


class RemovedRecords:
    """The ranges that the reader of some partitions has passed over. Any thread may ask.

    >>> removed = RemovedRecords()
    >>> removed.note(TopicPartition("in", 0), 10, 30)
    True
    >>> removed.found[TopicPartition("in", 0)]
    RemovedRange(count=20, first=10, last=29)

    A range that the reader finds once more, for example after a rebalance, counts once:

    >>> removed.note(TopicPartition("in", 0), 10, 30), removed.note(TopicPartition("in", 0), 10, 35)
    (False, True)
    >>> removed.found[TopicPartition("in", 0)]
    RemovedRange(count=25, first=30, last=34)
    """

    def __init__(self) -> None:
        self._found: dict[TopicPartition, RemovedRange] = {}

    @property
    def found(self) -> dict[TopicPartition, RemovedRange]:
        return dict(self._found)

    def note(self, tp: TopicPartition, position: int, begin: int) -> bool:
        """Notes that reading goes on at ``begin``, although the next record was to be the one at ``position``.

        False: no offset is missing, or the missing offsets are known.
        """
        before = self._found.get(tp, RemovedRange(0, 0, -1))
        first = max(position, before.last + 1)
        if begin > first:
            self._found[tp] = RemovedRange(before.count + begin - first, first, begin - 1)
        return begin > first


def tell_removed(tp: TopicPartition, position: int, first: int | None, begin: int) -> None:
    """Logs that the log begins at ``first``, behind ``position``, and that reading goes on at ``begin``.

    None: the reader goes on at the end of the log, and does not know where the log begins.
    """
    if first is None:
        logger.warning(
            "%s: records %d to %d are left out. The first of them are gone (retention) before they were processed, and "
            "reading goes on at the end of the log, because consumer_auto_offset_reset is latest",
            tp,
            position,
            begin - 1,
        )
        return
    passed = f". Records {first} to {begin - 1} are left out, too, as the offset reset policy says"
    logger.warning(
        "%s: records %d to %d are gone (retention) before they were processed%s",
        tp,
        position,
        first - 1,
        passed if first < begin else "",
    )
