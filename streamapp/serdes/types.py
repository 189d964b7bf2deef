"""Properties of types that serdes need: fields, mutability, and excerpts of values for errors."""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
from msgspec import inspect as mi

from streamapp.errors import ConfigError

__all__ = [
    "KEPT",
    "as_plain",
    "bare",
    "check_defaults",
    "check_limits",
    "class_of",
    "excerpt",
    "field_types",
    "has_limits",
    "int_fields",
    "is_exact",
    "is_immutable",
    "members",
    "omits_defaults",
    "omits_fields",
    "parts_of",
    "record_fields",
    "required_fields",
    "span_since",
    "takes_all_fields",
]

_EPOCH = datetime(1970, 1, 1)
_FIRST, _LAST = datetime.min - _EPOCH, datetime.max - _EPOCH

KEPT = (bytes, date, datetime, time, Decimal, UUID)
"""Classes whose objects stay as they are when `as_plain` turns a value into dicts and lists."""

_SCALARS = (
    mi.NoneType,
    mi.BoolType,
    mi.IntType,
    mi.FloatType,
    mi.StrType,
    mi.BytesType,
    mi.DateTimeType,
    mi.DateType,
    mi.TimeType,
    mi.TimeDeltaType,
    mi.UUIDType,
    mi.DecimalType,
    mi.EnumType,
    mi.LiteralType,
)

_LIMITS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern", "tz")
_EXACT = (mi.NoneType(), mi.BoolType(), mi.IntType(), mi.StrType(), mi.BytesType())


def bare(info: mi.Type) -> mi.Type:
    """The type without the limits and notes of ``Annotated``."""
    while isinstance(info, mi.Metadata):
        info = info.type
    return info


def class_of(info: mi.StructType | mi.DataclassType) -> Any:
    """The class of the objects; for a generic class with arguments, such as ``Pair[int]``, the class ``Pair``."""
    return typing.get_origin(info.cls) or info.cls


def members(info: mi.Type) -> list[mi.Type]:
    """The types in a union, or a type that is no union alone; each without the limits and notes of ``Annotated``.

    >>> from typing import Annotated
    >>> members(mi.type_info(Annotated[int, msgspec.Meta(ge=0)] | None))
    [IntType(gt=None, ge=0, lt=None, le=None, multiple_of=None), NoneType()]
    """
    info = bare(info)
    if isinstance(info, mi.UnionType):
        return [member for each in info.types for member in members(each)]
    return [info]


def parts_of(info: mi.Type) -> Iterator[mi.Type]:
    """The type and all types inside it. A class that contains itself appears only once.

    >>> [type(part).__name__ for part in parts_of(mi.type_info(list[int | None]))]
    ['ListType', 'UnionType', 'NoneType', 'IntType']
    """
    seen: set[Any] = set()
    waiting = [info]
    while waiting:
        info = waiting.pop()
        yield info
        cls = getattr(info, "cls", None)
        if cls is None or cls not in seen:
            seen.add(cls)
            waiting += _inside(info)


def _inside(info: mi.Type) -> Iterator[mi.Type]:
    for name in ("type", "item_type", "key_type", "value_type"):
        if isinstance(part := getattr(info, name, None), mi.Type):
            yield part
    for name in ("types", "item_types"):
        yield from getattr(info, name, ())
    yield from (field.type for field in getattr(info, "fields", ()))


def check_defaults(info: mi.Type) -> None:
    """Raises `ConfigError` if a dataclass, also one inside the type, has a ``Field(...)`` of pydantic as a default.

    Only pydantic knows the default that such an object stands for.
    """
    for part in parts_of(info):
        if not isinstance(part, mi.DataclassType):
            continue
        for field in part.fields:
            if hasattr(field.default, "default_factory") and hasattr(field.default, "validation_alias"):
                raise ConfigError(
                    f"the default of {part.cls.__name__}.{field.name} is a Field(...) of pydantic: make the class a "
                    "BaseModel, or take dataclasses.field(...)"
                )


def has_limits(info: mi.Type) -> bool:
    """True if the type, or a type inside it, has limits of ``msgspec.Meta``, for example ``ge=0``.

    >>> from typing import Annotated
    >>> has_limits(mi.type_info(list[Annotated[int, msgspec.Meta(ge=0)]])), has_limits(mi.type_info(list[int]))
    (True, False)
    """
    return any(getattr(part, name, None) is not None for part in parts_of(info) for name in _LIMITS)


