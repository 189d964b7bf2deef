"""The offset at which an application begins to read a partition: committed, or chosen by the offset reset policy."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from streamapp._base.durations import to_ms
from streamapp._base.offset_reset import OffsetReset
from streamapp.broker.removed_records import tell_removed
from streamapp.errors import StreamsError, TaskCorruptedError
from streamapp.records import TopicPartition

__all__ = ["FirstOffsets", "check_within"]


def check_within(tp: TopicPartition, offset: int, end: int) -> None:
    """Raises `TaskCorruptedError` if the group's position in a log is beyond the end of this log."""
    if offset > end:
        raise TaskCorruptedError(
            f"the group's position in {tp} is {offset}, but the topic ends at {end}: the topic was deleted and "
            "created anew, or has lost records. To begin anew with its records, stop all workers and run "
            "`streamapp reset`"
        )


@dataclass(frozen=True)
class FirstOffsets:
    """Chooses where a group begins to read.

    ``offset_at(partition, timestamp in ms)`` gives the first offset of a record that is not older; negative: there is
    no such record.
    """

    group: str
    reset_of: Callable[[str], OffsetReset]
    """The offset reset policy of a topic."""
    offset_at: Callable[[TopicPartition, int], int]

    def of(self, tp: TopicPartition, offset: int, first: int, end: int, *, topic_known: bool = False) -> int:
        """The place in a log from ``first`` to ``end`` at which reading begins: the wanted ``offset``, if the log has
        it.

        Without a wanted offset (negative), or if retention has deleted its record, the policy decides. The policy
        "none" raises `StreamsError`. ``topic_known`` means that the group has committed offsets in other partitions
        of the topic. A partition without an offset is then new, and each of its records came after the group began,
        so reading begins at ``first``.

        Raises `TaskCorruptedError` for a wanted offset beyond the end of the log.
        """
        check_within(tp, offset, end)
        if offset >= first:
            return offset
        begin = first if offset < 0 and topic_known else self._begin(tp, offset, first, end)
        if offset >= 0:
            tell_removed(tp, offset, first, begin)
        return begin

    def moves(self, topic: str) -> bool:
        """True if a later start would choose another offset than an earlier one. Such an offset has to be committed
        before the first record, because a restart would leave out the records between."""
        return self.reset_of(topic) != "earliest"

    def _begin(self, tp: TopicPartition, offset: int, first: int, end: int) -> int:
        reset = self.reset_of(tp.topic)
        if reset == "earliest":
            return first
        if reset == "latest":
            return end
        if reset == "none":
            raise StreamsError(
                f"the group {self.group} has "
                + (
                    f"no offset in {tp}"
                    if offset < 0
                    else f"offset {offset} in {tp}, which begins at {first}"
                )
                + ', and the offset reset policy of the topic is "none". Set the offsets, for example with '
                f"`streamapp offsets reset --group {self.group} --topic {tp.topic} --to-earliest --execute`, or choose "
                "another policy (auto_offset_reset, or offset_reset of the source)"
            )
        found = self.offset_at(tp, int(time.time() * 1000) - to_ms(reset, "offset_reset"))
        return end if found < 0 else min(max(found, first), end)
