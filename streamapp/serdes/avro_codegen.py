"""Readers and writers of flat Avro records, generated for one schema.

fastavro walks the schema for every record. Here the walk is done once, and its result is a Python function
without a loop. What is not flat (see `is_flat`) is left to fastavro. The format is that of the Avro 1.11
specification, "Binary Encoding"; values are those that fastavro takes and gives.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

__all__ = ["is_flat", "make_reader", "make_writer"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLI, _MICRO = timedelta(milliseconds=1), timedelta(microseconds=1)
_EPOCH_DAY = date(1970, 1, 1).toordinal()

_PRIMITIVES = {"boolean", "int", "long", "float", "double", "string", "bytes"}
_LOGICAL = {("long", "timestamp-millis"), ("long", "timestamp-micros"), ("int", "date")}


def is_flat(schema: Any) -> bool:
    """A record of primitives, enums, timestamps and dates, each of them perhaps in a union with null."""
    return (
        isinstance(schema, dict)
        and schema.get("type") == "record"
        and all(
            field["name"].isidentifier() and _kind(_unnulled(field["type"])[0]) is not None
            for field in schema["fields"]
        )
    )


def make_reader(
    schema: dict[str, Any],
    fields: Collection[str],
    cls: Callable[..., Any] | None,
    attributes: Mapping[str, str],
) -> Callable[[bytes], Any]:
    """A function from Confluent-framed bytes to a dict of ``fields``, or to ``cls`` made with keywords.

    Fields that are not wanted are stepped over without being decoded; what follows the last wanted one is not
    looked at. Bytes that end too early raise IndexError, struct.error or ValueError.
    """
    lines = ["def read(d):", " p = 5"]
    names: dict[str, Any] = dict(_READER_NAMES)
    if cls is not None:
        names["cls"] = cls
    wanted = [n for n, field in enumerate(schema["fields"]) if field["name"] in fields]
    for n, field in enumerate(schema["fields"][: wanted[-1] + 1 if wanted else 0]):
        inner, null = _unnulled(field["type"])
        keep = n in wanted
        code = _read_value(inner, n, names) if keep else _skip_value(inner)
        if null is None:
            lines += [f" {line}" for line in code]
        else:
            lines += [f" n = d[p]; p += 1; {f'v{n} = None' if keep else ''}", f" if n == {2 * (1 - null)}:"]
            lines += [f"  {line}" for line in code]
            lines.append(f" elif n != {2 * null}: no_branch({field['name']!r}, n)")
    lines.append(" if p > len(d): raise IndexError")
    if cls is None:
        made = ", ".join(f"{schema['fields'][n]['name']!r}: v{n}" for n in wanted)
        lines.append(f" return {{{made}}}")
    else:
        made = ", ".join(f"{attributes[schema['fields'][n]['name']]}=v{n}" for n in wanted)
        lines.append(f" return cls({made})")
    exec("\n".join(lines), names)
    return names["read"]  # type: ignore[no-any-return]


def make_writer(
    schema: dict[str, Any], attributes: Mapping[str, str] | None
) -> Callable[[Any, bytes], bytes]:
    """A function (record, header) -> header and Avro; the record is a dict, or has the ``attributes``."""
    lines = ["def write(r, header):"]
    if attributes is None:
        lines.append(f" if len(r) != {len(schema['fields'])}: raise KeyError")
    names: dict[str, Any] = dict(_WRITER_NAMES)
    parts = ["header"]
    for n, field in enumerate(schema["fields"]):
        name = field["name"]
        inner, null = _unnulled(field["type"])
        lines.append(f" x = r[{name!r}]" if attributes is None else f" x = r.{attributes[name]}")
        code = _write_value(inner, n, names)
        if null is None:
            lines += [f" {line}" for line in code]
        else:
            # The branch's number is glued to the value only where there is one.
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


def _unnulled(schema: Any) -> tuple[Any, int | None]:
    """The schema without its null, and which branch null is (None: it has no null)."""
    if isinstance(schema, list) and len(schema) == 2 and "null" in schema:
        null = schema.index("null")
        return schema[1 - null], null
    return schema, None


def _kind(schema: Any) -> str | None:
    """The primitive or logical type or 'enum', None if the schema is of another kind."""
    if isinstance(schema, str):
        return schema if schema in _PRIMITIVES else None
    if not isinstance(schema, dict):
        return None
    base, logical = schema.get("type"), schema.get("logicalType")
    if logical is not None:
        return logical if (base, logical) in _LOGICAL else None
    return base if base in _PRIMITIVES or base == "enum" else None


# The first byte, the second, and a function for the rest: most numbers have one or two.
_VARINT = (
    "n = d[p]; p += 1",
    "if n > 127:",
    " b = d[p]; p += 1",
    " if b < 128: n += (b << 7) - 0x80",
    " else: n, p = varint(d, p, n, b)",
)


def _read_value(schema: Any, n: int, names: dict[str, Any]) -> list[str]:
    kind = _kind(schema)
    match kind:
        case "boolean":
            return [f"v{n} = d[p] != 0; p += 1"]
        case "float" | "double":
            return [f"v{n}, = {kind}(d, p); p += {4 if kind == 'float' else 8}"]
        case "string" | "bytes":
            decode = ".decode()" if kind == "string" else ""
            return [*_VARINT, "if n & 1: negative(n)", "e = p + (n >> 1)", f"v{n} = d[p:e]{decode}; p = e"]
        case "enum":
            names[f"symbols{n}"] = tuple(schema["symbols"])
            return [*_VARINT, "if n & 1: negative(n)", f"v{n} = symbols{n}[n >> 1]"]
    long = "((n >> 1) ^ -(n & 1))"
    value = {
        "timestamp-millis": f"EPOCH + timedelta(0, 0, 0, {long})",
        "timestamp-micros": f"EPOCH + timedelta(0, 0, {long})",
        "date": f"day({long} + {_EPOCH_DAY})",
    }.get(kind or "", long)
    return [*_VARINT, f"v{n} = {value}"]


def _skip_value(schema: Any) -> list[str]:
    match _kind(schema):
        case "boolean":
            return ["p += 1"]
        case "float":
            return ["p += 4"]
        case "double":
            return ["p += 8"]
        case "string" | "bytes":
            return [*_VARINT, "if n & 1: negative(n)", "p += n >> 1"]
    return ["while d[p] > 127: p += 1", "p += 1"]


def _write_value(schema: Any, n: int, names: dict[str, Any]) -> list[str]:
    """Lines that turn ``x`` into ``a<n>``, and for text and bytes its length into ``l<n>``."""
    match _kind(schema):
        case "boolean":
            return [f"a{n} = b'\\x01' if x else b'\\x00'"]
        case "float":
            return [f"a{n} = float_(x)"]
        case "double":
            return [f"a{n} = double(x)"]
        case "string":
            return [f"a{n} = x.encode(); n = len(a{n})", f"l{n} = small[n + n] if n < 8192 else long(n)"]
        case "bytes":
            return [f"a{n} = x; n = len(x)", f"l{n} = small[n + n] if n < 8192 else long(n)"]
        case "enum":
            names[f"symbols{n}"] = {symbol: _long(index) for index, symbol in enumerate(schema["symbols"])}
            return [f"a{n} = symbols{n}[x]"]
        case "timestamp-millis":
            return [f"a{n} = long(millis(x))"]
        case "timestamp-micros":
            return [f"a{n} = long(micros(x))"]
        case "date":
            return [f"a{n} = integer(days(x))"]
        case "int":
            return [f"a{n} = small[x + x] if 0 <= x < 8192 else integer(x)"]
    return [f"a{n} = small[x + x] if 0 <= x < 8192 else long(x)"]


def _varint(d: bytes, p: int, n: int, b: int) -> tuple[int, int]:
    """A varint whose first two bytes were ``n`` and ``b``, and the position after it."""
    n += (b << 7) - 0x4080  # without the two bits that say that more follows
    shift = 14
    while True:
        b = d[p]
        p += 1
        if b < 128:
            break
        n += (b & 127) << shift
        shift += 7
    n += b << shift
    if n >> 64:
        raise ValueError("a number has more than 64 bits")
    return n, p


def _negative(n: int) -> None:
    raise ValueError(f"a length or an index is negative ({-(n >> 1) - 1})")


def _no_branch(field: str, n: int) -> None:
    raise ValueError(f"field {field!r} has no branch {n >> 1} in its union")


def _encode(z: int) -> bytes:
    out = bytearray()
    while z > 127:
        out.append(z & 127 | 128)
        z >>= 7
    out.append(z)
    return bytes(out)


_SMALL = tuple(_encode(z) for z in range(1 << 14))
_MORE = tuple(bytes((z & 127 | 128, z >> 7 | 128)) for z in range(1 << 14))


def _long(x: int) -> bytes:
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


def _integer(x: int) -> bytes:
    if not -0x80000000 <= x <= 0x7FFFFFFF:
        raise OverflowError(f"{x} has more than 32 bits")
    return _long(x)


def _since_epoch(x: Any, unit: timedelta) -> Any:
    if isinstance(x, datetime):
        if x.tzinfo is None:
            raise ValueError(f"{x!r} has no time zone")
        return (x - EPOCH) // unit
    return x


def _days(x: Any) -> Any:
    return x.toordinal() - _EPOCH_DAY if isinstance(x, date) else x


_READER_NAMES: dict[str, Any] = {
    "varint": _varint,
    "negative": _negative,
    "no_branch": _no_branch,
    "float": struct.Struct("<f").unpack_from,
    "double": struct.Struct("<d").unpack_from,
    "EPOCH": EPOCH,
    "timedelta": timedelta,
    "day": date.fromordinal,
}
_WRITER_NAMES: dict[str, Any] = {
    "join": b"".join,
    "small": _SMALL,
    "long": _long,
    "integer": _integer,
    "float_": struct.Struct("<f").pack,
    "double": struct.Struct("<d").pack,
    "millis": lambda x: _since_epoch(x, _MILLI),
    "micros": lambda x: _since_epoch(x, _MICRO),
    "days": _days,
}
