"""Copies messages of Protobuf into Structs and dataclasses, and back, field by field.

Types can be copied if all of their fields have the same Python values in the message. All other types go through
Protobuf's JSON mapping (times, enums by name, numbers as text), which is slower.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite, isnan
from typing import Any, NamedTuple

from msgspec import inspect as mi

from streamapp.serdes.types import bare, takes_all_fields

__all__ = ["Copier", "Unlike", "copier_of", "filler_of", "named_floats"]

_INTS = (3, 4, 5, 6, 7, 13, 15, 16, 17, 18)
_PLAIN: dict[int, tuple[type, mi.Type]] = {
    1: (float, mi.FloatType()),
    8: (bool, mi.BoolType()),
    9: (str, mi.StrType()),
    12: (bytes, mi.BytesType()),
    **dict.fromkeys(_INTS, (int, mi.IntType())),
}
"""Numbers of Protobuf's types -> the Python type, for values that are copied as they are. A float of 32 bits is absent,
because the JSON mapping gives it fewer digits."""
_REPEATED, _STRING, _MESSAGE = 3, 9, 11
_FLOATS = (1, 2)
_SPECIAL_FILES = frozenset(
    f"google/protobuf/{name}.proto"
    for name in ("any", "duration", "field_mask", "struct", "timestamp", "wrappers")
)
"""The files whose messages have a form of their own in Protobuf's JSON mapping."""


class Unlike(Exception):
    """A value or field cannot be copied as it is. The caller then uses Protobuf's JSON mapping, which converts the
    value or raises an error for users."""


class Copier(NamedTuple):
    """Two functions: ``read`` makes an object of the type from a message, ``write`` a message from an object.

    The ``write`` of `copier_of` raises `Unlike` for a value of another type than its field has.
    """

    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


class _Part(NamedTuple):
    """The conversions between a field of a message and a field of a type."""

    read: Callable[[Any], Any] | None
    """A function from the message's value to the type's value. None: both are the same."""
    write: Callable[[Any], Any]
    """A function from the type's value to an argument of the message's class."""
    kind: type | None = None
    """The class of values that the message's class takes without ``write``; None if there is none."""


def copier_of(message: Any, shape: Any) -> Copier | None:
    """The functions for a generated class and a Struct or dataclass; None if a field needs the JSON mapping.

    >>> import msgspec
    >>> from google.protobuf.source_context_pb2 import SourceContext
    >>> class Source(msgspec.Struct):
    ...     file_name: str
    >>> copier = copier_of(SourceContext, Source)
    >>> copier.read(copier.write(Source("a.proto")))
    Source(file_name='a.proto')
    """
    try:
        read, write, _ = _of_record(message.DESCRIPTOR, mi.type_info(shape), ())
    except Unlike:
        return None
    assert read is not None
    return Copier(read, lambda value: message(**write(value)))


def filler_of(shape: Any) -> Callable[[Any], None] | None:
    """A function that adds None to a dict of Protobuf's JSON mapping, which leaves out a field without a value.

    None is added for each field that may be None and has no default. Dicts inside the dict are filled, too. The result
    is None if a type has no such field.
    """
    found: dict[type, tuple[list[str], dict[str, Callable[[Any], None]]]] = {}

    def of(info: mi.Type) -> Callable[[Any], None] | None:
        match info := _without_none(bare(info)):
            case mi.ListType(item_type=item) | mi.VarTupleType(item_type=item):
                return of_items(of(item), iter)
            case mi.DictType(value_type=item):
                return of_items(of(item), dict.values)
            case mi.StructType(cls=cls, fields=fields) | mi.DataclassType(cls=cls, fields=fields):
                return of_record(cls, fields)
        return None

    def of_items(
        fill: Callable[[Any], None] | None, items_of: Callable[[Any], Any]
    ) -> Callable[[Any], None] | None:
        if fill is None:
            return None

        def fill_items(value: Any) -> None:
            for item in items_of(value):
                fill(item)

        return fill_items

    def of_record(cls: type, fields: tuple[mi.Field, ...]) -> Callable[[Any], None] | None:
        inside: dict[str, Callable[[Any], None]]
        if cls in found:
            names, inside = found[cls]
        else:
            names, inside = found[cls] = [each.encode_name for each in fields if _must_be_said(each)], {}
            for each in fields:
                if (fill := of(each.type)) is not None:
                    inside[each.encode_name] = fill
            if not names and not inside:
                return None

        def fill_record(record: Any) -> None:
            for name in names:
                record.setdefault(name, None)
            for name, fill in inside.items():
                if record.get(name) is not None:
                    fill(record[name])

        return fill_record

    return of(mi.type_info(shape))


def named_floats(descriptor: Any, plain: Any) -> Any:
    """The value of a message in Protobuf's JSON mapping, with the texts that the mapping has for NaN and infinity.

    Only fields of the types float and double get these texts.
    """
    if not isinstance(plain, dict):
        wrapped = descriptor.fields_by_name.get("value") if _is_wrapper(descriptor) else None
        return plain if wrapped is None else _named_float(wrapped, plain)
    fields = {name: each for each in descriptor.fields for name in (each.name, each.json_name)}
    return {
        name: _named_floats_of(fields[name], item) if name in fields else item for name, item in plain.items()
    }


def _is_wrapper(descriptor: Any) -> bool:
    return bool(descriptor.file.name == "google/protobuf/wrappers.proto")


