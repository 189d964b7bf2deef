"""The named functions of SPEC.md, section 3.

A function is written in a case as ``"upper"`` or ``["append", "!"]``. Names are looked up once, when the
topology is built: `mapper(spec)` and its siblings return a plain function.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any, TypeGuard

from streamapp import (
    Headers,
    fail_on_invalid_timestamp,
    log_and_skip_on_invalid_timestamp,
    use_partition_time_on_invalid_timestamp,
    wallclock_timestamp,
)

from .types import JSON, LONG, STRING, Json, Type, text, to_json

__all__ = [
    "TopicFunction",
    "aggregator",
    "aggregator_type",
    "extractor",
    "flat",
    "flat_type",
    "is_literal",
    "joiner",
    "joiner_type",
    "joiner_uses_key",
    "last_header",
    "literal",
    "mapper",
    "mapper_type",
    "merger",
    "predicate",
    "reducer",
]

Spec = str | list[Any]


def _split(spec: Spec) -> tuple[str, list[Any]]:
    return (spec, []) if isinstance(spec, str) else (spec[0], spec[1:])


def _is_long(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def literal(node: Any) -> Any:
    """A JSON literal as the value that it looks like."""
    return node if node is None or isinstance(node, str) or _is_long(node) else Json(node)


def is_literal(node: Any, value: Any) -> bool:
    """Whether a value equals a JSON literal of the case; null equals none."""
    return value is not None and type(literal(node)) is type(value) and bool(literal(node) == value)


def _fail_on(node: Any, value: Any) -> None:
    if is_literal(node, value):
        raise RuntimeError(f"fail_on {text(value)}")


# ---------------------------------------------------------------------------- predicates


def predicate(spec: Spec) -> Callable[[Any, Any], bool]:
    """(key, value) -> bool."""
    name, args = _split(spec)
    match name, args:
        case "always", _:
            return lambda k, v: True
        case "never", _:
            return lambda k, v: False
        case "value_is_null", _:
            return lambda k, v: v is None
        case "key_is_null", _:
            return lambda k, v: k is None
        case "value_eq", [x]:
            return lambda k, v: is_literal(x, v)
        case "key_in", [nodes]:
            return lambda k, v: any(is_literal(x, k) for x in nodes)
        case "value_length_gt", [n]:
            return lambda k, v: isinstance(v, str) and len(v) > n
        case "value_contains", [t]:
            return lambda k, v: isinstance(v, str) and t in v
        case "value_gt", [n]:
            return lambda k, v: isinstance(v, int) and v > n
        case "value_mod", [n, r]:
            return lambda k, v: isinstance(v, int) and v % n == r
        case "json_gt", [field, n]:
            return lambda k, v: isinstance(v, Json) and _is_long(v.field(field)) and v.field(field) > n
        case "not", [inner]:
            negated = predicate(inner)
            return lambda k, v: not negated(k, v)
        case "fail_on", [x]:

            def true_or_fail(k: Any, v: Any) -> bool:
                _fail_on(x, v)
                return True

            return true_or_fail
    raise ValueError(f"unknown predicate {spec}")


# ---------------------------------------------------------------------------- mappers


def mapper_type(spec: Spec, key: Type, value: Type) -> Type:
    """The static type of a mapper's result."""
    name, args = _split(spec)
    match name:
        case "value" | "null_if" | "fail_on":
            return value
        case "null":
            return Type.of(args[0]) if args else value
        case "key":
            return key
        case "window_key":
            assert key.inner is not None
            return key.inner
        case "const":
            return LONG if _is_long(args[0]) else STRING if isinstance(args[0], str) else JSON
        case "length" | "parse_long" | "add" | "mul" | "json_long":
            return LONG
        case "wrap" | "parse_json":
            return JSON
        case _:
            return STRING


def mapper(spec: Spec) -> Callable[[Any, Any], Any]:
    """(key, value) -> anything."""
    name, args = _split(spec)
    match name, args:
        case "value", _:
            return lambda k, v: v
        case "key", _:
            return lambda k, v: k
        case "null", _:
            return lambda k, v: None
        case "const", [x]:
            return lambda k, v: literal(x)
        case "key_value", _:
            return lambda k, v: f"{text(k)}:{text(v)}"
        case "key_append", [t]:
            return lambda k, v: text(k) + t
        case "key_first_char", _:
            return lambda k, v: k[:1] or None if k is not None else None
        case "window_key", _:
            return lambda k, v: k.key
        case "window_string", _:
            return lambda k, v: text(k)
        case "null_if", [x]:
            return lambda k, v: None if is_literal(x, v) else v
        case "fail_on", [x]:

            def value_or_fail(k: Any, v: Any) -> Any:
                _fail_on(x, v)
                return v

            return value_or_fail
    of_value = _value_mapper(spec)
    return lambda k, v: None if v is None else of_value(v)


