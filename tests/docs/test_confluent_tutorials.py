"""Each tutorial that docs/how-to/confluent-tutorials.md names leads to a page whose example runs (`test_examples`)."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.test_examples import blocks

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
PAGE = HOW_TO / "confluent-tutorials.md"
ROWS = re.findall(r"^\| (`.+?`) \| \[(.+?)\]\((.+?\.md)\) \|", PAGE.read_text(), re.MULTILINE)


def test_each_tutorial_has_a_page_whose_example_prints_its_result() -> None:
    for names, title, page in ROWS:
        text = (HOW_TO / page).read_text()
        assert text.startswith(f"# {title}\n"), page
        (example,) = blocks(HOW_TO / page)
        assert "# prints: " in example.code or "assert " in example.code, f"{names}: {page}"


def test_each_row_is_read_and_each_tutorial_named_once() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert len(rows) == len(ROWS)
    named = [name for names, *_ in ROWS for name in re.findall(r"`(.+?)`", names)]
    assert len(named) == len(set(named)) >= 25


def test_the_index_of_the_how_to_pages_names_each_of_them_once() -> None:
    linked = re.findall(r"\]\(([\w-]+\.md)\)", (HOW_TO / "README.md").read_text())
    assert sorted(linked) == sorted(page.name for page in HOW_TO.glob("*.md") if page.name != "README.md")
