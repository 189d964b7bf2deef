"""`Sinking`: transactions of a database that contain the work of a handler and the position of its partition."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar

from streamapp._base.failpoints import hit
from streamapp.consumer.consume_options import ConsumeOptions
from streamapp.consumer.dispatcher import Dispatcher
from streamapp.consumer.done_offsets import decode_done
from streamapp.consumer.lanes import Item, PartitionLanes
from streamapp.consumer.offset_sinks import OffsetSink, SavedOffset
from streamapp.engine.judging import short
from streamapp.records import TopicPartition

__all__ = ["Sinking"]

logger: logging.Logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_PAUSE_SECONDS = 0.5


class Sinking:
    """The database transactions of one consumer. Several threads may share a `Sinking`.

    `create` and `claim` wait for a database that does not answer. The wait takes at most half of
    ``max_poll_interval_ms``, so that the consumer stays a member of its group, and ends earlier if ``stopping`` is set.
    """

    def __init__(
        self, sink: OffsetSink, options: ConsumeOptions, dispatcher: Dispatcher, stopping: threading.Event
    ) -> None:
        self.sink: OffsetSink = sink
        self._group, self._dispatcher, self._stopping = options.name, dispatcher, stopping
        self._patience_seconds = options.config.max_poll_interval_ms / 2000

    def create(self) -> None:
        """Creates the table of the offsets. Raises errors of the database."""
        self._answer(self.sink.create)

    def claim(self, source: TopicPartition) -> SavedOffset:
        """Takes a partition over, with its saved offset. Raises errors of the database."""
        return self._answer(lambda: self.sink.claim(self._group, source))

    def _answer(self, call: Callable[[], _T]) -> _T:
        deadline = time.monotonic() + self._patience_seconds
        while True:
            try:
                return call()
            except self.sink.failures as exc:
                if time.monotonic() > deadline or self._stopping.wait(_PAUSE_SECONDS):
                    raise
                logger.warning("%s waits for the database of its offsets: %s", self._group, short(exc))

    def commit(
        self,
        partition: PartitionLanes,
        items: Sequence[Item],
        call: Callable[[Collection[Item], Any], None],
    ) -> None:
        """Calls ``call`` for the items in a transaction, which also saves the new position, and commits.

        If an earlier transaction of an item failed at its commit, the item may be done all the same. The method then
        first looks in the database, and leaves the item out if it is done. Raises `SinkFenced`, errors of the database,
        and errors of ``call``.
        """
        with ExitStack() as stack:
            position = self.sink.transaction(partial(self._work, stack, partition, items, call))
            hit("consumer-sink-committed")
            partition.saved = position
            for item in items:
                item.unsure = False
            self._dispatcher.mark_done(partition, items)

    def _work(
        self,
        stack: ExitStack,
        partition: PartitionLanes,
        items: Sequence[Item],
        call: Callable[[Collection[Item], Any], None],
        connection: Any,
    ) -> tuple[int, str]:
        todo = items
        if any(item.unsure for item in items):
            saved = self.sink.look(connection, self._group, partition.source)
            done = {*decode_done(saved.position, saved.metadata)}
            todo = [item for item in items if item.offset >= saved.position and item.offset not in done]
        if todo:
            call(todo, connection)
        # The lock is held until the commit, because the next position of the partition must include this transaction.
        stack.enter_context(partition.saving)
        position = self._dispatcher.position_with(partition, [item.offset for item in items])
        self.sink.save(connection, self._group, partition.source, SavedOffset(*position, partition.fence))
        for item in items:
            item.unsure = True  # until the commit comes back
        hit("consumer-saved")
        return position
