"""The refusal of tables whose group has lost the offsets up to which their rows go."""

from __future__ import annotations

from collections.abc import Collection

from streamapp.errors import TopologyError

__all__ = ["agents_without_offsets", "rows_without_offsets"]


def rows_without_offsets(group: str, task: object, store: str) -> TopologyError:
    """The error for a store with rows whose group has no committed offset in any input.

    Rows and offsets are committed together. So a group that has never committed has no rows.
    """
    return TopologyError(
        f"task {task}: the table {store} has rows, but the group {group} has no committed offsets of any input. The "
        "offsets have expired (offsets.retention.minutes) or were deleted. Or the inputs were created anew, or an "
        "earlier version read other topics. The table would count the records of the inputs twice, or lack records. "
        "Stop all workers. To compute all tables anew, run `streamapp reset`. To keep the tables, choose the next "
        "records: `streamapp offsets reset APPLICATION --to-latest --keep-tables --execute`, or with --to-earliest or "
        "--to-time"
    )


def agents_without_offsets(group: str, table: str, topics: Collection[str]) -> TopologyError:
    """The error for a table of agents with rows whose group has no committed offset in the topics of the agents."""
    return TopologyError(
        f"the table {table} has rows, but the group {group} has no committed offsets in {', '.join(sorted(topics))}. "
        "The offsets have expired (offsets.retention.minutes) or were deleted. Or the topics were created anew, or an "
        "earlier version read other topics. The table would count records twice, or lack records. Stop all workers. To "
        "compute the tables anew, run `streamapp reset`. To keep the tables, choose the next records of each topic: "
        f"`streamapp offsets reset --group {group} --topic TOPIC --to-latest --execute`, or with --to-earliest or "
        "--to-time"
    )
