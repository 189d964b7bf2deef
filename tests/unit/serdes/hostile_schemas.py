"""Schemas and bytes that nobody well-meaning writes, for JSON Schema and Protobuf. Run as a program, all of them are tried.

The test that starts the program bounds its processor time and memory. A line says what became of each case.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from google.protobuf.struct_pb2 import Struct

from streamapp import JsonSchemaSerde, ProtobufSerde
from streamapp.errors import StreamsError
from streamapp.serdes import LocalSchemaRegistry
from streamapp.serdes.proto_outline import message_at, renumbered
from streamapp.serdes.type_checks import check_json

BIG = 400_000


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def doubled(levels: int) -> dict[str, Any]:
    """Each definition refers to the next one twice."""
    parts = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(levels)}
    return {"$defs": {**parts, f"a{levels}": {"type": "integer"}}, "$ref": "#/$defs/a0"}


def doubled_by_name(keyword: str, reference: str, naming: str, name: str) -> dict[str, Any]:
    """Each of 40 definitions refers to the next one twice, by a name (``{}`` is its number) and not by its place."""
    parts = {
        f"a{n}": {
            naming: name.format(n),
            **({"anyOf": [{keyword: reference.format(n + 1)}] * 2} if n < 40 else {"type": "integer"}),
        }
        for n in range(41)
    }
    return {"$id": "http://localhost/root", "$defs": parts, keyword: reference.format(0)}


BY_NAME = {
    "anchors doubled": doubled_by_name("$ref", "#a{}", "$anchor", "a{}"),
    "addresses doubled": doubled_by_name("$ref", "a{}", "$id", "a{}"),
    "dynamic anchors doubled": doubled_by_name("$dynamicRef", "#a{}", "$dynamicAnchor", "a{}"),
}

IN_JSON: dict[str, tuple[Any, Any]] = {
    "a schema that is itself": ({"$ref": "#"}, 1),
    "all of itself": ({"allOf": [{"$ref": "#"}]}, 1),
    "any of itself": ({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, 1),
    "two that are each other": (
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        1,
    ),
    "a dynamic loop": ({"$dynamicAnchor": "x", "$dynamicRef": "#x"}, 1),
    "references doubled": (doubled(18), 1),
    "references doubled often": (doubled(60), 1),
    "alternatives doubled": (json.loads(json.dumps(doubled(18)).replace("allOf", "anyOf")), 1),
    "alternatives doubled often": (json.loads(json.dumps(doubled(60)).replace("allOf", "anyOf")), "x"),
    "alternatives of a property doubled": (
        json.loads(json.dumps(doubled(40)).replace('"allOf"', '"properties": {"a": {}}, "oneOf"')),
        {"a": 1},
    ),
    **{case: (schema, "x") for case, schema in BY_NAME.items()},
    "a reference elsewhere": ({"$ref": "https://example.com/a.json"}, 1),
    "a file": ({"$ref": "file:///etc/passwd"}, 1),
    "nested repetitions": ({"pattern": "(a+)+$"}, "a" * 40 + "!"),
    "a repeated lookahead": ({"pattern": "(?=(a+)+$)(a|a)+$"}, "a" * 60 + "!"),
    "a back reference": ({"pattern": "^(a|aa)+\\1$"}, "a" * 60 + "!"),
    "counted repetitions": ({"pattern": "a{1,1000}{1,1000}{1,1000}"}, "a"),
    "keys with a pattern": ({"patternProperties": {"(a*)*b": {"type": "null"}}}, {"a" * 50: 1}),
    "a tiny divisor": ({"multipleOf": 1e-300}, 1e300),
    "many items to compare": ({"uniqueItems": True}, [[number] for number in range(20_000)]),
    "a deep value": ({"items": {"$ref": "#"}}, nested(900)),
    "a deep schema": (json.loads('{"items":' * 150 + "{}" + "}" * 150), nested(140)),
    "a deeper schema": ({"not": nested(5_000)}, 1),
    "a large bound": ({"minLength": 10**400}, "a"),
    "an unknown dialect": ({"$schema": "urn:none"}, 1),
}

JSON_BYTES: dict[str, bytes] = {
    "deep": b"[" * BIG,
    "deep objects": b'{"a":' * BIG,
    "digits": b"9" * BIG,
    "an exponent": b"1e999999999",
    "half a character": b'"\xed\xa0\x80"',
    "escapes": b'"' + b"\\u0041" * BIG + b'"',
    "keys": b"{" + b",".join(b'"%d":0' % number for number in range(50_000)) + b"}",
    "no end": b'{"a":"' + b"x" * BIG,
}

PROTO_TEXTS: dict[str, str] = {
    "comments that do not end": "/*" * BIG,
    "texts that do not end": '"' + '\\"' * BIG,
    "texts in quotes that do not end": "'" + "\\'" * BIG,
    "lines of quotes": '"\n' * BIG,
    "braces": "{" * BIG,
    "messages in messages": "message A {" * 10_000,
    "closing braces": "}" * BIG,
    "one word": "a" * BIG,
    "words": "a " * BIG,
    "semicolons": ";" * BIG,
    "slashes": "/" * BIG,
    "backslashes": "\\" * BIG,
    "too long": "a" * (2**20 + 1),
    "many messages": "message A {} " * 60_000,
    "many fields": "message A {" + "int64 a = 1;" * 60_000 + "}",
    "many numbers": "message A {" + "".join(f"A b{n} = {n};" for n in range(40_000)) + "}",
    "a long field": "message A { a " + "= " * BIG + "1; }",
    "a long number": "message A { int64 a = " + "9" * BIG + "; }",
    "a long name": "message A { int64 " + "a" * BIG + " = 1; }",
}

PROTO_BYTES: dict[str, bytes] = {
    "many indexes": b"\xfe\xff\xff\xff\x0f" + b"\2" * 40,
    "a negative count": b"\1",
    "an index without end": b"\2" + b"\xff" * 40,
    "indexes cut off": b"\x40\2\2",
    "a length of 2 GiB": b"\0\x0a\xff\xff\xff\xff\x07",
    "a length of more than 64 bits": b"\0\x0a" + b"\xff" * 12,
    "messages in messages": b"\0" + b"\x1a\xff\xff\xff\x07" * 20_000,
    "a group without end": b"\0" + b"\x0b" * BIG,
    "only numbers": b"\0" + b"\x08\x01" * BIG,
}


def outcome(action: Callable[..., Any], *arguments: Any) -> str:
    """The outcome of a case. Any other error than streamapp's own, and a ValueError of the text, ends the program."""
    try:
        action(*arguments)
    except (StreamsError, ValueError) as error:
        said = str(error)
    else:
        return "taken"
    assert len(said) < 4_000, len(said)
    return "refused"


