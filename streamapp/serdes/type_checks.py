"""Compares a type with a schema when a serde is made, and finds places (fields or items) whose values the type cannot
have.

The type must take each kind of values that the schema allows at a place. A value of the right kind may still be too
large, or a text in the wrong format. Such a value raises an error only when its record is read.
"""

from __future__ import annotations

from typing import Any, NoReturn

from msgspec import inspect as mi

from streamapp.errors import ConfigError
from streamapp.serdes.avro_schema import parse
from streamapp.serdes.models import aliases_of, is_pydantic, shape_of
from streamapp.serdes.schema_kinds import Kind, Place, avro_place, json_place, message_place
from streamapp.serdes.types import bare, check_defaults, members

__all__ = ["check_avro", "check_json", "check_message"]

_LISTS = (mi.ListType, mi.VarTupleType, mi.TupleType, mi.SetType, mi.FrozenSetType)
_CHOICES = (mi.EnumType, mi.LiteralType)
_OPEN = (mi.AnyType, mi.CustomType, mi.RawType, mi.ExtType)
_TEXTS = (
    *_CHOICES,
    *(mi.StrType, mi.BytesType, mi.DateTimeType, mi.DateType, mi.TimeType, mi.TimeDeltaType, mi.UUIDType),
    mi.DecimalType,
)
_AVRO: dict[str, tuple[type[mi.Type], ...]] = {
    "null": (mi.NoneType,),
    "boolean": (mi.BoolType,),
    "int": (mi.IntType, mi.FloatType, *_CHOICES),
    "long": (mi.IntType, mi.FloatType, *_CHOICES),
    "float": (mi.FloatType, mi.IntType),
    "double": (mi.FloatType, mi.IntType),
    "text": (mi.StrType, *_CHOICES),
    "enum": (mi.StrType, *_CHOICES),
    "bytes": (mi.BytesType,),
    "decimal": (mi.DecimalType, mi.FloatType),
    "uuid": (mi.UUIDType,),
    "date": (mi.DateType,),
    "time": (mi.TimeType,),
    "moment": (mi.DateTimeType,),
}
"""Kinds -> the types that take their values."""
_JSON: dict[str, tuple[type[mi.Type], ...]] = {
    "null": (mi.NoneType,),
    "boolean": (mi.BoolType,),
    "long": (mi.IntType, mi.FloatType, mi.DecimalType, *_CHOICES),
    "number": (mi.IntType, mi.FloatType, mi.DecimalType),
    "string": _TEXTS,
    "enum": _TEXTS,
}
_PROTOBUF: dict[str, tuple[type[mi.Type], ...]] = {
    "boolean": (mi.BoolType,),
    "int": (mi.IntType, mi.FloatType, mi.DecimalType, mi.DateTimeType, mi.TimeDeltaType, *_CHOICES),
    "long": (
        mi.IntType,
        mi.FloatType,
        mi.DecimalType,
        mi.DateTimeType,
        mi.TimeDeltaType,
        mi.StrType,
        *_CHOICES,
    ),
    "float": (mi.FloatType, mi.IntType, mi.DecimalType),
    "double": (mi.FloatType, mi.IntType, mi.DecimalType),
    "text": _TEXTS,
    "enum": (mi.StrType, *_CHOICES),
    "bytes": (mi.BytesType, mi.StrType),
    "timestamp": (mi.DateTimeType, mi.StrType),
}
_SPANS = (mi.DateTimeType, mi.DateType, mi.TimeType, mi.TimeDeltaType)
_LAX: dict[str, tuple[type[mi.Type], ...]] = {
    **dict.fromkeys(("text", "string", "enum"), (*_TEXTS, mi.BoolType, mi.IntType, mi.FloatType)),
    **dict.fromkeys(("int", "long"), (mi.BoolType, mi.DecimalType, *_SPANS)),
    **dict.fromkeys(("float", "double", "number"), (mi.BoolType, mi.IntType, mi.DecimalType, *_SPANS)),
    "boolean": (mi.IntType, mi.FloatType),
    "bytes": (mi.StrType, mi.UUIDType, *_SPANS),
    "decimal": (mi.IntType,),
    "moment": (mi.DateType, mi.TimeType),
}
"""Types that pydantic also makes from values of a kind."""


