"""The tables of docs/doctor.md, made from the registry and from the tests: ``python -m tests.doctor.page`` writes them."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from streamapp.operations.doctor.checks import ALL

__all__ = ["PAGE", "provoked", "rendered"]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "doctor.md"
_BEGIN, _END = "<!-- the codes: python -m tests.doctor.page -->", "<!-- the end of the codes -->"
_FAMILIES = {
    "SA1": "Brokers and copies",
    "SA2": "Retention, clean-up and timestamps",
    "SA3": "Records",
    "SA4": "The group",
    "SA5": "Settings",
    "SA6": "Workers and their machine",
    "SA7": "Transactions",
}

_DANGERS = {
    "loses": "records are lost.",
    "doubles": "records are processed twice.",
    "starves": "workers are idle, or slower than they could be.",
    "stalls": "processing stops.",
    "costs": "nothing is lost or late, but the application uses more than it needs.",
}


def provoked() -> dict[str, list[str]]:
    """Code -> the tests that say they provoke it."""
    found: dict[str, list[str]] = {}
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            for code in _codes(node) if isinstance(node, ast.FunctionDef) else ():
                found.setdefault(code, []).append(f"tests/doctor/{path.name}::{node.name}")
    return found


def _codes(test: ast.FunctionDef) -> Iterator[str]:
    for decorator in test.decorator_list:
        if (
            isinstance(decorator, ast.Call)
            and isinstance(decorator.func, ast.Name)
            and decorator.func.id == "provokes"
        ):
            yield from (str(each.value) for each in decorator.args if isinstance(each, ast.Constant))


def rendered() -> str:
    """The page with its tables as they have to be."""
    tests = provoked()
    lines: list[str] = []
    for prefix, title in _FAMILIES.items():
        lines += [f"### {title}", ""]
        for check in (each for each in ALL if each.code.startswith(prefix)):
            page = check.page if "://" in check.page else f"[{check.page}]({check.page})"
            provoking = ", ".join(f"`{test}`" for test in tests.get(check.code, ()))
            lines += [
                f"#### {check.code}: {check.title}",
                "",
                _wrapped(f"Danger: {_DANGERS[check.threat]} {check.reason}"),
                "",
                _wrapped(f"- Remedy: {check.remedy}"),
                f"- Page: {page}",
                _wrapped(f"- Tested by {provoking}"),
                "",
            ]
    index = ["| code | threat | finding |", "| --- | --- | --- |"]
    index += [f"| [{c.code}](#{_anchor(f'{c.code}: {c.title}')}) | {c.threat} | {c.title} |" for c in ALL]
    middle = "\n".join([_BEGIN, "", *index, "", *lines]).rstrip()
    text = PAGE.read_text()
    return text[: text.index(_BEGIN)] + middle + "\n\n" + text[text.index(_END) :]


def _wrapped(text: str) -> str:
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


if __name__ == "__main__":
    PAGE.write_text(rendered())
