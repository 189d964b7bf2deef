"""The functions of the cases, where Python and Java could disagree; the cases themselves cover the rest."""

from __future__ import annotations

from typing import Any

import pytest

from streamapp import Windowed
from streamapp.errors import SerializationError

from . import functions as fn
from .types import JSON, LONG, STRING, Hex, Json, Type, text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "null"),
        ("a", "a"),
        (-7, "-7"),
        (Json({"b": 1, "a": "ü"}), '{"a":"ü","b":1}'),
        (Hex(b"\x00\xff"), "00ff"),
        (Windowed("a", 0, 10), "a@0/10"),
    ],
)
def test_text_of_a_value(value: Any, shown: str) -> None:
    assert text(value) == shown


@pytest.mark.parametrize(
    ("node", "value", "equal"),
    [
        ("1", "1", True),
        ("1", 1, False),
        (1, 1, True),
        (1, Json(1), False),
        (True, Json(True), True),
        ({"a": 1, "b": 2}, Json({"b": 2, "a": 1}), True),
        (None, None, False),
    ],
)
def test_a_literal_equals_values_of_its_own_type_only(node: Any, value: Any, equal: bool) -> None:
    assert fn.is_literal(node, value) is equal


@pytest.mark.parametrize(
    ("spec", "value", "holds"),
    [
        (["value_mod", 3, 2], -1, True),
        (["value_mod", 3, 2], None, False),
        (["value_gt", 1], "2", False),
        (["json_gt", "n", 1], Json({"n": 2}), True),
        (["json_gt", "n", 0], Json({"n": True}), False),
        (["json_gt", "n", 1], Json([2]), False),
        (["value_length_gt", 0], None, False),
        (["not", ["value_contains", "a"]], None, True),
    ],
)
def test_predicate(spec: fn.Spec, value: Any, holds: bool) -> None:
    assert fn.predicate(spec)(None, value) is holds


@pytest.mark.parametrize(
    ("spec", "value", "result"),
    [
        (["pick", 1], "a,,c", None),
        (["pick", 2], "a,,c", "c"),
        (["pick", 3], "a,,c", None),
        ("first_char", "", None),
        ("parse_long", "-12", -12),
        ("parse_long", "1\n", None),
        ("parse_long", "1234567890123456789", None),
        (["mod_label", 3], -1, "m2"),
        (["json_field", "f"], Json({"f": "x"}), "x"),
        (["json_field", "f"], Json({"f": {"b": 1, "a": 2}}), '{"a":2,"b":1}'),
        (["json_field", "f"], Json({"f": None}), None),
        (["json_long", "f"], Json({"f": "1"}), None),
        (["wrap", "f"], 1, Json({"f": 1})),
        ("upper", None, None),
        (["null_if", 1], "1", "1"),
    ],
)
def test_mapper(spec: fn.Spec, value: Any, result: Any) -> None:
    assert fn.mapper(spec)(None, value) == result


def test_the_type_of_a_mapper_follows_from_its_name() -> None:
    windowed = Type("windowed", LONG, size_ms=10)
    assert fn.mapper_type("window_key", windowed, STRING) == LONG
    assert fn.mapper_type(["const", {"a": 1}], STRING, STRING) == JSON
    assert fn.mapper_type(["null", "long"], STRING, STRING) == LONG
    assert fn.mapper_type(["null_if", "x"], STRING, JSON) == JSON


def test_fail_on_raises_with_the_text_of_the_value() -> None:
    with pytest.raises(RuntimeError, match="fail_on 7"):
        fn.mapper(["fail_on", 7])(None, 7)


@pytest.mark.parametrize(
    ("spec", "aggregate", "value", "result"),
    [
        ("max", "b", "a", "b"),
        ("min", 2, None, 2),
        ("sum", 1, None, 1),
        (["concat", ","], 1, None, "1,null"),
        ("remove", "abab", "ab", "ab"),
        (["null_on", "x"], "a", "x", None),
    ],
)
def test_reducer(spec: fn.Spec, aggregate: Any, value: Any, result: Any) -> None:
    assert fn.reducer(spec)(aggregate, value) == result


@pytest.mark.parametrize(
    ("spec", "value", "aggregate", "result"),
    [
        ("count", None, None, 1),
        ("min", None, 3, 3),
        (["append", ","], 1, None, ",1"),
        (["append_or_null", "x"], "x", "a", None),
        (["remove", ","], "b", "a,b,b", "a,b"),
        ("list_add", None, Json(["a"]), Json(["a", None])),
        ("list_remove", "a", Json(["b", "a", "a"]), Json(["b", "a"])),
        ("list_remove", "c", Json(["b"]), Json(["b"])),
    ],
)
def test_aggregator(spec: fn.Spec, value: Any, aggregate: Any, result: Any) -> None:
    assert fn.aggregator(spec)("key", value, aggregate) == result


@pytest.mark.parametrize("data", [b"", b"{", b"NaN"])
def test_what_is_not_json_does_not_deserialize(data: bytes) -> None:
    with pytest.raises(SerializationError):
        JSON.serde.deserialize(data)