def check_avro(schema: Any, type_: Any) -> None:
    """Raises `ConfigError` for a place where a type does not take the values of an Avro schema.

    >>> import msgspec
    >>> class Flight(msgspec.Struct):
    ...     delay: int
    >>> fields = [{"name": "delay", "type": ["null", "int"]}]
    >>> check_avro({"type": "record", "name": "Flight", "fields": fields}, Flight)
    Traceback (most recent call last):
    ...
    streamapp.errors.ConfigError: Flight.delay is int, and the schema has null or int there: let the type take null, too
    """
    parsed = parse(schema)
    _check(type_, avro_place(parsed, parsed.root), _AVRO)


def check_json(schema: Any, type_: Any) -> None:
    """Raises `ConfigError` for a place where a type does not take the values of a JSON Schema.

    A field of the type without default is allowed, although the schema does not require its property. A record without
    this property then cannot be read.
    """
    _check(type_, json_place(schema, schema), _JSON)


def check_message(descriptor: Any, type_: Any) -> None:
    """Raises `ConfigError` for a place where a type does not take the values of a message's field, in the forms of
    Protobuf's JSON mapping."""
    _check(type_, message_place(descriptor), _PROTOBUF, False)


def _check(
    type_: Any, place: Place, takes: dict[str, tuple[type[mi.Type], ...]], models_convert: bool = True
) -> None:
    try:
        info = mi.type_info(shape_of(type_))
    except (ConfigError, TypeError, ValueError, AttributeError, NameError, RecursionError):
        return  # a type without known fields
    check_defaults(info)
    lax = models_convert and is_pydantic(type_)
    _Comparison(takes, lax, models_convert).compare(info, place, getattr(type_, "__name__", "the type"))


