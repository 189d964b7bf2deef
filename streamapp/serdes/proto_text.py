"""The text of .proto files: made from a descriptor, because registries keep text, and searched for names of
messages."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from streamapp.errors import ConfigError

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FieldDescriptorProto

__all__ = ["message_at", "proto_text"]

_MOST_CHARACTERS = 2**20
_DEEPEST = 64
# Comments and texts match without an end, too. A search for missing ends from each begin would take quadratic time.
_TOKEN = re.compile(
    r'//[^\n]*|/\*(?:.*?\*/|.*)|"(?:[^"\\\n]|\\.)*"?|\'(?:[^\'\\\n]|\\.)*\'?|[\w.]+|[{};]|\S', re.DOTALL
)
_TYPES = (
    "double float int64 uint64 int32 fixed64 fixed32 bool string group message bytes uint32 enum "
    "sfixed32 sfixed64 sint32 sint64"
)


def proto_text(described: Any) -> str:
    """The .proto text of a file's descriptor, without services and without options that do not change the bytes.

    Raises `ConfigError` for extensions, groups and editions.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto()
    described.CopyToProto(file)
    syntax = file.syntax or "proto2"
    if syntax not in ("proto2", "proto3") or file.extension:
        what = "extensions" if file.extension else f"syntax {syntax}"
        raise ConfigError(f"{file.name} has {what}: register it by hand, and pin it with version=")
    lines = [f'syntax = "{syntax}";', ""]
    if file.package:
        lines += [f"package {file.package};", ""]
    for number, name in enumerate(file.dependency):
        public = "public " if number in file.public_dependency else ""
        lines.append(f'import {public}"{name}";')
    if file.dependency:
        lines.append("")
    for enum in file.enum_type:
        lines += _enum(enum, "")
    for message in file.message_type:
        lines += _message(message, "", syntax)
    return "\n".join(lines) + "\n"


def _message(message: DescriptorProto, indent: str, syntax: str) -> Iterator[str]:
    if message.extension_range or message.extension:
        raise ConfigError(f"{message.name} has extensions: register it by hand, and pin it with version=")
    inner = indent + "  "
    yield f"{indent}message {message.name} {{"
    maps = {each.name: each for each in message.nested_type if each.options.map_entry}
    for ranges in message.reserved_range:
        last = "max" if ranges.end > 2**29 - 1 else ranges.end - 1
        yield f"{inner}reserved {ranges.start}" + (f" to {last};" if last != ranges.start else ";")
    for name in message.reserved_name:
        yield f'{inner}reserved "{name}";'
    synthetic = {each.oneof_index for each in message.field if each.proto3_optional}
    opened: int | None = None
    for each in message.field:
        group = (
            each.oneof_index if each.HasField("oneof_index") and each.oneof_index not in synthetic else None
        )
        if opened is not None and group != opened:
            yield f"{inner}}}"
        if group is not None and group != opened:
            yield f"{inner}oneof {message.oneof_decl[group].name} {{"
        opened = group
        yield ("  " if group is not None else "") + inner + _field(each, maps, syntax, group is not None)
    if opened is not None:
        yield f"{inner}}}"
    for enum in message.enum_type:
        yield from _enum(enum, inner)
    for nested in message.nested_type:
        if nested.name not in maps:
            yield from _message(nested, inner, syntax)
    yield f"{indent}}}"


def _field(field: FieldDescriptorProto, maps: dict[str, DescriptorProto], syntax: str, in_oneof: bool) -> str:
    entry = maps.get(field.type_name.rpartition(".")[2])
    options = []
    if entry is not None:
        kind = f"map<{_type(entry.field[0])}, {_type(entry.field[1])}>"
        label = ""
    else:
        kind = _type(field)
        repeated = field.label == field.LABEL_REPEATED
        required = field.label == field.LABEL_REQUIRED
        label = "repeated " if repeated else "required " if required else ""
        if not label and not in_oneof and (syntax == "proto2" or field.proto3_optional):
            label = "optional "
    if field.HasField("default_value"):
        value = field.default_value
        if field.type == field.TYPE_STRING:
            value = _quoted(value)
        elif field.type == field.TYPE_BYTES:
            value = f'"{value}"'  # descriptors have the defaults of bytes escaped
        options.append(f"default = {value}")
    if field.options.HasField("packed"):
        options.append(f"packed = {str(field.options.packed).lower()}")
    if field.options.deprecated:
        options.append("deprecated = true")
    shown = f" [{', '.join(options)}]" if options else ""
    return f"{label}{kind} {field.name} = {field.number}{shown};"


