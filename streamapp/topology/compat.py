"""Compares two versions of a topology, and says if a deployment of the new one needs nothing, a migration or a reset.

Kafka Streams has no such check: a changed topology starts with the state and the topics of the old version, and may
read them wrongly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from streamapp.errors import ConfigError
from streamapp.serdes.avro import full_name, unresolvable
from streamapp.serdes.json_changes import JsonMisfit, json_misfit
from streamapp.serdes.proto_outline import message_at, renumbered
from streamapp.serdes.schema_diff import summary
from streamapp.state.kinds import Versioned, same_changelog
from streamapp.state.spec import of_other_keys, same_rows
from streamapp.topology.nodes import USER_PROCESSOR
from streamapp.topology.plan import Plan
from streamapp.topology.snapshot import FORMAT, snapshot
from streamapp.topology.topology import Topology

__all__ = ["Compatibility", "Finding", "Need", "compare_topologies"]

Snapshot = Mapping[str, Any]


_SUPPLIERS = {"ABCMeta", "builtin_function_or_method", "function", "method", "partial", "type"}
"""Names of operators in snapshots from before 24 November 2026, which stand for a user's processor."""

_FORMATS = (1, FORMAT)


class Need(IntEnum):
    """The work that a deployment needs. A larger value means more work."""

    NOTHING = 0
    """Start the new version, which goes on with the state, the internal topics and the positions of the old version."""
    MIGRATION = 1
    """The new version can go on with the existing state, but you first have to do or accept something, which the
    finding names."""
    RESET = 2
    """The existing state contradicts the new topology. Reset the application, or use a new application id. Workers or
    a backfill then compute the state again."""


@dataclass(frozen=True)
class Finding:
    """The result for one part of a topology, compared between two versions. ``subject`` names this part, for example a
    store."""

    need: Need
    subject: str
    why: str
    remedy: str = ""

    def __str__(self) -> str:
        remedy = f". {self.remedy}" if self.remedy else ""
        return f"{self.need.name.lower():<9}  {self.subject}: {self.why}{remedy}"


@dataclass(frozen=True)
class Compatibility:
    """The result of `compare_topologies`. Its text has one line for each finding."""

    findings: tuple[Finding, ...]

    @property
    def need(self) -> Need:
        """The largest need of all findings."""
        return max((finding.need for finding in self.findings), default=Need.NOTHING)

    def __str__(self) -> str:
        return "\n".join([f"The deployment needs: {self.need.name.lower()}", *map(str, self.findings)])


def compare_topologies(old: Topology | Plan | Snapshot, new: Topology | Plan | Snapshot) -> Compatibility:
    """Compares two versions of a topology. Each is a `Topology`, a plan, or the data of ``streamapp describe --json``.

    The comparison covers the parts that last longer than a process: stores with their changelogs, global stores, state
    on disk, repartition topics, source topics, schemas. Functions are not compared, so a function that computes
    something else gives no finding. Raises `ConfigError` if an argument is no topology.

    >>> from streamapp import Materialized, StreamsBuilder, StringSerde
    >>> def version(store: str) -> Topology:
    ...     builder = StreamsBuilder()
    ...     flights = builder.stream("flights", key_serde=StringSerde(), value_serde=StringSerde())
    ...     flights.group_by_key().count(materialized=Materialized(store))
    ...     return builder.build()
    >>> print(compare_topologies(version("counts"), version("counts")))
    The deployment needs: nothing
    nothing    store counts: unchanged
    >>> compare_topologies(version("counts"), version("tallies")).need.name
    'MIGRATION'
    """
    before, after = _data(old), _data(new)
    if before["application_id"] != after["application_id"]:
        return Compatibility((_other_application(before["application_id"], after["application_id"]),))
    found = [
        *_stores(before, after),
        *_global_stores(before, after),
        *_repartition_topics(before, after),
        *_source_topics(before, after),
        *_agents(before, after),
        *_local_state(before, after),
        *_schemas(before, after),
    ]
    return Compatibility(tuple(sorted(found, key=lambda finding: (-finding.need, finding.subject))))


