"""Readers of Avro, generated for one pair of schemas: the schema with which the bytes were written, and the wanted
schema.

The module walks over both schemas once. For each record, array, map and union, it writes a Python function. (A union of
null and one other type needs no function.) The function of a record reads its fields one after the other without a
loop, because this is faster. Format and schema resolution are those of the Avro 1.11 specification.

Because bytes may come from anybody, time and memory are bounded by the length of the bytes. Containers are at most
`VALUE_DEPTH` deep. A value has at most `FREE_VALUES` items and fields that take no bytes. Names in a schema never
become names in the generated code.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Callable, Collection, Mapping
from datetime import date, timedelta
from enum import Enum
from typing import Any, NoReturn
from uuid import UUID

from streamapp._base.counted import counted
from streamapp.serdes.avro_schema import (
    EPOCH,
    EPOCH_DAY,
    Parsed,
    SchemaRefused,
    base_of,
    decimal_reader,
    default_of,
    kind_of,
    meaning_of,
    same_name,
    time_of,
    unit_of,
    unnulled,
)
from streamapp.serdes.field_path import Misfit, item_part, key_part, reason
from streamapp.serdes.types import excerpt

__all__ = ["FREE_VALUES", "VALUE_DEPTH", "make_reader", "make_tracer"]

VALUE_DEPTH = 200
"""The most levels of records, arrays and maps in a value. A schema with a type that contains itself sets no limit."""
FREE_VALUES = 1_000_000
"""The most items and fields of one value that take no bytes (nulls in an array, fields with their default). Without
this limit, a few bytes could make a value of any size."""
_MAX_STEPS = 20_000
"""The most fields, items and branches that one reader may resolve. This bounds the time to make a reader."""

_FAR = 4
"""The distance of two types if the one does not take the values of the other (see `_Compiler._distance`)."""
_PROMOTED: dict[tuple[str, str], str] = {
    ("int", "float"): "float_of({0})",
    ("int", "double"): "float_of({0})",
    ("long", "float"): "float_of({0})",
    ("long", "double"): "float_of({0})",
    ("string", "bytes"): "{0}.encode()",
    ("bytes", "string"): "{0}.decode()",
    ("int", "long"): "{0}",
    ("float", "double"): "{0}",
}

# Most numbers have one byte or two, which the generated code reads itself. A function reads longer numbers.
_VARINT = (
    "n = d[p]; p += 1",
    "if n > 127:",
    " b = d[p]; p += 1",
    " if b < 128: n += (b << 7) - 0x80",
    " else: n, p = varint(d, p, n, b)",
)
_VARINT_32 = (*_VARINT[:-1], " else: n, p = varint32(d, p, n, b)")
_SKIP_VARINT = ("if d[p] > 127:", " p += 1", " if d[p] > 127: p = skip_varint(d, p)", "p += 1")
_LENGTH = (*_VARINT, "if n & 1: negative(n)")

_LOGICAL = {
    "timestamp-millis": "EPOCH + timedelta(0, 0, 0, {0})",
    "timestamp-micros": "EPOCH + timedelta(0, 0, {0})",
    "local-timestamp-millis": "LOCAL + timedelta(0, 0, 0, {0})",
    "local-timestamp-micros": "LOCAL + timedelta(0, 0, {0})",
    "date": f"day({{0}} + {EPOCH_DAY})",
    "time-millis": "time_of({0} * 1000)",
    "time-micros": "time_of({0})",
    "uuid": "UUID({0})",
}
"""Logical types -> code that turns a value of the base type into a value of the logical type."""


def make_reader(
    written: Parsed,
    wanted: Parsed,
    fields: Collection[str] | None,
    cls: Callable[..., Any] | None = None,
    attributes: Mapping[str, str] | None = None,
    enums: Mapping[str, type[Enum]] | None = None,
) -> Callable[[bytes], Any]:
    """A function from Confluent-framed bytes of the schema ``written`` to values of the schema ``wanted``.

    With ``fields``, the outermost record has only these fields. All its other fields are skipped without decoding, and
    bytes after the last of ``fields`` are ignored. Without ``fields``, or with all fields of ``wanted``, bytes after
    the value are an error. With ``cls`` and ``attributes`` (name of a field -> keyword), the function returns an object
    of ``cls`` instead of a dict. The fields of ``enums`` then have members of their Enums.

    Raises `SchemaRefused` if no bytes of ``written`` can be read as ``wanted``. The function raises ValueError,
    LookupError, OverflowError or struct.error for bytes that it cannot read.
    """
    return _Compiler(written, wanted, enums or {}).reader(fields, cls, attributes)


def make_tracer(
    written: Parsed, wanted: Parsed, fields: Collection[str] | None
) -> Callable[[bytes], Misfit | None]:
    """A function that reads bytes as the function of `make_reader` does, and returns the error with its path.

    The function notes the path to each part while it reads, so it is slower. The function returns None if the bytes can
    be read.
    """
    read = _Compiler(written, wanted, {}, traced=True).reader(fields, None, None)

    def trace(data: bytes) -> Misfit | None:
        s: list[Any] = [FREE_VALUES]
        try:
            read(data, s)
        except (IndexError, EOFError, struct.error):
            return Misfit("the bytes are cut short or damaged", s[1:])
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
            if isinstance(error, Misfit):
                return Misfit(error.why, [*s[1:], *error.parts])
            return Misfit(reason(error), s[1:])
        return None

    return trace


class _Compiler:
    """Makes the functions of one reader.

    If ``traced``, the functions note the path to the part that they read. The path is in the list ``s``, one item for
    each level. The first item of ``s`` is the rest of `FREE_VALUES`.
    """

    def __init__(
        self, written: Parsed, wanted: Parsed, enums: Mapping[str, type[Enum]], traced: bool = False
    ) -> None:
        self._written, self._wanted, self._enums, self._traced = written, wanted, enums, traced
        self._names: dict[str, Any] = dict(_NAMES)
        self._functions: dict[tuple[Any, ...], str] = {}
        self._sources: list[str] = []
        self._steps = 0
        self._free: dict[int, bool] = {}

    def reader(
        self,
        fields: Collection[str] | None,
        cls: Callable[..., Any] | None,
        attributes: Mapping[str, str] | None,
    ) -> Callable[..., Any]:
        lines = ["def read(d):", f" p = 5; k = {VALUE_DEPTH}; s = [{FREE_VALUES}]"]
        written, wanted = self._written.root, self._wanted.root
        if fields is not None and kind_of(written) == kind_of(wanted) == "record":
            self._check_names(written, wanted)
            body = self._fields(written, wanted, frozenset(fields), cls, attributes)
            whole = len(fields) == len(wanted["fields"])
            lines[1] = f" p = 5; k = {VALUE_DEPTH - 1}; s = [{FREE_VALUES}]"
        else:
            body, whole = [*self._value(written, wanted, 0), "made = v0"], True
        if self._traced:
            lines = ["def read(d, s):", lines[1].rpartition(";")[0]]
            body.append("del s[1:]")
        lines += [f" {line}" for line in body]
        lines.append(" if p != len(d): wrong_end(d, p)" if whole else " if p > len(d): raise IndexError")
        lines.append(" return made")
        if not self._traced and not any("s)" in line for line in lines):
            lines[1] = " p = 5"
        for source in [*self._sources, "\n".join(lines)]:
            exec(source, self._names)
        return self._names["read"]  # type: ignore[no-any-return]

    def _value(self, w: Any, r: Any, n: int) -> list[str]:
        """Lines that read a value of ``w`` as ``r`` into ``v<n>``. If ``r`` is None, the lines step over the value."""
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise SchemaRefused(f"to resolve the schemas takes more than {_MAX_STEPS:,} steps")
        w = self._written.follow(w)
        inner, null = unnulled(w)
        if null is not None:
            return self._nullable(w, inner, null, r, n)
        if r is not None:
            r = self._matching(w, r)
        kind = kind_of(w)
        if kind in ("union", "record", "array", "map"):
            function = self._function(kind, w, r)
            return [f"p = {function}(d, p, k, s)" if r is None else f"v{n}, p = {function}(d, p, k, s)"]
        if r is None:
            return self._skip(kind, w)
        if kind == "enum":
            return [*self._read(kind, w, n), *self._symbols(w, r, n)]
        conversion = self._conversion(w, r)
        lines = self._read(base_of(w), w, n, conversion)
        if conversion == "{0}" or base_of(w) in ("int", "long"):
            return lines
        return [*lines, f"v{n} = {conversion.format(f'v{n}')}"]

    def _conversion(self, w: Any, r: Any) -> str:
        """A template of code that turns a value of the base type of ``w`` into a value of ``r``.

        The logical type of ``r`` counts, as in Java. Times keep their moment if the units differ, and decimals are read
        with the precision and the scale of ``w``.
        """
        made = _PROMOTED.get((base_of(w), base_of(r)), "{0}")
        if meaning_of(w) is not None and meaning_of(r) is not None:
            made = _rescaled(made, unit_of(w), unit_of(r))
        kind = kind_of(r)
        if kind == "decimal":
            return f"{self._constant(decimal_reader(w if kind_of(w) == kind else r))}({made})"
        return _LOGICAL.get(kind, "{0}").format(made)

    def _nullable(self, w: Any, inner: Any, null: int, r: Any, n: int) -> list[str]:
        branches = []
        for branch in ("null", inner):
            try:
                branches.append(self._value(branch, r, n))
            except _Unresolvable as error:
                branches.append([self._refuse(error)])
        nothing, something = branches
        return [
            "n = d[p]; p += 1",
            f"if n == {2 * (1 - null)}:",
            *(f" {line}" for line in something),
            f"elif n == {2 * null}:",
            *(f" {line}" for line in nothing or ["pass"]),
            "else: no_branch(n)",
        ]

    def _matching(self, w: Any, r: Any) -> Any:
        """The schema that reads a value of ``w``: ``r``, or the branch of the union ``r`` that is most like ``w``.

        As in Java, a branch of the same type comes before a branch to which values of ``w`` can be promoted.
        """
        r = self._wanted.follow(r)
        if kind_of(w) == "union":
            return r  # each branch of w finds a branch of r
        branches = [self._wanted.follow(branch) for branch in (r if isinstance(r, list) else [r])]
        distances = [self._distance(w, branch) for branch in branches]
        best = min(distances, default=_FAR)
        if best == _FAR:
            raise _Unresolvable(f"{_named(w)} is written and {_named(r)} is wanted")
        return branches[distances.index(best)]

    def _distance(self, w: Any, r: Any) -> int:
        """0 for the same type, more for a type that also takes values of ``w``, `_FAR` for all other types."""
        base, target = base_of(w), base_of(r)
        if meaning_of(w) != meaning_of(r) and None not in (meaning_of(w), meaning_of(r)):
            return _FAR
        if base != target:
            return 3 if (base, target) in _PROMOTED or {base, target} == {"record", "error"} else _FAR
        if "name" in w if isinstance(w, dict) else False:
            if not same_name(w, r) or (base == "fixed" and w["size"] != r["size"]):
                return _FAR
            return 0 if w["name"] == r["name"] else 2
        inner = {"array": "items", "map": "values"}.get(base)
        if inner is None:
            return 0 if kind_of(w) == kind_of(r) else 1
        w, r = self._written.follow(w[inner]), self._wanted.follow(r[inner])
        return 0 if isinstance(w, list) or isinstance(r, list) else self._distance(w, r)

    def _check_names(self, w: Any, r: Any) -> None:
        if not same_name(w, r):
            raise SchemaRefused(f"{_named(w)} is written and {_named(r)} is wanted")

    def _function(self, kind: str, w: Any, r: Any) -> str:
        """The name of a function ``(d, p, k, s) -> value, p``, or ``-> p`` if the function steps over a value.

        ``d`` are the bytes, ``p`` is the position, ``k`` the depth that is left, ``s`` a list with the rest of
        `FREE_VALUES`. The function of a recursive type calls itself.
        """
        key = (id(w), None if r is None else id(r))
        known = self._functions.get(key)
        if known is not None:
            return known
        name = self._functions[key] = f"f{len(self._functions)}"
        lines = [] if kind == "union" else ["k -= 1", "if k < 0: too_deep()"]
        try:
            if kind == "record":
                lines += self._skipped_fields(w) if r is None else self._fields(w, r, None, None, None)
                lines.append("return p" if r is None else "return made, p")
            elif kind == "union":
                lines += self._branches(w, r)
            else:
                lines += self._items(kind, w, r)
        except _Unresolvable as error:
            # Generated code may already call this function. The error comes only if a value gets here.
            lines = [self._refuse(error)]
        self._sources.append("\n".join([f"def {name}(d, p, k, s):", *(f" {line}" for line in lines)]))
        return name

    def _fields(
        self,
        w: Any,
        r: Any,
        kept: frozenset[str] | None,
        cls: Callable[..., Any] | None,
        attributes: Mapping[str, str] | None,
    ) -> list[str]:
        """Lines that read a record into ``made``: the written fields in order, then defaults for missing fields."""
        wanted = {field["name"]: field for field in r["fields"] if kept is None or field["name"] in kept}
        aliases = {alias: field for field in wanted.values() for alias in field.get("aliases") or ()}
        found: dict[str, int] = {}
        steps: list[list[str]] = []
        last = 0
        for n, field in enumerate(w["fields"]):
            target = wanted.get(field["name"], aliases.get(field["name"]))
            if target is None or target["name"] in found:
                steps.append(self._part(repr(field["name"]), self._value(field["type"], None, n)))
                continue
            try:
                step = self._value(field["type"], target["type"], n)
            except _Unresolvable as error:
                error.parts.insert(0, field["name"])
                raise
            steps.append(self._part(repr(field["name"]), step))
            found[target["name"]] = n
            last = n + 1
        partly = kept is not None and len(kept) < len(r["fields"])
        lines = [line for step in (steps[:last] if partly else steps) for line in step]
        if self._traced:
            lines.append(f"del s[{VALUE_DEPTH} - k:]")
        count = len(steps)
        missing = [name for name in wanted if name not in found]
        if missing and kept is None:
            lines.append(f"spend(s, {len(missing)})")
        for number, name in enumerate(missing, count):
            lines.append(f"v{number} = {self._default(wanted[name], r)}")
            found[name] = number
        order = [name for name in wanted if name in found]
        if cls is None or attributes is None:
            lines.append(f"made = {{{', '.join(f'{name!r}: v{found[name]}' for name in order)}}}")
        else:
            self._names["cls"] = cls
            values = {name: f"v{found[name]}" for name in order}
            for name in self._enums.keys() & values.keys():
                by_symbol = {member.value: member for member in self._enums[name]}
                values[name] = f"{self._constant({None: None, **by_symbol})}[{values[name]}]"
            lines.append(f"made = cls({', '.join(f'{attributes[name]}={values[name]}' for name in order)})")
        return lines

    def _skipped_fields(self, w: Any) -> list[str]:
        steps = [self._part(repr(each["name"]), self._value(each["type"], None, 0)) for each in w["fields"]]
        return [line for step in steps for line in step]

    def _part(self, part: str, lines: list[str]) -> list[str]:
        """Lines that read a part of a record, array or map; ``part`` is code for the part's step in the path."""
        if not self._traced:
            return lines
        return [f"s[{VALUE_DEPTH} - k:] = ({part},)", *lines, "if p > len(d): raise IndexError"]

    def _default(self, field: Any, record: Any) -> str:
        if "default" not in field:
            raise _Unresolvable(
                f"the field of {record['name']} was not written and has no default", [field["name"]]
            )
        try:
            value = default_of(self._wanted, field["type"], field["default"])
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise _Unresolvable(f"the default does not fit: {reason(error)}", [field["name"]]) from error
        name = self._constant(value)
        return f"copied({name})" if isinstance(value, dict | list) else name

    def _branches(self, w: Any, r: Any) -> list[str]:
        table: list[str] = []
        for branch in w:
            try:
                lines = self._value(branch, r, 0)
            except _Unresolvable as error:
                lines = [self._refuse(error)]
            name = f"b{len(self._sources)}_{len(table)}"
            lines.append("return p" if r is None else "return v0, p")
            self._sources.append("\n".join([f"def {name}(d, p, k, s):", *(f" {line}" for line in lines)]))
            table.append(name)
        later = self._late_table(table)
        return [*_LENGTH, f"if n >= {2 * len(w)}: no_branch(n)", f"return {later}[n >> 1](d, p, k, s)"]

    def _late_table(self, functions: list[str]) -> str:
        """The name of a tuple of functions. The tuple's source comes behind the sources of the functions."""
        name = f"t{len(self._sources)}"
        self._sources.append(f"{name} = ({''.join(f'{function}, ' for function in functions)})")
        return name

    def _items(self, kind: str, w: Any, r: Any) -> list[str]:
        part = "items" if kind == "array" else "values"
        w_item, r_item = w[part], None if r is None else r[part]
        item = self._value(w_item, r_item, 0)
        if kind == "map":
            key = self._read("string", "string", 1) if r is not None else self._skip("string", "string")
            item = [*key, *self._part("'[]'" if r is None else "key_part(v1)", item)]
        elif self._traced:
            item = [*self._part("item_part(i)", item), "i += 1"]
        if r is not None:
            item.append("append(v0)" if kind == "array" else "out[v1] = v0")
        free = kind == "array" and self._is_free(w_item)
        made = (
            {"array": ["out = []; append = out.append"], "map": ["out = {}"]}[kind] if r is not None else []
        )
        if self._traced:
            made.append("i = 0")
        return [
            *made,
            "z = len(d)",
            "while True:",
            *([f" del s[{VALUE_DEPTH} - k:]"] if self._traced else []),
            *(f" {line}" for line in _VARINT),
            " if n == 0: " + ("return p" if r is None else "return out, p"),
            " h = None",
            " c = (n >> 1) ^ -(n & 1)",
            " if c < 0:",
            "  c = -c",
            *(f"  {line}" for line in _LENGTH),
            "  h = p + (n >> 1)",
            *([" spend(s, c)"] if free else []),
            " for _ in range(c):",
            *(f"  {line}" for line in item or ["pass"]),
            "  if p > z: raise IndexError",
            " if h is not None and p != h: wrong_block()",
        ]

    def _is_free(self, schema: Any) -> bool:
        """True if a value may take no bytes at all. A type that always contains itself counts as free, too."""
        schema = self._written.follow(schema)
        kind = kind_of(schema)
        if kind == "null":
            return True
        if isinstance(schema, dict) and schema["type"] == "fixed":
            return bool(schema["size"] == 0)
        if kind != "record":
            return False
        if id(schema) not in self._free:
            self._free[id(schema)] = True
            self._free[id(schema)] = all(self._is_free(field["type"]) for field in schema["fields"])
        return self._free[id(schema)]

    def _read(self, base: str, w: Any, n: int, conversion: str = "{0}") -> list[str]:
        """Lines that read a value of the type ``base``. If this is a number, the lines also convert the number."""
        match base:
            case "null":
                return [f"v{n} = None"]
            case "boolean":
                return [f"v{n} = boolean[d[p]]; p += 1"]
            case "float" | "double":
                return [f"v{n}, = {base}(d, p); p += {4 if base == 'float' else 8}"]
            case "string" | "bytes":
                decode = ".decode()" if base == "string" else ""
                return [*_LENGTH, "e = p + (n >> 1)", f"v{n} = d[p:e]{decode}; p = e"]
            case "fixed":
                return [f"e = p + {w['size']}", "if e > len(d): raise IndexError", f"v{n} = d[p:e]; p = e"]
            case "enum":
                symbols = self._constant(tuple(w["symbols"]))
                if self._traced:
                    return [*_LENGTH, f"v{n} = nth_symbol({symbols}, n >> 1)"]
                return [*_LENGTH, f"v{n} = {symbols}[n >> 1]"]
        number = conversion.format("((n >> 1) ^ -(n & 1))")
        return [*(_VARINT_32 if base == "int" else _VARINT), f"v{n} = {number}"]

    def _skip(self, kind: str, w: Any) -> list[str]:
        match kind:
            case "null":
                return []
            case "boolean":
                return ["p += 1"]
            case "float" | "double":
                return [f"p += {4 if kind == 'float' else 8}"]
            case "string" | "bytes" | "uuid":
                return [*_LENGTH, "p += n >> 1"]
            case "decimal" | "fixed":
                return self._skip("bytes", "bytes") if w["type"] == "bytes" else [f"p += {w['size']}"]
        return list(_SKIP_VARINT)

    def _symbols(self, w: Any, r: Any, n: int) -> list[str]:
        """Lines that keep symbols that the reader's enum has, and replace all others by the reader's default."""
        if set(w["symbols"]) <= set(r["symbols"]):
            return []
        known = {symbol: symbol for symbol in r["symbols"]}
        if "default" in r:
            known = {symbol: known.get(symbol, r["default"]) for symbol in w["symbols"]}
        if self._traced:
            return [f"v{n} = symbol({self._constant(known)}, v{n})"]
        return [f"v{n} = {self._constant(known)}[v{n}]"]

    def _refuse(self, error: _Unresolvable) -> str:
        return f"refuse({self._constant((error.why, error.parts))})"

    def _constant(self, value: Any) -> str:
        name = f"c{len(self._names)}"
        self._names[name] = value
        return name