def check_limits(value: Any, type_: Any) -> None:
    """Raises ``msgspec.ValidationError`` if an object is beyond a limit of its type."""
    plain = msgspec.to_builtins(value, builtin_types=KEPT, enc_hook=_of_numpy)
    msgspec.convert(plain, type_, builtin_types=KEPT)


def _of_numpy(value: Any) -> Any:
    """The int, float or other Python value of a scalar of NumPy."""
    numpy = sys.modules.get("numpy")  # without an import there is no such value
    if numpy is not None and isinstance(value, numpy.generic):
        plain = value.item()
        if not isinstance(plain, numpy.generic):  # a longdouble stays as it is
            return plain
    raise TypeError(
        f"Encoding objects of type {type(value).__module__}.{type(value).__qualname__} is unsupported"
    )


def omits_defaults(info: mi.Type) -> bool:
    """True if the type, or a type inside it, is a Struct with ``omit_defaults=True``."""
    return any(
        isinstance(part, mi.StructType) and class_of(part).__struct_config__.omit_defaults
        for part in parts_of(info)
    )


def omits_fields(info: mi.Type) -> bool:
    """True if JSON of the type may lack fields: because of ``omit_defaults=True``, or of ``UNSET`` as a default."""
    return omits_defaults(info) or any(
        getattr(field, "default", None) is msgspec.UNSET
        for part in parts_of(info)
        for field in getattr(part, "fields", ())
    )


