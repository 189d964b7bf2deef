#!/usr/bin/env python3
"""Opens every page of the built site in Chromium at 1400 and 390 pixels, light and dark, and lists what is wrong.

make site && python -m scripts.look_at_site FOLDER [PART ...]   # pictures into FOLDER; only pages with PART in the path

The list has links and pictures that lead nowhere, pages that scroll sideways, failed requests and errors of scripts. A
search that leads to the wrong page, and the colours of the wrong scheme are in the list, too. The exit code is 1 if the
list has an entry.
"""

from __future__ import annotations

import functools
import http.server
import shutil
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from playwright.sync_api import Page, sync_playwright

SITE = Path(__file__).resolve().parents[1] / "site"
WIDTHS, SCHEMES = (1400, 390), ("light", "dark")
ON_A_SHEET = 8
SEARCHED = ("foreign key", "Enrich by a foreign key")
"""Words for the search, and the heading of a page that is among the results."""
_WIDEST = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return "";
  const out = [...document.querySelectorAll("article *")].filter(e => e.getBoundingClientRect().right > width + 1);
  return out.slice(0, 3).map(e => e.outerHTML.slice(0, 80)).join(" ; ") || "outside the article";
}"""
_LIGHTNESS = """() => {
  const sum = (color) => color.match(/[0-9.]+/g).slice(0, 3).reduce((total, part) => total + Number(part), 0);
  const style = getComputedStyle(document.body);
  return sum(style.color) > sum(style.backgroundColor);
}"""
_SHEET = "<body style='margin:0;display:flex;flex-wrap:wrap;gap:4px;background:#888;align-items:flex-start'>"


class _Page(HTMLParser):
    """The ids of a page, and the addresses that the page leads to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.leads_to: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        self.ids.update(given[name] for name in ("id", "name") if name in given)
        self.leads_to.update(given[name] for name in ("href", "src") if name in given)
        for source in given.get("srcset", "").split(","):
            self.leads_to.update(source.split()[:1])


def pages_of(site: Path) -> list[str]:
    """The paths of all pages, as an address has them: "" is the first page."""
    found = (page.relative_to(site).parent.as_posix() for page in site.rglob("index.html"))
    return sorted("" if page == "." else f"{page}/" for page in found)


def broken_links(site: Path) -> Iterator[str]:
    """Links, pictures, styles and scripts that lead to no file of the site, and anchors that no page has."""
    pages = {page: _Page((site / page / "index.html").read_text()) for page in pages_of(site)}
    for page, read in pages.items():
        for address in sorted(read.leads_to):
            target = urlsplit(urljoin(f"http://site/{page}", address))
            if target.netloc != "site" or target.scheme != "http":
                continue
            path, anchor = unquote(target.path).removeprefix("/"), unquote(target.fragment)
            if path in pages:
                if anchor and anchor not in pages[path].ids:
                    yield f"/{page} leads to {address}, and the page there has no such place"
            elif not (site / path).is_file():
                yield f"/{page} leads to {address}, which is no file"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def served(site: Path) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def problems(tab: Page, address: str, pages: Iterable[str], folder: Path | None = None) -> Iterator[str]:
    """Opens the pages one after the other; ``folder`` gets a picture of each."""
    heard: list[str] = []
    tab.on("pageerror", lambda error: heard.append(str(error)))
    tab.on("requestfailed", lambda request: heard.append(f"{request.failure}: {request.url}"))
    tab.on(
        "response",
        lambda answer: heard.append(f"{answer.status}: {answer.url}") if answer.status > 399 else None,
    )
    for page in pages:
        tab.goto(f"{address}/{page}", wait_until="load")
        if found := tab.evaluate(_WIDEST):
            heard.append(f"scrolls sideways: {found}")
        if folder is not None:
            tab.screenshot(path=folder / f"{(page or 'first').strip('/').replace('/', '_')}.png")
        # The next page cuts off requests of this one.
        yield from (f"/{page}: {each}" for each in heard if not each.startswith("net::ERR_ABORTED"))
        heard.clear()


def found_by_search(tab: Page, address: str, words: str, result: str) -> str:
    """Types words into the search of the site, opens the first result with a text, and returns the heading of its page.

    Waits at most ten seconds for the result.
    """
    tab.goto(f"{address}/")
    # A phone has a magnifier in place of the button.
    tab.locator(".md-search__button:visible, label[for=__search]:visible").first.click()
    tab.locator("[role=combobox]").press_sequentially(words)
    tab.locator("a[role=option]", has_text=result).first.click(timeout=10_000)
    tab.wait_for_url(lambda url: urlsplit(url).path != "/", timeout=10_000)
    return tab.locator("article h1").first.inner_text()


def is_dark(tab: Page) -> bool:
    """True if the page's text is lighter than its background."""
    return bool(tab.evaluate(_LIGHTNESS))


def _sheets(browser_page: Page, pictures: list[Path], folder: Path, name: str) -> None:
    for number in range(0, len(pictures), ON_A_SHEET):
        shown = "".join(
            f"<img width=400 src='{each.as_uri()}'>" for each in pictures[number : number + ON_A_SHEET]
        )
        content = folder / "sheet.html"
        content.write_text(_SHEET + shown)
        browser_page.goto(content.as_uri())
        browser_page.screenshot(path=folder / f"sheet-{name}-{number:03}.png", full_page=True)


def main(folder: Path, parts: list[str]) -> int:
    pages = [page for page in pages_of(SITE) if not parts or any(part in page for part in parts)]
    wrong = list(broken_links(SITE))
    print(*wrong, sep="\n")
    with served(SITE) as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for width in WIDTHS:
            for scheme in SCHEMES:
                pictures = folder / f"{width}-{scheme}"
                pictures.mkdir(parents=True, exist_ok=True)
                tab = browser.new_page(viewport={"width": width, "height": 1000}, color_scheme=scheme)
                for each in problems(tab, address, pages, pictures):
                    wrong.append(f"{width} {scheme} {each}")
                    print(wrong[-1], flush=True)
                sheet = browser.new_page(viewport={"width": 1640, "height": 900})
                taken = [pictures / f"{(page or 'first').strip('/').replace('/', '_')}.png" for page in pages]
                _sheets(sheet, taken, folder, f"{width}-{scheme}")
                if SEARCHED[1] not in (found := found_by_search(tab, address, *SEARCHED)):
                    wrong.append(f"{width} {scheme}: the search for {SEARCHED[0]} leads to {found}")
                if is_dark(tab) != (scheme == "dark"):
                    wrong.append(f"{width} {scheme}: the colours are those of the other scheme")
                tab.close()
                sheet.close()
        browser.close()
    print(f"{len(pages)} pages at {WIDTHS} pixels, light and dark: {len(wrong) or 'nothing'} found")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