class _Unresolvable(Misfit, SchemaRefused):
    """A value of one type cannot be read as another type. In a union, the error concerns one branch, and other branches
    may still be read."""


def _rescaled(number: str, written: int, wanted: int) -> str:
    if written == wanted:
        return number
    return (
        f"in_64_bits({number} * {written // wanted})"
        if written > wanted
        else f"({number} // {wanted // written})"
    )


def _in_64_bits(number: int) -> int:
    if not -(2**63) <= number < 2**63:
        raise ValueError("a number has more than 64 bits")
    return number


def _named(schema: Any) -> str:
    return str(schema["name"]) if isinstance(schema, dict) and "name" in schema else excerpt(schema)


def _varint(d: bytes, p: int, n: int, b: int) -> tuple[int, int]:
    """A varint whose first two bytes were ``n`` and ``b``, and the position after it."""
    n += (b << 7) - 0x4080  # removes the two bits that mean: another byte follows
    shift = 14
    while True:
        b = d[p]
        p += 1
        if b < 128:
            break
        if shift == 63:
            raise ValueError("a number has more than 64 bits")
        n += (b & 127) << shift
        shift += 7
    n += b << shift
    if n >> 64:
        raise ValueError("a number has more than 64 bits")
    return n, p


def _varint_32(d: bytes, p: int, n: int, b: int) -> tuple[int, int]:
    n, p = _varint(d, p, n, b)
    if n >> 32:
        raise ValueError("an int has more than 32 bits")
    return n, p


