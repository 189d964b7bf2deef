"""Writers of flat Avro records (see `is_flat`), generated for one schema.

One walk over the schema gives a Python function without a loop, which is fast. `avro_writer` writes records that are
not flat (see `is_flat`). The format is "Binary Encoding" of the Avro 1.11 specification.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from enum import Enum
from operator import index
from typing import Any

from msgspec import inspect as mi

from streamapp.serdes.avro_schema import EPOCH, EPOCH_DAY, unnulled
from streamapp.serdes.types import bare, excerpt, has_limits, members, span_since

__all__ = [
    "as_bytes",
    "days_since_epoch",
    "encode_boolean",
    "encode_double",
    "encode_float",
    "encode_int",
    "encode_long",
    "enums_of",
    "is_flat",
    "make_writer",
    "readable_number",
    "since_epoch",
]

_FLOAT, _DOUBLE = struct.Struct("<f").pack, struct.Struct("<d").pack
_MILLI, _MICRO, _DAY = timedelta(milliseconds=1), timedelta(microseconds=1), timedelta(days=1)
_FIRST_DAY, _LAST_DAY = date.min.toordinal() - EPOCH_DAY, date.max.toordinal() - EPOCH_DAY

_PRIMITIVES = {"boolean", "int", "long", "float", "double", "string", "bytes"}
_LOGICAL = {("long", "timestamp-millis"), ("long", "timestamp-micros"), ("int", "date")}
_MADE: dict[str, type[mi.Type]] = {
    "boolean": mi.BoolType,
    "int": mi.IntType,
    "long": mi.IntType,
    "float": mi.FloatType,
    "double": mi.FloatType,
    "string": mi.StrType,
    "enum": mi.StrType,
    "bytes": mi.BytesType,
    "date": mi.DateType,
    "timestamp-millis": mi.DateTimeType,
    "timestamp-micros": mi.DateTimeType,
}
"""Kinds of Avro's values -> the Python types that a reader makes of them."""


def is_flat(schema: Any) -> bool:
    """True for a record whose fields are primitives, enums, timestamps or dates, also in a union with null.

    The names of the fields have to be identifiers of Python.
    """
    return (
        isinstance(schema, dict)
        and schema.get("type") == "record"
        and all(
            field["name"].isidentifier() and _kind(unnulled(field["type"])[0]) is not None
            for field in schema["fields"]
        )
    )


def enums_of(schema: dict[str, Any], types: Mapping[str, mi.Type]) -> dict[str, type[Enum]] | None:
    """Field -> Enum, for the fields of a flat record whose values are members of an Enum. ``types`` are the Python
    types of the fields.

    The result is None if a field needs a conversion. One reason is a class that the reader does not make, for example
    an IntEnum for an Avro int. The other reason are limits of ``msgspec.Meta``.
    """
    enums: dict[str, type[Enum]] = {}
    for field in schema["fields"]:
        if field["name"] not in types:
            continue
        if has_limits(types[field["name"]]):
            return None
        kind = _kind(unnulled(field["type"])[0])
        for member in map(bare, members(types[field["name"]])):
            if kind == "enum" and isinstance(member, mi.EnumType):
                enums[field["name"]] = member.cls
            elif not isinstance(member, (mi.NoneType, mi.AnyType, mi.CustomType, _MADE[kind or "string"])):
                return None
    return enums


