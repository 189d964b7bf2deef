"""Types flow through a chain of operators, as mypy in a user's project infers them in strict mode."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

api = pytest.importorskip("mypy.api")
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def output() -> list[str]:
    """What mypy says of both files; with a cache of its own, as its settings differ from those of the project."""
    cache = HERE.parents[1] / ".mypy_cache" / "user"
    files = [str(HERE / "example.py"), str(HERE / "wrong.py")]
    config = str(HERE.parents[1] / "pyproject.toml")
    arguments = [
        "--strict",
        "--no-error-summary",
        "--follow-imports=silent",
        f"--cache-dir={cache}",
        f"--config-file={config}",
    ]
    return str(api.run([*arguments, *files])[0]).splitlines()


def test_inferred_types(output: list[str]) -> None:
    lines = (HERE / "example.py").read_text().splitlines()
    expected = {
        number: found[1]
        for number, line in enumerate(lines, 1)
        if (found := re.search(r"reveal_type\(.*#\s(.*)$", line))
    }
    revealed = {}
    for line in output:
        found = re.search(r'example\.py:(\d+): note: Revealed type is "(.*)"', line)
        if found:
            shown = re.sub(r"\b[a-z_]+(?:\.[a-z_]+)*\.(?=[A-Z])", "", found[2])
            revealed[int(found[1])] = re.sub(r"tuple\[.*?fallback=(\w+\[[^]]*\])\]", r"\1", shown)
    assert revealed == expected
    assert not [line for line in output if "example.py" in line and "error:" in line]


def test_mistakes_are_found(output: list[str]) -> None:
    lines = (HERE / "wrong.py").read_text().splitlines()
    expected = {number for number, line in enumerate(lines, 1) if line.endswith("# error")}
    found = {int(m[1]) for line in output if (m := re.search(r"wrong\.py:(\d+): error:", line))}
    assert found == expected
