"""Bounds the work that a JSON Schema gives its validator for one value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

__all__ = ["MOST_PATHS", "most_paths"]

MOST_PATHS = 10_000
"""The most subschemas that may check one value. A validator of more takes seconds, and gigabytes for its errors."""

_ONE = ("not", "if", "then", "else")
_LISTS = ("allOf", "anyOf", "oneOf")
_MAPS = ("dependentSchemas", "dependencies")


def most_paths(schema: Any, references: Mapping[str, Any]) -> int:
    """The largest number of subschemas that may check the same value, at most ``MOST_PATHS + 1``.

    A subschema counts once for each path of references and alternatives that leads to it. A path that comes to a
    subschema again ends there. Properties and items are other values, so they begin anew. ``references`` are other
    schemas by their names in ``$ref``. A ``$ref`` without a name stays in the schema in which it stands.

    >>> most_paths({"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}, {})
    3
    """
    paths, most = _Paths(references), 1
    waiting = [(whole, whole) for whole in (schema, *references.values())]
    while waiting and most <= MOST_PATHS:
        part, whole = waiting.pop()
        if isinstance(part, dict):
            most = max(most, paths.count(part, whole))
        if isinstance(part, dict | list):
            waiting.extend((each, whole) for each in (part.values() if isinstance(part, dict) else part))
    return most


class _Paths:
    def __init__(self, references: Mapping[str, Any]) -> None:
        self._references = references
        self._known: dict[int, int] = {}
        self._open: set[int] = set()

    def count(self, schema: Any, whole: Any) -> int:
        """The number for a subschema of the schema ``whole``."""
        if not isinstance(schema, dict) or id(schema) in self._open:
            return 1
        found = self._known.get(id(schema))
        if found is None:
            self._open.add(id(schema))
            found = 1
            for part in self._parts(schema):
                found = min(MOST_PATHS + 1, found + self.count(part, whole))
            target = schema.get("$ref")
            if isinstance(target, str):
                name, _, path = target.partition("#")
                there = self._references.get(name) if name else whole
                found = min(MOST_PATHS + 1, found + self.count(_at(there, path), there))
            self._open.discard(id(schema))
            self._known[id(schema)] = found
        return found

    def _parts(self, schema: dict[str, Any]) -> Iterator[Any]:
        for name in _ONE:
            if name in schema:
                yield schema[name]
        for name in _LISTS:
            parts = schema.get(name)
            if isinstance(parts, list):
                yield from parts
        for name in _MAPS:
            parts = schema.get(name)
            if isinstance(parts, dict):
                yield from parts.values()


def _at(schema: Any, path: str) -> Any:
    """The subschema at the path of a reference, behind its ``#``; None if there is none."""
    at = schema
    for step in path.split("/")[1:]:
        step = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(at, list) and step.isdecimal() and int(step) < len(at):
            at = at[int(step)]
        elif isinstance(at, dict):
            at = at.get(step)
        else:
            return None
    return at if not path or path.startswith("/") else None
