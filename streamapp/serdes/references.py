"""Schemas that refer to types of other schemas: finds all these schemas, and inserts their types (Avro)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from streamapp.errors import ConfigError
from streamapp.serdes.avro_schema import NAMED
from streamapp.serdes.schema_registry import Schema, SchemaReference
from streamapp.serdes.types import excerpt

__all__ = ["check_references", "definitions", "whole_avro"]

_MOST_REFERENCES = 1_000


def check_references(references: Sequence[SchemaReference]) -> tuple[SchemaReference, ...]:
    """The references, in a tuple. Raises `ConfigError` for anything else."""
    given = tuple(references)
    for each in given:
        if not isinstance(each, SchemaReference):
            raise ConfigError(
                f"references= takes SchemaReference(name, subject, schema), not {excerpt(each)}"
            )
    definitions(given)
    return given


def definitions(references: Sequence[SchemaReference]) -> dict[str, Schema]:
    """Name -> schema, for all schemas to which the references lead, directly or through other references.

    Raises `ConfigError` if two different schemas have the same name.
    """
    found: dict[str, Schema] = {}
    for each in _all(references):
        if found.setdefault(each.name, each.schema) != each.schema:
            raise ConfigError(
                f"two different schemas have the reference name {each.name}: give one of them another name"
            )
        if len(found) > _MOST_REFERENCES:
            raise ConfigError(f"a schema refers to more than {_MOST_REFERENCES} others")
    return found


def _all(references: Sequence[SchemaReference]) -> Iterator[SchemaReference]:
    """All references, with the references of references. Each is there once, even if several paths lead to it."""
    waiting, seen = list(references), set[int]()
    while waiting:
        each = waiting.pop()
        if id(each) not in seen:
            seen.add(id(each))
            yield each
            waiting += each.references


def whole_avro(schema: Schema, referenced: Mapping[str, Schema]) -> Schema:
    """The schema with the definition of each referenced type in the place where its name comes first.

    >>> item = {"type": "fixed", "name": "shop.Item", "size": 2}
    >>> whole_avro({"type": "array", "items": "shop.Item"}, {"shop.Item": item})
    {'type': 'array', 'items': {'type': 'fixed', 'name': 'shop.Item', 'size': 2}}
    """
    whole: Schema = _Walk(referenced).over(schema, "")
    return whole


def _placed(definition: Any, namespace: str) -> Any:
    """The definition for a place inside a namespace. A type without namespace has to say there that it has none."""
    named = isinstance(definition, dict) and definition.get("type") in NAMED
    if not namespace or not named or "." in str(definition.get("name", "")):
        return definition
    return {"namespace": "", **definition}


class _Walk:
    def __init__(self, referenced: Mapping[str, Schema]) -> None:
        self._open = dict(referenced)

    def over(self, schema: Any, namespace: str) -> Any:
        if isinstance(schema, str):
            full = schema if "." in schema or not namespace else f"{namespace}.{schema}"
            for name in (full, schema):
                if name in self._open:
                    return self.over(_placed(self._open.pop(name), namespace), "")
            return schema
        if isinstance(schema, list):
            return [self.over(branch, namespace) for branch in schema]
        if not isinstance(schema, dict):
            return schema
        if schema.get("type") in NAMED:
            name = str(schema.get("name", ""))
            namespace = name.rpartition(".")[0] if "." in name else str(schema.get("namespace", namespace))
            self._open.pop(name if "." in name or not namespace else f"{namespace}.{name}", None)
        whole = dict(schema)
        for part in ("type", "items", "values"):
            if part in whole and whole[part] not in NAMED:
                whole[part] = self.over(whole[part], namespace)
        if isinstance(whole.get("fields"), list):
            whole["fields"] = [
                {**field, "type": self.over(field.get("type"), namespace)}
                if isinstance(field, dict)
                else field
                for field in whole["fields"]
            ]
        return whole