def make_writer(
    schema: dict[str, Any],
    attributes: Mapping[str, str] | None,
    enums: Mapping[str, type[Enum]] | None = None,
) -> Callable[[Any, bytes], bytes]:
    """A function ``(record, header)`` that returns the header followed by the record in Avro.

    The record is a dict. With ``attributes`` (name of a field -> name of an attribute), the record is an object. The
    function raises an exception if a value does not fit, or if the record lacks a field. The function also refuses a
    dict with more fields. A boolean takes True, False, and values equal to them. ``enums`` are those of `enums_of`.
    """
    lines = ["def write(r, header):"]
    if attributes is None:
        lines.append(f" if len(r) != {len(schema['fields'])}: raise KeyError")
    names: dict[str, Any] = dict(_WRITER_NAMES)
    parts = ["header"]
    for n, field in enumerate(schema["fields"]):
        name = field["name"]
        inner, null = unnulled(field["type"])
        lines.append(f" x = r[{name!r}]" if attributes is None else f" x = r.{attributes[name]}")
        code = _write_value(inner, n, names, (enums or {}).get(name))
        if null is None:
            lines += [f" {line}" for line in code]
        else:
            # b<n> is the branch's number; a<n> is the value, and is empty for null.
            lines += [f" if x is None: b{n} = {bytes([2 * null])!r}; a{n} = b''", " else:"]
            lines += [f"  b{n} = {bytes([2 * (1 - null)])!r}", *(f"  {line}" for line in code)]
            parts.append(f"b{n}")
        parts.append(f"a{n}")
        if null is None and _kind(inner) in ("string", "bytes"):
            parts[-1:] = [f"l{n}", f"a{n}"]
        elif _kind(inner) in ("string", "bytes"):
            lines.append(f"  b{n} += l{n}")
    lines.append(f" return join(({', '.join(parts)},))")
    exec("\n".join(lines), names)
    return names["write"]  # type: ignore[no-any-return]


def _kind(schema: Any) -> str | None:
    """The primitive type, the logical type or 'enum'; None if a schema of this kind is not flat."""
    if isinstance(schema, str):
        return schema if schema in _PRIMITIVES else None
    if not isinstance(schema, dict):
        return None
    base, logical = schema.get("type"), schema.get("logicalType")
    if logical is not None:
        return logical if (base, logical) in _LOGICAL else None
    return base if base in _PRIMITIVES or base == "enum" else None


def _write_value(schema: Any, n: int, names: dict[str, Any], enum: type[Enum] | None) -> list[str]:
    """Lines that put the Avro of ``x`` into ``a<n>``, and the length of text and bytes into ``l<n>``."""
    match _kind(schema):
        case "boolean":
            return [f"a{n} = b'\\x01' if x is True else b'\\x00' if x is False else boolean(x)"]
        case "float":
            return [f"a{n} = float_(x)"]
        case "double":
            return [f"a{n} = double(x)"]
        case "string":
            return [f"a{n} = x.encode(); n = len(a{n})", f"l{n} = small[n + n] if n < 8192 else long(n)"]
        case "bytes":
            return [
                f"a{n} = x if x.__class__ is bytes else bytes_(x); n = len(a{n})",
                f"l{n} = small[n + n] if n < 8192 else long(n)",
            ]
        case "enum":
            codes = {symbol: encode_long(index) for index, symbol in enumerate(schema["symbols"])}
            of_members = {each: codes[each.value] for each in enum or () if each.value in codes}
            names[f"symbols{n}"] = {**codes, **of_members}
            return [f"a{n} = symbols{n}[x]"]
        case "timestamp-millis":
            return [f"a{n} = long(millis(x))"]
        case "timestamp-micros":
            return [f"a{n} = long(micros(x))"]
        case "date":
            return [f"a{n} = integer(days(x))"]
        case "int":
            return [f"a{n} = code[x] if 0 <= x < 8192 else integer(x)"]
    return [f"a{n} = code[x] if 0 <= x < 8192 else long(x)"]


def _encode(z: int) -> bytes:
    out = bytearray()
    while z > 127:
        out.append(z & 127 | 128)
        z >>= 7
    out.append(z)
    return bytes(out)


_LAST, _NOT_LAST = (tuple(bytes((z,)) for z in codes) for codes in (range(128), range(128, 256)))
_SMALL = (*_LAST, *(first + last for last in _LAST[1:] for first in _NOT_LAST))
_CODES = _SMALL[::2]
"""The codes of the numbers 0 to 8191. A look-up also works for NumPy's small ints, which would overflow in a
computation."""
_MORE = tuple(first + second for second in _NOT_LAST for first in _NOT_LAST)


