"""Type checkers in a user's project: what they infer, what they accept, what they refuse."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamapp import StreamsBuilder, TopologyTestDriver

from . import application
from .checkers import mypy, pyright, refused

HERE = Path(__file__).parent
CHECKERS = {"mypy": mypy, "pyright": pyright}
_WRONG = re.compile(r"\s*# wrong: (.*) -> (.*)")


def with_wrong_keys() -> tuple[str, set[int]]:
    """The application with the wrong keys in place, and the numbers of their lines."""
    lines = (HERE / "application.py").read_text().splitlines()
    wrong = {number: found for number, line in enumerate(lines, 1) if (found := _WRONG.fullmatch(line))}
    for number, found in wrong.items():
        assert found[1] in lines[number]
        lines[number] = lines[number].replace(found[1], found[2], 1)
    return "\n".join(lines) + "\n", {number + 1 for number in wrong}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The lines that each type checker prints of all files, in one run: a start takes seconds."""
    files = [HERE / name for name in ("example.py", "wrong.py", "application.py")]
    wrong = tmp_path_factory.mktemp("typing") / "wrong_keys.py"
    wrong.write_text(with_wrong_keys()[0])
    return {name: check([*files, wrong]) for name, check in CHECKERS.items()}


def test_the_application_runs() -> None:
    builder = StreamsBuilder()
    application.describe(builder)
    with TopologyTestDriver(builder.build()) as driver:
        application.feed(driver)
        assert application.ask(driver) == (9, [2])
        assert application.read(driver) == {1: application.Arrival("JFK", 9)}


def test_inferred_types(outputs: dict[str, list[str]]) -> None:
    lines = (HERE / "example.py").read_text().splitlines()
    expected = {
        number: found[1]
        for number, line in enumerate(lines, 1)
        if (found := re.search(r"reveal_type\(.*#\s(.*)$", line))
    }
    revealed = {}
    for line in outputs["mypy"]:
        found = re.search(r'example\.py:(\d+): note: Revealed type is "(.*)"', line)
        if found:
            shown = re.sub(r"\b[a-z_]+(?:\.[a-z_]+)*\.(?=[A-Z])", "", found[2])
            revealed[int(found[1])] = re.sub(r"tuple\[.*?fallback=(\w+\[[^]]*\])\]", r"\1", shown)
    assert revealed == expected


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_wrong_key_type_is_refused(checker: str, outputs: dict[str, list[str]]) -> None:
    expected = with_wrong_keys()[1]
    assert len(expected) == 10
    assert refused(outputs[checker], "wrong_keys.py") == expected


@pytest.mark.parametrize("checker", CHECKERS)
def test_mistakes_are_found(checker: str, outputs: dict[str, list[str]]) -> None:
    lines = (HERE / "wrong.py").read_text().splitlines()
    expected = {number for number, line in enumerate(lines, 1) if line.endswith("# error")}
    assert refused(outputs[checker], "wrong.py") == expected


@pytest.mark.parametrize("checker", CHECKERS)
@pytest.mark.parametrize("file", ["example.py", "application.py"])
def test_right_code_is_accepted(checker: str, file: str, outputs: dict[str, list[str]]) -> None:
    assert refused(outputs[checker], file) == set()
