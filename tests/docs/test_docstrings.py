"""Every public name says what it is, and what describes or tests a topology shows it by an example."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import streamapp

SHOWN = (
    "streamapp.dsl",
    "streamapp.windows",
    "streamapp.suppressed",
    "streamapp.stores",
    "streamapp.topology",
    "streamapp.runners.local",
)
"""Where each class and each method has an example that runs."""

NOT_SHOWN = {
    "Topology": {
        "add_internal_topic",
        "connect_source_store_and_topic",
        "copartition_sources",
        "set_config",
    },
    "TopologyTestDriver": {"send", "partition_count", "close", "wall_clock_ms"},
    "Compatibility": {"need"},
    "Materialized": {"versioned"},
}
"""For the inside, or shown by what stands beside it."""

INHERITED = {"serialize", "deserialize", "decoder", "bind", "on_start", "on_stop", "on_shutdown"}
"""Described where they are declared: in `Serde`, and in Faust."""


def methods(cls: type) -> Iterator[tuple[str, Any]]:
    for name, found in vars(cls).items():
        function = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
        if not name.startswith("_") and inspect.isfunction(function):
            yield name, function


def public_classes() -> list[type]:
    found = []
    for name in streamapp.__all__:
        try:
            value = getattr(streamapp, name)
        except ImportError:
            continue  # an extra that is not installed
        if inspect.isclass(value):
            found.append(value)
    return found


@pytest.mark.parametrize("cls", public_classes(), ids=lambda cls: cls.__name__)
def test_public_classes_and_methods_are_described(cls: type) -> None:
    assert cls.__doc__
    undescribed = [name for name, function in methods(cls) if not function.__doc__ and name not in INHERITED]
    allowed = {"StreamsConfig": {"exactly_once", "optimizations"}, "SparkRunner": {"plan"}}.get(
        cls.__name__, set()
    )
    assert set(undescribed) <= allowed


@pytest.mark.parametrize(
    "cls",
    [cls for cls in public_classes() if cls.__module__.startswith(SHOWN) and not issubclass(cls, Exception)],
    ids=lambda cls: cls.__name__,
)
def test_what_describes_a_topology_is_shown_by_examples(cls: type) -> None:
    exempt = NOT_SHOWN.get(cls.__name__, set())
    unshown = [
        name
        for name, function in methods(cls)
        if ">>>" not in (function.__doc__ or "") and name not in exempt
    ]
    assert not unshown
    assert ">>>" in (cls.__doc__ or "") or cls.__name__ in ("Compatibility", "Need")
