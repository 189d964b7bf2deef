"""The pages hang together: every link leads to a file and to a heading, every decision has its parts and its line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DECISIONS = sorted(path for path in (ROOT / "docs/decisions").glob("*.md") if path.name != "README.md")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
HEADINGS = ["Context", "Decision", "Measured", "Consequences", "What would change the decision"]
_CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)|\b(?:src|srcset|href)=\"([^\"]+)\"")


def broken_links(page: Path) -> Iterator[str]:
    for found in _LINK.finditer(_CODE.sub("", page.read_text())):
        link = found[1] or found[2]
        if "://" in link or link.startswith("mailto:"):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of headings."""
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), re.MULTILINE
    )
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A b\n[x](gone.md) [y](#a-b) [z](#gone) `[code](gone.md)` [w](https://example.org)\n")
    assert list(broken_links(page)) == ["gone.md", "#gone"]


@pytest.mark.parametrize("page", ["house.md", "internals.md"])
def test_the_named_modules_exist(page: str) -> None:
    named = re.findall(r"`(?:\.\./)*([\w/]+\.py)`", (ROOT / "docs" / page).read_text())
    modules = [
        f"/{path}" for folder in ("streamapp", "tests", "scripts") for path in (ROOT / folder).rglob("*.py")
    ]
    assert [name for name in named if not any(module.endswith(f"/{name}") for module in modules)] == []


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_has_its_parts(page: Path) -> None:
    assert re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE) == HEADINGS


def test_the_index_names_every_decision_once() -> None:
    named = re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs/decisions/README.md").read_text())
    assert sorted(named) == [page.name for page in DECISIONS], (
        "docs/decisions/README.md has a line for each decision"
    )