ONE_FIELD = "message A { string a = 1; }"


def compared(one: str, other: str) -> None:
    """The answer is an error's text, too."""
    if why := renumbered(one, other):
        raise ValueError(why)


def write_json(schema: Any, value: Any) -> bytes:
    return JsonSchemaSerde[Any](schema).serialize(value)


def main() -> None:
    for name, case in IN_JSON.items():
        print("JSON Schema,", name, outcome(write_json, *case), flush=True)
        print("a type beside,", name, outcome(check_json, case[0], list[int]), flush=True)
    tree = JsonSchemaSerde[Any]({"items": {"$ref": "#"}})
    frame = tree.serialize([])[:5]
    for name, data in JSON_BYTES.items():
        print("JSON,", name, outcome(tree.deserialize, frame + data), flush=True)
    for name, text in PROTO_TEXTS.items():
        print("text of Protobuf,", name, outcome(message_at, text, [0, 0, 7]), flush=True)
        for which, one, other in (("own", text, text), ("here", text, ONE_FIELD), ("there", ONE_FIELD, text)):
            print("numbers of Protobuf,", which, name, outcome(compared, one, other), flush=True)
    serde = ProtobufSerde[Any](Struct, registry=LocalSchemaRegistry())
    frame = serde.serialize(Struct())[:5]
    for name, data in PROTO_BYTES.items():
        print("Protobuf,", name, outcome(serde.deserialize, frame + data), flush=True)
    print("all", 2 * len(IN_JSON) + len(JSON_BYTES) + 4 * len(PROTO_TEXTS) + len(PROTO_BYTES))


if __name__ == "__main__":
    main()
