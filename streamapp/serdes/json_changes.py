"""The JSON that a `JsonSerde` writes, as a JSON Schema, and the changes after which old values cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from streamapp._base.counted import counted
from streamapp.serdes.types import excerpt

__all__ = ["json_form", "json_misfit"]

_ANYTHING = {"description": "any value"}
_REFERENCE = "#/$defs/"
_DEEPEST = 50
_KINDS = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}


def json_form(type_: Any) -> dict[str, Any]:
    """The JSON Schema of a type of `JsonSerde`.

    >>> json_form(list[int])
    {'type': 'array', 'items': {'type': 'integer'}}
    """
    return msgspec.json.schema(type_, schema_hook=lambda custom: _ANYTHING)


def json_misfit(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """The first part of values of the schema ``old`` that a reader with the schema ``new`` refuses, with the reason.

    None if the reader takes all values, as far as the schemas tell. Limits such as ``minimum`` are not compared, and
    neither are parts in which the old schema allows anything.

    >>> json_misfit(json_form(dict[str, int]), json_form(dict[str, str]))
    'any key: integer was written, and string is read'
    >>> json_misfit(json_form(int), json_form(float | None)) is None
    True
    """
    return _Reader(old, new).misfit(old, new, "")


class _Reader:
    def __init__(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        self._old, self._new = old.get("$defs", {}), new.get("$defs", {})
        self._found: dict[tuple[int, int], str | None] = {}

    def misfit(self, old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> str | None:
        read = list(_alternatives(new, self._new))
        for written, kind in _alternatives(old, self._old):
            if kind is None:
                continue
            reasons = [(wanted, self._refusal(written, kind, each, wanted, path)) for each, wanted in read]
            if all(why for _, why in reasons):
                others = " or ".join(_shown(each, wanted) for each, wanted in read)
                alike = (why for wanted, why in reasons if wanted == kind)
                return next(alike, None) or _differs(path, _shown(written, kind), others)
        return None

    def _refusal(
        self, written: Mapping[str, Any], kind: str, read: Mapping[str, Any], wanted: str | None, path: str
    ) -> str | None:
        """The reason why values of one kind are not read as values of another kind."""
        if wanted is None:
            return None
        fits = kind == wanted or (kind, wanted) == ("integer", "number")
        if "enum" in read:
            fits = _is_among(written, read["enum"])
        elif any(read.get(part) not in (None, written.get(part)) for part in _TEXTS):
            fits = False
        if not fits:
            return _differs(path, _shown(written, kind), _shown(read, wanted))
        if kind not in ("object", "array"):
            return None
        pair = id(written), id(read)
        if pair not in self._found:
            self._found[pair] = None  # a type that contains itself comes here again
            inside = self._fields if kind == "object" else self._items
            self._found[pair] = inside(written, read, path)
        return self._found[pair]

    def _fields(self, written: Mapping[str, Any], read: Mapping[str, Any], path: str) -> str | None:
        before, after = written.get("properties", {}), read.get("properties", {})
        others = written.get("additionalProperties")
        for name in read.get("required", ()):
            if before and name not in before:  # a schema that names no fields allows any
                return f"{_under(path, name)}: this field was not written, and has no default"
        if read.get("additionalProperties") is False:
            for name in before:
                if name not in after:
                    return f"{_under(path, name)}: this field was written, and is forbidden"
        for name in after:
            if name in before and (why := self.misfit(before[name], after[name], _under(path, name))):
                return why
        if isinstance(others, Mapping) and isinstance(rest := read.get("additionalProperties"), Mapping):
            return self.misfit(others, rest, _under(path, "any key"))
        return None

    def _items(self, written: Mapping[str, Any], read: Mapping[str, Any], path: str) -> str | None:
        before, after = written.get("prefixItems", []), read.get("prefixItems", [])
        fewest, most = read.get("minItems", 0), read.get("maxItems")
        number = len(before) or written.get("minItems", 0)
        if after and number < fewest:
            return f"{path or 'the value'}: {counted(number, 'item')} written, and {fewest} needed"
        if before and most is not None and number > most:
            return f"{path or 'the value'}: {counted(number, 'item')} written, and at most {most} read"
        rest, others = written.get("items"), read.get("items")
        for i in range(max(len(before), len(after))):
            item = before[i] if i < len(before) else rest
            taken = after[i] if i < len(after) else others
            if not isinstance(item, Mapping) or not isinstance(taken, Mapping):
                continue
            if why := self.misfit(item, taken, f"{path}[{i}]"):
                return why
        if isinstance(rest, Mapping) and isinstance(others, Mapping):
            return self.misfit(rest, others, f"{path}[]")
        return None


_TEXTS = ("format", "contentEncoding")
"""The parts of a schema that tell the form of a text, such as that of a time."""


def _alternatives(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], depth: int = 0
) -> Iterator[tuple[Mapping[str, Any], str | None]]:
    """The schemas of which a value has one, each with its kind of value. A kind of None stands for any value."""
    if depth > _DEEPEST:
        yield _ANYTHING, None
    elif "$ref" in schema:
        name = schema["$ref"].removeprefix(_REFERENCE)
        yield from _alternatives(definitions.get(name, _ANYTHING), definitions, depth + 1)
    elif choices := schema.get("anyOf") or schema.get("oneOf"):
        for each in choices:
            yield from _alternatives(each, definitions, depth + 1)
    elif values := schema.get("enum"):
        yield schema, _KINDS.get(type(values[0]))
    elif isinstance(kinds := schema.get("type"), list):
        yield from ((schema, kind) for kind in kinds)
    else:
        yield schema, schema.get("type")


def _is_among(written: Mapping[str, Any], values: list[Any]) -> bool:
    return set(map(repr, written.get("enum", [object()]))) <= set(map(repr, values))


def _under(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(schema: Mapping[str, Any], kind: str | None) -> str:
    if "enum" in schema:
        return f"one of {excerpt(schema['enum'])}"
    return str(schema.get("format") or schema.get("contentEncoding") or kind)


def _differs(path: str, written: str, read: str) -> str:
    return f"{path or 'the value'}: {written} was written, and {read} is read"
