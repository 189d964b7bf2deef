"""`PartitionGroup`: chooses the input from which a task takes its next record (Kafka Streams' ``PartitionGroup``)."""

from __future__ import annotations

from collections.abc import Callable, Collection

from streamapp.engine.java_heap import JavaHeap
from streamapp.engine.punctuation import NEVER
from streamapp.engine.queues import DecodedRecord, RecordQueue
from streamapp.records import RecordBatch, TopicPartition

__all__ = ["PartitionGroup"]


class PartitionGroup:
    """The queues of a task's input partitions. `next` chooses the queue whose first record has the earliest timestamp.

    ``extract_head`` decodes the first record of a queue that has a timestamp extractor. ``try_head`` is for all other
    queues if ``max_idle_ms`` is over 0. ``try_head`` drops first records that cannot be decoded, if the exception
    handler says so. ``max_idle_ms`` is ``max_task_idle_ms`` of the configuration.
    """

    def __init__(
        self,
        extract_head: Callable[[RecordQueue], DecodedRecord | None],
        try_head: Callable[[RecordQueue], None],
        max_idle_ms: int,
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self.queues: dict[TopicPartition, RecordQueue] = {}
        self._extract_head = extract_head
        self._try_head = try_head
        self._max_idle_ms = max_idle_ms
        self._wall_clock_ms = wall_clock_ms
        self._heads = JavaHeap[RecordQueue]()
        # The queues that are not among the heads: the queue of the last choice, and queues that had no record. They
        # come to the heads in the order in which they have got a first record.
        self._arrived: list[RecordQueue] = []

    def enqueue(self, queue: RecordQueue, batch: RecordBatch, size: int = 0) -> None:
        if not queue.size:
            if queue in self._arrived:
                self._arrived.remove(queue)
            self._arrived.append(queue)
        queue.add(batch, size)

    def ready(self, caught_up: Collection[TopicPartition], known_ms: int | None) -> bool:
        """True if the task may process a record: no input makes the other inputs wait.

        An input makes the others wait while it has no record. (An input whose records were all dropped just now does
        not.) The wait for an input in ``caught_up``, the inputs read to their ends, lasts ``max_idle_ms``. The waits of
        several empty inputs come one after the other. ``known_ms`` is the time at which the caller has looked for
        records (None: now). Records that came later do not end a wait, so the time after ``known_ms`` does not, either.
        """
        now = known_ms
        for queue in self.queues.values():
            self._look(queue)
        for partition, queue in self.queues.items():
            if queue.size or queue.passed_over:
                queue.idle_deadline = None
            elif partition not in caught_up:
                queue.idle_deadline = None
                return False
            elif self._max_idle_ms > 0:
                now = self._wall_clock_ms() if now is None else now
                if queue.idle_deadline is None:
                    queue.idle_deadline = now + self._max_idle_ms
                if now < queue.idle_deadline:
                    return False
        return True

    def next(self) -> tuple[RecordQueue | None, int]:
        """The queue with the earliest first record, and the time of the first record of the queue after it.

        The time is `NEVER` if no other queue has a record.
        """
        heads = self._heads
        times = [self.head_time(queue) for queue in self._arrived]
        for queue, time in zip(self._arrived, times, strict=True):
            if time is not None:
                heads.push(queue, time)
        self._arrived.clear()
        if heads.earliest is None:
            return None, NEVER
        best = heads.pop()
        self._arrived.append(best)  # the next call puts the queue back, with its next record
        second = heads.earliest
        return best, NEVER if second is None else second

    def _look(self, queue: RecordQueue) -> None:
        """Drops records at the head that the task would drop anyway, so that no other input waits for them."""
        if queue.batch is None or queue.passed_over:
            return
        if queue.extractor is not None:
            self._extract_head(queue)
        elif self._max_idle_ms > 0:  # a try costs as much as decoding
            self._try_head(queue)
        queue.passed_over = queue.batch is None

    def head_time(self, queue: RecordQueue) -> int | None:
        """The timestamp of a queue's first record; None: the queue is empty; -1: all its records were dropped."""
        if queue.passed_over:
            return -1  # earlier than every record, so the others wait until the task has taken this queue
        if queue.batch is None:
            return None
        if queue.extractor is None:
            return queue.batch.timestamps[queue.at]
        head = self._extract_head(queue)
        return None if head is None else head[2]
