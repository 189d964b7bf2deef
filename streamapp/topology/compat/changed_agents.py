"""Compares the inputs and tables of the agents of two versions of an application."""

from __future__ import annotations

from collections.abc import Iterator

from streamapp.topology.compat.findings import Finding, Need, Snapshot

__all__ = ["compare_agents"]


def compare_agents(old: Snapshot, new: Snapshot) -> Iterator[Finding]:
    """Compares the inputs and tables of agents. A description of a topology alone has none."""
    if "agents" not in old or "agents" not in new:
        return
    before, after = old["agents"], new["agents"]
    read, reads = set(before["topics"]), set(after["topics"])
    for topic in sorted(reads - read):
        why = "new; the group has no offsets of it, so it is read from auto_offset_reset on"
        yield Finding(Need.NOTHING, f"agents' topic {topic}", why)
    for topic in sorted(read - reads):
        yield Finding(
            Need.MIGRATION,
            f"agents' topic {topic}",
            "not read any more: records that are not processed yet stay so. Rows of tables from its records stay",
            "Wait until its lag is 0, then deploy",
        )
    tables, theirs = before["tables"], after["tables"]
    for name in sorted({*tables, *theirs}):
        subject = f"agents' table {name}"
        if name not in theirs:
            left = f"removed; its changelog {tables[name]['changelog']} is left over"
            yield Finding(Need.NOTHING, subject, left)
        elif name not in tables and read & reads:
            yield Finding(
                Need.MIGRATION,
                subject,
                "new, and the agents go on at their committed offsets: it has no rows from earlier records",
                "Accept that, or take the application back to its beginning: streamapp reset",
            )
        elif name not in tables:
            yield Finding(Need.NOTHING, subject, "new")
        else:
            yield from _table(subject, tables[name], theirs[name])


def _table(subject: str, old: Snapshot, new: Snapshot) -> Iterator[Finding]:
    changed = [part for part in old if old[part] != new.get(part)]
    if not changed:
        yield Finding(Need.NOTHING, subject, "unchanged")
    for part in changed:
        yield Finding(
            Need.RESET,
            subject,
            f"its {part.replace('_', ' ')} changes from {old[part]} to {new.get(part)}: its rows are lost, or are read "
            "wrongly",
            "Keep it, or take the application back to its beginning: streamapp reset",
        )
