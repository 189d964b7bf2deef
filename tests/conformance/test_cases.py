"""Every case of SPEC.md at all four levels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .compare import LEVELS, compare
from .gaps import GAPS
from .outcome import execute


def test_case(case: dict[str, Any], record_property: Callable[[str, object], None]) -> None:
    name = case["name"]
    differences = compare(case, execute(case))
    record_property("conformance", (name, [level for level in LEVELS if differences[level]]))
    problems, known = [], []
    for level, lines in differences.items():
        if lines and (name, level) in GAPS:
            known.append(GAPS[name, level])
        elif lines:
            problems += [f"level {level} ({LEVELS[level]}):", *lines]
        elif (name, level) in GAPS:
            problems.append(f"level {level} ({LEVELS[level]}) holds: take it off the list of gaps")
    if problems:
        pytest.fail("\n".join([f"{name}: {case['about']}", *problems]), pytrace=False)
    if known:
        pytest.xfail("; ".join(known))
