"""Writers of Avro for any schema.

`avro_codegen` writes flat records that have all fields. These writers write all other values, fill in defaults, and
name the part of a value that does not fit.

A value of a union is written as the first branch that fits. As in fastavro, double comes before float, and of several
records that fit, the one with most of the value's fields counts. A tuple ``(name, value)`` names its branch, as in
fastavro. In a call, each part of the value is tried once for each branch, also in nested unions. The time is therefore
at most the size of the value times the size of the schema. Containers are at most `VALUE_DEPTH` deep. This limit also
refuses a value that contains itself.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from streamapp._base.counted import counted
from streamapp.serdes.avro_codegen import (
    as_bytes,
    days_since_epoch,
    encode_boolean,
    encode_double,
    encode_float,
    encode_int,
    encode_long,
    is_flat,
    make_writer,
    readable_number,
    since_epoch,
)
from streamapp.serdes.avro_reader import VALUE_DEPTH
from streamapp.serdes.avro_schema import (
    EPOCH,
    MAX_PRECISION,
    Parsed,
    decimal_reader,
    default_of,
    kind_of,
)
from streamapp.serdes.field_path import Misfit, item_part, key_part, reason
from streamapp.serdes.types import excerpt

__all__ = ["left_out", "make_any_writer", "unwritable"]

Put = Callable[[bytes], None]
Write = Callable[[Any, Put, int, "Tried"], None]
Tried = dict[tuple[int, int], "bytes | str"]
"""Attempts of one call, by the id of the value and the id of the branch's writer: bytes, or the reason of a misfit."""

_FAILED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, struct.error)
_CONTAINERS = ("record", "array", "map")
_LOCAL = EPOCH.replace(tzinfo=None)
_MILLI, _MICRO = timedelta(milliseconds=1), timedelta(microseconds=1)
_DAY = 86_400_000_000
"""The microseconds of a day."""
_NOTHING = object()
_SAMPLES: dict[str, Any] = {
    "null": None,
    "boolean": True,
    **dict.fromkeys(("string", "enum"), ""),
    **dict.fromkeys(("bytes", "fixed"), b""),
    "uuid": UUID(int=0),
    "decimal": Decimal(0),
    "date": date(1970, 1, 1),
    **dict.fromkeys(("time-millis", "time-micros"), time()),
    **dict.fromkeys(("timestamp-millis", "timestamp-micros"), EPOCH),
    **dict.fromkeys(("local-timestamp-millis", "local-timestamp-micros"), _LOCAL),
}
"""A value of each kind of Avro; the number 0 for all other kinds."""
_MOST_WHY = 300
"""The most characters of a reason that an error of a union quotes."""


class _TooDeep(Exception):
    """The value is too deep. A union does not try another branch after this error."""


def make_any_writer(parsed: Parsed, own: Parsed | None = None) -> Callable[[Any, bytes], bytes]:
    """A function ``(value, header)`` that returns the header followed by the value in Avro.

    The values are those of the schema ``own``, which may have newer fields than ``parsed`` (see `left_out`). Without
    ``own``, the values are those of ``parsed``.

    If a part of the value does not fit the schema, the function raises `Misfit` with the path to the part. If the value
    as a whole does not fit, the function raises one of the exceptions ``_FAILED``.
    """
    write = _Compiler(parsed, parsed if own is None else own).writer(parsed.root)

    def any_writer(value: Any, header: bytes) -> bytes:
        parts = [header]
        try:
            write(value, parts.append, VALUE_DEPTH, {})
        except (_TooDeep, RecursionError) as error:
            raise ValueError(f"the value is nested more than {VALUE_DEPTH} levels deep") from error
        return b"".join(parts)

    return any_writer


