"""The documentation site: built strictly, with every public name, for people and for language models."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts import site, site_reference

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_CODE = re.compile(r"`([\w.]+)`")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    site.build(folder)
    return folder


def test_each_public_name_stands_once_in_the_reference() -> None:
    names = [name for names in site_reference.PARTS.values() for name in names.split()]
    assert sorted(names) == sorted(site_reference.public_names())


def test_the_reference_knows_every_public_module() -> None:
    """Public are the modules of "The edge" in docs/house.md."""
    edge = (site.ROOT / "docs" / "house.md").read_text().partition("## The edge")[2].partition("\n## ")[0]
    modules = {
        name.removeprefix("streamapp.")
        for row in re.findall(r"^\|(.*?)\|", edge, re.M)
        for name in _CODE.findall(row)
    }
    assert {"errors", "consumer", "runners.spark"} < modules
    names = site_reference.public_names()
    public = {f"{module}.{name}" for module in modules - {"streamapp"} for name in _names(module)}
    assert {name for name in public if name.rpartition(".")[2] not in names} - names == set()


def _names(module: str) -> list[str]:
    return list(importlib.import_module(f"streamapp.{module}").__all__)


def test_each_public_name_has_an_entry_on_the_site(built: Path) -> None:
    html = "".join(page.read_text() for page in (built / "reference").rglob("index.html"))
    entries = set(re.findall(r'id="(streamapp\.[\w.]+)"', html))
    assert {f"streamapp.{name}" for name in site_reference.public_names()} <= entries
    assert "streamapp.KStream.filter" in entries


def test_examples_of_docstrings_are_code(built: Path) -> None:
    page = (built / "reference" / "kstream" / "index.html").read_text()
    assert "&gt;&gt;&gt; " in page
    assert "<blockquote>" not in page


def test_a_bar_in_a_cell_has_no_backslash(built: Path) -> None:
    """GitHub needs the backslash, and zensical showed it."""
    page = (built / "schemas" / "index.html").read_text()
    assert "<code>X | None</code>" in page
    assert "\\|" not in page


def test_language_models_find_every_page_as_text(built: Path) -> None:
    linked = re.findall(r"\]\(([^)]+)\)", (built / "llms.txt").read_text())
    assert len(linked) == len(site.Site().pages)
    assert [page for page in linked if not (built / page).read_text().strip()] == []


def test_builds_at_the_same_time_do_not_disturb_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes of tests wrote into one working folder, and one of the builds failed."""
    outer = []

    def zensical(*_: Any, cwd: Path, **__: Any) -> subprocess.CompletedProcess[str]:
        if not outer:
            outer.append(cwd)
            site.build(tmp_path / "inner")
            assert (cwd / "zensical.toml").exists()
            assert (cwd / "docs" / "index.md").exists()
        (cwd / "site").mkdir()
        return subprocess.CompletedProcess((), 0, "", "")

    monkeypatch.setattr(subprocess, "run", zensical)
    site.build(tmp_path / "outer")
    assert (tmp_path / "outer" / "llms.txt").read_text() == (tmp_path / "inner" / "llms.txt").read_text()
    assert not outer[0].exists()


def test_a_broken_link_fails_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other pages have a heading only, so that the build is short and finds nothing else."""
    pages = {"docs/glossary.md": "[x](#no-such-part)\n"}
    monkeypatch.setattr(site.Site, "text", lambda self, name: pages.get(name, f"# {name}\n"))
    with pytest.raises(SystemExit, match=r"zensical finds:(.|\n)*no-such-part"):
        site.build(tmp_path / "site")


def test_no_link_and_no_picture_leads_nowhere(built: Path) -> None:
    look_at_site = pytest.importorskip("scripts.look_at_site", reason="needs playwright")
    assert list(look_at_site.broken_links(built)) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    look_at_site = pytest.importorskip("scripts.look_at_site", reason="needs playwright")
    (tmp_path / "index.html").write_text('<img src="no.png"><a href="#no">x</a><a href="#yes" id="yes">y</a>')
    assert [each.split(" leads to ")[1] for each in look_at_site.broken_links(tmp_path)] == [
        "#no, and the page there has no such place",
        "no.png, which is no file",
    ]


@pytest.fixture(scope="module")
def phone(built: Path) -> Iterator[tuple[Any, str]]:
    """A dark browser of 390 pixels, and the address of the site."""
    look_at_site = pytest.importorskip("scripts.look_at_site", reason="needs playwright")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    with look_at_site.served(built) as address, look_at_site.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser.new_page(viewport={"width": 390, "height": 844}, color_scheme="dark"), address
        browser.close()


@pytest.mark.browser
def test_the_search_leads_to_a_page_on_a_dark_phone(phone: tuple[Any, str]) -> None:
    from scripts import look_at_site

    tab, address = phone
    words, heading = look_at_site.SEARCHED
    assert heading in look_at_site.found_by_search(tab, address, words, heading)
    assert look_at_site.is_dark(tab)


@pytest.mark.browser
def test_pages_fit_on_a_dark_phone(phone: tuple[Any, str]) -> None:
    from scripts import look_at_site

    tab, address = phone
    pages = ["", "how-to/", "how-to/confluent-tutorials/", "explanation/windows/", "reference/kstream/"]
    assert list(look_at_site.problems(tab, address, pages)) == []


@pytest.mark.browser
def test_long_names_leave_room_for_the_other_columns_on_a_phone(phone: tuple[Any, str]) -> None:
    tab, address = phone
    tab.goto(f"{address}/how-to/confluent-tutorials/")
    widths = "all => all.map(table => [table.scrollWidth, table.clientWidth])"
    tables = tab.locator("article table").evaluate_all(widths)
    assert tables
    assert [table for table in tables if table[0] > table[1]] == []


@pytest.mark.browser
def test_who_prefers_light_pages_gets_them(phone: tuple[Any, str]) -> None:
    from scripts import look_at_site

    tab, address = phone
    with tab.context.browser.new_page(color_scheme="light") as light:
        light.goto(f"{address}/")
        assert not look_at_site.is_dark(light)
