"""The state stores of a case (SPEC.md, section 6) and ``materialized`` (section 4)."""

from __future__ import annotations

from typing import Any

from streamapp import Materialized, Stores
from streamapp.state.spec import StoreSpec

from .types import Type

__all__ = ["materialized", "state_store"]

ONE_DAY_MS = 24 * 60 * 60 * 1000

Spec = dict[str, Any]


def state_store(spec: Spec) -> StoreSpec:
    """The store of an ``addStateStore`` or ``addGlobalStore`` node."""
    name, kind = spec["name"], spec.get("kind", "kv")
    key_serde, value_serde = Type.of(spec.get("key")).serde, Type.of(spec.get("value")).serde
    options = {"logging": spec.get("logging", True), "caching": spec.get("caching", False)}
    stored = {**options, "store_type": spec.get("type", "rocksdb").replace("persistent", "rocksdb")}
    retention = spec.get("retention_ms", ONE_DAY_MS)
    match kind:
        case "kv":
            return Stores.key_value(name, key_serde, value_serde, **stored)
        case "timestamped_kv":
            return Stores.timestamped_key_value(name, key_serde, value_serde, **stored)
        case "lru":
            return Stores.lru(name, spec["max_entries"], key_serde, value_serde, **options)
        case "window":
            duplicates = spec.get("retain_duplicates", False)
            window = {
                "retention": retention,
                "window_size": spec["window_size_ms"],
                "retain_duplicates": duplicates,
            }
            return Stores.window(name, key_serde, value_serde, **window, **stored)
        case "session":
            return Stores.session(name, key_serde, value_serde, retention=retention, **stored)
        case "versioned":
            return Stores.versioned(
                name, key_serde, value_serde, history_retention=retention, logging=options["logging"]
            )
    raise ValueError(f"unknown store kind {kind}")


def materialized(node: Spec, key: Type, value: Type) -> Materialized:
    """What the node says of its store; without ``materialized`` serdes only."""
    spec = node.get("materialized", {})
    options: dict[str, Any] = {"key_serde": key.serde, "value_serde": value.serde}
    for option in ("caching", "logging"):
        if option in spec:
            options[option] = spec[option]
    if "retention_ms" in spec:
        options["retention"] = spec["retention_ms"]
    if "versioned" in spec:
        options["history_retention"] = spec["versioned"]["history_retention_ms"]
        if "segment_interval_ms" in spec["versioned"]:
            options["segment_interval"] = spec["versioned"]["segment_interval_ms"]
    elif "lru" in spec:
        options |= {"store_type": "lru", "max_entries": spec["lru"]}
    elif "type" in spec:
        options["store_type"] = "in_memory" if spec["type"] == "in_memory" else "rocksdb"
    if spec.get("plain"):  # a supplier of its own, whatever the default is
        options = {"store_type": "rocksdb", **options, "timestamped": False}
    return Materialized(spec.get("store"), **options)
