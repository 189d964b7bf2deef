"""The offset at which an application begins to read a partition: committed, or chosen by the offset reset policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf

from streamapp._base.durations import to_ms
from streamapp._base.offset_reset import OffsetReset
from streamapp.broker.removed_records import tell_removed
from streamapp.errors import StreamsError, TaskCorruptedError
from streamapp.records import TopicPartition

__all__ = ["FirstOffsets", "check_kept", "check_within", "first_new_partitions"]


def check_within(tp: TopicPartition, offset: int, end: int) -> None:
    """Raises `TaskCorruptedError` if the group's position in a log is beyond the end of this log."""
    if offset > end:
        raise TaskCorruptedError(
            f"the group's position in {tp} is {offset}, but the topic ends at {end}: the topic was deleted and "
            "created anew, or has lost records. To begin anew with its records, stop all workers and run "
            "`streamapp reset`"
        )


def check_kept(group: str, tp: TopicPartition, lost: range | None) -> None:
    """Raises `TaskCorruptedError` if a log has lost records that the group has read (`lost_at_end`)."""
    if lost is not None:
        raise TaskCorruptedError(
            f"{tp} has lost the records from offset {lost.start} on, of which {group} has read those to offset "
            f"{lost.stop - 1}. An unclean leader election is one cause. Later records get these offsets again, and a "
            "start at a committed offset behind them leaves them out. Stop all workers. To begin anew with the "
            "records that are left, run `streamapp reset`. To keep the tables and go on at offset "
            f"{lost.start}, write the line `{tp.topic},{tp.partition},{lost.start}` into a file. Then run "
            f"`streamapp offsets reset --group {group} --from-file FILE --keep-tables --execute`"
        )


def first_new_partitions(committed: Mapping[TopicPartition, int]) -> dict[str, int]:
    """The number of the first partition of each topic that is new if the group has no offset in the partition.

    ``committed`` has the offsets (negative: none) of all partitions, as the process finds them at its start. Kafka
    gives new partitions the next higher numbers, so partitions behind the highest one with an offset are new. If no
    partition has an offset, the group is new in the topic. Then only partitions that come later are new.

    >>> some = {TopicPartition("a", 0): 7, TopicPartition("a", 1): -1, TopicPartition("b", 0): -1}
    >>> first_new_partitions(some)
    {'a': 1, 'b': 1}
    """
    counts: dict[str, int] = {}
    known: dict[str, int] = {}
    for (topic, partition), offset in committed.items():
        counts[topic] = max(counts.get(topic, 0), partition + 1)
        if offset >= 0:
            known[topic] = max(known.get(topic, 0), partition + 1)
    return counts | known


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
    first_new: Mapping[str, int] = field(default_factory=dict)
    """The `first_new_partitions` at the start of the process. Later offsets say less: another member of a new group may
    have committed the begin of its partitions first."""

    def of(self, tp: TopicPartition, offset: int, first: int, end: int) -> int:
        """The place in a log from ``first`` to ``end`` at which reading begins: the wanted ``offset``, if the log has
        it.

        Without a wanted offset (negative), or if retention has deleted its record, the policy decides. The policy
        "none" raises `StreamsError`. Each record of a new partition (`first_new`) came after the group began, so
        reading begins at ``first`` with any other policy.

        Raises `TaskCorruptedError` for a wanted offset beyond the end of the log.
        """
        check_within(tp, offset, end)
        if offset >= first:
            return offset
        begin = self._begin(tp, offset, first, end)
        if offset >= 0:
            tell_removed(tp, offset, first, begin)
        return begin

    def moves(self, topic: str) -> bool:
        """True if a later start would choose another offset than an earlier start.

        The caller then commits the offset before the first record. Otherwise a restart would leave out the records
        between the two offsets.
        """
        return self.reset_of(topic) != "earliest"

    def _begin(self, tp: TopicPartition, offset: int, first: int, end: int) -> int:
        reset = self.reset_of(tp.topic)
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
        new = offset < 0 and tp.partition >= self.first_new.get(tp.topic, inf)
        if reset == "earliest" or new:
            return first
        if reset == "latest":
            return end
        since = int(time.time() * 1000) - to_ms(reset, "offset_reset")
        found = self.offset_at(tp, max(0, since))  # negative times have other meanings in Kafka's requests
        return end if found < 0 else min(max(found, first), end)
