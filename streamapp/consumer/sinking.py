"""`Sinking`: transactions of a database that have the work of a handler and the position of its partition."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from streamapp._base.failpoints import hit
from streamapp.consumer.dispatcher import Dispatcher
from streamapp.consumer.done_offsets import decode_done
from streamapp.consumer.lanes import Item, PartitionLanes
from streamapp.consumer.offset_sinks import OffsetSink, SavedOffset

__all__ = ["Sinking"]


class Sinking:
    """The database transactions of one consumer. Safe to use from several threads."""

    def __init__(self, sink: OffsetSink, group: str, dispatcher: Dispatcher) -> None:
        self.sink: OffsetSink = sink
        self._group, self._dispatcher = group, dispatcher

    def commit(
        self,
        partition: PartitionLanes,
        items: Sequence[Item],
        call: Callable[[Collection[Item], Any], None],
    ) -> None:
        """Calls ``call`` for the items in a transaction, which also saves the new position, and commits.

        An earlier transaction of an item may have been committed without a confirmation. Such an item is looked up in
        the database first, and left out if it is done. Raises `SinkFenced`, errors of the database, and errors of
        ``call``.
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
        # The lock comes last, and stays until the commit: the partition's next transaction has to know of this one.
        stack.enter_context(partition.saving)
        position = self._dispatcher.position_with(partition, [item.offset for item in items])
        self.sink.save(connection, self._group, partition.source, SavedOffset(*position, partition.fence))
        for item in items:
            item.unsure = True  # until the commit comes back
        hit("consumer-saved")
        return position
