#!/usr/bin/env python3
"""Types commands of the README and of the tutorial as a new user does, and prints the seconds that each takes.

python -m scripts.stopwatch    # needs the wheels of `scripts/build-wheels`, Chromium, free ports 9092, 6066 and 6067

The script types all commands of the tutorial, but only a part of the README: the installation, and the code blocks
before "See it work". Later commands need a checkout. Commands inside the text are left out, too.

The wheel stands in for the package's name. Each page has an empty folder and an empty virtual environment. The caches
of pip and of streamapp are empty at the beginning of the README, and the tutorial finds them filled.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import expect, sync_playwright

from scripts.release_check import README, wheel
from tests.tutorial.page import files, steps

ADDRESS = "http://localhost:6066/"
PATIENCE_S = 900
_DONE = "@@ done "


class Terminal:
    """A shell into which commands are typed, one after the other."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self._shell = subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def type(self, command: str) -> tuple[int, str]:
        """Types a command. Returns its exit code and its output."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"{command.rstrip()}\necho; echo '{_DONE}'$?\n")
        self._shell.stdin.flush()
        lines = []
        for line in self._shell.stdout:
            if line.startswith(_DONE):
                return int(line.removeprefix(_DONE)), "".join(lines)
            lines.append(line)
        raise SystemExit(f"the shell ended at: {command}")

    def close(self) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.wait(PATIENCE_S)


class Stopwatch:
    """Times commands, and prints a row of a table for each."""

    def __init__(self, page: str) -> None:
        self._page, self._sum = page, 0.0

    @contextmanager
    def time(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        seconds = time.monotonic() - began
        self._sum += seconds
        print(f"| {self._page}: {what} | {seconds:.1f} |", flush=True)

    def type(self, terminal: Terminal, command: str) -> None:
        with self.time(f"`{' '.join(command.split())[:70]}`"):
            code, output = terminal.type(command)
        if code:
            raise SystemExit(f"{command} ended with {code}:\n{output}")

    def end(self) -> None:
        print(f"| {self._page} in all | {self._sum:.0f} |", flush=True)


def installed(stopwatch: Stopwatch, terminal: Terminal, commands: str) -> None:
    """Types the installation, with the wheel in place of the package's name."""
    for command in commands.replace("'streamapp[spark]'", f"'{wheel('manylinux')}[spark]'").splitlines():
        stopwatch.type(terminal, command)


def answered(terminal: Terminal, question: str, text: str) -> None:
    """Asks each second until the answer contains a text."""
    deadline = time.monotonic() + PATIENCE_S
    while text not in (answer := terminal.type(question)[1]):
        if time.monotonic() > deadline:
            raise SystemExit(f"{question} never answered {text}: {answer}")
        time.sleep(1)


def seen(text: str) -> None:
    """Opens the page in Chromium, and waits until the page shows a text in its list of tables."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page()
        tab.goto(ADDRESS)
        expect(tab.locator("#table-list").get_by_text(text, exact=True)).to_be_visible(timeout=60_000)
        browser.close()


def readme(folder: Path, environ: dict[str, str]) -> None:
    text = README.read_text().split("## See it work")[0]
    application, test = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    commands, stops = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    (folder / "departures.py").write_text(application)
    (folder / "try_it.py").write_text(test)
    stopwatch, terminal = Stopwatch("README"), Terminal(folder, environ)
    installed(
        stopwatch,
        terminal,
        "python3 -m venv .venv && . .venv/bin/activate\npip install --quiet 'streamapp[spark]'",
    )
    *typed, question = commands.splitlines()
    for command in typed:
        stopwatch.type(
            terminal, command.replace("worker departures &", "worker departures > worker.log 2>&1 &")
        )
    with stopwatch.time("the worker answers"):
        answered(terminal, question, '"start"')
    with stopwatch.time("the page in Chromium"):
        seen("departures")
    stopwatch.type(terminal, stops.splitlines()[0].split("#")[0] + "; wait")
    stopwatch.type(terminal, stops.splitlines()[1])
    stopwatch.type(terminal, "python try_it.py")
    stopwatch.end()
    terminal.close()


def tutorial(folder: Path, environ: dict[str, str]) -> None:
    stopwatch, terminal = Stopwatch("tutorial"), Terminal(folder, environ)
    workers: list[subprocess.Popen[bytes]] = []
    shop = folder / "shop"
    environ = {**environ, "PATH": f"{shop}/.venv/bin:{environ['PATH']}"}
    for step in steps():
        if step.section.startswith("7") and len(workers) == 2:
            second = workers.pop()
            with stopwatch.time("second worker stops after Ctrl-C"):
                second.send_signal(2)
                second.wait(PATIENCE_S)
        elif step.section.startswith("8") and workers:
            with stopwatch.time("first worker stops after Ctrl-C"):
                workers[0].send_signal(2)
                workers.pop().wait(PATIENCE_S)
        if step.kind == "skip":
            installed(stopwatch, terminal, step.command.replace("pip install", "pip install --quiet"))
            for name, code in files():
                (shop / name).write_text(code)
        elif step.kind == "background":
            log = (folder / f"worker-{len(workers)}.log").open("wb")
            workers.append(
                subprocess.Popen(step.command.split(), cwd=shop, env=environ, stdout=log, stderr=log)
            )
        elif step.kind == "until":
            with stopwatch.time(f"`{step.command.strip()}` answers `{step.text}`"):
                answered(terminal, step.command, step.text)
        else:
            for command in step.command.splitlines():
                stopwatch.type(terminal, command)
    stopwatch.end()
    terminal.close()


def main() -> None:
    print("| step | seconds |\n| --- | --- |")
    with TemporaryDirectory(prefix="streamapp-new-user-") as name:
        caches = {"PIP_CACHE_DIR": f"{name}/pip", "STREAMAPP_CACHE": f"{name}/streamapp"}
        path = os.pathsep.join(
            each for each in os.environ["PATH"].split(os.pathsep) if each != str(Path(sys.executable).parent)
        )
        environ = {**os.environ, **caches, "PATH": path}
        for visit in (readme, tutorial):
            folder = Path(name) / visit.__name__
            folder.mkdir()
            visit(folder, environ)


if __name__ == "__main__":
    main()
