"""Avro schemas that follow from types."""

from __future__ import annotations

from enum import Enum
from typing import Any

from msgspec import NODEFAULT
from msgspec import inspect as mi

from streamapp.errors import ConfigError
from streamapp.serdes.types import bare

__all__ = ["avro_schema_of"]

_SCALARS: dict[type, Any] = {
    mi.NoneType: "null",
    mi.BoolType: "boolean",
    mi.IntType: "long",
    mi.FloatType: "double",
    mi.StrType: "string",
    mi.BytesType: "bytes",
    mi.DateTimeType: {"type": "long", "logicalType": "timestamp-micros"},
    mi.DateType: {"type": "int", "logicalType": "date"},
    mi.TimeType: {"type": "long", "logicalType": "time-micros"},
    mi.UUIDType: {"type": "string", "logicalType": "uuid"},
}


def avro_schema_of(type_: Any) -> Any:
    """The Avro schema of a Struct or dataclass.

    A field with None in its type is a union with null. The first branch is null, unless the field has a default other
    than None. An int is a long, a float a double, a datetime a timestamp in microseconds. Raises `ConfigError` for
    types without a single schema. Examples are decimals (their precision is not known), several types in a union, and
    values of any type.

    >>> import msgspec
    >>> class Flight(msgspec.Struct):
    ...     carrier: str
    ...     delay: int | None = None
    >>> avro_schema_of(Flight)["fields"]
    [{'name': 'carrier', 'type': 'string'}, {'name': 'delay', 'type': ['null', 'long'], 'default': None}]
    """
    try:
        info = mi.type_info(type_)
    except (TypeError, NameError) as error:
        raise ConfigError(f"no Avro schema follows from {type_!r}: {error}") from error
    return _Types().schema(info, getattr(type_, "__name__", str(type_)))


class _Types:
    def __init__(self) -> None:
        self._known: dict[str, type] = {}
        self._seen: set[type] = set()

    def schema(self, info: mi.Type, where: str) -> Any:
        match info := bare(info):
            case mi.UnionType(types=types):
                some = [each for each in types if not isinstance(each, mi.NoneType)]
                if len(some) == 1:
                    return ["null", self.schema(some[0], where)]
            case mi.ListType(item_type=item) | mi.VarTupleType(item_type=item):
                return {"type": "array", "items": self.schema(item, where)}
            case mi.DictType(key_type=mi.StrType(), value_type=item):
                return {"type": "map", "values": self.schema(item, where)}
            case mi.EnumType(cls=cls) if all(isinstance(member.value, str) for member in cls):
                return self._named(cls) or {
                    "type": "enum",
                    "name": cls.__name__,
                    "symbols": [member.value for member in cls],
                }
            case mi.StructType(cls=cls, fields=fields, array_like=False, tag=None):
                return self._named(cls) or self._record(cls, fields)
            case mi.DataclassType(cls=cls, fields=fields):
                return self._named(cls) or self._record(cls, fields)
        if type(info) in _SCALARS:
            return _SCALARS[type(info)]
        raise ConfigError(
            f"no Avro schema follows from {where}: Avro has no type, or several types, for "
            f"{type(info).__name__.removesuffix('Type')}. Give the serde a schema, too: AvroSerde(schema, type=...)"
        )

    def _named(self, cls: type) -> str | None:
        """The name of a type that the schema has already defined; None at the type's first place."""
        known = self._known.setdefault(cls.__name__, cls)
        if known is not cls:
            raise ConfigError(f"two types have the name {cls.__name__}: give the serde a schema")
        if cls in self._seen:
            return cls.__name__
        self._seen.add(cls)
        return None

    def _record(self, cls: type, fields: tuple[mi.Field, ...]) -> Any:
        made = []
        for field in fields:
            schema = self.schema(field.type, f"{cls.__name__}.{field.name}")
            each = {"name": field.encode_name, "type": schema}
            default = field.default
            if default is NODEFAULT and field.default_factory in (list, dict, tuple):
                default = field.default_factory()
            if isinstance(schema, list) and default not in (None, NODEFAULT):
                each["type"] = [*reversed(schema)]  # Avro takes a default for the first branch
            if default is not NODEFAULT:
                each["default"] = _default(default, f"{cls.__name__}.{field.name}")
            made.append(each)
        return {"type": "record", "name": cls.__name__, "fields": made}


def _default(value: Any, where: str) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return value.decode("latin-1")  # as Avro writes the defaults of bytes
    if isinstance(value, list | tuple):
        return [_default(item, where) for item in value]
    if isinstance(value, dict):
        return {name: _default(item, where) for name, item in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ConfigError(f"the default of {where} has no form in an Avro schema: give the serde a schema")
