"""Fields of types as fields of Protobuf: the type in the .proto file, and the conversions of values in both
directions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from typing import Any, NamedTuple
from uuid import UUID

from msgspec import NODEFAULT
from msgspec import inspect as mi

from streamapp.errors import ConfigError
from streamapp.serdes.models import field_metadata, model_of
from streamapp.serdes.types import excerpt, span_since

__all__ = ["FieldNumber", "Form", "enum_form", "has_zero_default", "numbers_of", "scalar_form"]

_LAST = 2**29 - 1
_RESERVED = range(19_000, 20_000)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_TIMESTAMP = "google.protobuf.Timestamp"
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@dataclass(frozen=True)
class FieldNumber:
    """The number of a field in the Protobuf message that follows from a type.

    A field without `FieldNumber` has the number of the field before it plus 1. The first field has number 1.

    >>> from typing import Annotated
    >>> import msgspec
    >>> from streamapp import ProtobufSerde
    >>> fields = [("id", str), ("cents", Annotated[int, FieldNumber(4)]), ("paid", bool, False)]
    >>> Order = msgspec.defstruct("Order", fields)
    >>> [(field.name, field.number) for field in ProtobufSerde(type=Order).message.DESCRIPTOR.fields]
    [('id', 1), ('cents', 4), ('paid', 5)]
    """

    number: int

    def __post_init__(self) -> None:
        if type(self.number) is not int or not 0 < self.number <= _LAST or self.number in _RESERVED:
            raise ConfigError(
                f"a field number of Protobuf is 1 to {_LAST:,} without 19,000 to 19,999, not {self.number!r}"
            )


class Form(NamedTuple):
    """The form of a value in Protobuf."""

    kind: str
    """The name of the type in .proto files; for messages and enums, their own name."""
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]
    """Raises TypeError or ValueError for a value of another type."""


def numbers_of(cls: Any, fields: tuple[mi.Field, ...]) -> dict[str, int]:
    """The field numbers of a Struct or dataclass by attribute, in the order of the type. Raises `ConfigError`."""
    annotated = field_metadata(model_of(cls) or cls)
    numbers: dict[str, int] = {}
    last = 0
    for field in fields:
        given = [each for each in annotated.get(field.name, ()) if isinstance(each, FieldNumber)]
        last = (
            given[0].number
            if given
            else FieldNumber(last + 1 if last + 1 not in _RESERVED else 20_000).number
        )
        if last in numbers.values():
            other = next(name for name, number in numbers.items() if number == last)
            raise ConfigError(
                f"{cls.__name__}.{field.name} and {cls.__name__}.{other} have the field number {last}: "
                "give one of them another FieldNumber"
            )
        numbers[field.name] = last
    return numbers


def has_zero_default(field: mi.Field) -> bool:
    """True for a field without a default, or whose default is the value that Protobuf does not write (0, false,
    empty)."""
    default = field.default
    if default is NODEFAULT and field.default_factory in (list, dict, tuple):
        return True
    if default is NODEFAULT:
        return field.default_factory is NODEFAULT
    return type(default) in (bool, int, float, str, bytes) and not default and str(default) != "-0.0"


def scalar_form(info: mi.Type, where: str) -> Form | None:
    """The form of a number, a text, a time ...; None for all other types."""
    for kind, (name, wanted) in _PLAIN.items():
        if type(info) is kind:
            return Form(name, _same, _exactly(where, *wanted))
    if isinstance(info, mi.DateTimeType):
        return Form(_TIMESTAMP, _moment, lambda value: _timestamp(value, where))
    if (found := _TEXTS.get(type(info))) is not None:
        made, wanted_type = found
        check = _exactly(where, wanted_type)
        return Form("string", made, lambda value: str(check(value)))
    return None


def enum_form(cls: type[Enum], where: str) -> tuple[Form, dict[str, int]]:
    """The form of an enum, and its values in the .proto file: their names and numbers.

    If all members are ints, they keep their numbers; else the members count from 1. If no member has the number 0, this
    number is ``..._UNSPECIFIED``.
    """
    if issubclass(cls, Flag):
        raise ConfigError(f"{where} is the flag {cls.__name__}, and Protobuf has no flags: take an int")
    prefix = _WORD.sub("_", cls.__name__).upper()
    given = all(type(member.value) is int for member in cls)
    numbers = {member: member.value if given else place for place, member in enumerate(cls, 1)}
    if not all(-(2**31) <= number < 2**31 for number in numbers.values()):
        raise ConfigError(f"{where}: {cls.__name__} has a value of more than 32 bits")
    named = sorted(
        ((f"{prefix}_{member.name}", number) for member, number in numbers.items()),
        key=lambda each: each[1] != 0,
    )
    if not named or named[0][1] != 0:
        named.insert(0, (f"{prefix}_UNSPECIFIED", 0))
    members = {number: member for member, number in numbers.items()}

    def read(number: int) -> Enum:
        if number not in members:
            raise ValueError(f"{where} has the number {number}, which {cls.__name__} does not have")
        return members[number]

    check = _exactly(where, cls)
    return Form(cls.__name__, read, lambda value: numbers[check(value)]), dict(named)


def _exactly(where: str, *wanted: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if type(value) not in wanted:
            raise TypeError(f"{where} takes {wanted[0].__name__}, got {excerpt(value)}")
        return value

    return check


def _same(value: Any) -> Any:
    return value


def _moment(stamp: Any) -> datetime:
    return _EPOCH + timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1_000)


def _timestamp(value: Any, where: str) -> dict[str, int]:
    if not isinstance(value, datetime):
        raise TypeError(f"{where} takes datetime, got {excerpt(value)}")
    if value.tzinfo is None:
        raise ValueError(f"{where} takes a datetime with a time zone, got {value}")
    seconds, rest = divmod(span_since(_EPOCH, value), _SECOND)
    return {"seconds": seconds, "nanos": rest.microseconds * 1_000}


_PLAIN: Mapping[type[mi.Type], tuple[str, tuple[type, ...]]] = {
    mi.BoolType: ("bool", (bool,)),
    mi.IntType: ("int64", (int,)),
    mi.FloatType: ("double", (float, int)),
    mi.StrType: ("string", (str,)),
    mi.BytesType: ("bytes", (bytes,)),
}
_TEXTS: Mapping[type[mi.Type], tuple[Callable[[str], Any], type]] = {
    mi.DateType: (date.fromisoformat, date),
    mi.TimeType: (time.fromisoformat, time),
    mi.UUIDType: (UUID, UUID),
    mi.DecimalType: (Decimal, Decimal),
}
"""Types whose values are texts in Protobuf."""
