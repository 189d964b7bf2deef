"""Every example in the documentation runs: docstrings of the package, and the Python blocks of all pages.

The examples of a method go on where those of its class end.

The blocks of a page run one after the other in one module, as a reader would try them. Expected output stands in the block as
``# prints: text`` comments. A block that cannot run here has ``<!-- not run: reason -->`` on the line before it.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import inspect
import io
import pkgutil
import re
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

import streamapp

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>.+?) -->\n)?```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
_PRINTS = re.compile(r"^\s*# prints: ?(.*)$", re.MULTILINE)
_NEEDS = {"streamapp.runners.spark": "pyspark"}


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples make temporary folders, and do not say how to delete them."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


class Block(NamedTuple):
    line: int
    code: str


def modules() -> list[str]:
    found = pkgutil.walk_packages(streamapp.__path__, "streamapp.")
    return ["streamapp", *sorted(module.name for module in found if "__main__" not in module.name)]


@pytest.mark.parametrize("name", modules())
def test_docstrings(name: str) -> None:
    for package, needed in _NEEDS.items():
        if name.startswith(package):
            pytest.importorskip(needed)
    source = Path(importlib.util.find_spec(name).origin or "")  # type: ignore[union-attr]
    if source.suffix != ".py" or ">>>" not in source.read_text():
        return
    runner = doctest.DocTestRunner(verbose=False)
    found = {test.name: test for test in doctest.DocTestFinder().find(importlib.import_module(name))}
    for test in found.values():
        of_class = found.get(test.name.rpartition(".")[0])
        if of_class is not None and of_class.examples and inspect.isclass(_named(of_class.name)):
            test.examples[:0] = of_class.examples
    for test in found.values():
        runner.run(test)
    assert runner.failures == 0


def _named(name: str) -> Any:
    try:
        return pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return None


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(text[: found.start("code")].count("\n") + 1, found["code"])
        for found in _BLOCK.finditer(text)
        if found["reason"] is None
    ]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_pages(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = ModuleType("example_of_" + re.sub(r"\W", "_", page.stem))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in blocks(page):
        printed = io.StringIO()
        if ">>>" in block.code:
            test = doctest.DocTestParser().get_doctest(
                block.code, vars(module), page.name, str(page), block.line
            )
            assert doctest.DocTestRunner().run(test, clear_globs=False).failed == 0
            continue
        code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
        with contextlib.redirect_stdout(printed):
            exec(code, vars(module))
        assert printed.getvalue().splitlines() == _PRINTS.findall(block.code), f"{page}:{block.line}"


def test_every_python_block_of_the_documentation_is_found() -> None:
    for page in PAGES:
        text = page.read_text()
        assert text.count("```python") == len(_BLOCK.findall(text)), f"{page} has a block that is not closed"


def test_links_within_the_documentation_lead_somewhere() -> None:
    missing = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                missing.append(f"{page.relative_to(ROOT)} -> {target}")
    assert not missing
