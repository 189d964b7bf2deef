"""The text of .proto files, written from a descriptor for registries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from streamapp.errors import ConfigError
from streamapp.serdes.proto_outline import TYPES

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FieldDescriptorProto

__all__ = ["proto_text"]


def proto_text(described: Any) -> str:
    """The .proto text of a file's descriptor, without services and without most options.

    The text has the options ``packed`` and ``deprecated`` of fields, and ``allow_alias`` of enums. Raises `ConfigError`
    for extensions, ranges of extensions, groups and editions.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto()
    described.CopyToProto(file)
    syntax = file.syntax or "proto2"
    if syntax not in ("proto2", "proto3") or file.extension:
        what = "extensions" if file.extension else f"syntax {syntax}"
        raise ConfigError(
            f"{file.name} has {what}, which this serde cannot register: register the file by hand, and give the serde "
            "this version of the subject (version=)"
        )
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
        raise ConfigError(
            f"{message.name} has extensions, which this serde cannot register: register the file by hand, and give the "
            "serde this version of the subject (version=)"
        )
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
        raise ConfigError(
            f"{field.name} is a group, which this serde cannot register: register the file by hand, and give the serde "
            "this version of the subject (version=)"
        )
    return field.type_name if field.type_name else TYPES[field.type - 1]


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
