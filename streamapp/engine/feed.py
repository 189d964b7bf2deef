"""`Feed`: the inputs of a task, for runners that read what the task needs instead of handing over what arrives."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from streamapp.engine.runner_ports import RecordReader
from streamapp.engine.task import Task
from streamapp.records import TopicPartition

__all__ = ["Feed"]


class Feed:
    """Reads each input of a running task before the task runs dry of the input.

    ``ended`` are inputs without a reader that have no more records. An input that ``goes_on`` holds the others back at its end:
    more records come later, to a task after this one.
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
        """The readers of inputs that were not read to their ends."""
        self.ended: set[TopicPartition] = set(ended)
        """The inputs that hold no other input back (`Task.process`, ``caught_up``)."""

    def top_up(self) -> None:
        """Reads once from each input of which no record waits."""
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
        """Processes all records, but for those that wait for an input that goes on."""
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
