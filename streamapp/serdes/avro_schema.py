"""Avro schemas: checks, the names of their types, and the defaults of their fields."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from math import log10
from typing import Any, NamedTuple
from uuid import UUID

import fastavro
from fastavro.schema import SchemaParseException, UnknownType

from streamapp.serdes.types import excerpt

__all__ = [
    "EPOCH",
    "EPOCH_DAY",
    "NAMED",
    "PRIMITIVES",
    "Parsed",
    "SchemaRefused",
    "base_of",
    "check_size",
    "decimal_reader",
    "default_of",
    "kind_of",
    "meaning_of",
    "number_of",
    "parse",
    "same_name",
    "time_of",
    "unit_of",
    "unnulled",
    "without_mistakes",
]

MAX_DEPTH = 200
"""The most levels of JSON in a schema. A record in a record takes three levels."""
MAX_VALUES = 20_000
"""The most JSON values in a schema. A field with a name and a primitive type takes three values."""
MAX_PRECISION = 4_000
"""The most digits of a decimal. The time to convert a decimal grows with the square of its digits."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAY = date(1970, 1, 1).toordinal()
PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "string", "bytes"})

_LOGICAL = {
    ("long", "timestamp-millis"),
    ("long", "timestamp-micros"),
    ("long", "local-timestamp-millis"),
    ("long", "local-timestamp-micros"),
    ("long", "time-micros"),
    ("int", "time-millis"),
    ("int", "date"),
    ("string", "uuid"),
    ("bytes", "decimal"),
    ("fixed", "decimal"),
}
_UNITS = {
    ("long", "timestamp-millis"): ("moment", 1_000_000),
    ("long", "timestamp-micros"): ("moment", 1_000),
    ("long", "timestamp-nanos"): ("moment", 1),
    ("long", "local-timestamp-millis"): ("moment", 1_000_000),
    ("long", "local-timestamp-micros"): ("moment", 1_000),
    ("long", "local-timestamp-nanos"): ("moment", 1),
    ("int", "time-millis"): ("time of day", 1_000_000),
    ("long", "time-micros"): ("time of day", 1_000),
}
"""Base and logical type of a number -> what the number counts, and the unit in nanoseconds."""
_NUMBER_OF = "streamapp.number-of"
"""The key of a logical type whose values stay numbers (see `number_of`)."""
NAMED = ("record", "error", "enum", "fixed")
_RESERVED = {"__fastavro_parsed", "__named_schemas"}
"""Keys of a schema that fastavro has parsed. fastavro does not check a schema with these keys."""


class SchemaRefused(ValueError):
    """The schema is not valid Avro, or so deep or large that work with it could take too long.

    The limits are `MAX_DEPTH` levels and `MAX_VALUES` values of JSON.
    """


class Parsed(NamedTuple):
    """A schema with full names, and its named types by full name."""

    root: Any
    names: dict[str, Any]

    def follow(self, schema: Any) -> Any:
        """The definition that a name refers to; any other schema as it is."""
        if isinstance(schema, str) and schema not in PRIMITIVES:
            return self.names[schema]
        return schema

    def named_as(self, schema: Any) -> Any:
        """The type here that is the same as a named type of another schema; None if there is none."""
        exact = self.names.get(schema["name"])
        return exact or next((each for each in self.names.values() if same_name(schema, each)), None)


def parse(schema: Any, written: bool = False) -> Parsed:
    """Checks a schema, and writes the names of its types in full. Raises `SchemaRefused`, also for a schema that is too
    large to be checked in a bounded time.

    ``written`` is true for a schema with which bytes were written. Java writes and reads bytes even if the schema has
    wrong defaults or wrong decimals. With ``written``, the function therefore removes all defaults, and the logical
    type of each wrong decimal.

    >>> parse({"type": "array", "items": "int"}).root["items"]
    'int'
    """
    if written:
        schema = without_mistakes(schema)
    check_size(schema)
    try:
        _check(schema)
        short = _names_outside(schema)
        names: dict[str, Any] = dict.fromkeys(short, "null")
        root = fastavro.parse_schema(schema, names)
        names |= {full: names[name] for full, name in short.items()}
        return Parsed(root, names)
    except SchemaRefused:
        raise
    except (SchemaParseException, UnknownType, LookupError, TypeError, ValueError, AttributeError) as error:
        raise _no_schema(schema, error) from error


