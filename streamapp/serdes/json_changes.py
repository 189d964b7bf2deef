"""The JSON that a `JsonSerde` writes, as a JSON Schema, and the changes after which old values cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from streamapp._base.counted import counted
from streamapp.serdes.types import excerpt

__all__ = ["JsonMisfit", "json_form", "json_misfit"]

_ANYTHING: Mapping[str, Any] = {}
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
_FORMATS = {"date-time", "date", "time", "duration", "uuid", "decimal"}
"""The formats that msgspec reads. Other formats, such as "email", only describe a text."""


class JsonMisfit(NamedTuple):
    """A part of old values that a new reader refuses."""

    why: str
    always: bool
    """True: the reader refuses the part in each value. False: only in some values, and old rows may have none of
    these."""


def json_form(type_: Any) -> dict[str, Any] | None:
    """The JSON Schema of a type of `JsonSerde`, without defaults and descriptions; None if the type has no schema.

    >>> json_form(list[int])
    {'type': 'array', 'items': {'type': 'integer'}}
    """
    try:
        schema = msgspec.json.schema(type_, schema_hook=lambda custom: {"description": "any value"})
    except Exception:  # for example, a field's default is no JSON
        return None
    form: dict[str, Any] = _form(schema)
    return form


def _form(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_form(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    form = {name: part for name, part in schema.items() if name not in _NOTES}
    for name in _SCHEMAS & form.keys():
        form[name] = _form(form[name])
    for name in {"properties", "$defs"} & form.keys():
        form[name] = {each: _form(part) for each, part in form[name].items()}
    return form


_NOTES = {"default", "description", "examples", "title"}
_SCHEMAS = {"additionalProperties", "anyOf", "items", "prefixItems", "propertyNames"}


def json_misfit(old: Mapping[str, Any], new: Mapping[str, Any], *, formats: bool = True) -> JsonMisfit | None:
    """The first part of values of the schema ``old`` that a reader with the schema ``new`` refuses, with the reason.

    None if the reader takes all values, as far as the schemas tell. Limits such as ``minimum`` are not compared, and
    neither are parts in which the old schema allows anything. With ``formats=False``, neither are the formats of texts,
    which a validator of JSON Schemas does not check. A part that is always refused comes before the others.

    >>> json_misfit(json_form(dict[str, int]), json_form(dict[str, str]))
    JsonMisfit(why='any key: integer was written, and string is read', always=True)
    >>> json_misfit(json_form(int | None), json_form(int))
    JsonMisfit(why='the value: null was written, and integer is read', always=False)
    >>> json_misfit(json_form(int), json_form(float | None)) is None
    True
    """
    return _Reader(old, new, formats).misfit(old, new, "")


class _Reader:
    def __init__(self, old: Mapping[str, Any], new: Mapping[str, Any], formats: bool) -> None:
        self._old, self._new = old.get("$defs", {}), new.get("$defs", {})
        self._formats = formats
        self._found: dict[tuple[int, int], JsonMisfit | None] = {}

    def misfit(self, old: Any, new: Any, path: str) -> JsonMisfit | None:
        read = list(_alternatives(new, self._new))
        alone = sum(kind == "object" for _, kind in read) == 1
        found: JsonMisfit | None = None
        always = True
        for written, kind in _alternatives(old, self._old):
            refused = [
                (wanted, self._refusal(written, kind, each, wanted, path, alone)) for each, wanted in read
            ]
            whys = [why for _, why in refused if why is not None]
            if len(whys) < len(refused):
                always = False
                continue
            always = always and all(why.always for why in whys)
            others = " or ".join(dict.fromkeys(_shown(each, wanted) for each, wanted in read))
            alike = (why.why for wanted, why in refused if wanted == kind and why is not None)
            why = next(alike, None) if kind in ("object", "array") or len(read) == 1 else None
            found = found or JsonMisfit(why or _differs(path, _shown(written, kind), others), True)
        return found and found._replace(always=always)

    def _refusal(
        self,
        written: Mapping[str, Any],
        kind: str | None,
        read: Mapping[str, Any],
        wanted: str | None,
        path: str,
        alone: bool,
    ) -> JsonMisfit | None:
        """The reason why values of one kind are not read as values of another kind."""
        if kind is None or wanted is None or kind == wanted == "null":
            return None
        differs = _differs(path, _shown(written, kind), _shown(read, wanted))
        number = kind in ("integer", "number")
        if number and read.get("format") == "decimal":
            return None
        if kind != wanted and not (number and wanted == "number"):
            return JsonMisfit(differs, True)
        if "enum" in read:
            if "enum" not in written:
                return JsonMisfit(differs, False)
            return None if repr(written["enum"]) == repr(read["enum"]) else JsonMisfit(differs, True)
        if kind == "string" and self._formats:
            before, after = _text(written), _text(read)
            return None if after in (None, before) else JsonMisfit(differs, before is not None)
        if kind not in ("object", "array") or "enum" in written:
            return None
        pair = id(written), id(read)
        if pair not in self._found:
            self._found[pair] = None  # a type that contains itself comes here again
            if kind == "object":
                self._found[pair] = self._fields(written, read, path, alone)
            else:
                self._found[pair] = _first(self._items(written, read, path))
        return self._found[pair]

    def _fields(
        self, written: Mapping[str, Any], read: Mapping[str, Any], path: str, alone: bool
    ) -> JsonMisfit | None:
        before, after = written.get("properties", {}), read.get("properties", {})
        others, rest = written.get("additionalProperties"), read.get("additionalProperties")
        required = read.get("required", ())
        for name in required if isinstance(required, list) else ():
            # A schema that names no fields allows any. The tag of a Struct may be missing outside unions.
            if before and name not in before and not (alone and _is_tag(after.get(name))):
                return JsonMisfit(
                    f"{_under(path, name)}: this field was not written, and has no default", True
                )
        if rest is False:
            for name in before:
                if name not in after:
                    return JsonMisfit(f"{_under(path, name)}: this field was written, and is forbidden", True)
        pairs = [(name, part, after.get(name, rest)) for name, part in before.items()]
        pairs.append(("any key", others, rest))
        return _first(
            self.misfit(part, taken, _under(path, name))
            for name, part, taken in pairs
            if isinstance(part, Mapping) and isinstance(taken, Mapping)
        )

    def _items(
        self, written: Mapping[str, Any], read: Mapping[str, Any], path: str
    ) -> Iterator[JsonMisfit | None]:
        before, after = written.get("prefixItems", []), read.get("prefixItems", [])
        fewest, most = read.get("minItems", 0), read.get("maxItems")
        at = path or "the value"
        if after and not before and written.get("minItems", 0) < fewest:
            yield JsonMisfit(f"{at}: any number of items was written, and {fewest} needed", False)
        elif after and before and len(before) < fewest:
            yield JsonMisfit(f"{at}: {counted(len(before), 'item')} written, and {fewest} needed", True)
        if before and most is not None and len(before) > most:
            yield JsonMisfit(f"{at}: {counted(len(before), 'item')} written, and at most {most} read", True)
        rest, others = written.get("items"), read.get("items")
        for i in range(max(len(before), len(after))):
            item = before[i] if i < len(before) else rest
            taken = after[i] if i < len(after) else others
            if isinstance(item, Mapping) and isinstance(taken, Mapping):
                yield self.misfit(item, taken, f"{path}[{i}]")
        if isinstance(rest, Mapping) and isinstance(others, Mapping):
            yield self.misfit(rest, others, f"{path}[]")


def _first(found: Iterator[JsonMisfit | None]) -> JsonMisfit | None:
    """The first part that is always refused, else the first one."""
    some = None
    for each in found:
        if each is not None and each.always:
            return each
        some = some or each
    return some


def _alternatives(
    schema: Any, definitions: Mapping[str, Any], depth: int = 0
) -> Iterator[tuple[Mapping[str, Any], str | None]]:
    """The schemas of which a value has one, each with its kind of value. A kind of None stands for any value."""
    if depth > _DEEPEST or not isinstance(schema, Mapping):  # `true` is a schema, too
        yield _ANYTHING, None
    elif "$ref" in schema:
        name = schema["$ref"].removeprefix(_REFERENCE)
        yield from _alternatives(definitions.get(name, _ANYTHING), definitions, depth + 1)
    elif choices := schema.get("anyOf") or schema.get("oneOf"):
        if "type" in schema or "properties" in schema:  # what holds for all choices would be overlooked
            yield _ANYTHING, None
            return
        for each in choices:
            yield from _alternatives(each, definitions, depth + 1)
    elif values := schema.get("enum"):
        yield from (({"enum": [value]}, _KINDS.get(type(value))) for value in values)
    elif isinstance(kinds := schema.get("type"), list):
        yield from ((schema, kind) for kind in kinds)
    else:
        yield schema, schema.get("type")


def _is_tag(schema: Any) -> bool:
    """True if a field can be the tag of a Struct, which always has the same value."""
    return isinstance(schema, Mapping) and len(schema.get("enum", ())) == 1


def _text(schema: Mapping[str, Any]) -> str | None:
    """The form of a text, such as that of a time; None if the text may be any."""
    form: str | None = schema.get("format")
    return form if form in _FORMATS else schema.get("contentEncoding")


def _under(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(schema: Mapping[str, Any], kind: str | None) -> str:
    if "enum" in schema:
        return excerpt(schema["enum"][0])
    return str(_text(schema) or kind)


def _differs(path: str, written: str, read: str) -> str:
    return f"{path or 'the value'}: {written} was written, and {read} is read"
