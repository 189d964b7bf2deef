"""Kinds of stores by their persistent names, for tests that go through several of them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from streamapp.state import kinds, operator_kinds
from streamapp.state.store_kind import StoreKind, registered

# `persistent_name` and what else is asked for -> the variant of the kind.
_VARIANTS: dict[tuple[str, str], type[StoreKind]] = {
    ("timestamped", "max_entries"): kinds.LruTable,
    ("timestamped", "expires_after_ms"): kinds.ExpiringTable,
    ("timestamped", "plain"): kinds.PlainTable,
    ("timestamped_window", "with_headers"): operator_kinds.HeadersWindow,
    ("subscription", "with_headers"): operator_kinds.HeadersSubscriptions,
}


def kind_of(name: str, **parameters: Any) -> StoreKind:
    """The kind of a name with those of the parameters that the kind has."""
    found = registered(name)
    assert found is not None, name
    for (base, parameter), variant in _VARIANTS.items():
        if base == name and parameters.get(parameter):
            found = variant
    known = {field.name for field in fields(found)}  # type: ignore[arg-type]
    return found(**{name: value for name, value in parameters.items() if name in known})


PARAMETERS = {
    "retention_ms",
    "segment_interval_ms",
    "time_ordered",
    "size_ms",
    "retain_duplicates",
    "indexed",
    "advance_ms",
    "grace_ms",
    "max_entries",
    "expires_after_ms",
    "plain",
    "with_headers",
}


def split(parameters: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters of a kind, and those of the `StoreSpec` around."""
    kind = {name: value for name, value in parameters.items() if name in PARAMETERS}
    return kind, {name: value for name, value in parameters.items() if name not in PARAMETERS}
