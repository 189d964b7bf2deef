"""The rules of tasks on Spark: a result depends on the records only, not on the wall clock, and not on how the records of the
inputs were cut into batches."""

from __future__ import annotations

from streamapp.engine.partition_group import PartitionGroup
from streamapp.engine.punctuation import NEVER
from streamapp.engine.queues import RecordQueue
from streamapp.engine.runner_ports import TaskRules
from streamapp.errors import UnsupportedOperation

__all__ = ["BATCH_RULES"]


class OrderedPartitionGroup(PartitionGroup):
    """Of equal heads that of the input which the topology names first is the next, instead of turns."""

    def next(self) -> tuple[RecordQueue | None, int]:
        best: RecordQueue | None = None
        first = second = NEVER
        for queue in self.queues.values():
            time = self.head_time(queue)
            if time is None:
                continue
            if best is None or time < first:
                best, first, second = queue, time, first
            elif time < second:
                second = time
        return best, second


def _no_wall_clock(node: str) -> UnsupportedOperation:
    return UnsupportedOperation(
        node,
        "Spark in batch",
        "it asks for the wall clock, and a batch runs through history at a pace of its own",
        "Use PunctuationType.STREAM_TIME and no idle_timeout, or run this topology on workers",
    )


BATCH_RULES = TaskRules(
    partition_group=OrderedPartitionGroup,
    # A micro-batch lets a side of a join run far ahead of the other, so overtaken answers are the rule.
    always_recheck=True,
    retries_at_once=True,
    refuse_wall_clock=_no_wall_clock,
)
