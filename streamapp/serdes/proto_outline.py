"""The messages, enums and fields that a .proto file declares, in its text or its descriptor.

A schema may come from a registry, and is untrusted. So this module limits the size and the depth of a text. Protobuf
limits the depth of a descriptor.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FieldDescriptorProto

__all__ = ["TYPES", "Outline", "message_at", "outline_of", "renumbered"]

TYPES = [
    "double",
    "float",
    "int64",
    "uint64",
    "int32",
    "fixed64",
    "fixed32",
    "bool",
    "string",
    "group",
    "message",
    "bytes",
    "uint32",
    "enum",
    "sfixed32",
    "sfixed64",
    "sint32",
    "sint64",
]
"""The names of Protobuf's types; the type with number n stands at n - 1."""

_MOST_CHARACTERS = 2**20
_DEEPEST = 64
_MOST_CHANGES = 5
_MOST_TEXT = 300
# Comments and texts match without an end, too. A search for missing ends from each begin would take quadratic time.
_TOKEN = re.compile(
    r'//[^\n]*|/\*(?:.*?\*/|.*)|"(?:[^"\\\n]|\\.)*"?|\'(?:[^\'\\\n]|\\.)*\'?|[\w.]+|[{};]|\S', re.DOTALL
)
_LABELS = ("optional", "required", "repeated")


class Outline(NamedTuple):
    """A message with its fields and the messages inside it. Also stands for a file with its messages, or for an enum
    with its values."""

    name: str
    """The name of a message or enum; the package of a file."""
    messages: list[Outline]
    """Messages in the order of the file. The place of a message is its index in Confluent's framing."""
    enums: list[Outline]
    fields: dict[str, tuple[int, str]]
    """Field -> its number and its type; or value of an enum -> its number and an empty type."""


def message_at(schema: str, path: Sequence[int]) -> str:
    """The full name of a message, found by its indexes in a schema. The schema is text or a descriptor in base64.

    The first index is that of the outermost message in the file, the next that of a message inside it. Raises
    ValueError if there is no such message. Raises ValueError also for a text that is too large or deep, because the
    text may come from a stranger.

    >>> message_at("package shop; message A { message B {} } message C {}", [0, 0]), message_at("message A {}", [0])
    ('shop.A.B', 'A')
    """
    file = within = outline_of(schema)
    found = [file.name] if file.name else []
    for index in path:
        if not 0 <= index < len(within.messages):
            raise ValueError(f"the schema has no message at {list(path)}")
        within = within.messages[index]
        found.append(within.name)
    return ".".join(found)


def outline_of(schema: str) -> Outline:
    """The outline of a schema, which is text or a descriptor in base64 (as Confluent's Python serializer registers).

    >>> outline_of("message A { repeated int64 n = 1 [packed = false]; }").messages[0].fields
    {'n': (1, 'repeated int64')}
    """
    return _of_descriptor(schema) or _of_text(schema)


def renumbered(own: str, other: str) -> str:
    """A text about the fields and enum values of two schemas that contradict each other. Empty if there are none.

    Two fields contradict if they have the same name in messages of the same name, but another number or type. A field
    whose name the other schema lacks contradicts another field there with the same number. The text names the first
    five fields, and counts the others.

    Protobuf's bytes name a field by its number only. So a reader mistakes another field with the same number for its
    own.

    >>> renumbered("message A { int64 b = 1; }", "message A { int64 a = 1; int64 b = 2; }")
    'A.b is int64 with number 1 here, and int64 with number 2 there'
    """
    theirs = dict(_parts(outline_of(other), ""))
    changes = [
        change
        for name, part in _parts(outline_of(own), "")
        if name in theirs
        for change in _changes(name, part.fields, theirs[name].fields)
    ]
    shown = [
        change if len(change) <= _MOST_TEXT else f"{change[:_MOST_TEXT]}..."
        for change in changes[:_MOST_CHANGES]
    ]
    more = "" if len(changes) <= _MOST_CHANGES else f"; and {len(changes) - _MOST_CHANGES} more"
    return "; ".join(shown) + more


def _parts(outline: Outline, prefix: str) -> Iterator[tuple[str, Outline]]:
    """Each message and enum with its name inside the file."""
    for each in outline.enums:
        yield prefix + each.name, each
    for each in outline.messages:
        yield prefix + each.name, each
        yield from _parts(each, f"{prefix}{each.name}.")


