"""Messages of Protobuf that follow from types: the message class, and the conversions from objects to messages and
back."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from msgspec import NODEFAULT
from msgspec import inspect as mi

from streamapp.errors import ConfigError
from streamapp.serdes.models import builder_of, check_aliases, model_of, shape_of
from streamapp.serdes.proto_outline import TYPES
from streamapp.serdes.protobuf_fields import Form, enum_form, has_zero_default, numbers_of, scalar_form
from streamapp.serdes.protobuf_types import Copier
from streamapp.serdes.types import bare, check_defaults, class_of, excerpt, members, takes_all_fields

__all__ = ["derived"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_KEYS = (mi.StrType, mi.IntType, mi.BoolType)
_OPTIONAL, _REPEATED = 1, 3
_TIMESTAMP = "google.protobuf.Timestamp"


def derived(type_: Any) -> tuple[Any, Copier]:
    """The message class for a Struct, dataclass, pydantic model or Faust Record, and the conversions between objects
    and messages.

    The message and the messages inside it are in one file without package, the type's own message first. Raises
    `ConfigError` for a type without a single form in Protobuf.

    >>> import msgspec
    >>> class Item(msgspec.Struct):
    ...     name: str
    >>> message, copier = derived(Item)
    >>> message.DESCRIPTOR.fields_by_name["name"].number, copier.read(copier.write(Item("cup")))
    (1, Item(name='cup'))
    """
    check_aliases(type_)
    try:
        info = mi.type_info(shape_of(type_))
    except (TypeError, NameError) as error:
        raise ConfigError(f"no Protobuf schema follows from {type_!r}: {error}") from error
    check_defaults(info)
    if not isinstance(info, mi.StructType | mi.DataclassType):
        raise ConfigError(
            "type= of a ProtobufSerde without message is a Struct, dataclass, pydantic model or Faust Record, "
            f"not {type_!r}"
        )
    try:
        return _File(info.cls.__name__).made(info)
    except NameError as error:
        raise ConfigError(f"no Protobuf schema follows from {type_!r}: {error}") from error


class _File:
    """One .proto file while it is made."""

    def __init__(self, name: str) -> None:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        self._file = FileDescriptorProto(name=f"{name}.proto", syntax="proto3")
        self._known: dict[str, type] = {}
        self._forms: dict[type, Form] = {}
        self._classes: dict[str, Any] = {}

    def made(self, info: mi.StructType | mi.DataclassType) -> tuple[Any, Copier]:
        from google.protobuf.descriptor_pool import DescriptorPool
        from google.protobuf.message_factory import GetMessageClass
        from google.protobuf.timestamp_pb2 import DESCRIPTOR as TIMESTAMP

        form = self._message(info)
        pool = DescriptorPool()
        pool.AddSerializedFile(TIMESTAMP.serialized_pb)
        try:
            pool.AddSerializedFile(self._file.SerializeToString())
            self._classes |= {
                each: GetMessageClass(pool.FindMessageTypeByName(each))
                for each in [_TIMESTAMP, *(message.name for message in self._file.message_type)]
            }
        except (TypeError, KeyError) as error:
            raise ConfigError(f"no Protobuf schema follows from {info.cls.__name__}: {error}") from error
        message = self._classes[info.cls.__name__]
        return message, Copier(form.read, lambda value: message(**form.write(value)))

    def _message(self, info: mi.StructType | mi.DataclassType) -> Form:
        cls = info.cls
        if cls in self._forms:
            return self._forms[cls]
        if isinstance(info, mi.StructType) and (info.array_like or info.tag is not None):
            raise ConfigError(
                f"{cls.__name__} has array_like or a tag, which Protobuf does not have: generate a class with protoc"
            )
        if not takes_all_fields(cls):
            raise ConfigError(
                f"{cls.__name__} has a field with init=False, which no reader can set: give the field an argument"
            )
        self._claim(cls)
        parts = _Parts(info)
        form = self._forms[cls] = Form(cls.__name__, parts.read, parts.write)
        place = len(self._file.message_type)
        self._file.message_type.add(name=cls.__name__)
        numbers = numbers_of(cls, info.fields)
        for field in info.fields:
            _check_name(field.encode_name, f"{cls.__name__}.{field.name}")
            self._field(place, parts, field, numbers[field.name])
        return form

    def _field(self, place: int, parts: _Parts, field: mi.Field, number: int) -> None:
        where = f"{parts.name}.{field.name}"
        info, nullable = _without_none(field.type, where)
        message = self._file.message_type[place]
        item: mi.Type = info
        key: Form | None = None
        match info:
            case mi.ListType(item_type=item) | mi.VarTupleType(item_type=item):
                where += "[]"
            case mi.DictType(key_type=keys, value_type=item):
                where += "[*]"
                key = scalar_form(keys, f"a key of {where}") if isinstance(keys, _KEYS) else None
                if key is None:
                    raise ConfigError(f"{where} has keys that Protobuf does not have: take str, int or bool")
        repeated = item is not info
        if repeated and nullable:
            raise ConfigError(f"{where} can be None: Protobuf has no null beside an empty list or map")
        if repeated and _without_none(item, where)[1]:
            raise ConfigError(f"{where} can be None: Protobuf has no null in a list or map")
        form = self._form(item, where)
        message = self._file.message_type[place]  # the list of messages has grown
        made = message.field.add(
            name=field.encode_name, number=number, label=_REPEATED if repeated else _OPTIONAL
        )
        if key is not None:
            entry = message.nested_type.add(name=_entry(field.encode_name))
            entry.options.map_entry = True
            _describe(entry.field.add(name="key", number=1, label=_OPTIONAL), key.kind, False)
            _describe(
                entry.field.add(name="value", number=2, label=_OPTIONAL), form.kind, self._is_enum(form)
            )
            _describe(made, f"{message.name}.{entry.name}", False)
        else:
            _describe(made, form.kind, self._is_enum(form))
        if form.kind == _TIMESTAMP and not self._file.dependency:
            self._file.dependency.append("google/protobuf/timestamp.proto")
        if repeated:
            parts.add(field, _mapped(key, self._entries(form), where) if key else _listed(form, info, where))
            return
        has_presence = self._is_message(form)
        if not has_presence and (nullable or not has_zero_default(field)):
            made.proto3_optional = has_presence = True
            made.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.encode_name}")
        if nullable and (field.default_factory is not NODEFAULT or field.default not in (None, NODEFAULT)):
            raise ConfigError(
                f"{where} can be None and has another default: Protobuf writes nothing for None, which is read as the "
                "default. Let the default be None"
            )
        parts.add(field, form, has_presence, nullable)

    def _form(self, info: mi.Type, where: str) -> Form:
        match info := bare(info):
            case mi.EnumType(cls=cls):
                form, values = enum_form(cls, where)
                if self._known.get(cls.__name__) is not cls:
                    self._claim(cls)
                    enum = self._file.enum_type.add(name=cls.__name__)
                    for name, number in values.items():
                        enum.value.add(name=_check_name(name, where), number=number)
                return form
            case mi.StructType() | mi.DataclassType():
                return self._message(info)
            case mi.ListType() | mi.VarTupleType() | mi.DictType():
                raise ConfigError(
                    f"{where} has a list or map as item, which Protobuf does not have. Give the item a type of its "
                    "own, with the list as field"
                )
        if (scalar := scalar_form(info, where)) is not None:
            return scalar
        raise ConfigError(
            f"no Protobuf schema follows from {where}: Protobuf has no type, or several types, for "
            f"{type(info).__name__.removesuffix('Type')}. Generate a class with protoc, and give it to the serde"
        )

    def _claim(self, cls: type) -> None:
        if _check_name(cls.__name__, cls.__name__) in TYPES:
            raise ConfigError(f"{cls.__name__} is a type of Protobuf itself: rename the class")
        if self._known.setdefault(cls.__name__, cls) is not cls:
            raise ConfigError(f"two types have the name {cls.__name__}: rename one of them")

    def _is_enum(self, form: Form) -> bool:
        return any(each.name == form.kind for each in self._file.enum_type)

    def _is_message(self, form: Form) -> bool:
        return form.kind == _TIMESTAMP or (form.kind in self._known and not self._is_enum(form))

    def _entries(self, form: Form) -> Form:
        """The form of a map's values. Older versions of the package protobuf need messages there, and take no dicts."""
        if not self._is_message(form):
            return form
        return form._replace(write=lambda value: self._classes[form.kind](**form.write(value)))