def _value_mapper(spec: Spec) -> Callable[[Any], Any]:
    """The mappers that give null for null; they are never called with it."""
    name, args = _split(spec)
    match name, args:
        case "upper", _:
            return str.upper
        case "lower", _:
            return str.lower
        case "append", [t]:
            return lambda v: text(v) + t
        case "prepend", [t]:
            return lambda v: t + text(v)
        case "length", _:
            return len
        case "first_char", _:
            return lambda v: v[:1] or None
        case "pick", [i]:
            return lambda v: next(iter(v.split(",")[i : i + 1]), "") or None
        case "parse_long", _:
            return lambda v: int(v) if re.fullmatch("-?[0-9]{1,18}", v) else None
        case "parse_json", _:
            return Json.parse
        case "to_string", _:
            return text
        case "add", [n]:
            return lambda v: v + n
        case "mul", [n]:
            return lambda v: v * n
        case "mod_label", [n]:
            return lambda v: f"m{v % n}"
        case "json_field", [field]:
            return lambda v: _field_text(v.field(field))
        case "json_long", [field]:
            return lambda v: v.field(field) if _is_long(v.field(field)) else None
        case "wrap", [field]:
            return lambda v: Json({field: to_json(v)})
    raise ValueError(f"unknown mapper {spec}")


def _field_text(node: Any) -> str | None:
    return node if node is None or isinstance(node, str) else Json(node).text


# ---------------------------------------------------------------------------- flat functions


def flat_type(spec: Spec, value: Type) -> Type:
    """The static type of a flat function's elements."""
    return value if _split(spec)[0] == "repeat" else STRING


def flat(spec: Spec) -> Callable[[Any], list[Any]]:
    """value -> list."""
    name, args = _split(spec)
    match name, args:
        case "split_words", _:
            return lambda v: [word for word in (v or "").split(" ") if word]
        case "chars", _:
            return lambda v: list(v or "")
        case "repeat", [n]:
            return lambda v: [v] * n
    raise ValueError(f"unknown flat function {spec}")


# ---------------------------------------------------------------------------- aggregation


def _order(value: Any) -> Any:
    """Strings sort by their UTF-16 code units, as in Java."""
    return value.encode("utf-16-be") if isinstance(value, str) else value


def reducer(spec: Spec) -> Callable[[Any, Any], Any]:
    """(aggregate, value) -> aggregate."""
    name, args = _split(spec)
    match name, args:
        case "sum", _:
            return lambda a, v: a + (v or 0)
        case "subtract", _:
            return lambda a, v: a - (v or 0)
        case "max", _:
            return lambda a, v: a if v is None or _order(a) >= _order(v) else v
        case "min", _:
            return lambda a, v: a if v is None or _order(a) <= _order(v) else v
        case "first", _:
            return lambda a, v: a
        case "last", _:
            return lambda a, v: v
        case "concat", _:
            separator = args[0] if args else ""
            return lambda a, v: text(a) + separator + text(v)
        case "remove", _:
            return lambda a, v: text(a).replace(text(v), "", 1)
        case "null_on", [x]:
            return lambda a, v: None if is_literal(x, v) else v
        case "fail_on", [x]:

            def value_or_fail(a: Any, v: Any) -> Any:
                _fail_on(x, v)
                return v

            return value_or_fail
    raise ValueError(f"unknown reducer {spec}")


def aggregator_type(spec: Spec) -> Type:
    """The static type of an aggregator's result."""
    match _split(spec)[0]:
        case "append" | "append_or_null" | "remove":
            return STRING
        case "list_add" | "list_remove":
            return JSON
        case _:
            return LONG


def _of_either(choose: Callable[[int, int], int]) -> Callable[[Any, Any], Any]:
    return lambda a, b: b if a is None else a if b is None else choose(a, b)


def aggregator(spec: Spec) -> Callable[[Any, Any, Any], Any]:
    """(key, value, aggregate) -> aggregate."""
    name, args = _split(spec)
    separator = args[0] if args else ""
    match name:
        case "count":
            return lambda k, v, a: (a or 0) + 1
        case "uncount":
            return lambda k, v, a: (a or 0) - 1
        case "sum":
            return lambda k, v, a: (a or 0) + (v or 0)
        case "subtract":
            return lambda k, v, a: (a or 0) - (v or 0)
        case "sum_length":
            return lambda k, v, a: (a or 0) + len(v or "")
        case "subtract_length":
            return lambda k, v, a: (a or 0) - len(v or "")
        case "min" | "max":
            either = _of_either(min if name == "min" else max)
            return lambda k, v, a: either(a, v)
        case "append":
            return lambda k, v, a: ("" if a is None else text(a)) + separator + text(v)
        case "append_or_null":
            joined = aggregator("append")
            return lambda k, v, a: None if is_literal(args[0], v) else joined(k, v, a)
        case "remove":
            return lambda k, v, a: text(a).replace(separator + text(v), "", 1)
        case "list_add":
            return lambda k, v, a: Json([*(a.list if a else []), to_json(v)])
        case "list_remove":
            return lambda k, v, a: Json(_without_first(a.list if a else [], to_json(v)))
    raise ValueError(f"unknown aggregator {spec}")