def _no_schema(schema: Any, error: Exception) -> SchemaRefused:
    return SchemaRefused(f"{excerpt(schema)} is not an Avro schema: {excerpt(error, size=200)}")


def kind_of(schema: Any) -> str:
    """The logical type if streamapp converts its values, else the type: 'union', 'record', 'int' ..."""
    if isinstance(schema, str):
        return schema
    if isinstance(schema, list):
        return "union"
    base: str = schema["type"]
    logical = schema.get("logicalType")
    if not isinstance(logical, str) or (base, logical) not in _LOGICAL:
        return "record" if base == "error" else base
    if logical == "decimal" and not isinstance(schema.get("precision"), int):
        return base
    return logical


def base_of(schema: Any) -> str:
    """The type without its logical type: 'union', 'record', 'int' ..."""
    if isinstance(schema, list):
        return "union"
    base: str = schema if isinstance(schema, str) else schema["type"]
    return base


def meaning_of(schema: Any) -> str | None:
    """The meaning that a logical type gives to the values: 'moment', 'time of day', 'date', 'uuid' or 'decimal'.

    None means that the schema has no such logical type. A value of one meaning cannot be read with another meaning. If
    one of two schemas has None, only the base types count.
    """
    pair = _base_and_logical(schema)
    return _UNITS[pair][0] if pair in _UNITS else pair[1] if pair in _LOGICAL else None


def unit_of(schema: Any) -> int:
    """The unit of a moment or a time of day in nanoseconds; 1 for all other schemas."""
    return _UNITS.get(_base_and_logical(schema), ("", 1))[1]


def number_of(schema: Any) -> Any:
    """The schema whose values are the numbers of dates and times. `meaning_of` and `unit_of` are the same.

    >>> number_of({"type": "int", "logicalType": "date"})
    {'type': 'int', 'streamapp.number-of': 'date'}
    """
    if isinstance(schema, list):
        return [number_of(branch) for branch in schema]
    if isinstance(schema, dict) and "logicalType" in schema:
        return {"type": schema["type"], _NUMBER_OF: schema["logicalType"]}
    return schema


def _base_and_logical(schema: Any) -> tuple[str, Any]:
    if not isinstance(schema, dict):
        return base_of(schema), None
    logical = schema.get(_NUMBER_OF, schema.get("logicalType"))
    return schema["type"], logical if isinstance(logical, str) else None


def same_name(written: Any, wanted: Any) -> bool:
    """True if two named types are the same by their names without namespaces, or by an alias of ``wanted``."""
    short = written["name"].rpartition(".")[2]
    aliases = wanted.get("aliases") or ()
    return short == wanted["name"].rpartition(".")[2] or short in aliases or written["name"] in aliases


def unnulled(schema: Any) -> tuple[Any, int | None]:
    """The schema without null, and the index of the null branch.

    The index is None if the schema is not a union of null and one other type.
    """
    if isinstance(schema, list) and len(schema) == 2 and "null" in schema:
        null = schema.index("null")
        return schema[1 - null], null
    return schema, None


def decimal_reader(schema: dict[str, Any]) -> Callable[[bytes], Decimal]:
    """A function from a decimal's bytes to the decimal.

    The function raises ValueError for more digits than the schema's precision.
    """
    digits, scale = min(schema["precision"], MAX_PRECISION), schema.get("scale") or 0
    limit = 10**digits

    def read(data: bytes) -> Decimal:
        unscaled = int.from_bytes(data, "big", signed=True)
        if not -limit < unscaled < limit:
            raise ValueError(f"a decimal has more than {digits} digits")
        sign, figures, _ = Decimal(unscaled).as_tuple()
        return Decimal((sign, figures, -scale))

    return read