class _Parts:
    """The fields of one message, and the conversions from an object of the type to the message and back."""

    def __init__(self, info: mi.StructType | mi.DataclassType) -> None:
        cls = class_of(info)
        self.name: str = cls.__name__
        self._class = model_of(cls) or cls
        self._make: Callable[..., Any] = cls
        if self._class is not cls:
            make = builder_of(self._class)
            self._make = lambda **values: make(values)
        self._always: list[tuple[str, str, Callable[[Any], Any]]] = []
        self._present: list[tuple[str, str, Callable[[Any], Any], bool]] = []
        self._written: list[tuple[str, str, Callable[[Any], Any], bool]] = []

    def add(self, field: mi.Field, form: Form, has_presence: bool = False, nullable: bool = False) -> None:
        name = field.encode_name
        argument = field.name if self._make is self._class else name
        if has_presence:
            self._present.append((argument, name, form.read, nullable))
        else:
            self._always.append((argument, name, form.read))
        self._written.append((field.name, name, form.write, nullable))

    def read(self, message: Any) -> Any:
        values = {argument: read(getattr(message, name)) for argument, name, read in self._always}
        for argument, name, read, nullable in self._present:
            if message.HasField(name):
                values[argument] = read(getattr(message, name))
            elif nullable:
                values[argument] = None
        return self._make(**values)

    def write(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, self._class):
            raise TypeError(f"expected {self.name}, got {excerpt(value)}")
        if self._class is not self._make and (more := getattr(value, "__pydantic_extra__", None)):
            raise TypeError(f"{self.name} has no fields {sorted(more)}")
        written = {}
        for attribute, name, write, nullable in self._written:
            item = getattr(value, attribute)
            if item is not None or not nullable:
                written[name] = write(item)
        return written