def left_out(schema: Any, own: Parsed, root: bool = False) -> frozenset[str]:
    """The fields that records of the schema ``own`` have, and that the record ``schema`` lacks.

    A record of ``own`` counts as the same record if it has the name of ``schema``, also as an alias. The outermost
    records (``root``) are the same with any name. A field of ``own`` that has another name in ``schema`` (an alias) is
    not left out, so that the writer fails. Otherwise ``schema`` would get its default, and the value would be lost.
    """
    record = own.root if root else own.named_as(schema)
    if record is None or not kind_of(schema) == kind_of(record) == "record":
        return frozenset()
    names = {field["name"] for field in schema["fields"]}
    return frozenset(
        field["name"]
        for field in record["fields"]
        if names.isdisjoint({field["name"], *(field.get("aliases") or ())})
    )


def unwritable(schema: Parsed, own: Parsed, attributes: Collection[str]) -> str | None:
    """The reason why ``schema`` fits no object of a type with the schema ``own``; None if the schemas tell none.

    ``attributes`` are names of fields that objects may have although ``own`` lacks them.

    >>> from streamapp.serdes.avro_schema import parse
    >>> own, other = ({"type": "record", "name": "R", "fields": [{"name": "a", "type": t}]} for t in ("int", "string"))
    >>> unwritable(parse(other), parse(own), ()), unwritable(parse(own), parse(own), ())
    ('a is int, and the version has string there', None)
    """
    seen: set[tuple[int, int]] = set()

    def compare(there: Any, here: Any, path: str) -> str | None:
        there, here = schema.follow(there), own.follow(here)
        kinds = kind_of(there), kind_of(here)
        if kinds[1] == "union" or kinds[0] == "union":
            pairs = [
                (one, other)
                for one in (there if kinds[0] == "union" else [there])
                for other in (here if kinds[1] == "union" else [here])
            ]
            found = [compare(one, other, path) for one, other in pairs]
            return None if None in found else found[-1]
        if kinds == ("record", "record"):
            pair = id(there), id(here)
            if pair in seen:  # a type that contains itself
                return None
            seen.add(pair)
            return in_fields(there, here, path)
        if kinds[0] in _CONTAINERS or kinds[1] in _CONTAINERS:
            unlike = kinds[0] != kinds[1] and set(kinds) != {"record", "map"}
        else:
            unlike = not _takes(kinds[0], there, _SAMPLES.get(kinds[1], 0))
        return (
            f"{path or 'the value'} is {kinds[1]}, and the version has {kinds[0]} there" if unlike else None
        )

    def in_fields(there: Any, here: Any, path: str) -> str | None:
        fields = {field["name"]: field for field in here["fields"]}
        names = {field["name"] for field in there["fields"]}
        for field in there["fields"]:
            name = f"{path}.{field['name']}" if path else field["name"]
            if field["name"] not in fields:
                if "default" not in field and field["name"] not in attributes:
                    return f"the version needs the field {name}"
            elif (why := compare(field["type"], fields[field["name"]]["type"], name)) is not None:
                return why
        for name, field in fields.items():
            if name not in names and not names.isdisjoint(field.get("aliases") or ()):
                return f"{f'{path}.' if path else ''}{name} has another name in the version"
        return None

    return compare(schema.root, own.root, "")


def _takes(kind: str, schema: Any, sample: Any) -> bool:
    """True if the type takes some values of the sample's class."""
    try:
        _encoder(kind, schema)(sample)
    except (TypeError, AttributeError):
        return False
    except _FAILED:
        pass
    return True


