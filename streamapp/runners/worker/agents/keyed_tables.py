"""Faust's tables, changed for agents that work on batches (``take``), and for windows that follow the clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar

from faust.tables.globaltable import GlobalTable
from faust.tables.table import Table
from faust.tables.wrappers import WindowWrapper
from faust.types import EventT

from streamapp.errors import StreamsError
from streamapp.runners.worker.agents.taken_batches import batch_under_work, partition_in_batch

__all__ = ["AgentGlobalTable", "AgentTable", "AgentWindows"]


class AgentWindows(WindowWrapper):  # type: ignore[misc]
    """The windows of a table. Without another choice, the time of the record selects the window."""

    def __init__(self, table: Any, *, relative_to: Any = None, **options: Any) -> None:
        time_of = table._relative_event if relative_to is None else relative_to
        super().__init__(table, relative_to=time_of, **options)


class AgentTable(Table[Any, Any]):  # type: ignore[misc]
    """A table whose rows are in the right partition also if an agent changes them while it works on a batch.

    A batch may have records of several partitions. A change belongs to the partition of the batch's records with the
    key of the row. Windows that follow the time of a record are refused in a batch.
    """

    WindowWrapper: ClassVar[Any] = AgentWindows

    def partition_for_key(self, key: Any) -> int | None:
        """The partition of the changelog for a change. Raises `StreamsError` if records of a batch leave it open."""
        partition: int | None = super().partition_for_key(key)
        if partition is None or not batch_under_work():
            return partition
        return partition_in_batch(self.name, key if self.window is None else key[0])

    def _relative_now(self, event: EventT[Any] | None = None) -> float:
        """The clock. Faust takes the end of the last window instead, so each change would open a new window."""
        return time.time()

    def _relative_event(self, event: EventT[Any] | None = None) -> float:
        self._check_one_record()
        return super()._relative_event(event)  # type: ignore[no-any-return]

    def _relative_field(self, field: Any) -> Callable[[EventT[Any] | None], Any]:
        time_of = super()._relative_field(field)

        def checked(event: EventT[Any] | None = None) -> Any:
            self._check_one_record()
            return time_of(event)

        return checked

    def _check_one_record(self) -> None:
        if batch_under_work():
            raise StreamsError(
                f"the table {self.name} has windows that follow the time of a record, but the agent works on a batch "
                "of records (take). Process the records one by one, or use relative_to_now()"
            )


class AgentGlobalTable(AgentTable, GlobalTable[Any, Any]):  # type: ignore[misc]
    """A table that each worker has completely."""
