"""Faust's tables of sets, changed to keep their members when partitions move, and for as long as the table exists."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, ClassVar

from faust.tables.sets import ChangeloggedSetManager, SetGlobalTable, SetTable, SetWindowWrapper
from faust.types import EventT
from yarl import URL

from streamapp.runners.worker.agents.keyed_tables import AgentWindows, PlacedTable

__all__ = ["AgentSetGlobalTable", "AgentSetTable", "store_of_sets"]


def store_of_sets(table: SetTable[Any, Any]) -> URL:
    """The address of the store in which a table keeps its sets: that of the table, or else that of the application."""
    store: URL | None = table._store
    return URL(table.app.conf.store) if store is None else store


class _Sets(ChangeloggedSetManager):  # type: ignore[misc]
    """The sets of a table, in memory. The storage has the sets that this worker has changed."""

    _storage: Any

    def sync_from_storage(self) -> None:
        """Does nothing.

        A restore adds members to the sets only. Faust would now replace each set by the set of the storage, and so lose
        the restored members.
        """

    @property
    def storage(self) -> Any:
        """The store. Faust would ignore a table's own ``store="memory://"``, because this URL is false."""
        if self._storage is None:
            self._storage = self.table._new_store_by_url(store_of_sets(self.table))
        return self._storage

    @property
    def _key_partition(self) -> MutableMapping[Any, int]:
        return self.storage._key_partition  # type: ignore[no-any-return]

    def _clear(self) -> None:
        self.data.clear()
        self.storage._clear()


class _SetWindows(AgentWindows, SetWindowWrapper):  # type: ignore[misc]
    """The windows of a table of sets."""


class AgentSetTable(PlacedTable, SetTable[Any, Any]):  # type: ignore[misc]
    WindowWrapper: ClassVar[Any] = _SetWindows

    def _new_store(self) -> _Sets:
        return _Sets(self)

    def _send_changelog(self, event: EventT[Any] | None, key: Any, *arguments: Any) -> None:
        """Sends a change of a set. Faust takes the partition of the present record, which may be one of a batch.

        ``use_partitioner`` has no effect, as in Faust. The key of a change has the operation, so the partitioner would
        part the changes of one set.
        """
        _, row = key
        self.send_changelog(self._partition_by_record(row), key, *arguments)

    def _new_changelog_topic(self, **options: Any) -> Any:
        """The changelog. Brokers keep each of its records, because each record adds or removes one member.

        Faust leaves the retention to the brokers, whose default is seven days. A table with windows that expire names a
        retention of its own.
        """
        topic = super()._new_changelog_topic(**options)
        kept = {"cleanup.policy": "delete", "retention.bytes": -1}
        if topic.retention is None:
            kept["retention.ms"] = -1
        topic.config = {**kept, **topic.config}
        return topic


class AgentSetGlobalTable(AgentSetTable, SetGlobalTable):  # type: ignore[misc]
    """A table of sets that each worker has completely."""

    def _verify_source_topic_partitions(self, source_topic: str) -> None:
        """Does nothing: each worker reads all partitions, so the changelog may have more of them than the topic."""
