"""Classes of other libraries as values: pydantic's models, Faust's Records, messages of Protobuf.

The module does not import pydantic or Faust, but recognizes their classes by attributes.
"""

from __future__ import annotations

import functools
import inspect
import operator
import types
import typing
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import msgspec
from msgspec import inspect as mi

from streamapp.errors import ConfigError
from streamapp.serdes.types import record_fields

__all__ = [
    "aliases_of",
    "as_struct",
    "builder_of",
    "check_aliases",
    "from_json",
    "is_model",
    "is_pydantic",
    "maker_of",
    "model_of",
    "plain_of",
    "record_shape",
    "shape_of",
    "writes_aliases",
]


def is_model(type_: Any) -> bool:
    """True for models of pydantic and Records of Faust."""
    return is_pydantic(type_) or _is_faust(type_)


def is_pydantic(type_: Any) -> bool:
    return isinstance(type_, type) and hasattr(type_, "model_validate_json") and hasattr(type_, "model_dump")


def _is_faust(type_: Any) -> bool:
    return isinstance(type_, type) and hasattr(type_, "from_data") and hasattr(type_, "asdict")


def writes_aliases(model: Any) -> bool:
    """True if the JSON of a pydantic model has the aliases of fields in place of their names."""
    return bool(model.model_config.get("serialize_by_alias"))


