"""`Feed`: the inputs of a task, for runners that read records when the task needs them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from streamapp.engine.runner_ports import RecordReader
from streamapp.engine.task import Task
from streamapp.records import TopicPartition

__all__ = ["Feed"]


class Feed:
    """Reads the inputs of a running task. When no record of an input waits in the task, reads the input's next batch.

    ``ended`` are inputs without a reader for which no other input waits. Such an input has no records left, or gets its
    records from the task itself (a cycle).

    ``goes_on`` are inputs of which the task of the next micro-batch reads more records. When this task has read such an
    input to its present end, the records of the other inputs stay unprocessed. The next records of such an input may be
    earlier than the records that wait.
    """

    def __init__(
        self,
        task: Task,
        readers: Mapping[TopicPartition, RecordReader],
        ended: Iterable[TopicPartition] = (),
        goes_on: Collection[TopicPartition] = (),
    ) -> None:
        self._task = task
        self._goes_on = goes_on
        self.readers: dict[TopicPartition, RecordReader] = dict(readers)
        """The readers of the inputs that are not at their end yet."""
        self.ended: set[TopicPartition] = set(ended)
        """The inputs that are read to their ends, so that no other input waits for them (``caught_up`` of
        `Task.process`)."""

    def top_up(self) -> None:
        """Reads one batch from each input without a waiting record."""
        buffered = self._task.buffered
        for tp in [tp for tp in self.readers if not buffered.get(tp)]:
            batch = self.readers[tp].read()
            if batch is not None:
                self._task.enqueue(tp, batch)
                continue
            self.readers.pop(tp).close()
            if tp not in self._goes_on:
                self.ended.add(tp)

    def run(self) -> None:
        """Processes all records, except those that have to wait for an input in ``goes_on``."""
        task = self._task
        while True:
            self.top_up()
            done = task.process(caught_up=self.ended)
            if not done and all(task.buffered.get(tp) for tp in self.readers):
                return

    def close(self) -> None:
        """Closes the readers that are left."""
        for reader in self.readers.values():
            reader.close()
        self.readers.clear()