def as_plain(value: Any) -> Any:
    """An object as dicts and lists, as ``msgspec.to_builtins`` makes them, but also with fields that equal their
    default.

    A Struct with ``omit_defaults=True`` leaves such fields out of its JSON, but a writer of Avro or Protobuf needs
    them. Objects of unknown classes stay as they are, so that the error of a writer can name their place.

    >>> class Flight(msgspec.Struct, omit_defaults=True):
    ...     delay: int = 0
    >>> as_plain([Flight()]), msgspec.to_builtins([Flight()])
    ([{'delay': 0}], [{}])
    """
    kind = type(value)
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        tagged = {} if config.tag is None else {config.tag_field: config.tag}
        if config.array_like:
            return [*tagged.values(), *(as_plain(getattr(value, name)) for name in value.__struct_fields__)]
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        return tagged | _plain_items((name, getattr(value, attribute)) for name, attribute in names)
    if dataclasses.is_dataclass(kind):
        return _plain_items((each.name, getattr(value, each.name)) for each in dataclasses.fields(kind))
    if isinstance(value, dict):
        return _plain_items(value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return [as_plain(item) for item in value]
    return value.value if isinstance(value, Enum) else value


def _plain_items(items: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    return {as_plain(name): as_plain(item) for name, item in items if item is not msgspec.UNSET}


def is_immutable(type_: Any) -> bool:
    """True if values of the type are hashable, and neither they nor their parts can change in place."""
    return _immutable(mi.type_info(type_), set())


def is_exact(type_: Any) -> bool:
    """True for an immutable Struct or dataclass whose values are equal after they were written to JSON and read back.

    Floats are not exact, because an int in such a field is read back as a float. Neither are times, whose zone may
    change, nor types with limits.
    """
    return (
        record_fields(type_) is not None
        and is_immutable(type_)
        and all(
            member in _EXACT
            for field in _fields(type_)
            for member in (field.type.types if isinstance(field.type, mi.UnionType) else (field.type,))
        )
    )


def record_fields(type_: Any) -> dict[str, str] | None:
    """The attributes of a Struct or dataclass by their names in the data; None for any other type."""
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return {field.encode_name: field.name for field in msgspec.structs.fields(type_)}
    if isinstance(type_, type) and dataclasses.is_dataclass(type_):
        return {field.name: field.name for field in dataclasses.fields(type_)}
    return None


def takes_all_fields(type_: Any) -> bool:
    """True if the class takes each of its fields as an argument; a dataclass may have fields with ``init=False``."""
    return not dataclasses.is_dataclass(type_) or all(field.init for field in dataclasses.fields(type_))


def span_since(epoch: datetime, moment: datetime) -> timedelta:
    """The time since an epoch. Raises ValueError for a moment that no reader could make: in UTC, its year is 0 or
    10000.

    Python has no such datetime in UTC, but a datetime with another time zone may be such a moment.
    """
    span = moment - epoch
    if not _FIRST <= span <= _LAST:
        raise ValueError(f"{moment!r} is not in the years 1 to 9999 of UTC")
    return span


def required_fields(type_: Any) -> set[str]:
    """The fields of a Struct or dataclass that have no default, by their names in the data."""
    return {field.encode_name for field in _fields(type_) if field.required}


def field_types(type_: Any) -> dict[str, mi.Type]:
    """The types of the fields of a Struct or dataclass, by their names in the data."""
    return {field.encode_name: field.type for field in _fields(type_)}


def int_fields(type_: Any) -> frozenset[str]:
    """The fields of a Struct or dataclass that hold an int (or None), by their names in the data."""
    return frozenset(
        field.encode_name
        for field in _fields(type_)
        if all(
            isinstance(member, mi.IntType | mi.NoneType)
            for member in (field.type.types if isinstance(field.type, mi.UnionType) else [field.type])
        )
    )


def excerpt(data: Any, around: int = 0, size: int = 60) -> str:
    """The bytes, or a value's repr, cut to ``size`` for an error message. For bytes, ``around`` is the position in the
    middle of the excerpt.

    `excerpt` never raises, and reads only a part of a large text, list or dict.

    >>> excerpt([10**5000, "JFK"])
    "[<int of more than 4300 digits>, 'JFK']"
    """
    if not isinstance(data, bytes):
        text = _shown(data, size, 4)
        return text if len(text) <= size else f"{text[:size]}..."
    start = max(0, min(around - size // 2, len(data) - size))
    cut = data[start : start + size]
    return f"{'...' if start else ''}{cut!r}{'...' if start + size < len(data) else ''}"


def _shown(value: Any, size: int, depth: int) -> str:
    """About ``size`` characters of a value's repr."""
    kind = type(value)
    if kind in (str, bytes, bytearray):
        return repr(value[: size + 1])
    if kind is int and value.bit_length() > 14_000:  # Python refuses to print it
        return "<int of more than 4300 digits>"
    if kind in (list, tuple, dict, set, frozenset) and value:
        opening, closing = "[]" if kind is list else "()" if kind is tuple else "{}"
        if depth == 0:
            return f"{opening}...{closing}"
        parts: list[str] = []
        room = size
        for item in value.items() if kind is dict else value:
            if room <= 0:
                parts.append("...")
                break
            part = ": ".join(_shown(each, room, depth - 1) for each in (item if kind is dict else (item,)))
            parts.append(part)
            room -= len(part) + 2
        return f"{opening}{', '.join(parts)}{',' if kind is tuple and len(parts) == 1 else ''}{closing}"
    try:
        return repr(value)
    except Exception as error:  # the repr of an application's class may raise any exception
        return f"<{kind.__name__} whose repr fails: {type(error).__name__}>"


def _fields(type_: Any) -> tuple[mi.Field, ...]:
    info = mi.type_info(type_)
    assert isinstance(info, mi.StructType | mi.DataclassType)
    return info.fields


def _immutable(info: mi.Type, seen: set[Any]) -> bool:
    match info := bare(info):
        case mi.UnionType(types=types):
            return all(_immutable(member, seen) for member in types)
        case mi.TupleType(item_types=types):
            return all(_immutable(item, seen) for item in types)
        case mi.VarTupleType(item_type=item) | mi.FrozenSetType(item_type=item):
            return _immutable(item, seen)
        case mi.StructType(cls=cls, fields=fields):
            config = class_of(info).__struct_config__
            return cls in seen or (config.frozen and config.eq and _all_immutable(cls, fields, seen))
        case mi.DataclassType(cls=cls, fields=fields):
            made = class_of(info)
            params = getattr(made, "__dataclass_params__", None)  # a class of attrs has none
            frozen = params is not None and params.frozen
            return cls in seen or (frozen and made.__hash__ is not None and _all_immutable(cls, fields, seen))
        case mi.NamedTupleType(cls=cls, fields=fields):
            return cls in seen or _all_immutable(cls, fields, seen)
    return isinstance(info, _SCALARS)


def _all_immutable(cls: type, fields: tuple[mi.Field, ...], seen: set[Any]) -> bool:
    seen.add(cls)  # of a type that contains itself, the other fields decide
    return all(_immutable(field.type, seen) for field in fields)
