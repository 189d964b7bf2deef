"""The difference of two schemas, line by line."""

from __future__ import annotations

import difflib
from typing import Any

from streamapp.serdes.types import excerpt

__all__ = ["difference", "summary"]

_MOST_LINES = 200
_DEEPEST = 50
_MOST_TEXT = 200
_MOST_SUMMARY = 1_000


def difference(old: Any, new: Any) -> list[str]:
    """The parts that were added, removed or changed from the old schema to the new one, as readable lines. Equal
    schemas give no line.

    >>> old = {"type": "record", "name": "F", "fields": [{"name": "delay", "type": "int"}]}
    >>> fields = [{"name": "delay", "type": "long"}, {"name": "dest", "type": "string"}]
    >>> new = {"type": "record", "name": "F", "fields": fields}
    >>> difference(old, new)
    ["fields.delay.type: 'int' becomes 'long'", "fields.dest: new, {'name': 'dest', 'type': 'string'}"]
    """
    if isinstance(old, str) and isinstance(new, str) and ("\n" in old or "\n" in new or ";" in old):
        lines = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0)
        return [line for line in lines if not line.startswith(("---", "+++", "@@"))][:_MOST_LINES]
    found: list[str] = []
    _compare(old, new, "", found)
    return found[:_MOST_LINES]


def summary(old: Any, new: Any) -> str:
    """The difference in one line that fits into a log. Equal schemas give an empty line.

    >>> summary("int", "long")
    "the schema: 'int' becomes 'long'"
    """
    text = "; ".join(difference(old, new))
    return text if len(text) <= _MOST_SUMMARY else f"{text[:_MOST_SUMMARY]}..."


def _compare(old: Any, new: Any, path: str, found: list[str], depth: int = 0) -> None:
    if old == new or len(found) > _MOST_LINES:
        return
    if depth > _DEEPEST:
        found.append(f"{path}: differs")
        return
    before, after = _named(old), _named(new)
    if before is None or after is None:
        found.append(f"{path or 'the schema'}: {_brief(old)} becomes {_brief(new)}")
        return
    for name in [*before, *(name for name in after if name not in before)]:
        inner = f"{path}.{name}" if path else str(name)
        if name not in after:
            found.append(f"{inner}: gone, {_brief(before[name])}")
        elif name not in before:
            found.append(f"{inner}: new, {_brief(after[name])}")
        else:
            _compare(before[name], after[name], inner, found, depth + 1)
    if isinstance(old, list) and [*before] != [*after] and before.keys() == after.keys():
        found.append(f"{path}: another order, {', '.join(after)}")


def _named(part: Any) -> dict[str, Any] | None:
    """The members of an object by name, or the objects of a list by their ``name``; None for other parts."""
    if isinstance(part, dict):
        return part
    if isinstance(part, list) and part and all(isinstance(item, dict) and "name" in item for item in part):
        return {str(item["name"]): item for item in part}
    return None


def _brief(part: Any) -> str:
    return excerpt(part, size=_MOST_TEXT)