def default_of(parsed: Parsed, schema: Any, default: Any) -> Any:
    """The value of a field's default, which is JSON in the schema (Avro 1.11, "Complex Types", "Records").

    Raises ValueError, TypeError or KeyError if the default does not fit the type.
    """
    schema = parsed.follow(schema)
    kind = kind_of(schema)
    match kind:
        case "union":
            for branch in schema:
                try:
                    return default_of(parsed, branch, default)
                except (ValueError, TypeError, KeyError):
                    continue
            raise ValueError(f"{excerpt(default)} fits no branch of its union")
        case "array":
            return [default_of(parsed, schema["items"], item) for item in _is(list, default)]
        case "map":
            items = _is(dict, default).items()
            return {key: default_of(parsed, schema["values"], item) for key, item in items}
        case "record":
            given = _is(dict, default)
            return {
                field["name"]: default_of(
                    parsed,
                    field["type"],
                    given[field["name"]] if field["name"] in given else copy.deepcopy(field["default"]),
                )
                for field in schema["fields"]
            }
        case "null":
            return _is(type(None), default)
        case "boolean":
            return _is(bool, default)
        case "float" | "double":
            return float(_is((int, float, str), default))
        case "string":
            return _is(str, default)
        case "bytes":
            return _is(str, default).encode("latin-1")
        case "fixed":
            data = _is(str, default).encode("latin-1")
            if len(data) != schema["size"]:
                raise ValueError(f"{excerpt(default)} is not as long as {schema['name']}")
            return data
        case "enum":
            if default not in schema["symbols"]:
                raise ValueError(f"{excerpt(default)} is no symbol of {schema['name']}")
            return default
        case "decimal":
            return decimal_reader(schema)(_is(str, default).encode("latin-1"))
        case "uuid":
            return UUID(_is(str, default))
    number = _is(int, default)
    if isinstance(default, bool):
        raise TypeError(f"{default} is no number")
    bits = 31 if base_of(schema) == "int" else 63
    if not -(2**bits) <= number < 2**bits:
        raise ValueError(f"{number} has more than {bits + 1} bits")
    match kind:
        case "date":
            return date.fromordinal(number + EPOCH_DAY)
        case "timestamp-millis" | "timestamp-micros":
            return EPOCH + timedelta(0, 0, number * (1000 if kind == "timestamp-millis" else 1))
        case "local-timestamp-millis" | "local-timestamp-micros":
            local = EPOCH.replace(tzinfo=None)
            return local + timedelta(0, 0, number * (1000 if kind == "local-timestamp-millis" else 1))
        case "time-millis" | "time-micros":
            return time_of(number * (1000 if kind == "time-millis" else 1))
    return number


def time_of(micros: int) -> time:
    """The time of the day after midnight. Raises ValueError for less than 0, and for a day or more."""
    if not 0 <= micros < 86_400_000_000:
        raise ValueError(f"{micros} μs are no time of a day")
    return (EPOCH + timedelta(0, 0, micros)).time()


def _is(kind: Any, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"the default {excerpt(value)} is not of its field's type")
    return value


def check_size(schema: Any) -> None:
    """Raises `SchemaRefused` for JSON with more than `MAX_DEPTH` levels or `MAX_VALUES` values.

    Functions that call themselves for the parts of a schema need this check first: JSON may be deeper than Python's
    stack.
    """
    waiting, count = [(schema, 1)], 1
    while waiting:
        value, depth = waiting.pop()
        if not isinstance(value, dict | list):
            continue
        count += len(value)
        if count > MAX_VALUES:
            raise SchemaRefused(f"the schema has more than {MAX_VALUES:,} parts")
        if depth > MAX_DEPTH:
            raise SchemaRefused(f"the schema is nested more than {MAX_DEPTH} levels deep")
        waiting += [(item, depth + 1) for item in (value.values() if isinstance(value, dict) else value)]


