"""Compares the topics that two versions of a topology read and write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from streamapp.topology.compat.changed_schemas import unreadable_json
from streamapp.topology.compat.findings import Finding, Need, Snapshot

__all__ = [
    "above",
    "compare_output_topics",
    "compare_repartition_topics",
    "compare_source_topics",
    "read_topics",
]


def compare_repartition_topics(old: Snapshot, new: Snapshot) -> Iterator[Finding]:
    """Compares the repartition topics. Their records of the old version may still wait."""
    before, after = old["repartition_topics"], new["repartition_topics"]
    for name in before:
        if name not in after:
            yield Finding(
                Need.MIGRATION,
                f"repartition topic {name}",
                "removed: records in it that have not been processed are lost",
                "Stop what writes to the application's inputs, wait until its lag is 0, then deploy",
            )
            continue
        # Snapshots from before 29 November 2026 have no "records".
        written, read = before[name].get("records"), after[name].get("records")
        if written and read and written != read:
            yield Finding(
                Need.MIGRATION,
                f"repartition topic {name}",
                f"its records were written by {written} and would be read by {read}: records that have not been "
                "processed cannot be read, or are read wrongly",
                "Stop what writes to the application's inputs, wait until its lag is 0, stop all workers, then deploy",
            )
        for need, why, remedy in unreadable_json(before[name], after[name]):
            yield Finding(need, f"repartition topic {name}", why, remedy)
        if before[name]["partitions"] != after[name]["partitions"]:
            yield Finding(
                Need.RESET,
                f"repartition topic {name}",
                f"its partitions change from {_count(before[name])} to {_count(after[name])}: "
                "keys move to other partitions than their rows",
                "Keep the number, or run `streamapp reset`",
            )
    for name in after:
        if name not in before:
            yield Finding(Need.NOTHING, f"repartition topic {name}", "new; it is created at the start")


def compare_source_topics(old: Snapshot, new: Snapshot) -> Iterator[Finding]:
    """Compares the topics from outside that the versions read."""
    before, after = _external(old), _external(new)
    replaced = _replaced(old, new)
    for topic in sorted(after - before):
        offsets = "the group has no offsets of it, so it is read from auto_offset_reset on"
        earlier = next((each for each, now in replaced.items() if now == topic), None)
        if earlier is None:
            yield Finding(Need.NOTHING, f"source topic {topic}", f"new; {offsets}")
            continue
        yield Finding(
            Need.MIGRATION,
            f"source topic {topic}",
            f"read in the place of {earlier}: {offsets}. Records that it shares with {earlier} count twice",
            f"If it repeats the records of {earlier}, first move its offsets behind them (streamapp offsets)",
        )
    for topic in sorted(before - after):
        stores = [name for name, store in old["stores"].items() if topic in _sources_of(store)]
        kept = [name for name in stores if name in new["stores"]]
        rows = f". Rows from its records stay in {', '.join(kept)}" if kept else ""
        yield Finding(
            Need.MIGRATION,
            f"source topic {topic}",
            f"not read any more: records that are not processed yet stay so. Its offsets stay until brokers forget "
            f"them, and a version that reads it again goes on there{rows}",
            "Wait until its lag is 0, then deploy"
            + (". To compute the rows without it, reset the application" if kept else ""),
        )


def compare_output_topics(old: Snapshot, new: Snapshot) -> Iterator[Finding]:
    """Finds the topics that only the new version writes. Its workers end at the start if such a topic is missing."""
    for topic in sorted(_written(new) - _written(old)):
        yield Finding(Need.NOTHING, f"output topic {topic}", "new; create it before the deployment")


def _written(plan: Snapshot) -> set[str]:
    sinks = {topic for sub in plan["subtopologies"].values() for topic in sub["sink_topics"]}
    return sinks - set(plan["repartition_topics"])


def _replaced(old: Snapshot, new: Snapshot) -> dict[str, str]:
    """Old topic -> new topic, for sources whose node has the same name and one other topic."""
    before, after = _sources(old), _sources(new)
    found: dict[str, str] = {}
    for node in before.keys() & after.keys():
        left, came = before[node] - after[node], after[node] - before[node]
        if len(left) == len(came) == 1:
            found[left.pop()] = came.pop()
    kept = _external(old) & _external(new)
    return {left: came for left, came in found.items() if left not in kept and came not in kept}


def _sources(plan: Snapshot) -> dict[str, set[str]]:
    """The topics of each source node."""
    return {
        name: set(node["topics"])
        for sub in plan["subtopologies"].values()
        for name, node in sub["nodes"].items()
        if node["kind"] == "source"
    }


def _sources_of(store: Snapshot) -> set[str]:
    return {*store["reads"], *store.get("origins", ())}


def above(plan: Snapshot, topics: Iterable[str]) -> set[str]:
    """The topics, and those whose records reach them through repartition topics."""
    found, before = set(topics), 0
    while len(found) > before:
        before = len(found)
        for sub in plan["subtopologies"].values():
            if found & plan["repartition_topics"].keys() & set(sub["sink_topics"]):
                found.update(sub["source_topics"])
    return found


def read_topics(plan: Snapshot) -> set[str]:
    """The topics that a version reads: source topics and repartition topics."""
    return {topic for sub in plan["subtopologies"].values() for topic in sub["source_topics"]}


def _external(plan: Snapshot) -> set[str]:
    return read_topics(plan) - set(plan["repartition_topics"])


def _count(topic: Snapshot) -> str:
    return "as many as its input's" if topic["partitions"] is None else str(topic["partitions"])