def encode_boolean(x: Any) -> bytes:
    """The byte of True or False, or of a value that is equal to one of them, such as 1 or a boolean of NumPy. Raises
    TypeError for other values, and ValueError for an array."""
    if x == True or x == False:  # noqa: E712
        return b"\1" if x else b"\0"
    raise TypeError(f"{excerpt(x)} ({type(x).__name__}) is not a boolean")


def encode_long(x: int) -> bytes:
    """A number as a varint of its zigzag form. Raises OverflowError beyond 64 bits."""
    if x.__class__ is not int:
        x = _int(x)  # NumPy's ints have 64 bits or fewer, and their zigzag form has one bit more
    z = x << 1 if x >= 0 else ~(x << 1)
    if z < 16384:
        return _SMALL[z]
    if z < 1 << 28:
        return _MORE[z & 16383] + _SMALL[z >> 14]
    if z < 1 << 42:
        return _MORE[z & 16383] + _MORE[z >> 14 & 16383] + _SMALL[z >> 28]
    if z >> 64:
        raise OverflowError(f"{x} has more than 64 bits")
    return _MORE[z & 16383] + _MORE[z >> 14 & 16383] + _MORE[z >> 28 & 16383] + _encode(z >> 42)


def encode_int(x: int) -> bytes:
    """The same as `encode_long`, but raises OverflowError beyond 32 bits."""
    if x.__class__ is not int:
        x = _int(x)
    if not -0x80000000 <= x <= 0x7FFFFFFF:
        raise OverflowError(f"{x} has more than 32 bits")
    return encode_long(x)


def _int(x: Any) -> int:
    try:
        return index(x)
    except TypeError:
        raise TypeError(f"{excerpt(x)} ({type(x).__name__}) is not an int") from None


def encode_float(x: Any) -> bytes:
    """A number in 4 bytes. Raises OverflowError for a number that is too large."""
    try:
        return _FLOAT(x)
    except struct.error:
        raise TypeError(f"{excerpt(x)} ({type(x).__name__}) is not a number") from None


def encode_double(x: Any) -> bytes:
    """A number in 8 bytes."""
    try:
        return _DOUBLE(x)
    except struct.error:
        raise TypeError(f"{excerpt(x)} ({type(x).__name__}) is not a number") from None


def as_bytes(x: Any) -> bytes:
    """Bytes, a bytearray or a memoryview, as bytes. Raises `TypeError` for any other class, such as arrays."""
    if not isinstance(x, bytes | bytearray | memoryview):
        raise TypeError(f"{excerpt(x)} ({type(x).__name__}) is not bytes")
    return bytes(x)


def since_epoch(x: Any, unit: timedelta) -> int:
    """A datetime with a time zone, or its number in Avro, as this number. ``unit`` is the unit of the number."""
    if isinstance(x, datetime):
        if x.tzinfo is None:
            raise ValueError(f"{x!r} has no time zone")
        return span_since(EPOCH, x) // unit
    return readable_number(x, unit)


def days_since_epoch(x: Any) -> int:
    """A date, or its number in Avro, as this number."""
    return x.toordinal() - EPOCH_DAY if isinstance(x, date) else readable_number(x, _DAY)


def readable_number(x: Any, unit: timedelta) -> int:
    """An int that is Avro's number of a moment or date. Raises ValueError for a number that no reader could read."""
    number = x if x.__class__ is int else _int(x)
    units = _DAY // unit
    if not _FIRST_DAY * units <= number < (_LAST_DAY + 1) * units:
        raise ValueError(f"{number} is not in the years 1 to 9999 of UTC")
    return number


_WRITER_NAMES: dict[str, Any] = {
    "join": b"".join,
    "small": _SMALL,
    "long": encode_long,
    "integer": encode_int,
    "code": _CODES,
    "bytes_": as_bytes,
    "float_": encode_float,
    "boolean": encode_boolean,
    "double": encode_double,
    "millis": lambda x: since_epoch(x, _MILLI),
    "micros": lambda x: since_epoch(x, _MICRO),
    "days": days_since_epoch,
}
