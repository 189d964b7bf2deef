"""The page that maps Kafka Streams' names is complete, names nothing that is not there, and leads to what exists."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import streamapp

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "coming-from-kafka-streams.md"
_ROW = re.compile(r"^\| (`.*`) \| (.*) \|$", re.MULTILINE)


def java_api() -> dict[str, set[str]]:
    """Methods by class, as `java_api.txt` has them."""
    lines = (line for line in (HERE / "java_api.txt").read_text().splitlines() if not line.startswith("#"))
    return {name: set(methods.split()) for name, _, methods in (line.partition(":") for line in lines)}


def mapped() -> tuple[set[tuple[str, str]], set[str], set[str]]:
    """What the page names: (class, method) pairs, classes with ``.*``, and classes alone."""
    api = java_api()
    methods: set[tuple[str, str]] = set()
    wholes: set[str] = set()
    classes: set[str] = set()
    for java, _ in _ROW.findall(PAGE.read_text()):
        current = ""
        for name in re.findall(r"`([^`]+)`", java):
            owner, _, last = name.rpartition(".")
            if last == "*":
                wholes.add(owner)
            elif name in api:
                classes.add(name)
            else:
                current = owner or current
                methods.add((current, last))
    return methods, wholes, classes


def test_every_public_method_of_kafka_streams_is_mapped_or_named_as_absent() -> None:
    methods, wholes, classes = mapped()
    missing = [
        f"{owner}.{method}"
        for owner, found in java_api().items()
        for method in found
        if owner not in wholes and (owner, method) not in methods
    ]
    missing += [owner for owner, found in java_api().items() if not found and owner not in wholes | classes]
    assert not missing


def test_nothing_is_mapped_that_kafka_streams_does_not_have() -> None:
    api = java_api()
    methods, wholes, classes = mapped()
    unknown = [f"{owner}.{method}" for owner, method in methods if method not in api.get(owner, ())]
    assert not unknown + [owner for owner in wholes | classes if owner not in api]


def resolves(path: str) -> bool:
    parts = path.split(".")
    found: Any = streamapp
    for part in parts[1:] if parts[0] == "streamapp" else parts:
        if part in getattr(found, "__dataclass_fields__", ()) or part in getattr(
            found, "__annotations__", ()
        ):
            return True
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = importlib.import_module(f"{found.__name__}.{part}")
            except (ImportError, AttributeError):
                return False
    return True


def test_what_it_leads_to_exists() -> None:
    wrong = []
    for _, ours in _ROW.findall(PAGE.read_text()):
        for code in re.findall(r"`([^`]+)`", ours):
            path = re.match(r"(?:streamapp\.query\.)?[A-Z]\w*(?:\.\w+)*", code)
            if path and path[0].split(".")[0] not in ("SIGTERM", "MODULE") and not resolves(path[0]):
                wrong.append(code)
    assert not wrong


def test_absent_ones_say_why() -> None:
    rows = [ours for _, ours in _ROW.findall(PAGE.read_text()) if "absent" in ours]
    assert rows
    assert all(len(row.split()) > 1 for row in rows)
