"""Rules of tasks on Spark, which make the order of records and of retries depend on the records only.

The wall clock, and the sizes of batches, have no influence on this order, so that a repeated batch gives the same
results. A user's function that asks for the time may still give other results.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from streamapp.engine.partition_group import PartitionGroup
from streamapp.engine.punctuation import NEVER
from streamapp.engine.queues import RecordQueue
from streamapp.engine.runner_ports import TaskRules
from streamapp.errors import UnsupportedOperation

__all__ = ["BATCH_RULES", "cycle_rules"]


class OrderedPartitionGroup(PartitionGroup):
    """Chooses the input whose next record has the earliest timestamp.

    Among inputs with equal timestamps, the choice depends only on the names of the topics. On workers, the choice among
    such inputs depends on earlier records.
    """

    def next(self) -> tuple[RecordQueue | None, int]:
        return self._earliest(self.queues.values())

    def _earliest(self, queues: Iterable[RecordQueue]) -> tuple[RecordQueue | None, int]:
        best: RecordQueue | None = None
        first = second = NEVER
        for queue in queues:
            time = self.head_time(queue)
            if time is None:
                continue
            if best is None or time < first:
                best, first, second = queue, time, first
            elif time < second:
                second = time
        return best, second


class _MessagesFirst(OrderedPartitionGroup):
    """Chooses among the messages in the ``topics`` of a cycle, which a record has caused, before the next record.

    Otherwise a left row of a foreign-key join may change before its answer comes, and the join drops the answer.
    """

    def __init__(self, topics: Collection[str], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._topics = topics

    def next(self) -> tuple[RecordQueue | None, int]:
        messages = (queue for queue in self.queues.values() if queue.partition.topic in self._topics)
        message, _ = self._earliest(messages)
        return super().next() if message is None else (message, NEVER)


def cycle_rules(topics: Collection[str]) -> TaskRules:
    """The rules of a task whose messages in ``topics`` come back into the same task. Without topics: `BATCH_RULES`."""
    return replace(BATCH_RULES, partition_group=partial(_MessagesFirst, topics)) if topics else BATCH_RULES


def _no_wall_clock(node: str) -> UnsupportedOperation:
    return UnsupportedOperation(
        node,
        "Spark",
        "it asks for the wall clock, and batches run through the records at a pace of their own",
        "Use PunctuationType.STREAM_TIME and no idle_timeout, or run this topology on workers",
    )


BATCH_RULES = TaskRules(
    partition_group=OrderedPartitionGroup,
    # In a micro-batch, one side of a foreign-key join may run far ahead of the other. Most answers then belong to
    # earlier values of their rows, and the join drops these answers.
    always_recheck=True,
    retries_at_once=True,
    # Each micro-batch opens its tasks anew, and a punctuator of each hour must not run in each micro-batch.
    punctuators_go_on=True,
    refuse_wall_clock=_no_wall_clock,
)