def _skip_varint(d: bytes, p: int) -> int:
    """The position of the last byte of a varint whose second byte is at ``p``."""
    end = p + 9
    while d[p] > 127:
        p += 1
        if p == end:
            raise ValueError("a number has more than 64 bits")
    return p


def _negative(n: int) -> NoReturn:
    raise ValueError(f"a length or an index is negative ({-(n >> 1) - 1})")


def _no_branch(n: int) -> NoReturn:
    raise ValueError(f"a union has no branch {(n >> 1) ^ -(n & 1)}")


def _too_deep() -> NoReturn:
    raise ValueError(f"the value is nested more than {VALUE_DEPTH} levels deep")


def _wrong_block() -> NoReturn:
    raise ValueError("a block of items is not as long as its size says")


def _wrong_end(d: bytes, p: int) -> NoReturn:
    if p > len(d):
        raise IndexError
    raise ValueError(f"{counted(len(d) - p, 'byte follows', 'bytes follow')} the value")


def _refuse(misfit: tuple[str, list[str]]) -> NoReturn:
    raise Misfit(*misfit)


def _symbol(known: dict[str, str], symbol: str) -> str:
    if symbol not in known:
        raise ValueError(f"{excerpt(symbol)} is none of the symbols {excerpt(list(known))}")
    return known[symbol]