def _changes(name: str, own: dict[str, tuple[int, str]], theirs: dict[str, tuple[int, str]]) -> Iterator[str]:
    numbers = {number: field for field, (number, _) in theirs.items()}
    for field, (number, kind) in own.items():
        there = theirs.get(field)
        if there is not None:
            if there != (number, kind):
                yield f"{name}.{field} is {_shown(number, kind)} here, and {_shown(*there)} there"
        elif number in numbers:
            yield f"number {number} is {name}.{field} here, and {name}.{numbers[number]} there"


def _shown(number: int, kind: str) -> str:
    return f"{kind} with number {number}" if kind else f"number {number}"


def _of_descriptor(schema: str) -> Outline | None:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        file = FileDescriptorProto.FromString(base64.b64decode(schema, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
    messages = [_described(each) for each in file.message_type]
    return Outline(file.package, messages, [_values(each) for each in file.enum_type], {})


def _described(message: DescriptorProto) -> Outline:
    entries = {each.name: each for each in message.nested_type if each.options.map_entry}
    fields = {each.name: (each.number, _kind(each, entries)) for each in message.field}
    nested = [_described(each) for each in message.nested_type]
    return Outline(message.name, nested, [_values(each) for each in message.enum_type], fields)


def _kind(field: FieldDescriptorProto, entries: dict[str, DescriptorProto]) -> str:
    entry = entries.get(field.type_name.rpartition(".")[2])
    if entry is not None:
        return f"map<{_kind(entry.field[0], {})},{_kind(entry.field[1], {})}>"
    kind = field.type_name.removeprefix(".") or TYPES[field.type - 1]
    return f"repeated {kind}" if field.label == field.LABEL_REPEATED else kind


def _values(enum: EnumDescriptorProto) -> Outline:
    return Outline(enum.name, [], [], {each.name: (each.number, "") for each in enum.value})


def _of_text(schema: str) -> Outline:
    if len(schema) > _MOST_CHARACTERS:
        raise ValueError(f"the schema has more than {_MOST_CHARACTERS:,} characters")
    package, top = "", Outline("", [], [], {})
    # None stands for a block without messages. The fields of a oneof belong to its message.
    levels: list[Outline | None] = [top]
    words: list[str] = []
    # The begin of the statement around each block: the options of a field may have values in braces.
    begun: list[list[str]] = []
    for match in _TOKEN.finditer(schema):
        token = match[0]
        if token.startswith(("//", "/*")):
            continue
        if token == "{":
            if len(levels) > _DEEPEST:
                raise ValueError(f"the schema is nested more than {_DEEPEST} levels deep")
            levels.append(_block(words, levels[-1]))
            begun.append(words if words.count("[") > words.count("]") else [])
        elif token == "}":
            if len(levels) == 1:
                raise ValueError("the schema has a brace too many")
            levels.pop()
            words = begun.pop()
            continue
        elif token != ";":
            words.append(token)
            continue
        elif len(levels) == 1:
            if len(words) == 2 and words[0] == "package":
                package = words[1]
        elif (within := levels[-1]) is not None and (field := _field(words)) is not None:
            within.fields[field[0]] = field[1]
        words = []
    return top._replace(name=package)


def _block(words: list[str], within: Outline | None) -> Outline | None:
    # Other blocks, for example those of services, hold no messages.
    if within is None or len(words) != 2 or words[0] not in ("message", "enum", "oneof"):
        return None
    if words[0] == "oneof":
        return within
    made = Outline(words[1], [], [], {})
    (within.messages if words[0] == "message" else within.enums).append(made)
    return made


def _field(words: list[str]) -> tuple[str, tuple[int, str]] | None:
    """The name, the number and the type of a field or of an enum's value; None for other statements."""
    if "=" not in words or words[0] == "option":
        return None
    place = words.index("=")
    sign, digits = (-1, words[place + 2 :]) if words[place + 1 :][:1] == ["-"] else (1, words[place + 1 :])
    number = _number(digits[0]) if digits else None
    if not place or number is None:
        return None
    *kind, name = words[:place]
    label = "repeated " if kind[:1] == ["repeated"] else ""
    if kind[:1] and kind[0] in _LABELS and len(kind) > 1:
        kind = kind[1:]
    return name, (sign * number, label + "".join(each.removeprefix(".") for each in kind))


def _number(digits: str) -> int | None:
    try:
        return int(digits, 0) if len(digits) <= _DEEPEST else None
    except ValueError:
        return None
