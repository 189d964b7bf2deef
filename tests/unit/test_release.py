"""What a release promises stands in several places, which have to agree: pyproject.toml, docs/releases.md, the proofs."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PROOFS = runpy.run_path(str(ROOT / "scripts/release_check.py"))


def test_the_pythons_that_are_promised_are_those_of_the_proofs() -> None:
    named = {found[1] for text in PROJECT["classifiers"] if (found := re.search(r":: (3\.\d+)$", text))}
    page = re.search(r"\| Python \| (.*) \|", (ROOT / "docs/releases.md").read_text())
    assert page is not None
    assert named == set(PROOFS["PYTHONS"]) == set(page[1].split(", "))
    assert PROJECT["requires-python"] == f">={PROOFS['PYTHONS'][0]}"


@pytest.mark.parametrize("requirement", PROJECT["dependencies"])
def test_a_dependency_has_a_lowest_version_and_no_pin(requirement: str) -> None:
    assert ">=" in requirement
    assert "==" not in requirement


def test_the_version_stands_in_one_place() -> None:
    assert "version" in PROJECT["dynamic"]
    assert "version" not in PROJECT