def _nth_symbol(symbols: tuple[str, ...], number: int) -> str:
    if number >= len(symbols):
        raise ValueError(f"symbol {number} is written, and the enum has {counted(len(symbols), 'symbol')}")
    return symbols[number]


def _spend(s: list[int], count: int) -> None:
    s[0] -= count
    if s[0] < 0:
        raise ValueError(f"the value has more than {FREE_VALUES:,} items or fields that take no bytes")


_NAMES: dict[str, Any] = {
    "varint": _varint,
    "varint32": _varint_32,
    "in_64_bits": _in_64_bits,
    "skip_varint": _skip_varint,
    "negative": _negative,
    "no_branch": _no_branch,
    "too_deep": _too_deep,
    "wrong_block": _wrong_block,
    "wrong_end": _wrong_end,
    "refuse": _refuse,
    "symbol": _symbol,
    "nth_symbol": _nth_symbol,
    "item_part": item_part,
    "key_part": key_part,
    "spend": _spend,
    "boolean": (False, True),
    "float": struct.Struct("<f").unpack_from,
    "double": struct.Struct("<d").unpack_from,
    "float_of": float,
    "copied": copy.deepcopy,
    "EPOCH": EPOCH,
    "LOCAL": EPOCH.replace(tzinfo=None),
    "timedelta": timedelta,
    "day": date.fromordinal,
    "time_of": time_of,
    "UUID": UUID,
}