class _Compiler:
    def __init__(self, parsed: Parsed, own: Parsed) -> None:
        self._parsed, self._own = parsed, own
        self._records: dict[str, list[Write]] = {}

    def writer(self, schema: Any) -> Write:
        schema = self._parsed.follow(schema)
        kind = kind_of(schema)
        match kind:
            case "record":
                record = self._record(schema)
                return _quickly(make_writer(schema, None), record) if is_flat(schema) else record
            case "union":
                return self._union(schema)
            case "array":
                items = self._parsed.follow(schema["items"])
                simple = kind_of(items) not in (*_CONTAINERS, "union")
                return _array(self.writer(items), _encoder(kind_of(items), items) if simple else None)
            case "map":
                return _map(self.writer(schema["values"]))
        encode = _encoder(kind, schema)

        def write(value: Any, put: Put, k: int, tried: Tried) -> None:
            put(encode(value))

        return write

    def _record(self, schema: Any) -> Write:
        known = self._records.get(schema["name"])
        if known is not None:
            return known[0] if known else lambda *args: known[0](*args)  # for a type that contains itself
        made = self._records[schema["name"]] = []
        fields: list[tuple[str, Write, Any]] = []
        for field in schema["fields"]:
            write_field = self.writer(field["type"])
            default: Any = _NOTHING
            if "default" in field:
                try:
                    default = default_of(self._parsed, field["type"], field["default"])
                except _FAILED:
                    default = field["default"]  # the error comes when a record needs this default
            fields.append((field["name"], write_field, default))
        names = frozenset(name for name, _, _ in fields)
        required = frozenset(name for name, _, default in fields if default is _NOTHING)
        allowed = names | left_out(schema, self._own, schema is self._parsed.root)

        def write(value: Any, put: Put, k: int, tried: Tried) -> None:
            if not isinstance(value, Mapping):
                raise TypeError(f"{excerpt(value)} ({type(value).__name__}) is not a record")
            if k == 0:
                raise _TooDeep
            if value.keys() != names:
                if unknown := value.keys() - allowed:
                    raise KeyError(f"the schema has no fields {sorted(unknown, key=str)}")
                if missing := required - value.keys():
                    raise KeyError(f"the fields {sorted(missing)} are missing")
            for name, write_field, default in fields:
                try:
                    write_field(value.get(name, default), put, k - 1, tried)
                except _FAILED as error:
                    raise _at(name, error) from None

        made.append(write)
        return write

    def _union(self, schema: list[Any]) -> Write:
        branches = []
        for number, branch in enumerate(schema):
            branch = self._parsed.follow(branch)
            kind = kind_of(branch)
            name = branch if isinstance(branch, str) else branch.get("name", branch["type"])
            fields = frozenset(field["name"] for field in branch["fields"]) if kind == "record" else None
            branches.append(
                (encode_long(number), name, kind, _could_be(kind, branch), self.writer(branch), fields)
            )

        kinds = [branch[2] for branch in branches]
        null = branches[kinds.index("null")][0] if "null" in kinds else None
        other = branches[1 - kinds.index("null")] if null is not None and len(kinds) == 2 else None

        def write(value: Any, put: Put, k: int, tried: Tried) -> None:
            if value is None and null is not None:
                put(null)
                return
            if other is not None and value.__class__ is not tuple:
                put(other[0])
                other[4](value, put, k, tried)
                return
            possible = [branch for branch in branches if branch[3](value)]
            if value.__class__ is tuple and len(value) == 2:  # fastavro's (name of the branch, value)
                named = [branch for branch in branches if branch[1] == value[0]]
                if named:
                    possible, value = named, value[1]
            if len(possible) == 1:
                put(possible[0][0])
                possible[0][4](value, put, k, tried)
                return
            best, data, most, why = None, b"", -1, None
            for branch in possible:
                number, _, kind, _, write_branch, fields = branch
                if best is not None and not (fields is not None or kind == "double"):
                    continue
                found = _try(write_branch, value, k, tried)
                if isinstance(found, str):
                    why = why or found
                    continue
                if kind == "double":
                    if best is None or best[2] == "float":
                        put(number + found)
                        return
                    continue
                common = len(fields & value.keys()) if fields is not None else 0
                if best is None or (best[5] is not None and common > most):
                    best, data, most = branch, found, common
                if fields is None and kind != "float":
                    break
            if best is None:
                because = "" if why is None or len(why) > _MOST_WHY else f": {why}"
                raise ValueError(
                    f"{excerpt(value)} ({type(value).__name__}) fits no branch of its union{because}"
                )
            put(best[0] + data)

        return write


def _try(write: Write, value: Any, k: int, tried: Tried) -> bytes | str:
    key = (id(value), id(write))
    found = tried.get(key)
    if found is None:
        parts: list[bytes] = []
        try:
            write(value, parts.append, k, tried)
            found = b"".join(parts)
        except _FAILED as error:
            found = reason(error)
        tried[key] = found
    return found


