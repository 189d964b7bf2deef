#!/usr/bin/env python3
"""Builds the documentation site into site/ with zensical, and fails on every warning.

python -m scripts.site [FOLDER]    # default: site

The pages are those of the repository. A link to a file that is no page leads to a copy of the file. The reference has a
page for each part of the public API.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts import site_reference

ROOT = Path(__file__).resolve().parents[1]
CONFIG = "zensical.toml"
_NAV = re.compile(r"^nav = \[\n.*?^\]\n", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(\]\(|\b(?:src|srcset|href)=\")([^)\s\"#]+)(#[^)\s\"]*)?(?=[)\"])")
_CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def _shown(code: str) -> str:
    """Code in a cell without the backslash that GitHub needs before a bar: the site would show the backslash."""
    return code if code.startswith("```") else code.replace("\\|", "|")


class Site:
    """The pages by their path in the repository, and their places on the site."""

    stage: Path
    """The folder in which `write` puts the site together."""

    def __init__(self) -> None:
        nav: list[dict[str, list[str]]] = tomllib.loads((ROOT / CONFIG).read_text())["project"]["nav"]
        self.reference = site_reference.pages()
        self.sections = {title: self._expanded(pages) for entry in nav for title, pages in entry.items()}
        self.pages = [page for pages in self.sections.values() for page in pages]
        written = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
        if absent := written.difference(self.pages):
            raise SystemExit(f"{CONFIG}: `nav` leaves out {', '.join(sorted(absent))}")

    def _expanded(self, patterns: list[str]) -> list[str]:
        found: list[str] = []
        for pattern in patterns:
            named = (
                list(self.reference)
                if pattern.startswith("reference/")
                else sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(pattern))
            )
            found += [page for page in named if page not in found]
        return found

    def text(self, page: str) -> str:
        return self.reference[page] if page in self.reference else (ROOT / page).read_text()

    def title(self, page: str) -> str:
        heading = re.search(r"^# (.+)$", self.text(page), re.MULTILINE)
        return re.sub(r"[`*]", "", heading[1]) if heading else Path(page).stem

    def write(self, stage: Path) -> None:
        self.stage = stage
        for page in self.pages:
            self._put(page, self._relinked(page))
        for extra in ["docs/site.css"]:
            self._copy(extra)
        (self.stage / CONFIG).write_text(self._config())

    def _put(self, page: str, text: str) -> None:
        target = self.stage / "docs" / placed(page)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def _copy(self, file: str) -> None:
        target = self.stage / "docs" / placed(file)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, target)

    def _relinked(self, page: str) -> str:
        """The page with links that lead from its place on the site; code stays as it is."""

        def relinked(found: re.Match[str]) -> str:
            before, link, anchor = found[1], found[2], found[3] or ""
            if "://" in link or link.startswith("mailto:"):
                return found[0]
            target = os.path.normpath(os.path.join(os.path.dirname(page), link))
            if (ROOT / target).is_dir():
                target = os.path.join(target, "README.md")
            if target not in self.pages:
                self._copy(target)
            here = os.path.dirname(placed(page))
            return before + os.path.relpath(placed(target), here or ".") + anchor

        parts = _CODE.split(self.text(page))
        return "".join(
            _shown(part) if number % 2 else _LINK.sub(relinked, part) for number, part in enumerate(parts)
        )

    def _config(self) -> str:
        def entry(page: str) -> str:
            return f'    {{ "{self.title(page)}" = "{placed(page)}" }},'

        lines = ["nav = ["]
        for title, pages in self.sections.items():
            lines += [f'  {{ "{title}" = [', *map(entry, pages), "  ] },"]
        lines.append("]\n")
        config = (ROOT / CONFIG).read_text().replace('paths = ["."]', f'paths = ["{ROOT}"]')
        config = config.replace('"docs/site.css"', '"site.css"')
        config = config.replace('"scripts/site_docstrings.py"', f'"{ROOT}/scripts/site_docstrings.py"')
        return _NAV.sub(lambda _: "\n".join(lines), config)

    def llms(self) -> Iterator[str]:
        """llms.txt (llmstxt.org): the pages with their first sentences, for language models."""
        yield "# streamapp\n\n> Kafka Streams for Python: one topology, run live by workers, on Spark, and in tests.\n"
        for title, pages in self.sections.items():
            yield f"\n## {title}\n\n"
            for page in pages:
                yield f"- [{self.title(page)}]({placed(page)}): {first_sentences(self.text(page))}\n"


def placed(path: str) -> str:
    """The place of a file on the site.

    >>> placed("README.md"), placed("docs/README.md"), placed("docs/views.md"), placed("CHANGELOG.md")
    ('index.md', 'all-pages.md', 'views.md', 'project/CHANGELOG.md')
    """
    if path == "README.md":
        return "index.md"
    if path == "docs/README.md":
        return "all-pages.md"
    if path.startswith("reference/"):
        return path
    path = path.removeprefix("docs/") if path.startswith("docs/") else f"project/{path}"
    return re.sub(r"(^|/)README\.md$", r"\1index.md", path)


def first_sentences(text: str) -> str:
    """The first two sentences of the first paragraph."""
    parts = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL).split("\n\n")
    prose = next((part for part in parts if re.match(r"[A-Za-z`*\[]", part)), "")
    plain = re.sub(r"\]\([^)]*\)|[\[\]]", "", " ".join(prose.split()))
    return " ".join(re.split(r"(?<=[.:])\s", plain)[:2])


def build(folder: Path) -> None:
    """Builds the site into a folder. Each build has a stage of its own, so builds may run at the same time."""
    with TemporaryDirectory(prefix="streamapp-site-") as stage:
        _build(Path(stage), folder)


def _build(stage: Path, folder: Path) -> None:
    site = Site()
    site.write(stage)
    command = [
        Path(sys.executable).parent / "zensical",
        "build",
        "--strict",
        "--clean",
        "--config-file",
        CONFIG,
    ]
    done = subprocess.run(
        command, cwd=stage, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    if done.returncode:
        output = re.sub("\x1b\\[[0-9;]*m", "", done.stdout + done.stderr).partition("Traceback")[0]
        raise SystemExit(f"zensical finds:\n{output}")
    built = stage / "site"
    for page in site.pages:  # the text beside the page: llms.txt leads there
        target = built / placed(page)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text((stage / "docs" / placed(page)).read_text())
    (built / "llms.txt").write_text("".join(site.llms()))
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(built, folder)


if __name__ == "__main__":
    build(ROOT / (sys.argv[1] if len(sys.argv) > 1 else "site"))