def _without_first(elements: list[Any], node: Any) -> list[Any]:
    for i, element in enumerate(elements):
        if Json(element) == Json(node):
            return elements[:i] + elements[i + 1 :]
    return elements


def merger(spec: Spec) -> Callable[[Any, Any, Any], Any]:
    """(key, one session's aggregate, another's) -> aggregate."""
    match _split(spec)[0]:
        case "sum":
            return lambda k, a, b: (a or 0) + (b or 0)
        case "max":
            either = _of_either(max)
            return lambda k, a, b: either(a, b)
        case "min":
            either = _of_either(min)
            return lambda k, a, b: either(a, b)
        case "concat":
            return lambda k, a, b: "".join(text(x) for x in (a, b) if x is not None)
        case "list_concat":
            return lambda k, a, b: Json([*(a.list if a else []), *(b.list if b else [])])
    raise ValueError(f"unknown merger {spec}")


# ---------------------------------------------------------------------------- joiners


def joiner_uses_key(spec: Spec) -> bool:
    return _split(spec)[0].endswith("_with_key")


def joiner_type(spec: Spec, left: Type, right: Type) -> Type:
    """The static type of a joiner's result."""
    return {"left": left, "right": right, "sum": LONG}.get(_split(spec)[0], STRING)


def joiner(spec: Spec) -> Callable[..., Any]:
    """(left, right) -> anything, or (key, left, right) if `joiner_uses_key`."""
    match _split(spec)[0]:
        case "concat":
            return lambda left, right: f"{text(left)}|{text(right)}"
        case "concat_with_key":
            return lambda key, left, right: f"{text(key)}:{text(left)}|{text(right)}"
        case "left":
            return lambda left, right: left
        case "right":
            return lambda left, right: right
        case "sum":
            return lambda left, right: (left or 0) + (right or 0)
        case "null_if_equal":
            return lambda left, right: None if left == right else f"{text(left)}|{text(right)}"
    raise ValueError(f"unknown joiner {spec}")


# ---------------------------------------------------------------------------- topics and time


def last_header(headers: Headers, name: str) -> str | None:
    """The text of the last header of that name."""
    found = [value for key, value in headers if key == name]
    return found[-1].decode() if found and found[-1] is not None else None


class TopicFunction:
    """(key, value, RecordContext) -> topic name; ``describe()`` shows the text of the function."""

    def __init__(self, spec: Spec) -> None:
        self.name, self.args = _split(spec)

    def __call__(self, key: Any, value: Any, context: Any) -> str:
        match self.name, self.args:
            case "by_key", [prefix]:
                return f"{prefix}{text(key)}"
            case "by_value_first_char", [prefix]:
                return f"{prefix}{text(value)[0]}"
            case "by_header", [header, default]:
                found = last_header(context.headers, header)
                return default if found is None else found
        raise ValueError(f"unknown topic function {self.name}")

    def __str__(self) -> str:
        return str(self.name)

    __repr__ = __str__


BUILT_IN_EXTRACTORS: dict[str, Callable[[Any, int], int]] = {
    "fail": fail_on_invalid_timestamp,
    "log_and_skip": log_and_skip_on_invalid_timestamp,
    "use_partition_time": use_partition_time_on_invalid_timestamp,
    "wallclock": wallclock_timestamp,
    "second_later": lambda record, partition_time: record.timestamp + 1000,
}


def extractor(spec: Spec) -> Callable[[Any, int], int]:
    """(consumer record, partition time) -> timestamp."""
    name, args = _split(spec)
    if name != "json_field":
        return BUILT_IN_EXTRACTORS[name]
    field, *rest = args
    then = extractor(rest[0]) if rest else None

    def of_field(record: Any, partition_time: int) -> int:
        node = record.value.field(field) if isinstance(record.value, Json) else None
        timestamp = node if _is_long(node) else -1
        return timestamp if then is None else then(_with_timestamp(record, timestamp), partition_time)

    return of_field


def _with_timestamp(record: Any, timestamp: int) -> Any:
    changed = copy.copy(record)
    changed.timestamp = timestamp
    return changed
