"""docs/house.md describes the tree: file names, owners, the edge between public and inside."""

import re
from collections import Counter
from pathlib import Path

import streamapp

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/house.md").read_text()
MODULES = [
    path.relative_to(ROOT / "streamapp")
    for path in (ROOT / "streamapp").rglob("*.py")
    if path.stem != "__init__"
]


def _section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def test_a_file_name_comes_back_only_with_a_reason() -> None:
    twins = {name for name, times in Counter(path.stem for path in MODULES).items() if times > 1}
    rows = re.findall(r"^\| (`.*?) \|", _section("Names of files"), re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == twins


def test_the_owners_are_where_the_page_says() -> None:
    owners = _section("One owner for each idea")
    files = set(re.findall(r"`([\w/]+\.py)`", owners))
    assert files
    for file in files:
        assert any(str(path).endswith(file) for path in MODULES), file


def test_the_modules_at_the_root_are_the_public_ones() -> None:
    root = {path.stem for path in MODULES if len(path.parts) == 1}
    edge = _section("The edge")
    named = {name.removeprefix("streamapp.") for name in re.findall(r"`(?:streamapp\.)?([\w.]+)`", edge)}
    # `app` is public through `streamapp.App`, which is made when it is first asked for: Faust is heavy.
    assert root - {"app"} <= named


def test_every_public_name_is_there() -> None:
    for name in streamapp.__all__:
        assert getattr(streamapp, name) is not None


def test_a_session_alone_makes_tasks() -> None:
    """Each runner would have the life of a task in an order of its own."""
    makers = [
        path for path in MODULES if re.search(r"(?<![\w.])Task\(", (ROOT / "streamapp" / path).read_text())
    ]
    definitions = {Path("engine/task.py")}
    assert set(makers) - definitions == {Path("engine/task_session.py")}