def _listed(form: Form, info: mi.Type, where: str) -> Form:
    made = list if isinstance(info, mi.ListType) else tuple
    read, write = form.read, form.write

    def write_all(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise TypeError(f"{where} takes a list, got {excerpt(value)}")
        return [write(item) for item in value]

    return Form(form.kind, lambda items: made(read(item) for item in items), write_all)


def _mapped(key: Form, form: Form, where: str) -> Form:
    read, write, write_key = form.read, form.write, key.write

    def write_all(value: Any) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise TypeError(f"{where} takes a dict, got {excerpt(value)}")
        return {write_key(name): write(item) for name, item in value.items()}

    return Form(form.kind, lambda items: {name: read(item) for name, item in items.items()}, write_all)


def _describe(field: Any, kind: str, is_enum: bool) -> None:
    if kind in TYPES:
        field.type = TYPES.index(kind) + 1
    else:
        field.type = field.TYPE_ENUM if is_enum else field.TYPE_MESSAGE
        field.type_name = f".{kind}"


def _entry(name: str) -> str:
    """The name that protoc gives to the entries of a map."""
    return "".join(word[:1].upper() + word[1:] for word in name.split("_")) + "Entry"


def _without_none(info: mi.Type, where: str) -> tuple[mi.Type, bool]:
    found = members(info)
    if len(found) == 1:
        return found[0], False
    some = [each for each in found if not isinstance(each, mi.NoneType)]
    if len(some) != 1:
        raise ConfigError(f"{where} has several types, and Protobuf needs one: generate a class with protoc")
    return some[0], True


def _check_name(name: str, where: str) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{where} has the name {name!r}, which no .proto file can have: rename it")
    return name
