"""Compares the stores of two versions of a topology."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streamapp.state.kinds import Versioned, same_changelog
from streamapp.state.spec import of_other_keys, same_rows
from streamapp.topology.compat.changed_schemas import unreadable_json
from streamapp.topology.compat.changed_topics import above, read_topics
from streamapp.topology.compat.findings import Change, Finding, Need, Snapshot

__all__ = ["compare_global_stores", "compare_stores"]

_REBUILD = (
    "Reset the application, or compute everything under another application id, for example by a backfill"
)
_RESTORE = "Let it be restored from there, without the old state folder"
_KEEP_VERSIONS = (
    "First set "
    + ",".join(f"{name}={value}" for name, value in Versioned.changelog_settings.items())
    + " for the changelog: otherwise brokers compact old versions away. "
)


def compare_stores(old: Snapshot, new: Snapshot) -> Iterator[Finding]:
    """Compares the stores of tasks, with their changelogs and inputs."""
    before, after = old["stores"], new["stores"]
    renamed = _renamed(before, after)
    for name, store in before.items():
        if name in after:
            yield from _store(name, store, after[name], old, new)
        elif name not in renamed and _keeps_records_for_a_retry(name, store):
            yield Finding(
                Need.MIGRATION,
                f"store {name}",
                "removed: nobody tries the records again that wait in it for a retry",
                "Wait until no record waits (streamapp_parked_records in /metrics), then deploy",
            )
        elif name not in renamed:
            topic = store["changelog"]
            left = f"; its changelog {topic} is left over" if topic and topic.endswith("-changelog") else ""
            yield Finding(Need.NOTHING, f"store {name}", f"removed{left}")
    for name in after:
        if name in before:
            continue
        old_name = next((o for o, n in renamed.items() if n == name), None)
        if old_name is not None:
            yield Finding(
                Need.MIGRATION,
                f"store {name}",
                f"it was called {old_name} and would begin empty: what it holds stays in the old changelog",
                f'Keep the name: Materialized("{old_name}"), or the name= of its operator',
            )
        elif above(new, after[name].get("origins") or after[name]["reads"]) & read_topics(old):
            yield Finding(
                Need.MIGRATION,
                f"store {name}",
                "new, and its inputs have been read before: it begins empty at the committed offsets",
                "Create its changelog first (the worker that finds none says how), and accept that. Or compute "
                "everything under another application id, for example by a backfill",
            )
        else:
            yield Finding(Need.NOTHING, f"store {name}", "new")


def _keeps_records_for_a_retry(name: str, store: Snapshot) -> bool:
    of_bytes = store["key_serde"] == store["value_serde"] == "BytesSerde"
    return store["operators"] == ["Delayed"] or (of_bytes and name.endswith("-parked"))


def _renamed(before: Snapshot, after: Snapshot) -> dict[str, str]:
    """Old name -> new name, for stores that probably have a new name, because everything else is the same."""
    gone = [name for name in before if name not in after]
    come = [name for name in after if name not in before]
    found: dict[str, str] = {}
    for name in gone:
        same = [
            c
            for c in come
            if c not in found.values()
            and _identity(after[c]) == _identity(before[name])
            and _same_rows(before[name], after[c]) is not False
        ]
        if same:
            found[name] = same[0]
    return found


def _identity(store: Snapshot) -> tuple[Any, ...]:
    return tuple(
        str(store[part])
        for part in ("kind", "key_serde", "value_serde", "window_size_ms", "operators", "reads")
    )


def _store(
    name: str, old: Snapshot, new: Snapshot, old_plan: Snapshot, new_plan: Snapshot
) -> Iterator[Finding]:
    found = [
        Finding(need, f"store {name}", why, remedy)
        for need, why, remedy in _changes(old, new, old_plan, new_plan)
    ]
    yield from found or [Finding(Need.NOTHING, f"store {name}", "unchanged")]


def _changes(old: Snapshot, new: Snapshot, old_plan: Snapshot, new_plan: Snapshot) -> Iterator[Change]:
    if _other_writers(old, new) or _from_elsewhere(old, new):
        yield (
            Need.RESET,
            f"the name belongs to something else now: it was {_origin(old)}, it is {_origin(new)}",
            "Name the stores of both, so that names do not move with the numbers of operators",
        )
        return
    serdes = [part for part in ("key_serde", "value_serde") if old[part] != new[part]]
    for part in serdes:
        what = part.removesuffix("_serde")
        yield (
            Need.RESET,
            f"its {what}s were written by {old[part]} and would be read by {new[part]}",
            _REBUILD,
        )
    yield from unreadable_json(old, new)
    yield from _other_keys(old, new)
    if old["kind"] != new["kind"]:
        if same_changelog(old["kind"], new["kind"]):
            yield (
                Need.MIGRATION,
                f"its kind changes from {old['kind']} to {new['kind']}; the changelog serves both",
                _KEEP_VERSIONS + _RESTORE if new["kind"] == Versioned.persistent_name else _RESTORE,
            )
        else:
            yield Need.RESET, f"its kind changes from {old['kind']} to {new['kind']}", _REBUILD
    # Snapshots of earlier releases have no "time_index".
    elif {old.get("time_index"), new.get("time_index")} == {0, 1}:
        yield (
            Need.MIGRATION,
            "its rows on disk have an index by time only with final results; the changelog serves both",
            _RESTORE,
        )
    fits = _same_rows(old, new)
    if old["window_size_ms"] != new["window_size_ms"] and not fits:
        yield (
            Need.RESET,
            f"its windows change from {old['window_size_ms']} to {new['window_size_ms']} ms: "
            "old windows would be read as if they had the new size",
            _REBUILD,
        )
    elif fits is False and of_other_keys(old["rows"], new["rows"]):
        yield (
            Need.RESET,
            "the schema of its keys changes. The bytes of a key begin with the id of its schema, so no key would find "
            "its old row",
            f"Keep the schema of keys. {_REBUILD}",
        )
    elif fits is False and old["kind"] == new["kind"] and not serdes:
        yield (
            Need.RESET,
            f"its rows change from {old['rows']} to {new['rows']}: old rows would be read like new ones",
            _REBUILD,
        )
    yield from _kept(old, new)
    yield from _inputs(old, new, old_plan, new_plan)


def _other_keys(old: Snapshot, new: Snapshot) -> Iterator[Change]:
    """Another type of `JsonSerde` for the keys of a store. A new field changes the bytes of each key, for example."""
    before, after = (version.get("json", {}).get("key") for version in (old, new))
    if before and after and before != after:
        yield (
            Need.MIGRATION,
            "the type of its keys changes: a key with other bytes does not find its old row",
            "Make sure that all keys keep their bytes, or reset",
        )


def _other_writers(old: Snapshot, new: Snapshot) -> bool:
    """True if other operators write the store. Operators that only read its rows may come and go."""
    # Snapshots from before 29 November 2026 have no "writers".
    part = "writers" if old.get("writers") and new.get("writers") else "operators"
    # A join of a stream with itself keeps the same rows in one store as in two stores.
    before, after = (
        {"StreamStreamJoin" if kind == "StreamStreamSelfJoin" else kind for kind in store[part]}
        for store in (old, new)
    )
    return before != after


def _rows_from(old: Snapshot, new: Snapshot) -> tuple[set[str], set[str]]:
    """The topics whose records become rows, in both versions."""
    # Snapshots from before 27 November 2026 have no "origins".
    part = "origins" if old.get("origins") and new.get("origins") else "reads"
    return set(old[part]), set(new[part])


def _same_rows(old: Snapshot, new: Snapshot) -> bool | None:
    """True if the rows of two stores are read in the same way. None: the snapshots do not say."""
    # Snapshots from before 27 November 2026 have no "rows".
    return same_rows(old["rows"], new["rows"]) if "rows" in old and "rows" in new else None


def _from_elsewhere(old: Snapshot, new: Snapshot) -> bool:
    """True if the rows of the two versions come from records of other topics."""
    before, after = _rows_from(old, new)
    return not before & after


def _kept(old: Snapshot, new: Snapshot) -> Iterator[Change]:
    if old["changelog"] != new["changelog"]:
        if old["changelog"] is None:
            yield Need.RESET, f"the new changelog {new['changelog']} would lack the rows of before", _REBUILD
        elif new["changelog"] is None:
            yield (
                Need.MIGRATION,
                "it has no changelog any more: its rows do not come back when a task moves",
                "Make sure that this is meant",
            )
        elif new["changelog"].endswith("-changelog"):
            yield (
                Need.RESET,
                f"its changelog was the source topic {old['changelog']}, and {new['changelog']} would lack the "
                "rows of before",
                "Keep reuse.ktable.source.topics, or run `streamapp reset`",
            )
    if not old["persistent"] and new["persistent"] and old["changelog"] is None:
        yield Need.NOTHING, "it was kept in memory without changelog: it begins empty, as with each start", ""
    for part, what in (
        ("retention_ms", "retention"),
        ("ttl_ms", "time to live"),
        ("max_entries", "limit of entries"),
    ):
        if old[part] != new[part]:
            yield (
                Need.NOTHING,
                f"its {what} changes from {old[part]} to {new[part]}{' ms' if part.endswith('ms') else ''}; "
                "what was deleted before does not come back",
                "",
            )


def _inputs(old: Snapshot, new: Snapshot, old_plan: Snapshot, new_plan: Snapshot) -> Iterator[Change]:
    before, after = _rows_from(old, new)
    came = sorted(after - before)
    if not came:
        return
    through = [topic for topic in came if topic in new_plan["repartition_topics"]]
    left = sorted(before - after)
    if through and left:
        yield (
            Need.RESET,
            f"its records come through {', '.join(through)} now and not from {', '.join(left)}: "
            "a key's row may lie in another partition than its records",
            _REBUILD,
        )
    elif set(came) & read_topics(old_plan):
        yield (
            Need.MIGRATION,
            f"it reads {', '.join(came)} too now, from the committed offsets on: what came before is not in it",
            "Accept that, or compute everything under another application id, for example by a backfill",
        )
    else:
        yield (
            Need.NOTHING,
            f"it reads {', '.join(came)} too now, from auto_offset_reset on, and keeps its rows",
            "",
        )


def _origin(store: Snapshot) -> str:
    return f"{' and '.join(store['operators']) or 'unused'} of {', '.join(store['reads']) or 'nothing'}"


def compare_global_stores(old: Snapshot, new: Snapshot) -> Iterator[Finding]:
    """Compares the global stores, which workers read anew at each start."""
    before, after = old["global_stores"], new["global_stores"]
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            change = "removed" if name not in after else "new" if name not in before else "changed"
            read = "" if change == "removed" else "; it is read from its topic when a worker starts"
            yield Finding(Need.NOTHING, f"global store {name}", change + read)
