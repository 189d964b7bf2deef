"""Compares a type with a schema when a serde is made, and refuses fields that cannot have the schema's values.

Only fields whose values never fit are refused. A value that fits only sometimes (a null, or a large number) raises an
error when a record has it.
"""

from __future__ import annotations

from typing import Any

from msgspec import inspect as mi

from streamapp.errors import ConfigError
from streamapp.serdes.types import required_fields

__all__ = ["check_avro", "check_json", "check_message"]

_AVRO: dict[type, frozenset[str]] = {
    mi.BoolType: frozenset({"boolean"}),
    mi.IntType: frozenset({"int", "long", "float", "double"}),
    mi.FloatType: frozenset({"int", "long", "float", "double"}),
    mi.StrType: frozenset({"string", "enum", "bytes", "fixed"}),
    mi.ListType: frozenset({"array"}),
    mi.DictType: frozenset({"map", "record"}),
    mi.StructType: frozenset({"record", "map"}),
    mi.DataclassType: frozenset({"record", "map"}),
}
"""The types of Avro (without logical types) whose values a Python type accepts."""
_JSON: dict[type, frozenset[str]] = {
    mi.BoolType: frozenset({"boolean"}),
    mi.IntType: frozenset({"integer", "number"}),
    mi.FloatType: frozenset({"integer", "number"}),
    mi.StrType: frozenset({"string"}),
    mi.ListType: frozenset({"array"}),
    mi.DictType: frozenset({"object"}),
    mi.DataclassType: frozenset({"object"}),
}


def check_avro(schema: Any, shape: Any, name: str) -> None:
    """Raises `ConfigError` for a field of a Struct or dataclass that takes no value of the schema's field.

    >>> import msgspec
    >>> class Flight(msgspec.Struct):
    ...     delay: str
    >>> check_avro({"type": "record", "fields": [{"name": "delay", "type": ["null", "int"]}]}, Flight, "Flight")
    Traceback (most recent call last):
    ...
    streamapp.errors.ConfigError: Flight.delay is str, which takes no value of the schema's field: int
    """
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return
    written = {field["name"]: _avro_kinds(field["type"]) for field in schema["fields"]}
    for field, info in _fields(shape):
        _compare(f"{name}.{field}", info, written.get(field, frozenset()), _AVRO)


def check_json(schema: Any, shape: Any, name: str) -> None:
    """The same for the properties of a JSON Schema."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return
    if schema.get("additionalProperties") is False and not schema.get("patternProperties"):
        _check_there(required_fields(shape), properties, name, "the schema")
    for field, info in _fields(shape):
        kinds = properties[field].get("type") if isinstance(properties.get(field), dict) else None
        named = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
        _compare(f"{name}.{field}", info, frozenset(map(str, named)) - {"null"}, _JSON)


def check_message(descriptor: Any, shape: Any, name: str) -> None:
    """Raises `ConfigError` for a field without default that a message lacks."""
    _check_there(required_fields(shape), descriptor.fields_by_name, name, descriptor.full_name)


def _check_there(needed: set[str], there: Any, name: str, whose: str) -> None:
    if missing := needed - set(there):
        raise ConfigError(
            f"{name} needs the fields {sorted(missing)}, which {whose} lacks. Give them defaults"
        )


def _fields(shape: Any) -> list[tuple[str, mi.Type]]:
    info = mi.type_info(shape)
    assert isinstance(info, mi.StructType | mi.DataclassType)
    return [(field.encode_name, field.type) for field in info.fields]


def _compare(where: str, info: mi.Type, kinds: frozenset[str], takes: dict[type, frozenset[str]]) -> None:
    members = [_bare(each) for each in (info.types if isinstance(info, mi.UnionType) else (info,))]
    some = [each for each in members if not isinstance(each, mi.NoneType)]
    if not kinds or not some or any(type(each) not in takes for each in some):
        return
    if not any(kinds & takes[type(each)] for each in some):
        shown = " | ".join(type(each).__name__.removesuffix("Type").lower() for each in some)
        raise ConfigError(
            f"{where} is {shown}, which takes no value of the schema's field: {', '.join(sorted(kinds))}"
        )


def _bare(info: mi.Type) -> mi.Type:
    return _bare(info.type) if isinstance(info, mi.Metadata) else info


def _avro_kinds(schema: Any) -> frozenset[str]:
    """The types that a field may have. None of them are given if one is a named or a logical type, because then nothing
    is checked."""
    branches = schema if isinstance(schema, list) else [schema]
    kinds = set()
    for branch in branches:
        kind = branch.get("type") if isinstance(branch, dict) else branch
        if (
            not isinstance(kind, str)
            or kind not in _KNOWN
            or (isinstance(branch, dict) and "logicalType" in branch)
        ):
            return frozenset()
        kinds.add(kind)
    return frozenset(kinds - {"null"})


_KNOWN = frozenset({"null"}).union(*_AVRO.values())
