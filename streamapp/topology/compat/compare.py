"""Compares two versions of a topology, and says if a deployment of the new one needs nothing, a migration or a reset.

Kafka Streams has no such check: a changed topology starts with the state and the topics of the old version, and may
read them wrongly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from streamapp.errors import ConfigError
from streamapp.serdes.avro import full_name
from streamapp.serdes.proto_outline import message_at
from streamapp.topology.compat.changed_agents import compare_agents
from streamapp.topology.compat.changed_schemas import compare_schemas
from streamapp.topology.compat.changed_stores import compare_global_stores, compare_stores
from streamapp.topology.compat.changed_topics import (
    compare_output_topics,
    compare_repartition_topics,
    compare_source_topics,
)
from streamapp.topology.compat.findings import Compatibility, Finding, Need, Snapshot
from streamapp.topology.nodes import USER_PROCESSOR
from streamapp.topology.plan import Plan
from streamapp.topology.snapshot import FORMAT, snapshot
from streamapp.topology.topology import Topology

__all__ = ["compare_topologies"]

_SUPPLIERS = {"ABCMeta", "builtin_function_or_method", "function", "method", "partial", "type"}
"""Names of operators in snapshots from before 24 November 2026, which stand for a user's processor."""

_FORMATS = (1, FORMAT)


def compare_topologies(old: Topology | Plan | Snapshot, new: Topology | Plan | Snapshot) -> Compatibility:
    """Compares two versions of a topology. Each is a `Topology`, a plan, or the data of ``streamapp describe --json``.

    The comparison covers the parts that last longer than a process: stores with their changelogs, global stores, state
    on disk, topics, schemas. Functions are not compared, so a function that computes something else gives no finding.
    Raises `ConfigError` if an argument is no topology.

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
        *compare_stores(before, after),
        *compare_global_stores(before, after),
        *compare_repartition_topics(before, after),
        *compare_source_topics(before, after),
        *compare_output_topics(before, after),
        *compare_agents(before, after),
        *_local_state(before, after),
        *compare_schemas(before, after),
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
