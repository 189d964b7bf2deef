"""The offset at which an application begins to read a partition: committed, or chosen by ``auto_offset_reset``."""

from __future__ import annotations

from streamapp.broker.removed_records import tell_removed
from streamapp.config import StreamsConfig
from streamapp.errors import TaskCorruptedError
from streamapp.records import TopicPartition

__all__ = ["first_offset"]


def first_offset(config: StreamsConfig, tp: TopicPartition, offset: int, first: int, end: int) -> int:
    """The place in a log from ``first`` to ``end`` at which reading begins: the wanted ``offset``, if the log has it.

    Without a wanted offset (negative), or if retention has deleted its record, reading begins at ``first``. With
    ``auto_offset_reset="latest"``, reading then begins at ``end``. Raises `TaskCorruptedError` for a wanted offset
    beyond the end of the log.
    """
    if offset > end:
        raise TaskCorruptedError(
            f"the group's position in {tp} is {offset}, but the topic ends at {end}: the topic was deleted and "
            "created anew, or has lost records. To begin anew with its records, stop all workers and run "
            "`streamapp reset`"
        )
    if offset >= first:
        return offset
    begin = end if config.auto_offset_reset == "latest" else first
    if offset >= 0:
        tell_removed(tp, offset, first, begin)
    return begin