def _at(part: str, error: Exception) -> Misfit:
    """The error of a part of a value as an error of the value that contains the part."""
    if not isinstance(error, Misfit):
        return Misfit(reason(error), [part])
    error.parts.insert(0, part)
    return error


def _quickly(write_flat: Callable[[Any, bytes], bytes], write: Write) -> Write:
    """A writer of flat records that tries ``write_flat``, a function without a loop, and falls back to ``write``."""

    def write_record(value: Any, put: Put, k: int, tried: Tried) -> None:
        if k == 0:
            raise _TooDeep
        try:
            put(write_flat(value, b""))
        except _FAILED:
            write(value, put, k, tried)

    return write_record


def _array(write_item: Write, encode: Callable[[Any], bytes] | None) -> Write:
    def write(value: Any, put: Put, k: int, tried: Tried) -> None:
        if not _is_list(value):
            raise TypeError(f"{excerpt(value)} ({type(value).__name__}) is not a list")
        if k == 0:
            raise _TooDeep
        if len(value):
            put(encode_long(len(value)))
            if encode is not None:
                try:
                    put(b"".join([encode(item) for item in value]) + b"\0")
                    return
                except _FAILED:
                    pass  # the loop below names the item
            for n, item in enumerate(value):
                try:
                    write_item(item, put, k - 1, tried)
                except _FAILED as error:
                    raise _at(item_part(n), error) from None
        put(b"\0")

    return write


def _map(write_value: Write) -> Write:
    string = _encoder("string", "string")

    def write(value: Any, put: Put, k: int, tried: Tried) -> None:
        if not isinstance(value, Mapping):
            raise TypeError(f"{excerpt(value)} ({type(value).__name__}) is not a map")
        if k == 0:
            raise _TooDeep
        if len(value):
            put(encode_long(len(value)))
            for key, item in value.items():
                try:
                    put(string(key))
                    write_value(item, put, k - 1, tried)
                except _FAILED as error:
                    raise _at(key_part(key), error) from None
        put(b"\0")

    return write


