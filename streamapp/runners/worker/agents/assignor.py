"""Faust's assignor, changed for global tables whose changelog is new.

Faust's own assignor fails while aiokafka's list of topics does not have the new changelog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:

    class PartitionAssignor:
        """Faust's has no types."""

        def __getattr__(self, name: str) -> Any: ...

        _metadata: Any
        on_assignment: Any
        _get_copartitioned_groups: Any
        _global_table_standby_assignments: Any
        _protocol_assignments: Any
        _update_member_urls: Any
else:
    from faust.assignor.partition_assignor import PartitionAssignor

__all__ = ["AgentAssignor"]


class AgentAssignor(PartitionAssignor):
    def _global_table_standby_assignments(self, assignments: Any, partitions_by_topic: Any) -> Any:
        created = {
            table.changelog_topic.get_topic_name(): table.partitions or self.app.conf.topic_partitions
            for table in self._table_manager.data.values()
            if table.is_global
        }
        return super()._global_table_standby_assignments(assignments, {**created, **partitions_by_topic})
