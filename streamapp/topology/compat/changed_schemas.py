"""Compares the schemas of two versions of a topology."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from streamapp.serdes.avro import unresolvable
from streamapp.serdes.json_changes import JsonMisfit, json_misfit
from streamapp.serdes.proto_outline import renumbered
from streamapp.serdes.schema_diff import summary
from streamapp.topology.compat.findings import Change, Finding, Need, Snapshot

__all__ = ["compare_schemas", "unreadable_json"]

_KEEP_TYPES = "Give new fields defaults (Protobuf: new numbers), keep the types of old ones, or reset"
_MAKE_SURE = "Make sure that no old value is like this, or reset"


def compare_schemas(old: Snapshot, new: Snapshot) -> Iterator[Finding]:
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


def unreadable_json(before: Snapshot, after: Snapshot) -> Iterator[Change]:
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