def _is_list(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return True
    return isinstance(value, Sequence | AbstractSet) and not isinstance(
        value, str | bytes | bytearray | memoryview
    )


def _could_be(kind: str, schema: Any) -> Callable[[Any], bool]:
    """A function that returns True if a value may belong to this branch of a union. The function does not look at the
    parts of the value."""
    classes: dict[str, Any] = {
        "boolean": bool,
        "string": str,
        "bytes": bytes | bytearray,
        "fixed": bytes | bytearray,
        "record": Mapping,
        "map": Mapping,
        "time-millis": time,
        "time-micros": time,
        "uuid": UUID | str,
        "decimal": Decimal | bytes,
    }
    if kind == "null":
        return lambda value: value is None
    if kind == "array":
        return _is_list
    if kind == "enum":
        symbols = frozenset(schema["symbols"])
        return lambda value: isinstance(value, str) and value in symbols
    if kind in ("float", "double"):
        return lambda value: isinstance(value, int | float) and not isinstance(value, bool)
    bits = 31 if kind in ("int", "date", "time-millis") else 63
    if kind in ("int", "long"):
        return lambda value: (
            isinstance(value, int) and not isinstance(value, bool) and -(2**bits) <= value < 2**bits
        )
    if kind == "date":
        # A datetime is a date, too. Its time of the day would be lost in this branch.
        return lambda value: (
            not isinstance(value, datetime)
            and (
                isinstance(value, date)
                or (isinstance(value, int) and not isinstance(value, bool) and -(2**bits) <= value < 2**bits)
            )
        )
    logical = classes.get(kind, datetime)
    if kind in ("string", "boolean", "bytes", "fixed", "record", "map", "uuid", "decimal"):
        return lambda value: isinstance(value, logical)
    return lambda value: (
        isinstance(value, logical)
        or (isinstance(value, int) and not isinstance(value, bool) and -(2**bits) <= value < 2**bits)
    )


def _encoder(kind: str, schema: Any) -> Callable[[Any], bytes]:
    """A function from values to bytes, for a type that is no record, union, array or map."""
    match kind:
        case "null":
            return _null
        case "boolean":
            return encode_boolean
        case "int":
            return encode_int
        case "long":
            return encode_long
        case "float":
            return encode_float
        case "double":
            return encode_double
        case "string":
            return _string
        case "bytes":
            return lambda value: _sized(as_bytes(value))
        case "fixed":
            return lambda value: _fixed(as_bytes(value), schema)
        case "enum":
            return _Symbols(
                (symbol, encode_long(n)) for n, symbol in enumerate(schema["symbols"])
            ).__getitem__
        case "uuid":
            return _uuid
        case "decimal":
            sized = schema["type"] == "bytes"
            return lambda value: (
                _sized(_decimal(value, schema)) if sized else _fixed(_decimal(value, schema), schema)
            )
    count = _COUNTS[kind]
    encode = encode_int if kind in ("date", "time-millis") else encode_long
    return lambda value: encode(count(value))


class _Symbols(dict[str, bytes]):
    def __missing__(self, symbol: Any) -> bytes:
        raise ValueError(f"{excerpt(symbol)} is none of the symbols {excerpt(list(self))}")


def _null(value: Any) -> bytes:
    if value is not None:
        raise TypeError(f"{excerpt(value)} ({type(value).__name__}) is not None")
    return b""


def _sized(data: bytes) -> bytes:
    return encode_long(len(data)) + data


def _string(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"{excerpt(value)} ({type(value).__name__}) is not a str")
    return _sized(value.encode())


def _uuid(value: Any) -> bytes:
    if isinstance(value, UUID):
        return _string(str(value))
    data = _string(value)
    UUID(value)  # a reader would refuse another text
    return data


def _fixed(data: bytes, schema: Any) -> bytes:
    if len(data) != schema["size"]:
        raise ValueError(
            f"{excerpt(data)} has {counted(len(data), 'byte')}; {schema['name']} has {schema['size']}"
        )
    return data


def _decimal(value: Any, schema: Any) -> bytes:
    if not isinstance(value, Decimal):
        data = as_bytes(value)  # the unscaled number, as Avro writes it
        decimal_reader(schema)(data)
        return data
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"Avro has no decimal {value}")
    zeros = exponent + (schema.get("scale") or 0) if value else 0
    if zeros < 0:
        raise ValueError(f"{excerpt(value)} has more places than the scale of its schema")
    if len(digits) + zeros > min(schema["precision"], MAX_PRECISION):
        raise ValueError(f"{excerpt(value)} has more digits than the precision of its schema")
    unscaled = int(Decimal((sign, digits, zeros)))
    size = schema["size"] if schema["type"] == "fixed" else (abs(unscaled).bit_length() + 8) // 8
    return unscaled.to_bytes(size, "big", signed=True)


def _since(unit: timedelta) -> Callable[[Any], Any]:
    return lambda value: since_epoch(value, unit)


def _since_local(unit: timedelta) -> Callable[[Any], Any]:
    def count(value: Any) -> int:
        if isinstance(value, datetime):
            return (value.replace(tzinfo=None) - _LOCAL) // unit
        return readable_number(value, unit)

    return count


def _of_day(micros: int) -> Callable[[Any], Any]:
    def count(value: Any) -> Any:
        if not isinstance(value, time):
            if isinstance(value, int) and not 0 <= value * micros < _DAY:
                raise ValueError(f"{value} is no time of a day")
            return value
        if value.tzinfo is not None:
            raise ValueError(f"{value!r} has a time zone, which times in Avro do not have")
        return (
            (value.hour * 60 + value.minute) * 60_000_000 + value.second * 1_000_000 + value.microsecond
        ) // micros

    return count


_COUNTS: dict[str, Callable[[Any], Any]] = {
    "timestamp-millis": _since(_MILLI),
    "timestamp-micros": _since(_MICRO),
    "local-timestamp-millis": _since_local(_MILLI),
    "local-timestamp-micros": _since_local(_MICRO),
    "date": days_since_epoch,
    "time-millis": _of_day(1000),
    "time-micros": _of_day(1),
}
