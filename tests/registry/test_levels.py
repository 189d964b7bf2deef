"""`streamapp schema check` by each compatibility level that a real registry demands of a subject."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from streamapp.errors import SchemaRegistryError
from streamapp.registry import ConfluentSchemaRegistry
from streamapp.registry.rest import path_of
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


CHANGES = {
    "added": ADDED,
    "left out": LEFT_OUT,
    "both ways": BOTH_WAYS,
    "first unread": READS_ALL_BUT_FIRST,
}


@pytest.mark.parametrize(
    ("level", "allowed"),
    [
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
    """The check and the registration agree."""
    checked, registered = set(), set()
    for name, schema in CHANGES.items():
        subject = f"{topic}-{name.replace(' ', '-')}"
        for each in (FIRST, SECOND):
            registry.id_of(subject, each)
        registry.client.ask("PUT", path_of("config", subject), {"compatibility": level})
        change = Subjects(registry).change(subject, schema, "AVRO")
        assert registry.client.ask("GET", path_of("subjects", subject, "versions")) == [1, 2]
        if change.kind == "compatible":
            checked.add(name)
        else:
            assert (change.kind, bool(change.why)) == ("incompatible", True)
            assert change.difference
        with suppress(SchemaRegistryError):
            registry.id_of(subject, schema)
            registered.add(name)
    assert checked == registered == allowed


def test_normalisation_holds_for_the_check(registry: ConfluentSchemaRegistry, topic: str) -> None:
    """The type `{"type": "long"}` is `long` in normal form: a worker registers nothing, and the check says so."""
    subject = f"{topic}-value"
    written = registry.id_of(subject, FIRST)
    other = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": {"type": "long"}}]}
    normal = ConfluentSchemaRegistry(registry.settings.url, normalize_schemas=True)
    assert normal.id_of(subject, other) == written
    assert Subjects(normal).change(subject, other, "AVRO").kind == "unchanged"