def _type(field: FieldDescriptorProto) -> str:
    if field.type == field.TYPE_GROUP:
        raise ConfigError(f"{field.name} is a group: register the schema by hand, and pin it with version=")
    return field.type_name if field.type_name else _TYPES.split()[field.type - 1]


def _enum(enum: EnumDescriptorProto, indent: str) -> Iterator[str]:
    yield f"{indent}enum {enum.name} {{"
    if enum.options.allow_alias:
        yield f"{indent}  option allow_alias = true;"
    for ranges in enum.reserved_range:
        last = "max" if ranges.end == 2**31 - 1 else ranges.end  # inclusive, unlike the ranges of messages
        yield f"{indent}  reserved {ranges.start}" + (f" to {last};" if last != ranges.start else ";")
    for name in enum.reserved_name:
        yield f'{indent}  reserved "{name}";'
    for value in enum.value:
        yield f"{indent}  {value.name} = {value.number};"
    yield f"{indent}}}"


def _quoted(text: str) -> str:
    escaped = "".join(
        character
        if character.isprintable() and character not in '"\\'
        else "".join(f"\\{byte:03o}" for byte in character.encode())
        for character in text
    )
    return f'"{escaped}"'


def message_at(schema: str, path: Sequence[int]) -> str:
    """The full name of a message, found by its indexes in a schema. The schema is text or a descriptor in base64.

    The first index is that of the outermost message in the file, the next that of a message inside it. Raises
    ValueError if there is no such message, or if the schema is too large or deep, because it may come from a stranger.

    >>> message_at("package shop; message A { message B {} } message C {}", [0, 0]), message_at("message A {}", [0])
    ('shop.A.B', 'A')
    """
    names = _of_descriptor(schema) or _of_text(schema)
    package, messages = names
    found = [package] if package else []
    for index in path:
        if not 0 <= index < len(messages):
            raise ValueError(f"the schema has no message at {list(path)}")
        name, messages = messages[index]
        found.append(name)
    return ".".join(found)


def _of_descriptor(schema: str) -> tuple[str, list[Any]] | None:
    """The package and messages of a descriptor in base64, as Confluent's Python serializer registers; None for text."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        file = FileDescriptorProto.FromString(base64.b64decode(schema, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
    return file.package, [_nested(message) for message in file.message_type]


def _nested(message: DescriptorProto) -> tuple[str, list[Any]]:
    return message.name, [_nested(each) for each in message.nested_type]


def _of_text(schema: str) -> tuple[str, list[Any]]:
    if len(schema) > _MOST_CHARACTERS:
        raise ValueError(f"the schema has more than {_MOST_CHARACTERS:,} characters")
    package, top = "", list[Any]()
    levels: list[list[Any] | None] = [top]  # None: a block that holds no messages
    words: list[str] = []
    for match in _TOKEN.finditer(schema):
        token = match[0]
        if token.startswith(("//", "/*")):
            continue
        if token == "{":
            if len(levels) > _DEEPEST:
                raise ValueError(f"the schema is nested more than {_DEEPEST} levels deep")
            within = levels[-1]
            # The entry of a map is no message in the text. Its index comes after the indexes of the text's messages.
            if within is not None and len(words) == 2 and words[0] == "message":
                below: list[Any] | None = []
                within.append((words[1], below))
            else:
                below = within if words[:1] == ["oneof"] else None
            levels.append(below)
        elif token == "}":
            if len(levels) == 1:
                raise ValueError("the schema has a brace too many")
            levels.pop()
        elif token != ";":
            words.append(token)
            continue
        elif len(levels) == 1 and len(words) == 2 and words[0] == "package":
            package = words[1]
        words = []
    return package, top
