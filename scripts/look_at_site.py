#!/usr/bin/env python3
"""Opens every page of the built site in Chromium at 1400 and 390 pixels, and names the pages that scroll sideways.

python scripts/look_at_site.py FOLDER [PART ...]    # pictures into FOLDER, eight pages on a sheet; PART: of a page's path
"""

from __future__ import annotations

import functools
import http.server
import shutil
import sys
import threading
from pathlib import Path

from playwright.sync_api import sync_playwright

SITE = Path(__file__).resolve().parents[1] / "site"
WIDTHS = (1400, 390)
ON_A_SHEET = 8
_WIDEST = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return "";
  const out = [...document.querySelectorAll("article *")].filter(e => e.getBoundingClientRect().right > width + 1);
  return out.slice(0, 3).map(e => e.outerHTML.slice(0, 80)).join(" ; ") || "outside the article";
}"""
_SHEET = "<body style='margin:0;display:flex;flex-wrap:wrap;gap:4px;background:#888;align-items:flex-start'>"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def main(folder: Path, parts: list[str]) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    pages = sorted(str(page.relative_to(SITE).parent) for page in SITE.rglob("index.html"))
    pages = [page for page in pages if not parts or any(part in page for part in parts)]
    wide = 0
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for width in WIDTHS:
            for scheme in ("light", "dark") if parts else ("light",):
                tab = browser.new_page(viewport={"width": width, "height": 1000}, color_scheme=scheme)
                pictures = []
                for page in pages:
                    tab.goto(f"{address}/{page}/")
                    if found := tab.evaluate(_WIDEST):
                        wide += 1
                        print(f"{page} at {width}: {found}", flush=True)
                    picture = folder / f"{page.replace('/', '_')}-{width}-{scheme}.png"
                    tab.screenshot(path=picture)
                    pictures.append(picture)
                sheet = browser.new_page(viewport={"width": 1640, "height": 900})
                for number in range(0, len(pictures), ON_A_SHEET):
                    shown = "".join(
                        f"<img width=400 src='{path.as_uri()}'>"
                        for path in pictures[number : number + ON_A_SHEET]
                    )
                    content = folder / "sheet.html"
                    content.write_text(_SHEET + shown)
                    sheet.goto(content.as_uri())
                    sheet.screenshot(path=folder / f"sheet-{width}-{scheme}-{number:03}.png", full_page=True)
        browser.close()
    print(f"{len(pages)} pages at {WIDTHS} pixels: {wide} scroll sideways")
    return 1 if wide else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
