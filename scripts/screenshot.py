#!/usr/bin/env python3
"""Makes the pictures of the README from the running application: docs/page-light.png and docs/page-dark.png.

python scripts/screenshot.py        # two minutes; needs Java and Chromium

The script runs `make run` with the flights of January in a temporary folder, on free ports. When all records are
processed, Chromium opens the page of the worker.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from streamapp.broker.ports import free_port

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SIZE = {"width": 1280, "height": 1000}
PATIENCE_S = 600
TABLE = "airport-delays"


def main() -> None:
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        ports = [
            "--kafka-port",
            str(free_port()),
            "--registry-port",
            str(free_port()),
            "--web-port",
            str(port),
        ]
        command = [sys.executable, "-m", "agents.demo", "--until", "2013-02-01", "--data", folder, *ports]
        running = subprocess.Popen(command, cwd=ROOT)
        try:
            _wait_until_done(running, f"http://localhost:{port}/status")
            _take(f"http://localhost:{port}/")
        finally:
            running.send_signal(signal.SIGINT)
            running.wait(120)


def _wait_until_done(running: subprocess.Popen[bytes], address: str) -> None:
    """Waits until the worker runs and no input has a lag."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if running.poll() is not None:
            sys.exit("agents.demo has ended")
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                if _done(json.load(answer)):
                    return
        except OSError:
            pass  # the worker does not answer yet
        time.sleep(1)
    sys.exit(f"{address}: the records are not processed after {PATIENCE_S} s")


def _done(status: dict[str, Any]) -> bool:
    return status["state"] == "running" and status["processed"] > 0 and status["lag"] == 0


def _take(address: str) -> None:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            tab = browser.new_page(viewport=SIZE, color_scheme=scheme)
            tab.goto(address)
            tab.locator(f"text={TABLE}").first.wait_for()
            tab.wait_for_timeout(3_000)  # the rates of some seconds
            picture = DOCS / f"page-{scheme}.png"
            tab.screenshot(path=picture)
            print(f"{picture.relative_to(ROOT)}: {picture.stat().st_size // 1024} KiB", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