class _Comparison:
    def __init__(self, takes: dict[str, tuple[type[mi.Type], ...]], lax: bool, aliases: bool) -> None:
        self._takes, self._lax, self._aliases = takes, lax, aliases
        self._seen: set[Any] = set()

    def compare(self, info: mi.Type, place: Place, path: str) -> None:
        kinds = members(info)
        if place is None or any(isinstance(each, _OPEN) for each in kinds):
            return
        for kind in place:
            fitting = [each for each in kinds if self._fits(each, kind)]
            if not fitting:
                self._misfit(info, place, kind, path)
            if len(fitting) == 1:
                self._compare_inside(fitting[0], kind, path)

    def _fits(self, info: mi.Type, kind: Kind) -> bool:
        if kind.name == "list":
            return isinstance(info, (*_LISTS, mi.NamedTupleType)) or _is_array(info)
        if kind.name in ("record", "map"):
            return _has_names(info)
        if isinstance(info, _CHOICES) and not self._lax:
            wanted = int if kind.name in ("int", "long") else str
            return type(info) in self._takes[kind.name] and any(
                isinstance(each, wanted) for each in _values(info)
            )
        return isinstance(info, self._takes[kind.name] + (_LAX.get(kind.name, ()) if self._lax else ()))

    def _misfit(self, info: mi.Type, place: tuple[Kind, ...], kind: Kind, path: str) -> NoReturn:
        schema = " or ".join(dict.fromkeys(each.shown for each in place))
        remedy = ": let the type take null, too" if kind.name == "null" else ""
        raise ConfigError(f"{path} is {_shown(info)}, and the schema has {schema} there{remedy}")

    def _compare_inside(self, info: mi.Type, kind: Kind, path: str) -> None:
        if kind.symbols is not None and isinstance(info, _CHOICES) and not self._lax:
            values = _values(info)
            if more := [each for each in kind.symbols if each not in values]:
                raise ConfigError(
                    f"{path} is {_shown(info)} with the values {_listed(values)}, and the schema has {kind.shown} "
                    f"there, also with {_listed(more)}"
                )
        if kind.name == "list":
            place = None if kind.item is None else kind.item()
            for inner in _items(info):
                self.compare(inner, place, f"{path}[]")
        elif isinstance(info, mi.DictType):
            places = kind.fields().values() if kind.fields else (kind.item(),) if kind.item else ()
            for each in places:
                self.compare(info.value_type, each, f"{path}[*]")
        elif kind.name in ("record", "map"):
            self._compare_fields(info, kind, path)

    def _compare_fields(self, info: mi.Type, kind: Kind, path: str) -> None:
        assert isinstance(info, mi.StructType | mi.DataclassType | mi.TypedDictType)
        if kind.key is not None:
            if (info.cls, kind.key) in self._seen:
                return
            self._seen.add((info.cls, kind.key))
        there = kind.fields() if kind.fields is not None else {}
        names = {field.name: self._name_in(there, info.cls, field, path) for field in info.fields}
        if kind.closed and (
            missing := [
                field.encode_name for field in info.fields if field.required and names[field.name] is None
            ]
        ):
            raise ConfigError(
                f"{path} needs the fields {missing}, and the schema has {kind.shown} there, which lacks these. "
                "Give them defaults"
            )
        for field in info.fields:
            if (name := names[field.name]) is not None:
                self.compare(field.type, there[name], f"{path}.{field.encode_name}")
            elif kind.name == "map" and kind.item is not None:
                self.compare(field.type, kind.item(), f"{path}.{field.encode_name}")

    def _name_in(self, there: dict[str, Place], cls: Any, field: mi.Field, path: str) -> str | None:
        """The name of a field in the schema: its own name, or an alias; None if the schema lacks the field."""
        if field.encode_name in there:
            return field.encode_name
        alias = next((name for name in sorted(aliases_of(cls, field.name)) if name in there), None)
        if alias is not None and not self._aliases:
            raise ConfigError(
                f"{path}.{field.name} has the alias {alias!r}, and the schema has a field of this name. "
                "A ProtobufSerde knows no aliases: rename the field"
            )
        return alias


def _items(info: mi.Type) -> list[mi.Type]:
    """The types of the items that a type takes from a list."""
    if isinstance(info, mi.TupleType):
        return list(info.item_types)
    if isinstance(info, mi.StructType | mi.NamedTupleType):
        return [field.type for field in info.fields]
    assert isinstance(info, mi.ListType | mi.VarTupleType | mi.SetType | mi.FrozenSetType)
    return [info.item_type]


def _is_array(info: mi.Type) -> bool:
    return isinstance(info, mi.StructType) and info.array_like


def _has_names(info: mi.Type) -> bool:
    if isinstance(info, mi.StructType):
        return not info.array_like
    return isinstance(info, mi.DictType | mi.DataclassType | mi.TypedDictType)


def _values(info: mi.Type) -> list[Any]:
    if isinstance(info, mi.LiteralType):
        return list(info.values)
    assert isinstance(info, mi.EnumType)
    return [member.value for member in info.cls]


def _listed(values: list[Any]) -> str:
    return ", ".join(map(str, values[:10])) + ("" if len(values) <= 10 else " ...")


def _shown(info: mi.Type) -> str:
    match info := bare(info):
        case mi.UnionType(types=types):
            return " | ".join(map(_shown, types))
        case mi.ListType(item_type=item):
            return f"list[{_shown(item)}]"
        case mi.VarTupleType(item_type=item):
            return f"tuple[{_shown(item)}, ...]"
        case mi.DictType(key_type=key, value_type=item):
            return f"dict[{_shown(key)}, {_shown(item)}]"
        case mi.NoneType():
            return "None"
    cls = getattr(info, "cls", None)
    return cls.__name__ if cls is not None else type(info).__name__.removesuffix("Type").lower()
