"""Faust's tables, changed for agents that work on batches (``take``), for windows that follow the clock, and for rows
of partitions that have moved."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, MutableMapping
from heapq import heappush
from typing import Any, ClassVar

from faust.streams import current_event
from faust.tables.globaltable import GlobalTable
from faust.tables.table import Table
from faust.tables.wrappers import WindowWrapper
from faust.types import EventT

from streamapp.errors import StreamsError
from streamapp.runners.worker.agents.taken_batches import batch_under_work, partition_in_batch

__all__ = ["AgentGlobalTable", "AgentTable", "AgentWindows", "PlacedTable"]


class AgentWindows(WindowWrapper):  # type: ignore[misc]
    """The windows of a table. Without another choice, the time of the record selects the window."""

    def __init__(self, table: Any, *, relative_to: Any = None, **options: Any) -> None:
        time_of = table._relative_event if relative_to is None else relative_to
        super().__init__(table, relative_to=time_of, **options)


class PlacedTable(Table[Any, Any]):  # type: ignore[misc]
    """A table whose rows are in the right partition also if an agent changes them while it works on a batch.

    A batch may have records of several partitions. A change belongs to the partition of the batch's records with the
    key of the row. Windows that follow the time of a record are refused in a batch.
    """

    WindowWrapper: ClassVar[Any] = AgentWindows

    def partition_for_key(self, key: Any) -> int | None:
        """The partition of the changelog for a change. None: that of the partitioner."""
        return None if self.use_partitioner else self._partition_by_record(key)

    def _partition_by_record(self, key: Any) -> int:
        """The partition of the present record. Raises `StreamsError` if records of a batch leave it open."""
        event = current_event()
        if event is None:
            raise StreamsError(
                f"the table {self.name} can be changed only by an agent that works on a record, because the record "
                "says in which partition the row is. Timers, tasks and pages can send a record to an agent"
            )
        self._verify_source_topic_partitions(event.message.topic)
        if batch_under_work():
            return partition_in_batch(self.name, key if self.window is None else key[0])
        return int(event.message.partition)

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


class AgentTable(PlacedTable):
    """A table of rows that are no sets."""

    def pop(self, key: Any, *default: Any) -> Any:
        """Removes a row, and returns its value, or else ``default``. Raises `KeyError` as a dict does.

        Faust raises `KeyError` in spite of a default, because it finds the default of the table in place of the row.
        """
        if key in self:
            return super().pop(key)
        if default:
            return default[0]
        raise KeyError(key)

    def apply_changelog_batch(self, batch: Iterable[EventT[Any]]) -> None:
        """Restores the last row of each key. In Faust, a row that is written after its deletion is missing if its value
        is false, such as 0."""
        super().apply_changelog_batch({self._to_key(event.key): event for event in batch}.values())

    def _maybe_set_key_ttl(self, key: Any, partition: int) -> None:
        """Notes the partition of a row that changes, and when the window of the row expires.

        Faust notes the partitions of restored rows only. After a rebalance, Faust drops the rows of partitions that
        this worker does not have any more. Faust also notes the end of the window once for each change.
        """
        if self._should_expire_keys():
            _, (_, end) = key
            if (partition, end) not in self._partition_timestamp_keys:
                heappush(self._partition_timestamps[partition], end)
            self._partition_timestamp_keys[partition, end].add(key)
        if not self.is_global:
            self._partitions[key] = partition

    def _maybe_del_key_ttl(self, key: Any, partition: int) -> None:
        super()._maybe_del_key_ttl(key, partition)
        self._partitions.pop(key, None)

    async def _del_old_keys(self) -> None:
        """Deletes the rows of expired windows, and the notes about the windows and partitions of these rows.

        This worker no longer has the rows of a partition that has moved, and calls ``on_window_close`` for none of
        these rows. Faust would call ``on_window_close`` with None.
        """
        now, data = time.time(), self.data
        for (_, end), keys in self._partition_timestamp_keys.items():
            if self.window.stale(end, now):
                keys.intersection_update([key for key in keys if key in data])
        await super()._del_old_keys()
        partitions = self._partitions
        if partitions and len(partitions) > len(data):  # a store on disk reads all rows for its length
            for key in [key for key in partitions if key not in data]:
                del partitions[key]

    @property
    def _partitions(self) -> MutableMapping[Any, int]:
        """The partitions of rows in memory. A store on disk has files for each partition, and needs none."""
        return getattr(self.data, "_key_partition", {})


class AgentGlobalTable(AgentTable, GlobalTable[Any, Any]):  # type: ignore[misc]
    """A table that each worker has completely."""
