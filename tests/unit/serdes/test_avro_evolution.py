"""Any change of a schema: bytes of the old schema are read with the new schema as fastavro reads them, or are refused
as fastavro refuses them."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import fastavro
from hypothesis import given, settings
from hypothesis import strategies as st

from streamapp.errors import SerializationError
from streamapp.serdes import AvroSerde, LocalSchemaRegistry

LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    "bytes": st.text(max_size=2).map(lambda text: text.encode(errors="ignore")),
}
PROMOTED = {
    "int": ["long", "float", "double"],
    "long": ["float", "double"],
    "float": ["double"],
    "string": ["bytes"],
    "bytes": ["string"],
}
ADDED: list[dict[str, Any]] = [
    {"name": "new", "type": "int", "default": 7},
    {"name": "new", "type": ["null", "string"], "default": None},
    {"name": "new", "type": {"type": "array", "items": "long"}, "default": [1, 2]},
    {"name": "new", "type": {"type": "map", "values": "int"}, "default": {"a": 1}},
    {"name": "new", "type": "int"},
]


@st.composite
def old_schemas(draw: st.DrawFn, depth: int = 3, used: list[int] | None = None) -> Any:
    used = [0] if used is None else used
    used[0] += 1
    name = f"N{used[0]}"
    shapes = ["leaf", "leaf", "enum", "fixed", "date", "decimal"]
    match draw(st.sampled_from(shapes + (["record", "record", "array", "map", "union"] if depth else []))):
        case "enum":
            return {"type": "enum", "name": name, "symbols": ["A", "B", "C"]}
        case "fixed":
            return {"type": "fixed", "name": name, "size": draw(st.integers(0, 2))}
        case "date":
            return {"type": "int", "logicalType": "date"}
        case "decimal":
            return {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
        case "record":
            inner = [draw(old_schemas(depth - 1, used)) for _ in range(draw(st.integers(0, 3)))]
            return {
                "type": "record",
                "name": name,
                "fields": [{"name": f"f{n}", "type": each} for n, each in enumerate(inner)],
            }
        case "array":
            return {"type": "array", "items": draw(old_schemas(depth - 1, used))}
        case "map":
            return {"type": "map", "values": draw(old_schemas(depth - 1, used))}
        case "union":
            branches: dict[str, Any] = {}
            for _ in range(draw(st.integers(1, 3))):
                branch = draw(old_schemas(depth - 1, used))
                if not isinstance(branch, list):
                    branches.setdefault(
                        branch if isinstance(branch, str) else branch.get("name", branch["type"]), branch
                    )
            return [*branches.values()] or ["null"]
    return draw(st.sampled_from(sorted(LEAVES)))


def values(draw: st.DrawFn, schema: Any) -> Any:
    if isinstance(schema, list):
        return values(draw, draw(st.sampled_from(schema)))
    if isinstance(schema, str):
        return draw(LEAVES[schema])
    match schema.get("logicalType") or schema["type"]:
        case "enum":
            return draw(st.sampled_from(schema["symbols"]))
        case "fixed":
            return draw(st.binary(min_size=schema["size"], max_size=schema["size"]))
        case "date":
            return draw(st.dates())
        case "decimal":
            return draw(st.decimals(-99, 99, places=2))
        case "array":
            return [values(draw, schema["items"]) for _ in range(draw(st.integers(0, 3)))]
        case "map":
            return {
                key: values(draw, schema["values"])
                for key in draw(st.sets(st.text("ab", max_size=2), max_size=2))
            }
    return {field["name"]: values(draw, field["type"]) for field in schema["fields"]}


def changed(draw: st.DrawFn, schema: Any) -> Any:
    """A newer version of the schema. Some changes make it unable to read the older version's values."""
    if isinstance(schema, str):
        new = draw(st.sampled_from([schema, schema, *PROMOTED.get(schema, ())]))
        match draw(st.integers(0, 5)):
            case 0 if new != "null":
                return ["null", new]
            case 1 if new != "null":
                return [new, "null"]
            case 2:
                return [each for each in ("boolean", "double", "long") if each != new] + [new]
        return new
    if isinstance(schema, list):
        # fastavro converts by the logical type of the writer. streamapp and Java convert by that of the reader, so no
        # branch is read as another one with or without a logical type.
        logical = any("logicalType" in each for each in schema if isinstance(each, dict))
        if draw(st.integers(0, 3)) == 0 and not logical:
            return changed(draw, draw(st.sampled_from(schema)))
        branches = [changed(draw, each) if isinstance(each, dict) else each for each in schema]
        kept = [old if isinstance(new, list) else new for old, new in zip(schema, branches, strict=True)]
        return draw(st.permutations(kept)) + ([] if "null" in kept or draw(st.booleans()) else ["null"])
    match schema["type"]:
        case "record":
            fields = [
                {"name": field["name"], "type": changed(draw, field["type"])}
                if draw(st.integers(0, 3))
                else {"name": f"{field['name']}x", "aliases": [field["name"]], "type": field["type"]}
                for field in schema["fields"]
                if draw(st.integers(0, 5))
            ]
            new = {
                **schema,
                "fields": draw(st.permutations(fields + draw(st.lists(st.sampled_from(ADDED), max_size=1)))),
            }
            return (
                new
                if draw(st.integers(0, 3))
                else {**new, "name": f"{new['name']}x", "aliases": [new["name"]]}
            )
        case "enum":
            symbols = draw(st.sampled_from([["C", "B", "A"], ["A", "B"], ["A", "D"]]))
            return {**schema, "symbols": symbols} | draw(st.sampled_from([{}, {"default": "A"}]))
        case "array":
            return {**schema, "items": changed(draw, schema["items"])}
        case "map":
            return {**schema, "values": changed(draw, schema["values"])}
    return draw(st.sampled_from([schema, schema, ["null", schema]]))


@st.composite
def changes(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    old = draw(old_schemas())
    return old, changed(draw, old), values(draw, old)


def by_fastavro(old: Any, new: Any, data: bytes) -> Any:
    schemas = (fastavro.parse_schema(json.loads(json.dumps(each))) for each in (old, new))
    return fastavro.schemaless_reader(BytesIO(data), *schemas)


def content(value: Any) -> Any:
    """A value with its texts as bytes, and its ints as floats.

    In a union, fastavro takes the first branch to which a value can be promoted. streamapp and Java take a branch of the
    same type before, so that a text stays a text, and an int an int.
    """
    if isinstance(value, dict):
        return {key: content(item) for key, item in value.items()}
    if isinstance(value, list):
        return [content(item) for item in value]
    if type(value) is int:
        return float(value)
    return value.encode() if isinstance(value, str) else value


@settings(max_examples=400, deadline=None)
@given(changes())
def test_each_change_is_resolved_as_by_fastavro(change: tuple[Any, Any, Any]) -> None:
    old, new, value = change
    registry = LocalSchemaRegistry()
    data = AvroSerde[Any](old, registry=registry).serialize(value)
    reader = AvroSerde[Any](new, registry=registry)
    try:
        expected = by_fastavro(old, new, data[5:])
    except Exception:  # fastavro raises many kinds of errors
        expected = SerializationError
    try:
        found = reader.deserialize(data)
    except SerializationError:
        assert expected is SerializationError
    else:
        assert content(found) == content(expected)