def _named_floats_of(field: Any, item: Any) -> Any:
    message = field.message_type
    if isinstance(item, list | tuple):
        return [_named_float(field, each) for each in item]
    if message is not None and message.GetOptions().map_entry and isinstance(item, dict):
        value = message.fields_by_name["value"]
        return {key: _named_float(value, each) for key, each in item.items()}
    return _named_float(field, item)


def _named_float(field: Any, item: Any) -> Any:
    if field.type == _MESSAGE:
        return named_floats(field.message_type, item)
    if field.type in _FLOATS and isinstance(item, float) and not isfinite(item):
        return "NaN" if isnan(item) else "Infinity" if item > 0 else "-Infinity"
    return item


def _must_be_said(field: mi.Field) -> bool:
    """True for a field that may be None, and has no default."""
    return field.required and _without_none(field.type) is not field.type


def _of_record(descriptor: Any, info: mi.Type, outer: tuple[Any, ...]) -> _Part:
    from google.protobuf.descriptor_pb2 import DescriptorProto

    if not isinstance(info, mi.StructType | mi.DataclassType) or info.cls in outer or _is_special(info):
        raise Unlike
    if not takes_all_fields(info.cls):
        raise Unlike
    if descriptor.file.name in _SPECIAL_FILES:
        raise Unlike
    proto = DescriptorProto()
    descriptor.CopyToProto(proto)
    kinds = {each.name: each for each in proto.field}
    fields: dict[str, tuple[bool, _Part]] = {}
    nothing = {each.name: None for each in info.fields if _must_be_said(each)}
    for each in info.fields:
        if each.name != each.encode_name or each.name not in kinds:
            raise Unlike
        there = descriptor.fields_by_name[each.name]
        part = _of_field(there, kinds[each.name], each.type, (*outer, info.cls))
        fields[each.name] = there.has_presence, part
    return _record(info.cls, fields, nothing)


def _is_special(info: mi.StructType | mi.DataclassType) -> bool:
    """True for a Struct whose JSON is no plain object of its fields (an array, a tag, or no unknown fields)."""
    if isinstance(info, mi.StructType):
        return info.array_like or info.forbid_unknown_fields or info.tag is not None
    return False


def _record(cls: Any, fields: dict[str, tuple[bool, _Part]], nothing: dict[str, None]) -> _Part:
    always = [(name, part.read) for name, (has_presence, part) in fields.items() if not has_presence]
    maybe = [(name, part.read) for name, (has_presence, part) in fields.items() if has_presence]
    written = [(name, part.kind, part.write) for name, (_, part) in fields.items()]

    def read(message: Any) -> Any:
        values = {
            name: copy(getattr(message, name)) if copy else getattr(message, name) for name, copy in always
        }
        if nothing:
            values |= nothing
        for name, copy in maybe:
            if message.HasField(name):
                values[name] = copy(getattr(message, name)) if copy else getattr(message, name)
        return cls(**values)

    def write(value: Any) -> dict[str, Any]:
        if type(value) is not cls:
            raise Unlike
        arguments = {}
        for name, kind, copy in written:
            item = getattr(value, name)
            if type(item) is kind:
                arguments[name] = item
            elif item is not None:
                arguments[name] = copy(item)
        return arguments

    return _Part(read, write)


def _of_field(descriptor: Any, kind: Any, info: mi.Type, outer: tuple[Any, ...]) -> _Part:
    info = _without_none(info)
    if kind.label != _REPEATED:
        return _of_item(descriptor, kind.type, info, outer)
    entry = descriptor.message_type
    is_map = entry is not None and entry.GetOptions().map_entry
    if isinstance(info, mi.ListType) and not is_map and info.min_length is info.max_length is None:
        return _list(_of_item(descriptor, kind.type, info.item_type, outer))
    if isinstance(info, mi.DictType) and is_map and info.min_length is info.max_length is None:
        key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
        if key.type == _STRING and info.key_type == mi.StrType():
            return _dict(_of_item(value, value.type, info.value_type, outer), value.message_type)
    raise Unlike


def _of_item(descriptor: Any, kind: int, info: mi.Type, outer: tuple[Any, ...]) -> _Part:
    if kind == _MESSAGE:
        return _of_record(descriptor.message_type, info, outer)
    wanted, plain = _PLAIN.get(kind, (None, None))
    if wanted is None or info != plain:
        raise Unlike
    return _scalar(wanted)


def _without_none(info: mi.Type) -> mi.Type:
    if isinstance(info, mi.UnionType):
        some = [each for each in info.types if not isinstance(each, mi.NoneType)]
        if len(some) == 1:
            return some[0]
    return info


def _scalar(wanted: type) -> _Part:
    def write(item: Any) -> Any:
        if type(item) is not wanted:
            raise Unlike
        return item

    return _Part(None, write, wanted)


def _list(items: _Part) -> _Part:
    read, write, _ = items

    def write_all(value: Any) -> Any:
        if type(value) is not list:
            raise Unlike
        return [write(item) for item in value]

    return _Part(list if read is None else lambda value: [read(item) for item in value], write_all)


def _dict(items: _Part, message: Any) -> _Part:
    read, write, _ = items
    if message is not None:  # maps of older Protobuf packages take messages, and no dicts
        write = _into(message, write)

    def write_all(value: Any) -> Any:
        if type(value) is not dict or not all(type(key) is str for key in value):
            raise Unlike
        return {key: write(item) for key, item in value.items()}

    return _Part(
        dict if read is None else lambda value: {key: read(item) for key, item in value.items()}, write_all
    )


def _into(message: Any, write: Callable[[Any], Any]) -> Callable[[Any], Any]:
    from google.protobuf.message_factory import GetMessageClass

    made = GetMessageClass(message)
    return lambda value: made(**write(value))
