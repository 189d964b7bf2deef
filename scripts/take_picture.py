#!/usr/bin/env python3
"""Takes the picture of the README: starts the reference application with `agents.demo`, opens its page, and ends both.

python -m scripts.take_picture [FILE]    # default: docs/page.png; needs Chromium, and the ports of `make run`

The application gets the flights of January, so the picture is there after about two minutes.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import URLError
from urllib.request import urlopen

from playwright.sync_api import Page, expect, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
ADDRESS, TABLE, KEY = "http://localhost:6066/", "airport-delays", "JFK"
MINUTES_TO_START = 4
FADE_MS = 3_000
"""Rows that have just changed are coloured for a while."""
LARGEST = 150_000
"""Bytes: everyone who opens the README loads the picture."""


def take(tab: Page, file: Path) -> None:
    """Waits until the page shows the departures of one airport, and writes the picture."""
    tab.goto(ADDRESS)
    tab.locator("#table-list").get_by_text(TABLE, exact=True).click()
    expect(tab.locator("#entries tbody tr").first).to_be_visible(timeout=60_000)
    tab.locator("#lookup-key").fill(KEY)
    tab.locator("#lookup button").first.click()
    expect(tab.locator("#lookup-clear")).to_be_visible(timeout=30_000)
    expect(tab.locator("#entries tbody tr").nth(5)).to_be_visible(timeout=30_000)
    expect(tab.locator("#topology svg").first).to_be_visible(timeout=30_000)
    expect(tab.locator("#state")).to_contain_text("running")
    tab.wait_for_timeout(FADE_MS)
    tab.screenshot(path=file)


def wait_until_ready(demo: subprocess.Popen[bytes], tab: Page) -> None:
    for _ in range(MINUTES_TO_START * 60):
        if demo.poll() is not None:
            raise SystemExit(f"the application ended with exit code {demo.returncode}")
        try:
            with urlopen(f"{ADDRESS}health/ready"):
                return
        except URLError:
            tab.wait_for_timeout(1_000)
    raise SystemExit(f"the application is not ready after {MINUTES_TO_START} minutes")


def main(file: Path) -> None:
    with TemporaryDirectory(prefix="streamapp-picture-") as data, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1360, "height": 840})
        demo = subprocess.Popen(
            [sys.executable, "-m", "agents.demo", "--until", "2013-02-01", "--data", data],
            cwd=ROOT,
            env={
                **os.environ,
                "WEB_HOST": "localhost",
            },  # the page shows the address, and no name of this machine
        )
        try:
            wait_until_ready(demo, tab)
            take(tab, file)
        finally:
            demo.send_signal(signal.SIGINT)
            demo.wait(120)
            browser.close()
    if (size := file.stat().st_size) > LARGEST:
        raise SystemExit(f"{file} is larger than {LARGEST:,} bytes: {size:,}")
    print(f"{file}: {size / 1000:,.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs" / "page.png").resolve())
