"""Compares what a case gave with what Kafka Streams gave, at the four levels of SPEC.md, section 10.

An exception is compared by its kind, as Python's names and messages are not Java's: `MATCHING_ERRORS`.
"""

from __future__ import annotations

from typing import Any

from streamapp.errors import SerializationError, StreamsError, TopologyError

from .outcome import Outcome
from .types import canonical

__all__ = ["LEVELS", "compare"]

Spec = dict[str, Any]

LEVELS = {1: "outputs", 2: "stores", 3: "bytes", 4: "describe"}
"""What is compared at each level: outputs and side effects; stores, metrics and queries; the bytes of
internal and changelog topics; the text of ``describe()``."""

FIELDS = {
    1: ("topics", "serdes", "side_effects"),
    2: ("stores", "metrics", "queries"),
    3: ("internal", "changelogs"),
}

MATCHING_ERRORS: dict[str, tuple[type[Exception], ...]] = {
    "StreamsException": (StreamsError,),
    "TopologyException": (TopologyError,),
    "SerializationException": (SerializationError,),
    "IllegalArgumentException": (ValueError, StreamsError),
    "UnsupportedOperationException": (StreamsError,),
}

ERROR_HEADERS = ("__streams.errors.exception", "__streams.errors.message")

LINES_PER_FIELD = 12


def compare(case: Spec, outcome: Outcome) -> dict[int, list[str]]:
    """Level -> the lines that say what differs; no lines: the level holds."""
    expected, actual = case["expected"], outcome.actual
    differences: dict[int, list[str]] = {level: [] for level in LEVELS}
    differences[1] += _error_difference(expected, outcome)
    if ("error_on_close" in expected) != ("error_on_close" in actual):
        wanted, got = expected.get("error_on_close", "none"), actual.get("error_on_close", "none")
        differences[1].append(f"error on close: expected {wanted}, got {got}")
    unexpected_error = "error" in actual and "error" not in expected
    for level, names in FIELDS.items():
        for name in names:
            if unexpected_error and name in expected:
                differences[level].append(f"{name}: not reached: {actual['error']} at {actual['error_at']}")
            elif "error" not in expected or name in ("topics", "serdes", "internal", "changelogs"):
                differences[level] += _difference(name, expected.get(name) or {}, actual.get(name) or {})
    differences[4] += _text_difference(expected.get("describe", ""), actual.get("describe", ""))
    return differences


def _error_difference(expected: Spec, outcome: Outcome) -> list[str]:
    wanted = f"{expected['error']} at {expected['error_at']}" if "error" in expected else ""
    got = f"{outcome.actual['error']} at {outcome.actual['error_at']}" if outcome.error else ""
    if not wanted and not got:
        return []
    if not wanted:
        return [f"error: expected none, got {got}"]
    if not got:
        return [f"error: expected {wanted}, got none"]
    java_class = expected["error"].split(":")[0].rpartition(".")[2]
    same_kind = isinstance(outcome.error, MATCHING_ERRORS.get(java_class, (Exception,)))
    if same_kind and expected["error_at"] == outcome.actual["error_at"]:
        return []
    return [f"error: expected {wanted}, got {got}"]


def _difference(name: str, expected: Any, actual: Any) -> list[str]:
    lines = list(_walk(name, expected, actual))
    if len(lines) > LINES_PER_FIELD:
        lines[LINES_PER_FIELD:] = [f"{name}: ... and {len(lines) - LINES_PER_FIELD} more differences"]
    return lines


def _walk(path: str, expected: Any, actual: Any) -> list[str]:
    """One line for each place where two JSON values differ; a record or a row is one place."""
    if _normal(expected) == _normal(actual):
        return []
    if isinstance(expected, dict) and isinstance(actual, dict) and not _is_row({**expected, **actual}):
        lines = []
        for key in sorted({*expected, *actual}):
            if key not in actual:
                lines.append(f"{path}.{key}: missing, expected {_short(expected[key])}")
            elif key not in expected:
                lines.append(f"{path}.{key}: not expected, got {_short(actual[key])}")
            else:
                lines += _walk(f"{path}.{key}", expected[key], actual[key])
        return lines
    if isinstance(expected, list) and isinstance(actual, list):
        lines = []
        if len(expected) != len(actual):
            lines.append(f"{path}: expected {len(expected)} entries, got {len(actual)}")
        for i in range(max(len(expected), len(actual))):
            if i >= len(actual):
                lines.append(f"{path}[{i}]: missing, expected {_short(expected[i])}")
            elif i >= len(expected):
                lines.append(f"{path}[{i}]: not expected, got {_short(actual[i])}")
            else:
                lines += _walk(f"{path}[{i}]", expected[i], actual[i])
        return lines
    return [f"{path}: expected {_short(expected)}", f"{' ' * len(path)}       got {_short(actual)}"]


def _is_row(node: Spec) -> bool:
    return "key" in node or "key_hex" in node or "value" in node


def _normal(node: Any) -> str:
    return canonical(_without_error_texts(node))


def _without_error_texts(node: Any) -> Any:
    """Headers that hold a Java exception's name or text count as equal to those of a Python exception; so do
    the texts of failed queries."""
    if isinstance(node, list):
        if len(node) == 2 and node[0] in ERROR_HEADERS:
            return [node[0], "..."]
        return [_without_error_texts(child) for child in node]
    if isinstance(node, dict):
        return {k: "..." if k == "error" else _without_error_texts(child) for k, child in node.items()}
    return node


def _short(node: Any) -> str:
    shown = canonical(node)
    return shown if len(shown) <= 400 else shown[:400] + "..."


def _text_difference(expected: str, actual: str) -> list[str]:
    if expected == actual:
        return []
    wanted, got = expected.splitlines(), actual.splitlines()
    lines = []
    for i in range(max(len(wanted), len(got))):
        pair = (wanted[i] if i < len(wanted) else "(nothing)", got[i] if i < len(got) else "(nothing)")
        if pair[0] != pair[1]:
            lines += [f"describe, line {i + 1}: expected {pair[0]}", f"                       got {pair[1]}"]
    return lines[:LINES_PER_FIELD] or ["describe: differs in white space"]