def _data(topology: Topology | Plan | Snapshot) -> Snapshot:
    if isinstance(topology, Topology):
        topology = topology.plan()
    if isinstance(topology, Plan):
        return snapshot(topology)
    if not isinstance(topology, Mapping) or topology.get("format") not in _FORMATS:
        raise ConfigError(
            f"this is no description of a topology in format {FORMAT}; make one with `streamapp describe "
            "APPLICATION --json`"
        )
    return {
        **topology,
        "stores": {name: _of_today(store) for name, store in topology["stores"].items()},
        "schemas": {
            subject: [_named(found)] if isinstance(found, Mapping) else found
            for subject, found in topology.get("schemas", {}).items()
        },
    }


def _named(schema: Snapshot) -> Snapshot:
    """A schema of format 1, with the name of its record."""
    text, name = schema["schema"], None
    if schema["format"] == "AVRO":
        name = full_name(text)
    elif schema["format"] == "PROTOBUF":
        with suppress(ValueError):
            name = message_at(text, [0])
    elif isinstance(text, dict):
        name = text.get("title")
    return {**schema, "name": name, "writes": True}


def _of_today(store: Snapshot) -> Snapshot:
    """A store of a snapshot in today's form. In old snapshots, a user's processor had the name of a Python type."""
    operators = {USER_PROCESSOR if kind in _SUPPLIERS else kind for kind in store["operators"]}
    return {**store, "operators": sorted(operators)}


# ---------------------------------------------------------------------- the whole


def _other_application(old: str, new: str) -> Finding:
    return Finding(
        Need.RESET,
        f"application {new}",
        f"it is another application than {old}: it begins with empty state, at auto_offset_reset",
        "Keep the application id, or backfill",
    )


def _local_state(old: Snapshot, new: Snapshot) -> Iterator[Finding]:
    before, after = (version.get("state_format", 1) for version in (old, new))  # no snapshot names format 1
    why = ""
    if old["fingerprint"] != new["fingerprint"] and (old["stores"] or old["repartition_topics"]):
        why = "workers refuse the state folder of the old topology, whose tasks may have other numbers"
    elif before != after and any(store["persistent"] for store in old["stores"].values()):
        why = (
            f"workers refuse the state folder of the old release, because its format is {before}, not {after}"
        )
    if why:
        yield Finding(
            Need.MIGRATION,
            "local state",
            why,
            "Stop all workers, delete their state folders, then start the new version: state is restored from "
            "the changelogs",
        )


def _schemas(old: Snapshot, new: Snapshot) -> Iterator[Finding]:
    """Compares schemas with the same subject. Snapshots from before 24 November 2026 have no schemas."""
    for subject, afters in new["schemas"].items():
        befores = old["schemas"].get(subject, ())
        for after in afters:
            if any(before["schema"] == after["schema"] for before in befores):
                continue
            name = f" ({after['name']})" if len(afters) > 1 and after["name"] else ""
            earlier = _earlier(after, befores, alone=len(afters) == 1)
            if earlier:
                yield _changed_schema(f"schema {subject}{name}", earlier, after)


def _earlier(after: Snapshot, befores: Sequence[Snapshot], *, alone: bool) -> Sequence[Snapshot]:
    """The old schemas of a subject to compare with a new one: those with its name. The only old schema is compared with
    the only new one."""
    if alone and len(befores) == 1:
        return befores
    named = [each for each in befores if each["name"] == after["name"] is not None]
    return [each for each in named if each["format"] == after["format"]] or named


def _changed_schema(subject: str, earlier: Sequence[Snapshot], after: Snapshot) -> Finding:
    # No value has a schema with which the old version only reads, unless other applications write with this schema.
    for before in [each for each in earlier if each["writes"]] or earlier:
        why = _unreadable(before, after)
        if before["format"] != after["format"] or (why is not None and after["internal"]):
            lines = summary(before["schema"], after["schema"])
            return Finding(
                Need.RESET if after["internal"] else Need.MIGRATION,
                subject,
                f"the new version cannot read what the old one has written: {why or 'another format'} ({lines})",
                _KEEP_TYPES,
            )
        if why is not None:
            lines = summary(before["schema"], after["schema"])
            return Finding(
                Need.MIGRATION,
                subject,
                f"it changes, and old records cannot be read: {why}: {lines}",
                "Compare it with the registry: streamapp schema check",
            )
    lines = min((summary(before["schema"], after["schema"]) for before in earlier), key=len)
    return Finding(
        Need.NOTHING, subject, f"it changes: {lines}", "Compare it with the registry: streamapp schema check"
    )


