"""One form for the types in schemas of Avro, JSON Schema and Protobuf.

A *place* of a schema is a field, an item of a list or a value of a map. The form has only what a comparison with a type
needs. A place that the form cannot express is open to any value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from streamapp.serdes.avro_schema import Parsed, kind_of
from streamapp.serdes.proto_outline import TYPES

__all__ = ["Kind", "Place", "avro_place", "json_place", "message_place"]

_DEEPEST = 50
_MOST_KINDS = 100
_GROUP, _MESSAGE, _ENUM = 10, 11, 14
_SPECIAL = "google.protobuf."
_PROTOBUF = {
    **dict.fromkeys((5, 7, 13, 15, 17), "int"),
    **dict.fromkeys((3, 4, 6, 16, 18), "long"),
    1: "double",
    2: "float",
    8: "boolean",
    9: "text",
    12: "bytes",
}
"""Numbers of Protobuf's types -> kinds. Protobuf's JSON mapping writes a long as text."""


class Kind(NamedTuple):
    """One kind of values: its name, and the kinds of its items or fields.

    Dictionaries of `type_checks` have the types that take the values of a kind. The kinds "list", "map" and "record"
    have no entry there: `type_checks` compares their items or fields."""

    name: str
    shown: str
    """The name for people."""
    item: Callable[[], Place] | None = None
    """The items of a list, or the values of a map."""
    fields: Callable[[], dict[str, Place]] | None = None
    closed: bool = False
    """True: values have no other fields than those of ``fields``."""
    symbols: tuple[Any, ...] | None = None
    """All possible values, for an enum; None for other kinds."""
    key: Any = None
    """A key that all places with the same definition share. A comparison stops at a key that it has met before, so a
    definition that contains itself is no endless loop."""


Place = tuple[Kind, ...] | None
"""The kinds of values at one place of a schema; None: any value."""


def avro_place(parsed: Parsed, schema: Any) -> Place:
    """The kinds of values that an Avro schema allows: one kind, or one for each branch of a union.

    >>> from streamapp.serdes.avro_schema import parse
    >>> parsed = parse(["null", "int"])
    >>> [kind.name for kind in avro_place(parsed, parsed.root)]
    ['null', 'int']
    """
    branches = schema if isinstance(schema, list) else [schema]
    return tuple(_avro(parsed, parsed.follow(branch)) for branch in branches)


def _avro(parsed: Parsed, schema: Any) -> Kind:
    kind = kind_of(schema)
    if kind == "array":
        return Kind("list", "an array", item=lambda: avro_place(parsed, schema["items"]))
    if kind == "map":
        return Kind("map", "a map", item=lambda: avro_place(parsed, schema["values"]))
    if kind == "enum":
        return Kind("enum", f"the enum {schema['name']}", symbols=tuple(schema["symbols"]))
    if kind == "record":

        def fields() -> dict[str, Place]:
            return {each["name"]: avro_place(parsed, each["type"]) for each in schema["fields"]}

        return Kind("record", f"the record {schema['name']}", fields=fields, closed=True, key=schema["name"])
    return Kind(_AVRO.get(kind, kind), kind)


_AVRO = {
    "string": "text",
    "fixed": "bytes",
    "timestamp-millis": "moment",
    "timestamp-micros": "moment",
    "local-timestamp-millis": "moment",
    "local-timestamp-micros": "moment",
    "time-millis": "time",
    "time-micros": "time",
}


def json_place(root: Any, schema: Any, depth: int = 0) -> Place:
    """The kinds of a JSON Schema; ``root`` is the whole schema, in which a ``$ref`` is looked up.

    >>> [kind.name for kind in json_place({}, {"anyOf": [{"type": "null"}, {"type": ["integer", "string"]}]})]
    ['null', 'long', 'string']
    """
    if not isinstance(schema, dict) or depth > _DEEPEST or "allOf" in schema:
        return None
    reference = schema.get("$ref")
    if reference is not None:
        found = _pointed(root, reference)
        place = None if found is None else json_place(root, found, depth + 1)
        return place and tuple(kind._replace(key=reference) if kind.fields else kind for kind in place)
    for name in ("anyOf", "oneOf"):
        if isinstance(alternatives := schema.get(name), list):
            kinds: list[Kind] = []
            for each in alternatives:
                place = json_place(root, each, depth + 1)
                if place is None or len(kinds) > _MOST_KINDS:  # at once: references may double at each level
                    return None
                kinds += place
            return tuple(kinds)
    if isinstance(values := schema.get("enum"), list) or "const" in schema:
        return tuple(_values(values if isinstance(values, list) else [schema["const"]]))
    named = schema.get("type")
    names = [named] if isinstance(named, str) else named if isinstance(named, list) else []
    if not names or not all(isinstance(name, str) and name in _JSON for name in names):
        return None
    return tuple(_json(root, schema, name) for name in names)


def _json(root: Any, schema: Any, name: str) -> Kind:
    if name == "array":
        return Kind("list", "an array", item=lambda: json_place(root, schema.get("items")))
    if name != "object":
        return Kind(_JSON[name], name)
    properties = schema.get("properties")
    more = schema.get("additionalProperties")
    if not isinstance(properties, dict):
        return Kind("map", "an object", item=lambda: json_place(root, more))
    closed = more is False and not schema.get("patternProperties")

    def fields() -> dict[str, Place]:
        return {field: json_place(root, each) for field, each in properties.items()}

    return Kind("record", "an object", fields=fields, closed=closed)


_JSON = {
    "null": "null",
    "boolean": "boolean",
    "integer": "long",
    "number": "number",
    "string": "string",
    "array": "list",
    "object": "record",
}


def _values(values: list[Any]) -> Iterator[Kind]:
    """The values of an ``enum`` by their kinds."""
    texts = tuple(each for each in values if isinstance(each, str))
    if texts:
        yield Kind("enum", "an enum", symbols=texts)
    for each in values:
        if each is None:
            yield Kind("null", "null")
        elif isinstance(each, bool):
            yield Kind("boolean", "boolean")
        elif isinstance(each, int):
            yield Kind("long", str(each), symbols=(each,))


def _pointed(root: Any, reference: Any) -> Any:
    """The part of the schema that a ``$ref`` inside the schema points to."""
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    for name in reference[2:].split("/"):
        root = root.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(root, dict) else None
    return root


def message_place(descriptor: Any) -> Place:
    """The kinds of a Protobuf message."""
    from google.protobuf.descriptor_pb2 import DescriptorProto

    if descriptor.full_name == "google.protobuf.Timestamp":
        return (Kind("timestamp", "a Timestamp"),)
    if descriptor.full_name.startswith(_SPECIAL):
        return None  # these messages have a form of their own in Protobuf's JSON mapping

    def fields() -> dict[str, Place]:
        proto = DescriptorProto()
        descriptor.CopyToProto(proto)
        repeated = {each.name for each in proto.field if each.label == each.LABEL_REPEATED}
        return {each.name: _field(each, each.name in repeated) for each in descriptor.fields}

    shown = f"the message {descriptor.full_name}"
    return (Kind("record", shown, fields=fields, closed=True, key=descriptor.full_name),)


def _field(field: Any, repeated: bool) -> Place:
    if not repeated:
        return _item(field)
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        return (Kind("map", "a map", item=lambda: _item(entry.fields_by_name["value"])),)
    return (Kind("list", "a repeated field", item=lambda: _item(field)),)


def _item(field: Any) -> Place:
    if field.type in (_MESSAGE, _GROUP):
        return message_place(field.message_type)
    if field.type == _ENUM:
        if field.enum_type.full_name.startswith(_SPECIAL):
            return None
        symbols = tuple(value.name for value in field.enum_type.values)
        return (Kind("enum", f"the enum {field.enum_type.name}", symbols=symbols),)
    return (Kind(_PROTOBUF[field.type], TYPES[field.type - 1]),)
