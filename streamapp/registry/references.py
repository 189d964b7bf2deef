"""Avro schemas that name types of other schemas become whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamapp.serdes.schema_registry import Schema

__all__ = ["whole_avro"]

_NAMED = ("record", "error", "enum", "fixed")


def whole_avro(schema: Schema, referenced: Mapping[str, Schema]) -> Schema:
    """The schema with the definition of each referenced type in the place where its name comes first.

    >>> whole_avro({"type": "array", "items": "shop.Item"}, {"shop.Item": {"type": "fixed", "name": "shop.Item", "size": 2}})
    {'type': 'array', 'items': {'type': 'fixed', 'name': 'shop.Item', 'size': 2}}
    """
    whole: Schema = _Walk(referenced).over(schema, "")
    return whole


class _Walk:
    def __init__(self, referenced: Mapping[str, Schema]) -> None:
        self._open = dict(referenced)

    def over(self, schema: Any, namespace: str) -> Any:
        if isinstance(schema, str):
            full = schema if "." in schema or not namespace else f"{namespace}.{schema}"
            for name in (full, schema):
                if name in self._open:
                    return self.over(self._open.pop(name), "")
            return schema
        if isinstance(schema, list):
            return [self.over(branch, namespace) for branch in schema]
        if not isinstance(schema, dict):
            return schema
        if schema.get("type") in _NAMED:
            name = str(schema.get("name", ""))
            namespace = name.rpartition(".")[0] if "." in name else str(schema.get("namespace", namespace))
            self._open.pop(name if "." in name or not namespace else f"{namespace}.{name}", None)
        whole = dict(schema)
        for part in ("type", "items", "values"):
            if part in whole and whole[part] not in _NAMED:
                whole[part] = self.over(whole[part], namespace)
        if isinstance(whole.get("fields"), list):
            whole["fields"] = [
                {**field, "type": self.over(field.get("type"), namespace)}
                if isinstance(field, dict)
                else field
                for field in whole["fields"]
            ]
        return whole
