"""Bounds the work that a JSON Schema gives its validator for one value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urljoin

__all__ = ["MOST_PATHS", "most_paths"]

MOST_PATHS = 10_000
"""The most subschemas that may check one value. A validator of more takes seconds, and gigabytes for its errors."""

_ONE = ("not", "if", "then", "else")
_LISTS = ("allOf", "anyOf", "oneOf")
_MAPS = ("dependentSchemas", "dependencies")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def most_paths(schema: Any, references: Mapping[str, Any]) -> int:
    """The largest number of subschemas that may check the same value, at most ``MOST_PATHS + 1``.

    A subschema counts once for each path of references and alternatives that leads to it. A path that comes to a
    subschema again ends there. Properties and items are other values, so they begin anew. ``references`` are other
    schemas by their names in ``$ref``.

    >>> most_paths({"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}, {})
    3
    """
    paths, most, waiting = _Paths(schema, references), 1, [schema, *references.values()]
    while waiting and most <= MOST_PATHS:
        part = waiting.pop()
        if isinstance(part, dict):
            most = max(most, paths.count(part))
        if isinstance(part, dict | list):
            waiting.extend(part.values() if isinstance(part, dict) else part)
    return most


class _Paths:
    def __init__(self, schema: Any, references: Mapping[str, Any]) -> None:
        self._references = references
        self._known: dict[int, int] = {}
        self._open: set[int] = set()
        self._bases: dict[int, str] = {}
        """The address against which a subschema resolves its references: that of the nearest ``$id``."""
        self._named: dict[str, list[Any]] = {}
        """Subschemas by the address of their ``$id``, with ``#`` and the name for an anchor."""
        self._dynamic: dict[str, list[Any]] = {}
        for name, each in [("", schema), *references.items()]:
            self._learn(each, name)

    def _learn(self, schema: Any, base: str) -> None:
        self._named.setdefault(base, []).append(schema)
        waiting = [(schema, base)]
        while waiting:
            part, base = waiting.pop()
            if isinstance(part, dict):
                own = part.get("$id")
                if isinstance(own, str):
                    base = _joined(base, own) if not own.startswith("#") else base
                    self._named.setdefault(_joined(base, own), []).append(part)
                for name in ("$anchor", "$dynamicAnchor"):
                    if isinstance(part.get(name), str):
                        self._named.setdefault(f"{base}#{part[name]}", []).append(part)
                if isinstance(part.get("$dynamicAnchor"), str):
                    self._dynamic.setdefault(part["$dynamicAnchor"], []).append(part)
                self._bases[id(part)] = base
            if isinstance(part, dict | list):
                waiting.extend((each, base) for each in (part.values() if isinstance(part, dict) else part))

    def count(self, schema: Any) -> int:
        if not isinstance(schema, dict) or id(schema) in self._open:
            return 1
        found = self._known.get(id(schema))
        if found is None:
            self._open.add(id(schema))
            found = 1
            for part in self._parts(schema):
                found = min(MOST_PATHS + 1, found + self.count(part))
            for name in _REFERENCES:
                if isinstance(target := schema.get(name), str):
                    targets = self._targets(self._bases.get(id(schema), ""), name, target)
                    found = min(MOST_PATHS + 1, found + max(map(self.count, targets), default=1))
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

    def _targets(self, base: str, kind: str, reference: str) -> Iterator[Any]:
        """The subschemas to which a reference may lead; none if it leads out of the known schemas."""
        name, _, path = reference.partition("#")
        address = _joined(base, name) if name else base
        if path and not path.startswith("/"):
            yield from self._named.get(f"{address}#{path}", ())
            if kind == "$dynamicRef":
                yield from self._dynamic.get(path, ())
            return
        if name in self._references:
            yield _at(self._references[name], path)
        for resource in self._named.get(address, ()):
            yield _at(resource, path)


def _joined(base: str, name: str) -> str:
    try:
        return urljoin(base, name).removesuffix("#")
    except ValueError:
        return name


def _at(schema: Any, path: str) -> Any:
    """The subschema at a JSON Pointer; None if there is none."""
    at = schema
    for step in path.split("/")[1:]:
        step = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(at, list) and step.isdecimal() and int(step) < len(at):
            at = at[int(step)]
        elif isinstance(at, dict):
            at = at.get(step)
        else:
            return None
    return at
