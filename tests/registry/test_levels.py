"""`streamapp schema check` by each compatibility level that a real registry demands of a subject."""

from __future__ import annotations

from typing import Any

import pytest

from streamapp.registry import ConfluentSchemaRegistry
from streamapp.registry.subjects import Subjects

pytestmark = pytest.mark.broker


def record(**fields: Any) -> dict[str, Any]:
    """Fields without a default are those whose default is ``...``."""
    made = [
        {"name": name, "type": "long", **({} if default is ... else {"default": default})}
        for name, default in fields.items()
    ]
    return {"type": "record", "name": "Order", "fields": made}


FIRST, SECOND = record(id=...), record(id=..., cents=0)
ADDED, LEFT_OUT = record(id=..., cents=0, items=...), record(cents=0)
BOTH_WAYS = record(id=..., cents=0, items=0)
READS_ALL_BUT_FIRST = record(id=..., cents=...)
"""Each version has ``cents`` but the first."""


@pytest.mark.parametrize(
    ("level", "allowed"),
    [
        ("NONE", {"added", "left out", "both ways", "first unread"}),
        ("BACKWARD", {"left out", "both ways", "first unread"}),
        ("BACKWARD_TRANSITIVE", {"left out", "both ways"}),
        ("FORWARD", {"added", "both ways", "first unread"}),
        ("FORWARD_TRANSITIVE", {"added", "both ways", "first unread"}),
        ("FULL", {"both ways", "first unread"}),
        ("FULL_TRANSITIVE", {"both ways"}),
    ],
)
def test_the_level_of_the_subject_decides(
    registry: ConfluentSchemaRegistry, topic: str, level: str, allowed: set[str]
) -> None:
    subject = f"{topic}-value"
    for schema in (FIRST, SECOND):
        registry.id_of(subject, schema)
    registry.client.ask("PUT", f"/config/{subject}", {"compatibility": level})
    changes = {
        "added": ADDED,
        "left out": LEFT_OUT,
        "both ways": BOTH_WAYS,
        "first unread": READS_ALL_BUT_FIRST,
    }
    found = {name: Subjects(registry).change(subject, schema, "AVRO") for name, schema in changes.items()}
    assert {name for name, change in found.items() if change.kind == "compatible"} == allowed
    refused = [change for name, change in found.items() if name not in allowed]
    assert all(change.kind == "incompatible" and change.why and change.difference for change in refused)
    assert registry.client.ask("GET", f"/subjects/{subject}/versions") == [1, 2]  # a check registers nothing


def test_normalisation_holds_for_the_check(registry: ConfluentSchemaRegistry, topic: str) -> None:
    """The type `{"type": "long"}` is `long` in normal form: a worker registers nothing, and the check says so."""
    subject = f"{topic}-value"
    written = registry.id_of(subject, FIRST)
    other = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": {"type": "long"}}]}
    normal = ConfluentSchemaRegistry(registry.settings.url, normalize_schemas=True)
    assert normal.id_of(subject, other) == written
    assert Subjects(normal).change(subject, other, "AVRO").kind == "unchanged"
