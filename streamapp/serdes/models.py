"""Classes of other libraries as values: pydantic's models, Faust's Records, messages of Protobuf.

The module does not import pydantic or Faust, but recognizes their classes by attributes.
"""

from __future__ import annotations

import functools
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
    "as_struct",
    "builder_of",
    "is_model",
    "is_pydantic",
    "maker_of",
    "model_of",
    "plain_of",
    "record_shape",
    "shape_of",
]


def is_model(type_: Any) -> bool:
    """True for models of pydantic and Records of Faust."""
    return is_pydantic(type_) or _is_faust(type_)


def is_pydantic(type_: Any) -> bool:
    return isinstance(type_, type) and hasattr(type_, "model_validate_json") and hasattr(type_, "model_dump")


def _is_faust(type_: Any) -> bool:
    return isinstance(type_, type) and hasattr(type_, "from_data") and hasattr(type_, "asdict")


def plain_of(value: Any) -> Any:
    """A Protobuf message, or an object of a pydantic model or Faust Record, as a dict; also the Records inside. Every
    other value stays as it is."""
    kind = type(value)
    if hasattr(kind, "DESCRIPTOR") and hasattr(kind, "SerializeToString"):
        from google.protobuf.json_format import MessageToDict

        return MessageToDict(
            value, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
    if is_pydantic(kind):
        return value.model_dump()
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
    made: Callable[[Any], Any] = model.model_validate if is_pydantic(model) else model.from_data
    return made


def _record_maker(record: Any) -> Callable[[Any], Any]:
    """A Record takes values as they are, so the values first get the types of the Record's fields."""
    shape = record_shape(record)
    if shape is None:
        return builder_of(record)
    names = record_fields(shape) or ()

    def make(data: Any) -> Any:
        typed = msgspec.convert(data, shape)
        given = {name: _with_records(getattr(typed, name)) for name in names if name in data}
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
    return record.from_data({name: _with_records(getattr(value, name)) for name in value.__struct_fields__})


def as_struct(model: Any) -> Any:
    """A ``msgspec.Struct`` class with the name, the fields and the defaults of a pydantic model or a Faust Record.

    Serdes derive a schema from this class. If a field of a Record has the default None, the class allows None there, as
    Faust does.
    """
    if is_pydantic(model):
        fields = [
            (name, _replaced(each.annotation))
            if each.is_required()
            else (name, _replaced(each.annotation), _kept(each.get_default(call_default_factory=True)))
            for name, each in model.model_fields.items()
        ]
    else:
        defaults = model._options.defaults
        fields = [
            (name, _replaced(kind | None if defaults.get(name, 0) is None else kind), _kept(defaults[name]))
            if name in defaults
            else (name, _replaced(kind))
            for name, kind in model._options.fields.items()
        ]
    # Only with kw_only may a field with a default come before one without, which pydantic allows.
    return msgspec.defstruct(model.__name__, fields, kw_only=True)


def _kept(default: Any) -> Any:
    """A default in a form that msgspec accepts.

    msgspec refuses a list, dict or set with items as a default, but takes a function that makes one.
    """
    return (
        default
        if not default or not isinstance(default, list | dict | set)
        else msgspec.field(default_factory=lambda: deepcopy(default))
    )


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
    hints = typing.get_type_hints(type_, include_extras=True)
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