def _unreadable(before: Snapshot, after: Snapshot) -> str | None:
    formats = {before["format"], after["format"]}
    if formats == {"AVRO"}:
        return unresolvable(before["schema"], after["schema"])
    if formats == {"PROTOBUF"} and after.get("derived"):
        return renumbered(after["schema"], before["schema"]) or None
    if formats == {"JSON"} and isinstance(before["schema"], Mapping) and isinstance(after["schema"], Mapping):
        misfit = json_misfit(before["schema"], after["schema"], formats=False)
        return misfit.why if misfit is not None and misfit.always else None
    return None


_KEEP_TYPES = "Give new fields defaults (Protobuf: new numbers), keep the types of old ones, or reset"


_MAKE_SURE = "Make sure that no old value is like this, or reset"


def _unreadable_json(before: Snapshot, after: Snapshot) -> Iterator[tuple[Need, str, str]]:
    """The keys and values of the old types of `JsonSerde` that the new types cannot read."""
    # Snapshots of earlier versions have no "json".
    types, now = before.get("json", {}), after.get("json", {})
    for part in ("key", "value"):
        if not types.get(part) or not now.get(part):
            continue
        match json_misfit(types[part], now[part]):
            case JsonMisfit(why, always=True):
                yield Need.RESET, f"the new version cannot read its {part}s: {why}", _KEEP_TYPES
            case JsonMisfit(why):
                yield Need.MIGRATION, f"the new version cannot read some {part}s: {why}", _MAKE_SURE


# ---------------------------------------------------------------------- stores


def _stores(old: Snapshot, new: Snapshot) -> Iterator[Finding]:
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
        elif _above(new, after[name].get("origins") or after[name]["reads"]) & _read_topics(old):
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


_REBUILD = (
    "Reset the application, or compute everything under another application id, for example by a backfill"
)


_RESTORE = "Let it be restored from there, without the old state folder"
_KEEP_VERSIONS = (
    "First set "
    + ",".join(f"{name}={value}" for name, value in Versioned.changelog_settings.items())
    + " for the changelog: otherwise brokers compact old versions away. "
)


def _changes(
    old: Snapshot, new: Snapshot, old_plan: Snapshot, new_plan: Snapshot
) -> Iterator[tuple[Need, str, str]]:
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
    yield from _unreadable_json(old, new)
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


def _other_keys(old: Snapshot, new: Snapshot) -> Iterator[tuple[Need, str, str]]:
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


def _kept(old: Snapshot, new: Snapshot) -> Iterator[tuple[Need, str, str]]:
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


def _inputs(
    old: Snapshot, new: Snapshot, old_plan: Snapshot, new_plan: Snapshot
) -> Iterator[tuple[Need, str, str]]:
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
    elif set(came) & _read_topics(old_plan):
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


def _global_stores(old: Snapshot, new: Snapshot) -> Iterator[Finding]:
    before, after = old["global_stores"], new["global_stores"]
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            change = "removed" if name not in after else "new" if name not in before else "changed"
            read = "" if change == "removed" else "; it is read from its topic when a worker starts"
            yield Finding(Need.NOTHING, f"global store {name}", change + read)


# ---------------------------------------------------------------------- topics


def _repartition_topics(old: Snapshot, new: Snapshot) -> Iterator[Finding]:
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
        for need, why, remedy in _unreadable_json(before[name], after[name]):
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


def _source_topics(old: Snapshot, new: Snapshot) -> Iterator[Finding]:
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


# ---------------------------------------------------------------------- agents


def _agents(old: Snapshot, new: Snapshot) -> Iterator[Finding]:
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


def _above(plan: Snapshot, topics: Iterable[str]) -> set[str]:
    """The topics, and those whose records reach them through repartition topics."""
    found, before = set(topics), 0
    while len(found) > before:
        before = len(found)
        for sub in plan["subtopologies"].values():
            if found & plan["repartition_topics"].keys() & set(sub["sink_topics"]):
                found.update(sub["source_topics"])
    return found


def _read_topics(plan: Snapshot) -> set[str]:
    return {topic for sub in plan["subtopologies"].values() for topic in sub["source_topics"]}


def _external(plan: Snapshot) -> set[str]:
    return _read_topics(plan) - set(plan["repartition_topics"])


def _count(topic: Snapshot) -> str:
    return "as many as its input's" if topic["partitions"] is None else str(topic["partitions"])