def without_mistakes(schema: Any) -> Any:
    """A valid schema for the same bytes: defaults are left out, and decimals without a valid precision and scale.

    Source: "Logical Types" of the Avro 1.11 specification (an invalid logical type is ignored). Java checks the
    defaults of new schemas only. Raises `SchemaRefused` for a schema with other mistakes, or that is too large.

    >>> without_mistakes({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3})
    {'type': 'bytes', 'precision': 2, 'scale': 3}
    """
    check_size(schema)
    try:
        _check(schema)
        return _without_mistakes(schema)
    except SchemaRefused:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise _no_schema(schema, error) from error


def _without_mistakes(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_mistakes(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: value for name, value in schema.items() if name != "default"}
    if schema.get("logicalType") == "decimal" and not _is_decimal(schema):
        del kept["logicalType"]
    for part in ("items", "values"):
        if part in schema:
            kept[part] = _without_mistakes(schema[part])
    if "fields" in schema:
        kept["fields"] = [
            {"name": field["name"], "type": _without_mistakes(field["type"])} for field in schema["fields"]
        ]
    return kept


def _is_decimal(schema: dict[str, Any]) -> bool:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision > 0:
        return False
    return schema["type"] != "fixed" or precision <= int(log10(2) * (8 * schema["size"] - 1))


def _names_outside(schema: Any) -> dict[str, str]:
    """Full names that mean a type without namespace: the name with the namespace around it -> the name of the type.

    Java looks a name without a dot up in the namespace around it first, and then among the names without namespace. So
    Java writes such names into its schemas, for which the specification has no other form.
    """
    defined, used = set[str](), set[tuple[str, str]]()

    def walk(schema: Any, namespace: str) -> None:
        if isinstance(schema, list):
            for branch in schema:
                walk(branch, namespace)
        if isinstance(schema, str) and schema not in PRIMITIVES and "." not in schema:
            used.add((namespace, schema))
        if not isinstance(schema, dict):
            return
        if schema["type"] in NAMED:
            name = schema["name"]
            if "." in name:
                namespace = name.rpartition(".")[0]
            else:
                namespace = schema.get("namespace", namespace)
                name = f"{namespace}.{name}" if namespace else name
            defined.add(name)
        elif schema["type"] not in ("array", "map"):
            walk(schema["type"], namespace)
        for part in ("items", "values"):
            walk(schema.get(part), namespace)
        for field in schema.get("fields", ()):
            walk(field["type"], namespace)

    walk(schema, "")
    full = {f"{namespace}.{name}": name for namespace, name in used if namespace and name in defined}
    return {name: short for name, short in full.items() if name not in defined}


def _check(schema: Any) -> None:
    """Refuses schemas that fastavro accepts although they are not valid Avro."""
    if isinstance(schema, str):
        return
    if isinstance(schema, list):
        if any(isinstance(branch, list) for branch in schema):
            raise SchemaRefused("a union cannot be a branch of a union")
        for branch in schema:
            _check(branch)
        return
    if not isinstance(schema, dict) or not isinstance(schema.get("type"), str):
        raise SchemaRefused(f"{excerpt(schema)} is not an Avro schema")
    if marks := _RESERVED & schema.keys():
        raise SchemaRefused(f"a schema cannot have {sorted(marks)}")
    match schema["type"]:
        case "array":
            _check(schema["items"])
        case "map":
            _check(schema["values"])
        case "enum":
            if not all(isinstance(symbol, str) for symbol in schema["symbols"]):
                raise SchemaRefused(f"the symbols of {excerpt(schema['name'])} are not all text")
        case "fixed":
            size = schema["size"]
            if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**31:
                raise SchemaRefused(f"{excerpt(schema['name'])} has a size that no bytes can have")
        case "record" | "error":
            seen = set[str]()
            for field in schema["fields"]:
                name = field["name"]
                if not isinstance(name, str):
                    raise SchemaRefused(
                        f"a field of the record {excerpt(schema['name'])} has the name {excerpt(name)}, not a text"
                    )
                if name in seen:
                    raise SchemaRefused(
                        f"the record {excerpt(schema['name'])} has two fields with the name {excerpt(name)}"
                    )
                if not all(isinstance(alias, str) for alias in field.get("aliases") or ()):
                    raise SchemaRefused(f"the aliases of {excerpt(name)} are not all text")
                seen.add(name)
                _check(field["type"])