def plain_of(value: Any, computed: bool = True) -> Any:
    """A Protobuf message, or an object of a pydantic model or Faust Record, as a dict; also the Records inside. Every
    other value stays as it is.

    The dict of a model has the names of fields, and not their aliases. ``computed=False`` leaves out the properties
    that a model computes.
    """
    kind = type(value)
    if hasattr(kind, "DESCRIPTOR") and hasattr(kind, "SerializeToString"):
        from google.protobuf.json_format import MessageToDict

        return MessageToDict(
            value, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
    if is_pydantic(kind):
        return value.model_dump(by_alias=False, round_trip=not computed)
    return _without_records(value.asdict()) if _is_faust(kind) else value


def _without_records(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_records(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_records(item) for item in value]
    return _without_records(value.asdict()) if _is_faust(type(value)) else value


def maker_of(model: Any) -> Callable[[Any], Any]:
    """The function that makes an object of a pydantic model or Faust Record from a dict. Parts of the dict may be in
    the form of JSON, such as times as text."""
    return builder_of(model) if is_pydantic(model) else _record_maker(model)


def builder_of(model: Any) -> Callable[[Any], Any]:
    """As `maker_of`, from a dict whose values have the types of the fields already."""
    made: Callable[[Any], Any] = _by_names(model.model_validate) if is_pydantic(model) else model.from_data
    return made


def from_json(model: Any) -> Callable[[bytes], Any]:
    """The function that makes an object of a pydantic model or Faust Record from JSON."""
    if is_pydantic(model):
        return _by_names(model.model_validate_json)
    make = maker_of(model)
    return lambda data: make(msgspec.json.decode(data))


def _by_names(validate: Callable[..., Any]) -> Callable[[Any], Any]:
    """A function of pydantic that makes an object, so that it takes the names of fields as well as their aliases.

    By default, pydantic takes only the alias, and passes over the name, under which serdes write the field.
    """
    return functools.partial(validate, by_name=True) if _has_by_name(validate) else validate


def _has_by_name(validate: Callable[..., Any]) -> bool:
    return "by_name" in inspect.signature(validate).parameters  # since pydantic 2.11


def check_aliases(model: Any, by_alias: bool = False) -> None:
    """Raises `ConfigError` if data that follow from a pydantic model cannot be read back because of an alias, also one
    of a model inside. The data have the names of fields, or with ``by_alias`` the aliases."""
    for each in _models_in(model, {}):
        by_name = _has_by_name(each.model_validate) or each.model_config.get("populate_by_name")
        for name, field in each.model_fields.items():
            read = _aliases_of(field)
            if by_alias:
                written = field.serialization_alias or name
                why = (
                    ""
                    if written in read or written == name
                    else f"is written as {written!r}, and not read under it"
                )
            elif taken := sorted(read & each.model_fields.keys() - {name}):
                why = f"has the alias {taken[0]!r}, which is the name of another field"
            else:
                why = (
                    "has an alias, which needs populate_by_name=True before pydantic 2.11"
                    if read and not by_name
                    else ""
                )
            if why:
                raise ConfigError(f"{each.__name__}.{name} {why}: no serde could read its own bytes")


def aliases_of(struct: Any, name: str) -> set[str]:
    """The aliases of a field of a pydantic model, from which `shape_of` has made a Struct; none for all other types."""
    model = model_of(struct)
    return _aliases_of(model.model_fields[name]) if model is not None and is_pydantic(model) else set()


def _aliases_of(field: Any) -> set[str]:
    """The names, other than its own, under which pydantic looks for a field."""
    given = field.validation_alias
    choices = getattr(given, "choices", [given])
    found = (each if isinstance(each, str) else getattr(each, "path", [None])[0] for each in choices)
    return {each for each in found if isinstance(each, str)}


def _models_in(annotation: Any, known: dict[Any, None]) -> dict[Any, None]:
    """The pydantic models of an annotation, and the models inside them."""
    if is_pydantic(annotation) and annotation not in known:
        known[annotation] = None
        for field in annotation.model_fields.values():
            _models_in(field.annotation, known)
    for each in typing.get_args(annotation):
        _models_in(each, known)
    return known


def _record_maker(record: Any) -> Callable[[Any], Any]:
    """A Record takes values as they are, so the values first get the types of the Record's fields."""
    shape = record_shape(record)
    if shape is None:
        return builder_of(record)
    names = record_fields(shape) or {}

    def make(data: Any) -> Any:
        typed = msgspec.convert(data, shape, str_keys=True)
        given = {
            name: _with_records(getattr(typed, attribute))
            for name, attribute in names.items()
            if name in data
        }
        return record.from_data({**data, **given})

    return make


def _with_records(value: Any) -> Any:
    """The value with Records in the place of the Structs that `as_struct` has made for them."""
    if isinstance(value, dict):
        return {name: _with_records(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_records(item) for item in value]
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(_with_records(item) for item in value)
    record = model_of(type(value))
    if record is None:
        return value
    names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
    return record.from_data({name: _with_records(getattr(value, attribute)) for name, attribute in names})


def as_struct(model: Any) -> Any:
    """A ``msgspec.Struct`` class with the name, the fields and the defaults of a pydantic model or a Faust Record.

    Serdes derive a schema from this class. If a field of a Record has the default None, the class allows None there, as
    Faust does.
    """
    if is_pydantic(model):
        if getattr(model, "__pydantic_root_model__", False):
            raise ConfigError(
                f"{model.__name__} is a RootModel, which has no fields: take the type inside it"
            )
        fields = [
            (name, _replaced(each.annotation))
            if each.is_required()
            else (name, _replaced(each.annotation), _pydantic_default(each, f"{model.__name__}.{name}"))
            for name, each in model.model_fields.items()
        ]
    else:
        defaults = model._options.defaults
        fields = []
        for name, kind in model._options.fields.items():
            there = model._options.descriptors[name]
            if there.input_name != there.output_name:
                raise ConfigError(
                    f"{model.__name__}.{name} is written as {there.output_name!r}, and read as {there.input_name!r}: "
                    "give it one name for both directions"
                )
            default = defaults.get(name, msgspec.NODEFAULT)
            fields.append(
                (name, _replaced(kind | None if default is None else kind), _kept(default, there.output_name))
            )
    # Only with kw_only may a field with a default come before one without, which pydantic allows.
    return msgspec.defstruct(model.__name__, fields, kw_only=True)


def _pydantic_default(field: Any, where: str) -> Any:
    """The default of a field in a form that msgspec accepts."""
    made = field.default_factory
    if made is None:
        return _kept(field.default)
    if getattr(field, "default_factory_takes_validated_data", False):
        raise ConfigError(f"the default of {where} follows from other fields, which no schema can say")
    first = made()
    # A function that makes other values than containers may make another value each time, such as a new id.
    kept = first is None or isinstance(first, list | dict | set)
    return _kept(first) if kept else msgspec.field(default_factory=made)


def _kept(default: Any, name: str | None = None) -> Any:
    """A default in a form that msgspec accepts, for a field with this name in the data.

    msgspec refuses a list, dict or set with items as a default, but takes a function that makes one.
    """
    if default and isinstance(default, list | dict | set):
        return msgspec.field(default_factory=lambda: deepcopy(default), name=name)
    return msgspec.field(default=default, name=name)


def shape_of(type_: Any) -> Any:
    """The class that gives the fields of a type: the type itself, or the Struct of `as_struct` for a pydantic model or
    Faust Record."""
    if not is_model(type_):
        return type_
    try:
        return _struct_of(type_)
    except RecursionError as error:
        raise ConfigError(f"{type_.__name__} contains itself: give the serde a schema") from error


def record_shape(type_: Any) -> Any:
    """The same as `shape_of` for Structs, dataclasses, and pydantic models and Faust Records that can become a Struct.
    None for all other types."""
    try:
        shape = shape_of(type_)
        return shape if record_fields(shape) is not None and mi.type_info(shape) else None
    except (ConfigError, TypeError, ValueError, AttributeError, NameError, RecursionError):
        return None


def model_of(struct: Any) -> Any:
    """The pydantic model or Faust Record from which `shape_of` has made a Struct; None for all other types."""
    return _models.get(struct)


def field_metadata(type_: Any) -> dict[str, Sequence[Any]]:
    """Field -> the arguments that follow the type in its ``Annotated``. Raises NameError for an annotation with an
    unknown name."""
    if is_pydantic(type_):
        return {name: each.metadata for name, each in type_.model_fields.items()}
    hints = typing.get_type_hints(typing.get_origin(type_) or type_, include_extras=True)
    return {name: getattr(each, "__metadata__", ()) for name, each in hints.items()}


@functools.cache
def _struct_of(model: Any) -> Any:
    struct = as_struct(model)
    _models[struct] = model
    return struct


_models: dict[type, Any] = {}


def _replaced(annotation: Any) -> Any:
    """The annotation with Structs for models."""
    if is_model(annotation):
        return _struct_of(annotation)
    inner = tuple(_replaced(each) for each in typing.get_args(annotation))
    origin = typing.get_origin(annotation)
    if not inner or inner == typing.get_args(annotation):
        return annotation
    if origin in (typing.Union, types.UnionType):
        return functools.reduce(operator.or_, inner)
    return origin[inner] if origin is not None else annotation
