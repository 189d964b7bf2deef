"""Each promise of `docs/guarantees.md` names a test or a case of the fault matrix, and that one exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import scenarios
from tests.faults.matrix import cases

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guarantees.md"


def promises() -> Iterator[tuple[str, list[str]]]:
    """(promise, what shows it) for each row of the tables that say what shows it."""
    shown = False
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            shown = False
        elif cells[-1] == "shown by":
            shown = True
        elif shown and set(cells[0]) != {"-", " "} and cells[0] != "---":
            yield cells[0], re.findall(r"`([^`]+)`", cells[-1]) or [cells[-1]]


def exists(reference: str) -> bool:
    if reference == "every case":
        return True
    if not reference.startswith("tests/"):
        scenarios.load()
        return any(case.id.startswith(reference.removesuffix("...]")) for case in cases)
    path, _, name = reference.partition("::")
    if not name:
        return (ROOT / path).exists()
    defined = ast.walk(ast.parse((ROOT / path).read_text()))
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name for node in defined
    )


def test_the_page_has_promises() -> None:
    assert len(list(promises())) > 20


@pytest.mark.parametrize(("promise", "shown_by"), list(promises()))
def test_what_shows_a_promise_exists(promise: str, shown_by: list[str]) -> None:
    assert [reference for reference in shown_by if not exists(reference)] == []
